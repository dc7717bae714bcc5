//! Limits Events of which a large cluster would have thousands at once.

use std::time::{Duration, Instant};

/// The number of Events in a minute.
const EVENTS: u32 = 10;
const MINUTE: Duration = Duration::from_mins(1);

/// The Events that may still be written in this minute.
#[derive(Debug, Default)]
pub struct Budget {
    began: Option<Instant>,
    spent: u32,
}

impl Budget {
    /// True if one more Event may be written now.
    pub fn take(&mut self, now: Instant) -> bool {
        if self.began.is_none_or(|began| now.saturating_duration_since(began) >= MINUTE) {
            (self.began, self.spent) = (Some(now), 0);
        }
        self.spent = self.spent.saturating_add(1);
        self.spent <= EVENTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_events_are_written_in_a_minute() {
        let (mut budget, start) = (Budget::default(), Instant::now());
        let taken = |budget: &mut Budget, now| (0..20).filter(|_| budget.take(now)).count();
        assert_eq!(taken(&mut budget, start), 10);
        assert_eq!(taken(&mut budget, start + Duration::from_secs(59)), 0);
        assert_eq!(taken(&mut budget, start + MINUTE), 10);
    }
}
