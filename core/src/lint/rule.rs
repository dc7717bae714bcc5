//! What a rule is, and what it finds.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    lint::{facts::Facts, field::FieldTest, workload::Workload},
    pod::{Class, PodSpec, Target},
    windows::KubernetesVersion,
};

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; nothing has to be changed.
    Info,
    /// It probably does not do what its author wants.
    Warning,
    /// It does not work.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// What happens to the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Consequence {
    /// The API server refuses it.
    Rejected,
    /// Its containers do not start or do not work.
    Fails,
    /// It finds no node, or a DaemonSet makes no pods.
    Pending,
    /// The field has no effect.
    Ignored,
    /// Nothing happens; this is to be known.
    Note,
}

impl fmt::Display for Consequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Rejected => "Rejected",
            Self::Fails => "Fails",
            Self::Pending => "Pending",
            Self::Ignored => "Ignored",
            Self::Note => "Note",
        })
    }
}

/// Severity and consequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement(pub Severity, pub Consequence);

/// The Kubernetes versions for which a rule holds, by the minor of 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The first one; 0 for all.
    from: u32,
}

impl Versions {
    /// Every version.
    pub const ALL: Self = Self::from(0);

    /// This version and all later ones.
    #[must_use]
    pub const fn from(minor: u32) -> Self {
        Self { from: minor }
    }

    /// Returns whether the rule holds for this version. One that is not known is taken for the newest.
    #[must_use]
    pub fn contain(self, version: Option<KubernetesVersion>) -> bool {
        version.filter(|version| version.major == 1).is_none_or(|version| self.from <= version.minor)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.from {
            0 => f.write_str("all"),
            first => write!(f, "1.{first} and later"),
        }
    }
}

/// The workloads that a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those meant for Windows.
    Windows,
    /// Those that look so by nothing but their image.
    WindowsImage,
    /// Those with `os.name: linux`.
    LinuxByName,
    /// Those that say nothing about their operating system.
    Unsaid,
    /// All.
    Any,
    /// None: Services that select pods for Windows.
    Service,
    /// None: Windows nodes.
    Node,
}

/// One rule.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Its name, in kebab case; stable.
    pub id: &'static str,
    /// How much it matters and what happens.
    pub verdict: Judgement,
    /// The same, and why, for a pod that is meant for Windows and does not say so in `os.name`, where that makes a
    /// difference: the API server then refuses nothing.
    pub without_os: Option<(Judgement, &'static str)>,
    /// Where it holds.
    pub kubernetes: Versions,
    /// Which workloads it is about.
    pub scope: Scope,
    /// The field of the pod spec.
    pub field: &'static str,
    /// Why; a sentence, or what follows the name of the field in one.
    pub reason: &'static str,
    /// What to do.
    pub remedy: &'static str,
    /// How to find out.
    pub test: Test,
}

impl Rule {
    /// What happens to a pod that is meant for Windows and does not say so in `os.name`.
    #[must_use]
    pub fn verdict_without_os(&self) -> Judgement {
        self.without_os.map_or(self.verdict, |(verdict, _)| verdict)
    }

    /// Why, as a sentence; `says_os` is whether the pod has `os.name: windows`.
    #[must_use]
    pub fn sentence(&self, says_os: bool) -> String {
        let name = self.field.rsplit('.').next().unwrap_or_default();
        match self.without_os {
            Some((_, reason)) if !says_os => format!("{name} {reason}"),
            Some(_) => format!("{name} {}", self.reason),
            None => self.reason.to_owned(),
        }
    }
}

/// How a rule finds out.
#[derive(Clone, Copy, Debug)]
pub enum Test {
    /// By one field.
    Field(FieldTest),
    /// By more.
    Own {
        /// Where the rule is broken.
        find: fn(&Subject<'_>, &mut Vec<Hit>),
        /// The same as a CEL expression over the variables of the policy `advise`, for rules that it has.
        cel: Option<fn() -> String>,
    },
    /// By an object that is no workload.
    Object(fn(&Value, &Facts, &mut Vec<Hit>)),
}

/// What a rule looks at.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The workload.
    pub workload: &'a Workload<'a>,
    /// Its pod spec.
    pub pod: &'a PodSpec,
    /// Its class, if it is known.
    pub class: Option<&'a Class>,
    /// What it is meant for.
    pub target: Target,
    /// What is known of the cluster.
    pub facts: &'a Facts,
}

/// A place where a rule is broken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hit {
    /// The field, as a path in the pod spec.
    pub field: String,
    /// What is wrong here, if the rule's reason does not say all.
    pub message: Option<String>,
    /// What to do here, if the rule's remedy does not say all.
    pub remedy: Option<String>,
}

impl Hit {
    /// At a field, with the texts of the rule.
    pub fn at(field: impl Into<String>) -> Self {
        Self { field: field.into(), ..Self::default() }
    }

    /// With a message of its own.
    #[must_use]
    pub fn saying(self, message: String) -> Self {
        Self { message: Some(message), ..self }
    }

    /// With a remedy of its own.
    #[must_use]
    pub fn remedied_by(self, remedy: String) -> Self {
        Self { remedy: Some(remedy), ..self }
    }
}

/// A rule that a workload breaks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// [`Rule::id`].
    pub rule: String,
    /// How much it matters.
    pub severity: Severity,
    /// What happens.
    pub consequence: Consequence,
    /// `Deployment shop/web`.
    pub object: String,
    /// Path of the field in the object: `spec.template.spec.containers[0].securityContext.privileged`.
    pub field: String,
    /// What is wrong and why.
    pub message: String,
    /// What to do.
    pub remedy: String,
}
