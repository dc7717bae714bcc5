//! Medians and quartiles: nothing here assumes how noise is distributed.

use serde::Serialize;

/// The middle half of some values.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Quartiles {
    /// A quarter of the values lies below.
    pub q1: f64,
    /// Half of them.
    pub median: f64,
    /// Three quarters.
    pub q3: f64,
    /// How many they are.
    pub count: usize,
}

impl Quartiles {
    /// Of these values.
    pub fn of(values: &[f64]) -> Self {
        let at = |part| quantile(values, part);
        Self { q1: at(0.25), median: at(0.5), q3: at(0.75), count: values.len() }
    }
}

/// What winpool and the floor took, turn by turn.
#[derive(Default)]
pub struct Pairs {
    /// winpool's.
    pub winpool: Vec<f64>,
    /// The floor's.
    pub floor: Vec<f64>,
}

impl Pairs {
    /// One turn of one of them.
    pub fn push(&mut self, turn: Turn, value: f64) {
        match turn {
            Turn::Winpool => self.winpool.push(value),
            Turn::Floor => self.floor.push(value),
        }
    }

    /// winpool's values, each divided by that of the floor in the same pair.
    pub fn ratio(&self) -> Quartiles {
        let ratios: Vec<f64> = self.winpool.iter().zip(&self.floor).map(|(winpool, floor)| winpool / floor).collect();
        Quartiles::of(&ratios)
    }
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The operator.
    Winpool,
    /// The bare client.
    Floor,
}

/// The turns of so many pairs; who begins alternates, so that neither always finds the machine as the other left it.
pub fn turns(pairs: u16) -> impl Iterator<Item = Turn> {
    (0..pairs).flat_map(|pair| match pair % 2 {
        0 => [Turn::Winpool, Turn::Floor],
        _ => [Turn::Floor, Turn::Winpool],
    })
}

/// The middle value.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value below which this part of the values lies, between two neighbours if need be; NaN of no values.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an index into a list that fits into memory"
)]
pub fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let position = part * last as f64;
    let (below, above) = (sorted[position.floor() as usize], sorted[position.ceil() as usize]);
    below + (above - below) * position.fract()
}
