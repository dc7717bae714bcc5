//! The scenes. Each is small enough to be looked at as a whole.

use std::time::Duration;

use crate::{
    cluster::Kind,
    events::{
        End,
        Event::{self, *},
    },
    model::{Fault, Protocol, SCENE, Write},
};

const PLAIN: &str = "{taintPolicy: Always}";
const MINE: &str = "{taintPolicy: Always, taints: [{key: example.com/mine, value: a, effect: NoSchedule}]}";
const OTHER: &str = "{taintPolicy: Always, taints: [{key: example.com/other, effect: NoSchedule}],
    retiredTaints: [{key: os, value: Win1809, effect: NoSchedule}]}";
const TEAM_B: &str = "{taintPolicy: Always, runtimeClassNameFormat: '{pool}-{version}', nodeSelector: {team: b}, taints: [{key: example.com/b, effect: NoSchedule}]}";

/// Asks workloads before it puts on the taint.
const ASKS: &str = "{taints: [{key: example.com/mine, effect: NoSchedule}]}";
const ASKS_IN_DRY_RUN: &str = "{mode: DryRun, taints: [{key: example.com/mine, effect: NoSchedule}]}";
const ASKS_NEVER: &str = "{taintPolicy: Never, taints: [{key: example.com/mine, effect: NoSchedule}]}";
const ASKS_TEAM_A: &str = "{nodeSelector: {team: a}, taints: [{key: example.com/mine, effect: NoSchedule}]}";
const ASKS_TEAM_B: &str = "{nodeSelector: {team: b}, runtimeClassNameFormat: '{pool}-{version}', taints: [{key: example.com/b, effect: NoSchedule}]}";
const ASKS_AS_B: &str =
    "{runtimeClassNameFormat: '{pool}-{version}', taints: [{key: example.com/mine, effect: NoSchedule}]}";
/// Both taints.
const ASKS_MORE: &str =
    "{taints: [{key: example.com/mine, effect: NoSchedule}, {key: example.com/more, effect: NoSchedule}]}";
const NO_TAINTS: &str = "{taintPolicy: Never}";

const TAINT: &str = "example.com/mine";
const CLASS: &str = "windows-2022";
const WEB: Event = Arrive("web", Kind::Deployment, None);

/// Other writers in between, at every step.
pub fn strangers() -> Protocol {
    Protocol {
        scripts: &[
            &[Create("a", MINE)],
            &[
                Taint("n1", "dedicated", "batch", End::First),
                Retaint("n1", "dedicated", "web"),
                TakeBack("n1", "dedicated"),
            ],
            &[Beat("n1")],
        ],
        ..SCENE
    }
}

/// A taint that means Windows in another spelling, one with the key that the pool wants too, and one that the pool retires.
pub fn spellings() -> Protocol {
    Protocol {
        scripts: &[
            &[Create("a", PLAIN), Change("a", OTHER)],
            &[Taint("n1", "node.kubernetes.io/os", "windows", End::Last), Taint("n1", "os", "Win1809", End::Last)],
        ],
        retired: &["os"],
        lag: 0,
        ..SCENE
    }
}

/// A node that claims that winpool put on what somebody else did.
pub fn forgery() -> Protocol {
    Protocol {
        scripts: &[
            &[Create("a", MINE), Delete("a")],
            &[Taint("n1", "dedicated", "batch", End::Last), Forge("n1", "dedicated=batch:NoSchedule")],
        ],
        ..SCENE
    }
}

/// The pool's taint changes twice while a process dies.
pub fn changes() -> Protocol {
    Protocol {
        scripts: &[&[Create("a", PLAIN), Change("a", OTHER), Change("a", MINE)]],
        successors: 1,
        kept: [1, 3, 1],
        retired: &["os"],
        lag: 0,
        ..SCENE
    }
}

/// The same, later, and with caches that are older.
pub fn late_changes() -> Protocol {
    Protocol {
        before: &[Create("a", PLAIN)],
        away: &[Untaint("n1", "os")],
        scripts: &[&[Change("a", OTHER)]],
        successors: 1,
        kept: [2, 4, 1],
        retired: &["os"],
        lag: 0,
        ..SCENE
    }
}

/// The pool goes, and a process dies.
pub fn deletion() -> Protocol {
    Protocol { scripts: &[&[Create("a", MINE), Delete("a")]], successors: 1, kept: [2, 3, 1], ..SCENE }
}

/// A pool that has been there for long goes, and a new leader may not have seen that.
pub fn late_deletion() -> Protocol {
    Protocol {
        before: &[Create("a", MINE)],
        away: &[Untaint("n1", TAINT)],
        scripts: &[&[Delete("a")]],
        successors: 1,
        kept: [1, 3, 2],
        lag: 0,
        ..SCENE
    }
}

/// Two pools: the node changes hands while one of them goes.
pub fn two_pools() -> Protocol {
    Protocol {
        before: &[Create("a", TEAM_B), Create("b", MINE)],
        scripts: &[&[Delete("a")], &[Move("n1", "b")]],
        lag: 0,
        ..SCENE
    }
}

/// A workload arrives and is fixed at any time, and a check fails.
pub fn arrivals() -> Protocol {
    Protocol { scripts: &[&[Create("a", ASKS)], &[WEB, Fix("web")]], faults: &[Fault::CheckFails], lazy: true, ..SCENE }
}

/// Checks, requests and caches that are so slow that the result of a check is too old.
pub fn slow_checks() -> Protocol {
    Protocol { scripts: &[&[Create("a", ASKS)], &[WEB]], delays: &[61], lag: 0, ..SCENE }
}

pub fn dry_run() -> Protocol {
    Protocol { before: &[Create("a", ASKS_IN_DRY_RUN)], scripts: &[&[Change("a", ASKS)], &[WEB]], ..SCENE }
}

pub fn never() -> Protocol {
    Protocol {
        before: &[Create("a", ASKS)],
        scripts: &[&[Change("a", ASKS_NEVER), Change("a", ASKS)], &[WEB]],
        ..SCENE
    }
}

pub fn widened() -> Protocol {
    Protocol {
        nodes: &[("n1", "a"), ("n2", "b")],
        before: &[Create("a", ASKS_TEAM_A)],
        scripts: &[&[Change("a", ASKS)], &[WEB]],
        ..SCENE
    }
}

/// Somebody takes the taint off an ignored node, so that a pod finds a node, and the annotation goes.
pub fn ignored() -> Protocol {
    Protocol {
        before: &[Create("a", ASKS)],
        scripts: &[&[Ignore("n1", true), Untaint("n1", TAINT), WEB, Ignore("n1", false)]],
        ..SCENE
    }
}

/// An older pool lets its nodes go, and a younger one with an approved taint gets them.
pub fn handover() -> Protocol {
    Protocol {
        nodes: &[("n1", "b"), ("n2", "a")],
        before: &[Create("a", "{nodeSelector: {team: a}, taintPolicy: Never}"), Create("b", ASKS_AS_B)],
        scripts: &[&[Delete("a")], &[WEB]],
        ..SCENE
    }
}

/// A class is to tolerate one more taint, and that fails, is refused, or its answer gets lost.
pub fn classes() -> Protocol {
    Protocol {
        before: &[Create("a", ASKS)],
        scripts: &[&[Change("a", ASKS_MORE)], &[Arrive("web", Kind::Deployment, Some(CLASS))]],
        faults: &[Fault::Fails(Write::Class), Fault::Denied(Write::Class), Fault::Lost(Write::Class)],
        ..SCENE
    }
}

/// The same, where no workload is asked.
pub fn classes_without_asking() -> Protocol {
    Protocol {
        before: &[Create("a", PLAIN)],
        scripts: &[&[Change("a", MINE)]],
        faults: &[Fault::Denied(Write::Class), Fault::Lost(Write::Class)],
        ..SCENE
    }
}

/// Two builds, and one class write is refused.
pub fn two_classes() -> Protocol {
    Protocol {
        nodes: &[("n1", "a"), ("old1", "a")],
        before: &[Create("a", NO_TAINTS)],
        scripts: &[&[Change("a", ASKS)]],
        faults: &[Fault::Denied(Write::Class)],
        lag: 0,
        ..SCENE
    }
}

/// Nodes that register with what is approved, while the pool gets another taint and a class cannot be written.
pub fn registration() -> Protocol {
    Protocol {
        before: &[Create("a", ASKS)],
        scripts: &[&[Change("a", ASKS_MORE)], &[Join("n2", "a")]],
        faults: &[Fault::Denied(Write::Class)],
        born_tainted: true,
        ..SCENE
    }
}

/// A taint goes while the watch shows nothing.
pub fn gap() -> Protocol {
    Protocol {
        before: &[Create("a", ASKS)],
        scripts: &[&[Untaint("n1", TAINT), WEB, WatchBreaks]],
        delays: &[71],
        ..SCENE
    }
}

/// A new leader, with old caches, while a workload arrives.
pub fn successor() -> Protocol {
    Protocol {
        before: &[Create("a", ASKS)],
        scripts: &[&[Untaint("n1", TAINT), WEB]],
        successors: 1,
        kept: [2, 1, 1],
        lag: 0,
        ..SCENE
    }
}

/// A node comes back as Linux while nobody leads, and the pool goes.
pub fn reimaged() -> Protocol {
    Protocol {
        nodes: &[("n1", "a"), ("n2", "a")],
        before: &[Create("a", ASKS)],
        away: &[Reimage("n1")],
        scripts: &[&[Delete("a")], &[Reimage("n2")]],
        ..SCENE
    }
}

/// Everything is refused once, and the pool goes all the same.
pub fn refused_deletion() -> Protocol {
    Protocol {
        before: &[Create("a", ASKS)],
        scripts: &[&[Delete("a")]],
        faults: &[
            Fault::Denied(Write::Node),
            Fault::Fails(Write::Class),
            Fault::Fails(Write::Finalizer),
            Fault::Lost(Write::Node),
        ],
        patience: Some(Duration::from_secs(15)),
        ..SCENE
    }
}

/// A Deployment that an autoscaler has scaled to zero.
pub fn zero_replicas() -> Protocol {
    Protocol { scripts: &[&[Create("a", ASKS)], &[ArriveWithoutPods("web", Kind::Deployment)]], ..SCENE }
}

/// Pods are drained, and their next ones are not there yet.
pub fn terminating() -> Protocol {
    Protocol { scripts: &[&[Create("a", ASKS)], &[Arrive("game", Kind::Foreign, None), Terminate("game")]], ..SCENE }
}

/// A pod that says Windows, of a kind that is not listed, and whose image is not there yet.
pub fn no_variant() -> Protocol {
    Protocol { scripts: &[&[Create("a", ASKS)], &[Arrive("game", Kind::Foreign, None), NoVariant("game")]], ..SCENE }
}

/// A pod that is on a node with another taint already, which it tolerates.
pub fn second_taint() -> Protocol {
    Protocol {
        before: &[Create("a", ASKS)],
        scripts: &[&[ArriveTolerating("game", Kind::Foreign, TAINT), Change("a", ASKS_MORE)]],
        ..SCENE
    }
}

/// Two pools with one node each: who would lose one has the other.
pub fn last_two_nodes() -> Protocol {
    Protocol {
        nodes: &[("n1", "a"), ("n2", "b")],
        before: &[ArriveWithoutPods("web", Kind::Deployment)],
        scripts: &[&[Create("a", ASKS_TEAM_A), Create("b", ASKS_TEAM_B)]],
        delays: &[11],
        lag: 0,
        ..SCENE
    }
}
