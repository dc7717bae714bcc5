//! When a pool may go.

use crate::api::NodeCounts;

/// What a pool that is being deleted may still have on nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// The nodes that carry its marks, as the cache shows them.
    pub nodes: NodeCounts,
    /// Whether another pool is still to take one over.
    pub handing_over: bool,
    /// Whether node patches are under way that were planned before the pool was seen to go: they may put on its marks.
    pub writing: bool,
    /// Whether nodes carry its marks that the cache does not show yet.
    pub unseen: bool,
}

impl Remains {
    /// Whether the pool has to stay a while. With it goes the evidence of whose its marks are, and what is left of them
    /// stays for ever. It waits for nodes that refuse to be changed only until it is `overdue`.
    #[must_use]
    pub fn keep(&self, overdue: bool) -> bool {
        let hindered = self.nodes.blocked > 0 || self.handing_over || self.unseen;
        self.writing || self.nodes.pending > 0 || (!overdue && hindered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_stays_for_what_can_still_be_done_and_not_for_ever_for_what_cannot() {
        let nodes = |pending, blocked, ignored| NodeCounts { pending, blocked, ignored, ..NodeCounts::default() };
        let nothing = Remains::default();
        for (remains, keep, keep_overdue) in [
            (nothing, false, false),
            (Remains { nodes: nodes(0, 0, 1), ..nothing }, false, false),
            (Remains { nodes: nodes(1, 0, 0), ..nothing }, true, true),
            (Remains { nodes: nodes(0, 1, 0), ..nothing }, true, false),
            (Remains { handing_over: true, ..nothing }, true, false),
            (Remains { unseen: true, ..nothing }, true, false),
            (Remains { writing: true, ..nothing }, true, true),
        ] {
            assert_eq!((remains.keep(false), remains.keep(true)), (keep, keep_overdue), "{remains:?}");
        }
    }
}
