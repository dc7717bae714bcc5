//! The time in which this process leads. Outside of it nothing is written to the cluster.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::sleep_until;
use winpool_core::election::Term;

/// The time limit for cleaning up after winpool was uninstalled. A pod has 60 seconds to end, and the token of a ServiceAccount works for 60 seconds
/// after the account got its deletionTimestamp, which has no fractions of seconds (`Validate` in
/// `pkg/serviceaccount/claims.go` of Kubernetes; 60.6 seconds were measured).
pub const CLEANUP_BUDGET: Duration = Duration::from_secs(55);

/// The term in which this process leads, with its end. Outside a term nothing is written to the cluster.
#[derive(Clone, Debug)]
pub struct Leadership(pub(crate) watch::Receiver<Option<Term>>);

impl Leadership {
    /// Leadership without end, for a process that has no other beside it.
    pub fn alone() -> Self {
        Self::until(Instant::now() + Duration::from_hours(24 * 365 * 10))
    }

    /// Leadership until this moment.
    pub(crate) fn until(until: Instant) -> Self {
        Self(watch::Sender::new(Some(Term { number: 1, until })).subscribe())
    }

    /// The number of the current term; `None` if this process does not lead.
    pub fn term(&self) -> Option<u64> {
        let term = *self.0.borrow();
        term.filter(|term| Instant::now() < term.until).map(|term| term.number)
    }

    /// Waits for a term, and returns its number.
    pub async fn begun(&self) -> u64 {
        let mut terms = self.0.clone();
        loop {
            terms.mark_unchanged();
            match self.term() {
                Some(number) => return number,
                None => changed(&mut terms).await,
            }
        }
    }

    /// Waits for the end of this term.
    pub async fn ended(&self, number: u64) {
        let mut terms = self.0.clone();
        loop {
            let term = *terms.borrow_and_update();
            let Some(term) = term.filter(|term| term.number == number && Instant::now() < term.until) else { return };
            tokio::select! {
                () = sleep_until(term.until.into()) => {}
                () = changed(&mut terms) => {}
            }
        }
    }

    /// Does `work` as long as this term lasts; `None` if the term ends before.
    pub async fn during<T>(&self, number: u64, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.ended(number) => None,
            result = work => (self.term() == Some(number)).then_some(result),
        }
    }
}

/// Waits for the next change. It never comes once the elector has ended.
async fn changed(terms: &mut watch::Receiver<Option<Term>>) {
    if terms.changed().await.is_err() {
        std::future::pending::<Infallible>().await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    const SHORT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn work_ends_with_the_term_in_which_it_began() {
        let started = Instant::now();
        let leadership = Leadership::until(started + SHORT);
        assert_eq!(leadership.during(1, async { "done" }).await, Some("done"));
        assert_eq!(leadership.during(1, pending::<()>()).await, None);
        assert!(started.elapsed() >= SHORT);
        assert_eq!(leadership.term(), None);
        assert_eq!(leadership.during(1, async {}).await, None);
        assert_eq!(Leadership::alone().during(2, pending::<()>()).await, None, "another term than the one that runs");
    }

    #[tokio::test]
    async fn a_renewed_term_continues_and_another_one_does_not() {
        let now = Instant::now();
        let terms = watch::Sender::new(Some(Term { number: 1, until: now + SHORT }));
        let leadership = Leadership(terms.subscribe());
        let renewed = async {
            terms.send_replace(Some(Term { number: 1, until: now + Duration::from_mins(1) }));
            tokio::time::sleep(2 * SHORT).await;
            "still leads"
        };
        assert_eq!(leadership.during(1, renewed).await, Some("still leads"));
        let lost_and_gained = async {
            terms.send_replace(None);
            terms.send_replace(Some(Term { number: 2, until: now + Duration::from_mins(1) }));
        };
        assert_eq!(tokio::join!(leadership.during(1, pending::<()>()), lost_and_gained).0, None);
        assert_eq!(leadership.begun().await, 2);
    }

    #[tokio::test]
    async fn leadership_is_noticed_when_it_begins() {
        let terms = watch::Sender::new(None);
        let leadership = Leadership(terms.subscribe());
        let begins = async { terms.send_replace(Some(Term { number: 3, until: Instant::now() + SHORT * 100 })) };
        assert_eq!(tokio::join!(leadership.begun(), begins).0, 3);
    }
}
