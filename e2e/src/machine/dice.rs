//! Numbers that look random.

use fastrand::Rng;

/// Numbers that are the same in every run with the same seed.
#[derive(Clone, Debug)]
pub struct Dice(Rng);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    /// A number below `sides`.
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0.usize(..sides)
    }

    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.roll(from.len())]
    }

    /// True once in `sides` times.
    pub fn once_in(&mut self, sides: usize) -> bool {
        self.roll(sides) == 0
    }
}
