//! The admission policy `advise`: rules that CEL can express become warnings when you apply a workload.
//!
//! The policy leaves out rules with severity info, because warnings that need no action make people overlook the
//! others. It also leaves out rules that the API server itself enforces.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::admissionregistration::v1::{
    AuditAnnotation, MatchCondition, MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec, Validation,
    Variable,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};
use winpool_core::api::names;
use winpool_core::pod::{ARCH_KEYS, OS_KEYS, SYSTEM_LABELS};

use crate::finding::{Consequence, Severity};
use crate::kinds::{KINDS, WorkloadKind};
use crate::lint::field::cel_list;
use crate::lint::rule::{Judgement, Rule, Scope, Test};
use crate::lint::rules;

/// The namespaces that the policy does not check.
const EXCLUDED: [&str; 2] = ["kube-system", "winpool-system"];

/// The resources whose pod spec has the same path.
struct Shape {
    name: &'static str,
    pod: &'static str,
    /// The fields of which one must change for the policy to check an update. With `None` it checks only creation.
    changes: Option<&'static str>,
}

const SHAPES: [Shape; 3] = [
    Shape { name: "winpool-advise-pods", pod: "object.spec", changes: None },
    Shape { name: "winpool-advise-workloads", pod: "object.spec.template.spec", changes: Some("spec.template") },
    Shape {
        name: "winpool-advise-cronjobs",
        pod: "object.spec.jobTemplate.spec.template.spec",
        changes: Some("spec.jobTemplate"),
    },
];

impl Shape {
    /// The resources whose pod spec is there, by group.
    fn resources(&self) -> BTreeMap<&'static str, Vec<&'static str>> {
        let mut resources: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        let is_it = |kind: &&WorkloadKind| self.pod.strip_prefix("object.").is_some_and(|path| kind.path == Some(path));
        for kind in KINDS.iter().filter(is_it) {
            resources.entry(kind.group()).or_default().insert(kind.plural);
        }
        resources.into_iter().map(|(group, plurals)| (group, plurals.into_iter().collect())).collect()
    }
}

/// Returns the rules of the policy, each with an expression that is true if the rule is broken.
pub fn expressions() -> impl Iterator<Item = (&'static Rule, String)> {
    rules().filter(|rule| is_advised(rule.verdict_without_os())).filter_map(|rule| {
        let broken = match rule.test {
            Test::Field(trigger) => trigger.cel(rule.field),
            Test::Own { cel, .. } => cel?(),
            Test::Object(_) => return None,
        };
        let expression = match rule.scope {
            Scope::Any => broken,
            Scope::Windows => format!("variables.windows && {}", in_brackets(&broken)),
            // CEL has no information about images.
            Scope::LinuxByName
            | Scope::WindowsImage
            | Scope::AnyWindows
            | Scope::Unplaced
            | Scope::Service
            | Scope::Node
            | Scope::CredentialSpec
            | Scope::WithoutTemplate => {
                return None;
            }
        };
        Some((rule, expression))
    })
}

fn is_advised(Judgement(severity, consequence): Judgement) -> bool {
    severity > Severity::Info && consequence != Consequence::Rejected
}

fn in_brackets(expression: &str) -> String {
    if expression.contains("||") { format!("({expression})") } else { expression.to_owned() }
}

pub fn policies() -> Vec<(ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding)> {
    SHAPES.iter().map(|shape| (policy(shape), binding(shape))).collect()
}

fn policy(shape: &Shape) -> ValidatingAdmissionPolicy {
    let validations = expressions().map(|(rule, _)| Validation {
        expression: format!("!variables.{}", variable(rule)),
        message: Some(message(rule)),
        ..Validation::default()
    });
    let rules = expressions().map(|(rule, _)| format!("variables.{} ? '{}' : ''", variable(rule), rule.id));
    let audit = AuditAnnotation {
        key: "rules".to_owned(),
        value_expression: format!("[{}].filter(rule, rule != '').join(' ')", rules.collect::<Vec<_>>().join(", ")),
    };
    ValidatingAdmissionPolicy {
        metadata: named(shape),
        spec: Some(ValidatingAdmissionPolicySpec {
            // Objects that the policy cannot evaluate are admitted without a warning.
            failure_policy: Some("Ignore".to_owned()),
            match_constraints: Some(constraints(shape)),
            match_conditions: Some(conditions(shape)),
            variables: Some(variables(shape)),
            validations: Some(validations.collect()),
            audit_annotations: Some(vec![audit]),
            ..ValidatingAdmissionPolicySpec::default()
        }),
        status: None,
    }
}

/// Returns the name of the policy variable that is true if the rule is broken.
fn variable(rule: &Rule) -> String {
    let mut words = rule.id.split('-').map(str::to_owned);
    let first = words.next().unwrap_or_default();
    words.fold(first, |name, word| format!("{name}{}{}", word[..1].to_ascii_uppercase(), &word[1..]))
}

/// Returns the warning, with the most important part first, because the API server cuts warnings to 256 characters if
/// there are many.
fn message(rule: &Rule) -> String {
    format!("{}: {}; {}", rule.id, rule.sentence(false), rule.remedy)
}

fn binding(shape: &Shape) -> ValidatingAdmissionPolicyBinding {
    ValidatingAdmissionPolicyBinding {
        metadata: named(shape),
        spec: Some(ValidatingAdmissionPolicyBindingSpec {
            policy_name: Some(shape.name.to_owned()),
            // Not Audit: if several rules are broken, the API server keeps the first and logs an error for each of the
            // others. The policy has one audit annotation for all of them.
            validation_actions: Some(texts(&["Warn"])),
            ..ValidatingAdmissionPolicyBindingSpec::default()
        }),
    }
}

/// Returns metadata with this name and the label of all winpool objects.
fn named(shape: &Shape) -> ObjectMeta {
    let labels = [("app.kubernetes.io/name".to_owned(), "winpool".to_owned())];
    ObjectMeta { name: Some(shape.name.to_owned()), labels: Some(labels.into()), ..ObjectMeta::default() }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

fn constraints(shape: &Shape) -> MatchResources {
    let operations: &[&str] = if shape.changes.is_some() { &["CREATE", "UPDATE"] } else { &["CREATE"] };
    let rules = shape.resources().into_iter().map(|(group, resources)| NamedRuleWithOperations {
        api_groups: Some(texts(&[group])),
        api_versions: Some(texts(&["v1"])),
        operations: Some(texts(operations)),
        resources: Some(texts(&resources)),
        ..NamedRuleWithOperations::default()
    });
    let others = LabelSelectorRequirement {
        key: "kubernetes.io/metadata.name".to_owned(),
        operator: "NotIn".to_owned(),
        values: Some(texts(&EXCLUDED)),
    };
    MatchResources {
        namespace_selector: Some(LabelSelector { match_expressions: Some(vec![others]), match_labels: None }),
        resource_rules: Some(rules.collect()),
        ..MatchResources::default()
    }
}

fn conditions(shape: &Shape) -> Vec<MatchCondition> {
    let condition = |name: &str, expression: String| MatchCondition { name: name.to_owned(), expression };
    // Controllers do not read warnings. The author of the template already received them.
    let mut conditions = vec![condition(
        "not-controlled",
        "!object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false))".to_owned(),
    )];
    if let Some(path) = shape.changes {
        let expression = format!("request.operation == 'CREATE' || object.{path} != oldObject.{path}");
        conditions.push(condition("template-changes", expression));
    }
    conditions
}

/// Returns the variables that the rules' expressions use. They match [`PodSpec`](crate::pod::PodSpec).
fn variables(shape: &Shape) -> Vec<Variable> {
    let (keys, build, stamp) = (cel_list(OS_KEYS), names::WINDOWS_BUILD, names::CAPABILITY_LABEL_PREFIX);
    let (clouds, arch) = (cel_list(SYSTEM_LABELS), cel_list(ARCH_KEYS));
    // The beginning of an expression that holds if every term has one of these expressions about the system.
    let all_terms = |os: &str, other: &str, cloud: &str| {
        format!(
            "size(variables.terms) > 0 && variables.terms.all(t, t.?matchExpressions.orValue([]).exists(e, \
             e.operator == 'In' && size(e.?values.orValue([])) > 0 && (e.key in {keys} && e.values.all(v, {os}) \
             || e.key in {clouds} && e.values.all(v, {cloud})) \
             || e.key in {keys} && e.operator == 'NotIn' && {other} in e.?values.orValue([])"
        )
    };
    let all = [
        ("pod", shape.pod.to_owned()),
        ("isDaemonSet", "request.kind.kind == 'DaemonSet'".to_owned()),
        ("containers", "variables.pod.containers + variables.pod.?initContainers.orValue([])".to_owned()),
        ("os", "variables.pod.?os.?name.orValue('')".to_owned()),
        ("selector", "variables.pod.?nodeSelector.orValue({})".to_owned()),
        (
            "terms",
            "variables.pod.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution\
             .?nodeSelectorTerms.orValue([]).filter(t, has(t.matchExpressions) || has(t.matchFields))"
                .to_owned(),
        ),
        ("selectsOs", format!("variables.selector.exists(k, k in {keys})")),
        (
            "selectsWindows",
            format!(
                "variables.selectsOs ? variables.selector.exists(k, k in {keys} && variables.selector[k].lowerAscii() == 'windows') \
                 : variables.selector.exists(k, k == '{build}' || k.startsWith('{stamp}') \
                 || k in {clouds} && variables.selector[k].lowerAscii().startsWith('windows'))"
            ),
        ),
        (
            "selectsLinux",
            format!(
                "!variables.selectsWindows && (variables.selectsOs || variables.selector.exists(k, k in {clouds}))"
            ),
        ),
        (
            "placed",
            format!(
                "variables.selectsWindows || !variables.selectsLinux && {} || (e.key == '{build}' \
                 || e.key.startsWith('{stamp}')) && e.operator in ['In', 'Exists']))",
                all_terms("v.lowerAscii() == 'windows'", "'linux'", "v.lowerAscii().startsWith('windows')")
            ),
        ),
        (
            "placedElsewhere",
            format!(
                "variables.selectsLinux || !variables.placed && {}))",
                all_terms("v.lowerAscii() != 'windows'", "'windows'", "!v.lowerAscii().startsWith('windows')")
            ),
        ),
        (
            "otherProcessor",
            format!(
                "variables.selector.exists(k, k in {arch} && variables.selector[k] != 'amd64') \
                 || size(variables.terms) > 0 && variables.terms.all(t, t.?matchExpressions.orValue([]).exists(e, \
                 e.key in {arch} && e.operator == 'In' && size(e.?values.orValue([])) > 0 \
                 && e.values.all(v, v != 'amd64')))"
            ),
        ),
        (
            "windowsOptions",
            "(variables.pod.?securityContext.?windowsOptions.hasValue() \
             ? [variables.pod.securityContext.windowsOptions] : []) \
             + variables.containers.filter(c, c.?securityContext.?windowsOptions.hasValue())\
             .map(c, c.securityContext.windowsOptions)"
                .to_owned(),
        ),
        (
            "hasWindowsOptions",
            "variables.windowsOptions.exists(o, o.?hostProcess.orValue(false) || o.?runAsUserName.hasValue() \
             || o.?gmsaCredentialSpec.hasValue() || o.?gmsaCredentialSpecName.hasValue())"
                .to_owned(),
        ),
        (
            "windows",
            "variables.os == 'windows' || variables.os == '' && (variables.placed || !variables.placedElsewhere \
             && !variables.otherProcessor && variables.hasWindowsOptions)"
                .to_owned(),
        ),
    ];
    let own = all.into_iter().map(|(name, expression)| Variable { name: name.to_owned(), expression });
    own.chain(expressions().map(|(rule, expression)| Variable { name: variable(rule), expression })).collect()
}
