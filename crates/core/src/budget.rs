//! What one process keeps of objects that others make: the limits, and who gives way when one is reached.
//!
//! Everybody with a namespace can make thousands of objects. So a limit belongs to all namespaces together, and when it is reached,
//! those that have more than an equal part give way, and never the others.
//!
//! The size of one object is limited by etcd alone: 1.5 MiB, and in JSON up to six times as much. It is the size of the largest event of a
//! watch. A larger list is read in smaller pages (`winpool_client::pages`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Bytes of the text of one placement: node selector, required node affinity and tolerations. A pod with more gets no
/// toleration, and its namespace is named.
pub const PLACEMENT: usize = 16 << 10;
/// What a placement needs beside its text, in bytes.
pub const BESIDE_TEXT: usize = 1 << 10;
/// Bytes of all placements. When they are used up, each namespace may go on until it has an equal part of them. Pods beyond
/// that get no toleration, their namespace is named, and they are read again when there is room.
pub const PLACEMENTS: usize = 16 << 20;
/// Placements for which the lacking tolerations are remembered. When there are more, all are forgotten and found again.
pub const FOUND: usize = 16_384;
/// Workloads of which winpool knows where their pods have started. A workload without a system that is forgotten gets no toleration
/// until one of its pods starts again.
pub const HISTORIES: usize = 16_384;
/// Kinds of pods that are remembered of one workload. Each has a template of its own.
pub const KINDS: usize = 64;
/// Workloads whose pods were refused or failed for good. Those that are forgotten are not counted as failing.
pub const ENDED: usize = 1000;
/// Pods that are remembered after their end, because an Event may say why they ended.
pub const GONE: usize = 4096;
/// Workloads whose refusals are remembered, and those that are remembered as helped. One that is forgotten is asked about again, or
/// is missing in the status.
pub const WORKLOADS: usize = 1000;
/// Patches of pods that are in flight.
pub const PATCHES: usize = 16;
/// The same of one namespace, and of one whose last answer was slow.
pub const PATCHES_OF_NAMESPACE: [usize; 2] = [4, 1];
/// Lines of log about the pods of one namespace in a minute. The others are left out; the last one says so.
pub const LINES: u32 = 60;
/// Problems in the status of a pool, and workloads that it names as helped.
pub const NAMED: usize = 10;
/// The same of one namespace, if there are others.
pub const NAMED_OF_NAMESPACE: usize = 3;

/// The lines of log about each namespace in the present minute.
#[derive(Debug, Default)]
pub struct LogLines {
    began: Option<Instant>,
    written: BTreeMap<String, u32>,
}

impl LogLines {
    /// Counts a line about this namespace. Returns how many there may be after it; `None` if it is to be left out.
    pub fn left_after(&mut self, namespace: &str, now: Instant) -> Option<u32> {
        if self.began.is_none_or(|began| now.duration_since(began) >= Duration::from_mins(1)) {
            *self = Self { began: Some(now), ..Self::default() };
        }
        let written = self.written.entry(namespace.to_owned()).or_default();
        *written = written.saturating_add(1);
        LINES.checked_sub(*written)
    }
}

/// Removes entries from a table that is larger than its limit: in each namespace the oldest ones beyond an equal part of half the
/// limit. `share_of` returns the namespace and the age of an entry.
pub(crate) fn keep_shares<K: Clone + Ord, V, T: Ord>(
    table: &mut BTreeMap<K, V>,
    limit: usize,
    share_of: impl for<'a> Fn(&'a K, &'a V) -> (&'a str, T),
) {
    if table.len() <= limit {
        return;
    }
    let mut by_namespace: BTreeMap<&str, Vec<(T, K)>> = BTreeMap::new();
    for (key, value) in &*table {
        let (namespace, age) = share_of(key, value);
        by_namespace.entry(namespace).or_default().push((age, key.clone()));
    }
    let share = limit / 2 / by_namespace.len().max(1);
    let beyond = by_namespace.into_values().flat_map(|mut all| {
        all.sort_unstable();
        all.truncate(all.len().saturating_sub(share));
        all
    });
    for (_, key) in beyond.collect::<Vec<_>>() {
        table.remove(&key);
    }
}

/// The namespace of a workload, such as `shop` of `Deployment shop/web`.
pub(crate) fn namespace(workload: &str) -> &str {
    workload.split_once(' ').and_then(|(_, name)| name.split_once('/')).map_or("", |(namespace, _)| namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_sixty_lines_a_minute_and_takes_none_of_another() {
        let (mut lines, now) = (LogLines::default(), Instant::now());
        for minute in 0..3 {
            let now = now + Duration::from_mins(minute);
            let written: Vec<u32> = (0..1000).filter_map(|_| lines.left_after("shop", now)).collect();
            assert_eq!((written.len(), written.last()), (60, Some(&0)), "{minute}");
            assert_eq!(lines.left_after("other", now), Some(59), "{minute}");
        }
    }
}
