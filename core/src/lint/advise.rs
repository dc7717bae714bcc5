//! The admission policy `advise`: the rules that CEL can express become warnings when a workload is applied.
//!
//! What is only an info is left out: a warning that nobody has to act on teaches people to overlook the others. What the
//! API server refuses by itself never gets as far as a policy.

use k8s_openapi::{
    api::admissionregistration::v1::{
        AuditAnnotation, MatchCondition, MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
        ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec,
        Validation, Variable,
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta},
};

use crate::{
    api::names,
    lint::{
        field::cel_list,
        rule::{Consequence, Judgement, Rule, Scope, Severity, Test},
        rules,
    },
    pod::OS_KEYS,
};

/// Namespaces that are left alone.
const EXCLUDED: [&str; 2] = ["kube-system", "winpool-system"];

/// Objects whose pod spec is in the same place.
struct Shape {
    name: &'static str,
    pod: &'static str,
    /// What has to change in an update for the policy to look; `None`: only creation counts.
    changes: Option<&'static str>,
    resources: &'static [(&'static str, &'static [&'static str])],
}

const SHAPES: [Shape; 3] = [
    Shape { name: "winpool-advise-pods", pod: "object.spec", changes: None, resources: &[("", &["pods"])] },
    Shape {
        name: "winpool-advise-workloads",
        pod: "object.spec.template.spec",
        changes: Some("spec.template"),
        resources: &[
            ("", &["replicationcontrollers"]),
            ("apps", &["daemonsets", "deployments", "replicasets", "statefulsets"]),
            ("batch", &["jobs"]),
        ],
    },
    Shape {
        name: "winpool-advise-cronjobs",
        pod: "object.spec.jobTemplate.spec.template.spec",
        changes: Some("spec.jobTemplate"),
        resources: &[("batch", &["cronjobs"])],
    },
];

/// The rules that the policy has, each with its expression, which is true for what breaks the rule.
pub fn expressions() -> impl Iterator<Item = (&'static Rule, String)> {
    rules().filter(|rule| is_advised(rule.verdict_without_os())).filter_map(|rule| {
        let broken = match rule.test {
            Test::Field(field) => field.cel(),
            Test::Own { cel, .. } => cel?(),
            Test::Object(_) => return None,
        };
        let expression = match rule.scope {
            Scope::Any => broken,
            Scope::Windows => format!("variables.windows && {}", in_brackets(&broken)),
            // What an image means, CEL is not told.
            Scope::LinuxByName | Scope::WindowsImage | Scope::Unsaid | Scope::Service | Scope::Node => return None,
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

/// The policies, each with its binding.
#[must_use]
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
            // What cannot be judged is let through in silence.
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

/// The variable of the policy that is true for what breaks the rule.
fn variable(rule: &Rule) -> String {
    let mut words = rule.id.split('-').map(str::to_owned);
    let first = words.next().unwrap_or_default();
    words.fold(first, |name, word| format!("{name}{}{}", word[..1].to_ascii_uppercase(), &word[1..]))
}

/// The API server shortens warnings to 256 characters when there are many: what has to be known first stands first.
fn message(rule: &Rule) -> String {
    format!("{}: {}; {}", rule.id, rule.sentence(false), rule.remedy)
}

fn binding(shape: &Shape) -> ValidatingAdmissionPolicyBinding {
    ValidatingAdmissionPolicyBinding {
        metadata: named(shape),
        spec: Some(ValidatingAdmissionPolicyBindingSpec {
            policy_name: Some(shape.name.to_owned()),
            // Not Audit: of several broken rules the API server would keep the first, and write a line into its own log
            // for each of the others. The policy has an audit annotation for all of them.
            validation_actions: Some(texts(&["Warn"])),
            ..ValidatingAdmissionPolicyBindingSpec::default()
        }),
    }
}

/// With the label of all of winpool's objects.
fn named(shape: &Shape) -> ObjectMeta {
    let labels = [("app.kubernetes.io/name".to_owned(), "winpool".to_owned())];
    ObjectMeta { name: Some(shape.name.to_owned()), labels: Some(labels.into()), ..ObjectMeta::default() }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

fn constraints(shape: &Shape) -> MatchResources {
    let operations: &[&str] = if shape.changes.is_some() { &["CREATE", "UPDATE"] } else { &["CREATE"] };
    let rules = shape.resources.iter().map(|(group, resources)| NamedRuleWithOperations {
        api_groups: Some(texts(&[group])),
        api_versions: Some(texts(&["v1"])),
        operations: Some(texts(operations)),
        resources: Some(texts(resources)),
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
    // A controller reads no warnings; who made its template got them.
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

/// What the expressions of the rules use. They say what [`PodSpec`](crate::pod::PodSpec) says.
fn variables(shape: &Shape) -> Vec<Variable> {
    let (keys, build, stamp) = (cel_list(OS_KEYS), names::WINDOWS_BUILD, names::CAPABILITY_LABEL_PREFIX);
    let all = [
        ("pod", shape.pod.to_owned()),
        ("isDaemonSet", "request.kind.kind == 'DaemonSet'".to_owned()),
        ("containers", "variables.pod.containers + variables.pod.?initContainers.orValue([])".to_owned()),
        ("os", "variables.pod.?os.?name.orValue('')".to_owned()),
        ("selector", "variables.pod.?nodeSelector.orValue({})".to_owned()),
        (
            "terms",
            "variables.pod.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution\
             .?nodeSelectorTerms.orValue([])"
                .to_owned(),
        ),
        (
            "placed",
            format!(
                "variables.selector.exists(k, k in {keys} && variables.selector[k] == 'windows' || k == '{build}' \
                 || k.startsWith('{stamp}')) \
                 || size(variables.terms) > 0 && variables.terms.all(t, t.?matchExpressions.orValue([]).exists(e, \
                 e.key in {keys} && e.operator == 'In' && size(e.?values.orValue([])) > 0 \
                 && e.values.all(v, v == 'windows') \
                 || (e.key == '{build}' || e.key.startsWith('{stamp}')) && e.operator in ['In', 'Exists']))"
            ),
        ),
        (
            "hasWindowsOptions",
            "variables.pod.?securityContext.?windowsOptions.hasValue() \
             || variables.containers.exists(c, c.?securityContext.?windowsOptions.hasValue())"
                .to_owned(),
        ),
        (
            "windows",
            "variables.os == 'windows' || variables.os == '' && (variables.placed || variables.hasWindowsOptions)"
                .to_owned(),
        ),
    ];
    let own = all.into_iter().map(|(name, expression)| Variable { name: name.to_owned(), expression });
    own.chain(expressions().map(|(rule, expression)| Variable { name: variable(rule), expression })).collect()
}
