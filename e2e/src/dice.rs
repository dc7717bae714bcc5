//! Numbers that look random.

/// Numbers that are the same in every run (`SplitMix64`).
#[derive(Clone, Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// A number below `sides`.
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let sides = u64::try_from(sides).unwrap_or(u64::MAX);
        usize::try_from((z ^ (z >> 31)) % sides).unwrap_or(usize::MAX)
    }

    /// One of these.
    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.roll(from.len())]
    }

    /// One time out of `sides`.
    pub fn once_in(&mut self, sides: usize) -> bool {
        self.roll(sides) == 0
    }
}
