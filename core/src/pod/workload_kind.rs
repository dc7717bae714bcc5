//! The kinds of workloads.

/// The kinds with templates that the command line reads, with group and plural. All are of version v1.
pub const LISTED_KINDS: [(WorkloadKind, &str, &str); 7] = [
    (WorkloadKind::Deployment, "apps", "deployments"),
    (WorkloadKind::StatefulSet, "apps", "statefulsets"),
    (WorkloadKind::DaemonSet, "apps", "daemonsets"),
    (WorkloadKind::ReplicaSet, "apps", "replicasets"),
    (WorkloadKind::ReplicationController, "", "replicationcontrollers"),
    (WorkloadKind::Job, "batch", "jobs"),
    (WorkloadKind::CronJob, "batch", "cronjobs"),
];

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum WorkloadKind {
        Deployment = "Deployment",
        StatefulSet = "StatefulSet",
        DaemonSet = "DaemonSet",
        ReplicaSet = "ReplicaSet",
        ReplicationController = "ReplicationController",
        Job = "Job",
        CronJob = "CronJob",
    }
}

impl WorkloadKind {
    /// Its group and plural in `LISTED_KINDS`.
    pub fn resource(self) -> (&'static str, &'static str) {
        let listed = LISTED_KINDS.iter().find(|(kind, ..)| *kind == self);
        listed.map_or(("", ""), |(_, group, plural)| (*group, *plural))
    }

    /// Returns the kind with this name, if its templates are listed.
    pub fn by_name(name: &str) -> Option<Self> {
        LISTED_KINDS.iter().map(|(kind, ..)| *kind).find(|kind| kind.as_str() == name)
    }
}
