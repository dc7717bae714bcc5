//! The types of rules.

use serde_json::Value;
use winpool_core::pod::Class;

use crate::finding::{Consequence, Severity};
use crate::kubernetes::KubernetesVersion;
use crate::lint::facts::Facts;
use crate::lint::field::Trigger;
use crate::pod::{PodSpec, Target};
use crate::remedy::{Edit, Remedy};
use crate::verdict::AdmittedPod;
use crate::workload::WorkloadManifest;

/// The severity and consequence of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement(pub Severity, pub Consequence);

/// The objects to which a rule applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Workloads for Windows.
    Windows,
    /// Workloads that are for Windows only by their image.
    WindowsImage,
    /// Both.
    AnyWindows,
    /// Workloads with `os.name: linux`.
    LinuxByName,
    /// Workloads that specify no operating system, or Linux by `os.name` alone, which the scheduler does not read.
    Unplaced,
    /// All workloads.
    Any,
    /// Services that select pods for Windows.
    Service,
    /// Windows nodes.
    Node,
    /// `GMSACredentialSpec` objects.
    CredentialSpec,
    /// Objects of a kind that creates pods, but without a pod template.
    WithoutTemplate,
}

/// Makes a list of rules, each with the comment above it.
macro_rules! rules {
    ([$($(#[doc = $line:literal])* Rule { $($fields:tt)* }),* $(,)?]) => {
        &[$(Rule { comment: concat!($("\n", $line),*), $($fields)* }),*]
    };
}
pub(super) use rules;

/// A rule. The comment above it has what its other texts do not say, and then its examples, as a list:
///
/// ```text
/// - Breaks: `hostPID: true`
/// - Keeps: `hostPID: false`
/// ```
///
/// An example has fields of a pod spec, for a pod with `os.name: windows`, its selector and a toleration, or fields of the object that
/// the rule is about. `Breaks in a known cluster` and the like need more than the pod.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The comment.
    pub comment: &'static str,
    /// The name in kebab case. It does not change between releases.
    pub id: &'static str,
    /// The severity and consequence.
    pub verdict: Judgement,
    /// The severity, consequence and reason for a pod for Windows without `os.name`, if they differ. The API server
    /// does not refuse the fields of such a pod.
    pub without_os: Option<(Judgement, &'static str)>,
    /// The first version of Kubernetes for which it holds, as a minor version of Kubernetes 1; 0 for all.
    pub since: u32,
    /// The objects to which it applies.
    pub scope: Scope,
    /// The field of the pod spec.
    pub field: &'static str,
    /// The reason: a sentence, or the rest of a sentence that begins with the name of the field.
    pub reason: &'static str,
    pub remedy: &'static str,
    /// The remedy as an edit of the field where the rule is broken.
    pub change: FieldChange,
    pub test: Test,
}

/// The edit with which a field no longer breaks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldChange {
    /// The value is a decision.
    Decide,
    Remove,
    /// Removing it is one of several ways.
    MayRemove,
    Set(&'static str),
}

impl Rule {
    /// The fields that most rules leave out: such a rule is for workloads for Windows with any version of Kubernetes, does not
    /// depend on `os.name`, and is broken by any value of its field.
    pub(super) const DEFAULT: Self = Self {
        comment: "",
        id: "",
        verdict: Judgement(Severity::Error, Consequence::Fails),
        without_os: None,
        since: 0,
        scope: Scope::Windows,
        field: "",
        reason: "",
        remedy: "",
        change: FieldChange::Decide,
        test: Test::Field(Trigger::Present),
    };

    /// Returns what the comment says before its examples.
    pub fn about(&self) -> &'static str {
        self.comment.split("\n - ").next().unwrap_or_default().trim()
    }

    /// Returns the examples of the comment in YAML, each with what precedes it, such as `Breaks`.
    pub fn examples(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.comment.split("\n - ").skip(1).filter_map(|item| {
            let mut parts = item.split('`');
            Some((parts.next()?.trim_end().trim_end_matches(':'), parts.next()?))
        })
    }

    /// Returns the remedy for this field of a pod spec, in these words.
    pub(super) fn remedy_at(&self, field: &str, text: &str) -> Remedy {
        match self.change {
            FieldChange::Decide => Remedy::advice(text),
            FieldChange::Remove => Remedy::of(vec![Edit::remove_field(field)]).saying(text),
            FieldChange::MayRemove => Remedy::of(vec![Edit::remove_field(field)]).saying(text).undecided(),
            FieldChange::Set(value) => Remedy::of(vec![Edit::set_field(field, value)]).saying(text),
        }
    }

    /// True if it holds for this version. An unknown version is treated as the newest.
    pub fn holds_for(&self, version: Option<KubernetesVersion>) -> bool {
        version.filter(|version| version.major == 1).is_none_or(|version| self.since <= version.minor)
    }

    /// Returns the severity and consequence for a pod for Windows without `os.name`.
    pub fn verdict_without_os(&self) -> Judgement {
        self.without_os.map_or(self.verdict, |(verdict, _)| verdict)
    }

    /// Returns the reason as a sentence; `says_os` is true if the pod has `os.name: windows`.
    pub fn sentence(&self, says_os: bool) -> String {
        let name = self.field.rsplit('.').next().unwrap_or_default();
        match self.without_os {
            Some((_, reason)) if !says_os => format!("{name} {reason}"),
            Some(_) => format!("{name} {}", self.reason),
            None => self.reason.to_owned(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Test {
    /// A test of the value of the rule's field.
    Field(Trigger),
    /// A function that reads the whole workload.
    Own {
        /// Reports the places where the rule is broken.
        find: fn(&Subject<'_>, &mut Vec<Hit>),
        /// The same test as a CEL expression over the variables of the policy `advise`, for rules in that policy.
        cel: Option<fn() -> String>,
    },
    /// A function that reads an object other than a workload.
    Object(fn(&Value, &Facts, &mut Vec<Hit>)),
}

/// Returns a test that reads the whole workload and has no CEL expression.
pub(super) const fn own(find: fn(&Subject<'_>, &mut Vec<Hit>)) -> Test {
    Test::Own { find, cel: None }
}

/// The input of a rule.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    pub workload: &'a WorkloadManifest<'a>,
    /// The pod spec of the workload, with what its namespace, Kueue and policies add.
    pub pod: &'a PodSpec,
    /// The RuntimeClass of the workload, if it is known.
    pub class: Option<&'a Class>,
    /// The operating system that the workload is for.
    pub target: Target,
    /// Its pods as the API server admits them, with the class that they mean.
    pub pods: &'a AdmittedPod<'a>,
    /// The facts about the cluster.
    pub facts: &'a Facts,
}

/// A place where a rule is broken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hit {
    /// The field, as a path in the pod spec.
    pub field: String,
    /// The description, if the rule's reason is not specific enough.
    pub message: Option<String>,
    /// The remedy, if the rule's remedy is not specific enough.
    pub remedy: Option<Remedy>,
    /// The severity and consequence, if they differ from those of the rule.
    pub verdict: Option<Judgement>,
}

impl Hit {
    /// Returns a hit at a field, with the texts of the rule.
    pub fn at(field: impl Into<String>) -> Self {
        Self { field: field.into(), ..Self::default() }
    }

    pub fn saying(self, message: String) -> Self {
        Self { message: Some(message), ..self }
    }

    pub fn judged(self, verdict: Judgement) -> Self {
        Self { verdict: Some(verdict), ..self }
    }

    pub fn remedied_by(self, remedy: impl Into<Remedy>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }
}
