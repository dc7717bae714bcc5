//! The kinds of objects that create pods.

/// The path of the pod spec in most of them.
pub(crate) const TEMPLATE: &str = "spec.template.spec";

/// The known kinds, with their API group and the path of their pod spec.
pub const KINDS: [(&str, &str, &str); 9] = [
    ("Pod", "", "spec"),
    ("Deployment", "apps", TEMPLATE),
    ("StatefulSet", "apps", TEMPLATE),
    ("DaemonSet", "apps", TEMPLATE),
    ("ReplicaSet", "apps", TEMPLATE),
    ("ReplicationController", "", TEMPLATE),
    ("Job", "batch", TEMPLATE),
    ("CronJob", "batch", "spec.jobTemplate.spec.template.spec"),
    ("PodTemplate", "", "template.spec"),
];

/// Returns the API version in which supported Kubernetes versions serve this kind, if it is a known one.
pub fn served(kind: &str) -> Option<&'static str> {
    let (_, group, _) = KINDS.iter().find(|(known, ..)| *known == kind)?;
    Some(match *group {
        "apps" => "apps/v1",
        "batch" => "batch/v1",
        _ => "v1",
    })
}

/// Returns the JSON Pointer of the pod template in objects of this kind, if it is a known one; empty for a Pod.
pub fn template_of(kind: &str) -> Option<String> {
    KINDS.iter().find(|(known, ..)| *known == kind).map(|(.., path)| template_at(path))
}

/// Returns the JSON Pointer of the parent of the pod spec at this path.
pub(crate) fn template_at(path: &str) -> String {
    path.strip_suffix(".spec")
        .map_or_else(String::new, |parent| format!("/{}", parent.replace(['.', '['], "/").replace(']', "")))
}

/// True if this group has, or had, a known kind of this name. Until Kubernetes 1.16 the group `extensions` had those of
/// `apps`.
pub fn is_known(group: &str, kind: &str) -> bool {
    let is_it = |(known, of, _): &(&str, &str, &str)| {
        *known == kind && (*of == group || *of == "apps" && group == "extensions")
    };
    KINDS.iter().any(is_it)
}

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

/// A kind of workload whose templates the command line reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkloadKind {
    Deployment,
    StatefulSet,
    DaemonSet,
    ReplicaSet,
    ReplicationController,
    Job,
    CronJob,
}

impl WorkloadKind {
    /// The name of the kind.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
            Self::ReplicaSet => "ReplicaSet",
            Self::ReplicationController => "ReplicationController",
            Self::Job => "Job",
            Self::CronJob => "CronJob",
        }
    }

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

/// Returns the group of an API version; empty for the core group.
pub fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}
