//! Selects the fault for each request. Pure: a seed repeats a run.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use winpool_client::request_info::RequestInfo;

/// The fate of a request or its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server gets the request later.
    Delay(Duration),
    /// The connection is closed, and the server never gets the request.
    Drop,
    /// The server executes the request, and the connection is closed without its answer.
    Lose,
    /// The server executes the request, and the connection is closed after half of its answer.
    Halve,
    /// The server never gets the request, and there is no answer.
    Swallow,
    /// The server executes the request, and there is no answer.
    Mute,
    /// The server never gets the request, and this is the answer.
    Refuse(InjectedError),
    /// A watch ends after this many events.
    End { after: usize },
    /// A watch breaks in the middle of the event after this many events.
    Cut { after: usize },
    /// A watch shows nothing more after this many events, for this time; then its connection is closed.
    Stall { after: usize, lasts: Duration },
    /// A watch shows every event twice.
    Repeat,
    /// A watch starts at the oldest resourceVersion that any watch of this kind started from, shows this many of the
    /// events since, and then nothing more.
    Rewind { shown: usize },
    /// A watch is told that its resourceVersion is too old (410, in an event).
    Expire,
    /// A watch has no bookmarks.
    NoBookmarks,
}

/// An answer that the server did not send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedError {
    /// 409.
    Conflict,
    /// 410: the page or version of a list is no longer available.
    Expired,
    /// 422 without causes, as for a failed `test` of a JSON Patch.
    FailedTest,
    /// 422 with a cause.
    Invalid,
    /// 429 with `Retry-After: 2`, in plain text, as priority and fairness sends it.
    TooMany,
    /// 500.
    Internal,
    /// 503.
    Unavailable,
}

impl Fault {
    /// A short name for counts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Delay(_) => "delayed",
            Self::Drop => "dropped",
            Self::Lose => "answer lost",
            Self::Halve => "answer half sent",
            Self::Swallow => "never passed on",
            Self::Mute => "never answered",
            Self::Refuse(InjectedError::Conflict) => "409",
            Self::Refuse(InjectedError::Expired) => "410",
            Self::Refuse(InjectedError::FailedTest) => "422 failed test",
            Self::Refuse(InjectedError::Invalid) => "422 with a cause",
            Self::Refuse(InjectedError::TooMany) => "429",
            Self::Refuse(InjectedError::Internal) => "500",
            Self::Refuse(InjectedError::Unavailable) => "503",
            Self::End { .. } => "watch ended",
            Self::Cut { .. } => "watch cut",
            Self::Stall { .. } => "watch stalled",
            Self::Repeat => "events repeated",
            Self::Rewind { .. } => "watch from an old version",
            Self::Expire => "watch expired",
            Self::NoBookmarks => "no bookmarks",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

const SHORT: Duration = Duration::from_millis(300);

const OF_EVERY_REQUEST: [Fault; 7] = [
    Fault::Delay(SHORT),
    Fault::Drop,
    Fault::Lose,
    Fault::Halve,
    Fault::Refuse(InjectedError::TooMany),
    Fault::Refuse(InjectedError::Internal),
    Fault::Refuse(InjectedError::Unavailable),
];
const OF_WRITES: [Fault; 3] = [
    Fault::Refuse(InjectedError::Conflict),
    Fault::Refuse(InjectedError::FailedTest),
    Fault::Refuse(InjectedError::Invalid),
];
const OF_LISTS: [Fault; 1] = [Fault::Refuse(InjectedError::Expired)];
const OF_WATCHES: [Fault; 9] = [
    Fault::End { after: 0 },
    Fault::End { after: 2 },
    Fault::Cut { after: 1 },
    Fault::Stall { after: 1, lasts: Duration::from_secs(2) },
    Fault::Stall { after: 0, lasts: Duration::from_secs(1) },
    Fault::Repeat,
    Fault::Rewind { shown: usize::MAX },
    Fault::Expire,
    Fault::NoBookmarks,
];

/// The faults of one run.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    seed: u64,
    percent: u8,
}

impl Schedule {
    /// The percentage of requests that meet a fault.
    pub fn new(seed: u64, percent: u8) -> Self {
        Self { seed, percent }
    }

    /// The fate of the request with this number among its like. It depends on nothing else, so that other requests,
    /// whose order may differ in each run, do not change it.
    pub fn fault(&self, asked: RequestInfo, number: u64) -> Option<Fault> {
        let mut random = self.random(asked, number);
        if random.u8(..100) >= self.percent {
            return None;
        }
        let of_verb: &[Fault] = match asked.verb {
            "watch" => &OF_WATCHES,
            "list" => &OF_LISTS,
            "get" => &[],
            _ => &OF_WRITES,
        };
        // The first answer to a watch is like any other's.
        let index = random.usize(..OF_EVERY_REQUEST.len() + of_verb.len());
        OF_EVERY_REQUEST.iter().chain(of_verb).nth(index).copied()
    }

    fn random(&self, asked: RequestInfo, number: u64) -> Rng {
        let bytes = asked.verb.bytes().chain([b' ']).chain(asked.resource.bytes()).chain(number.to_le_bytes());
        let seed = bytes.fold(self.seed, |seed, byte| Rng::with_seed(seed ^ u64::from(byte)).u64(..));
        Rng::with_seed(seed)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use std::collections::BTreeMap;

    const PATCH: RequestInfo = RequestInfo { verb: "patch", resource: "nodes" };
    const WATCH: RequestInfo = RequestInfo { verb: "watch", resource: "nodes" };

    fn of(seed: u64, asked: RequestInfo) -> Vec<Option<Fault>> {
        (0..2000).map(|number| Schedule::new(seed, 25).fault(asked, number)).collect()
    }

    #[test]
    fn a_seed_always_gives_the_same_faults() {
        assert_eq!(of(1, PATCH), of(1, PATCH));
        assert_ne!(of(1, PATCH), of(2, PATCH));
        assert_ne!(of(1, PATCH), of(1, RequestInfo { resource: "runtimeclasses", ..PATCH }));
    }

    #[test]
    fn a_schedule_that_was_printed_stays_what_it_was() {
        let first: Vec<_> =
            of(1, PATCH).into_iter().enumerate().filter_map(|(n, fault)| Some((n, fault?.name()))).collect();
        assert_eq!(first[..4], [(0, "503"), (4, "422 failed test"), (11, "delayed"), (12, "503")]);
    }

    #[test]
    fn the_requested_number_of_faults_occurs_and_every_kind_of_them() {
        for (asked, kinds) in [(PATCH, 10), (WATCH, 14), (RequestInfo { verb: "get", resource: "nodes" }, 7)] {
            let mut counts = BTreeMap::<&str, usize>::new();
            for fault in of(7, asked).into_iter().flatten() {
                *counts.entry(fault.name()).or_default() += 1;
            }
            let all: usize = counts.values().sum();
            assert!((400..600).contains(&all), "{all} of 2000");
            assert_eq!(counts.len(), kinds, "{counts:?}");
        }
        assert!((0..100).all(|number| Schedule::new(1, 0).fault(PATCH, number).is_none()));
    }
}
