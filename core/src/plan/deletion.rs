//! Decides if a deleted pool may be released.

use crate::{api::NodeCounts, words::count};

/// The cleanup that a pool which is being deleted still waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingCleanup {
    /// The nodes with its labels, annotations or taints, as the cache shows them.
    pub nodes: NodeCounts,
    /// True if another pool still has to take over one of them.
    pub handing_over: bool,
    /// True if node patches are in flight that were planned before the pool's deletion was seen, and may still label
    /// nodes for it.
    pub writing: bool,
    /// Nodes with its label that the cache does not show yet, or that run another operating system now.
    pub unseen: usize,
    /// The name of one of those nodes.
    pub example: Option<String>,
}

impl PendingCleanup {
    /// True if the pool has to wait. The pool is the record of what winpool added to its nodes, so anything left after
    /// it is released stays for ever. Once it is `overdue`, it only waits for its own requests in flight.
    pub fn keep(&self, overdue: bool) -> bool {
        let NodeCounts { pending, blocked, contested, .. } = self.nodes;
        let hindered = pending > 0 || blocked > 0 || contested > 0 || self.handing_over || self.unseen > 0;
        self.writing || (!overdue && hindered)
    }

    /// A message that says what it waits for.
    pub fn describe(&self) -> String {
        let NodeCounts { pending, blocked, contested, .. } = self.nodes;
        let mut parts = Vec::new();
        let mut add = |number: i64, what: &str| {
            if number > 0 {
                parts.push(format!("{} {what}", count(number, "node")));
            }
        };
        add(pending, "still to be cleaned");
        add(blocked, "that the API server does not let winpool change");
        add(contested, "that another writer keeps changing back");
        add(
            i64::try_from(self.unseen).unwrap_or(i64::MAX),
            "that the cache does not show, or that run another system now",
        );
        if self.handing_over {
            parts.push("another pool has yet to take over a node".to_owned());
        }
        if self.writing {
            parts.push("requests are under way".to_owned());
        }
        let example = self.example.as_ref().map(|node| format!(", such as {node}")).unwrap_or_default();
        parts.join("; ") + &example
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_stays_for_what_can_still_be_done_and_not_for_ever() {
        let nodes = |pending, blocked, ignored| NodeCounts { pending, blocked, ignored, ..NodeCounts::default() };
        let nothing = PendingCleanup::default;
        for (cleanup, keep, keep_overdue) in [
            (nothing(), false, false),
            (PendingCleanup { nodes: nodes(0, 0, 1), ..nothing() }, false, false),
            (PendingCleanup { nodes: nodes(1, 0, 0), ..nothing() }, true, false),
            (PendingCleanup { nodes: nodes(0, 1, 0), ..nothing() }, true, false),
            (PendingCleanup { handing_over: true, ..nothing() }, true, false),
            (PendingCleanup { unseen: 1, ..nothing() }, true, false),
            (PendingCleanup { writing: true, ..nothing() }, true, true),
        ] {
            assert_eq!((cleanup.keep(false), cleanup.keep(true)), (keep, keep_overdue), "{cleanup:?}");
            assert_eq!(cleanup.describe().is_empty(), !keep, "{cleanup:?}");
        }
    }
}
