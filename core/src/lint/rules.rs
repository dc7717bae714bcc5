//! All rules, and a workload held against them.

use crate::{
    api::names,
    lint::{
        Finding, Rule, Workload,
        facts::{Facts, Lookup},
        placement,
        pod::{Pod, Target},
        rejected,
        rule::{Hit, Scope, Subject, Test},
        unsupported,
    },
    windows::image,
};

/// The rules about placement, about what the API server refuses, and about what Windows does not do.
pub(super) fn groups() -> [&'static [Rule]; 3] {
    [placement::RULES, rejected::RULES, unsupported::RULES]
}

/// Every rule, in the order of findings.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    groups().into_iter().flatten()
}

/// The rule of this name.
#[must_use]
pub fn rule(id: &str) -> Option<&'static Rule> {
    rules().find(|rule| rule.id == id)
}

/// What is to be said about a workload.
#[must_use]
pub fn check(workload: &Workload<'_>, facts: &Facts) -> Vec<Finding> {
    let subject = Subject { workload, pod: workload.pod, target: target(workload.pod, facts), facts };
    let mut findings = Vec::new();
    for rule in rules().filter(|rule| rule.kubernetes.contain(facts.kubernetes()) && applies(rule.scope, &subject)) {
        let hits = match rule.test {
            Test::Field(field) => field.hits(workload.pod).map(Hit::at).collect(),
            Test::Own { find, .. } => {
                let mut hits = Vec::new();
                find(&subject, &mut hits);
                hits
            }
        };
        findings.extend(hits.into_iter().map(|hit| finding(rule, &subject, hit)));
    }
    findings
}

fn applies(scope: Scope, subject: &Subject<'_>) -> bool {
    match scope {
        Scope::Any => true,
        Scope::Windows => subject.target == Target::Windows,
        Scope::WindowsImage => subject.target == Target::WindowsImage,
        Scope::LinuxByName => subject.pod.os() == Some("linux"),
        Scope::Unsaid => subject.target == Target::Unsaid,
    }
}

/// What a pod is meant for. `os.name` decides; a class counts as far as it is known.
#[must_use]
pub fn target(pod: Pod<'_>, facts: &Facts) -> Target {
    match pod.os() {
        Some(os) if os == names::WINDOWS => return Target::Windows,
        Some(_) => return Target::Linux,
        None => {}
    }
    let class = pod.class().map(|name| facts.class(name));
    let class_os = class.and_then(|class| if let Lookup::Found(class) = class { class.os() } else { None });
    if pod.is_placed_on(names::WINDOWS) || class_os == Some(names::WINDOWS) || pod.has_windows_options() {
        Target::Windows
    } else if pod.is_placed_on("linux") || class_os.is_some() {
        Target::Linux
    } else if pod.images().any(|(_, image)| image::is_for_windows(image)) {
        Target::WindowsImage
    } else {
        Target::Unsaid
    }
}

fn finding(rule: &Rule, subject: &Subject<'_>, hit: Hit) -> Finding {
    let says_os = subject.pod.os() == Some(names::WINDOWS);
    let verdict = if says_os { rule.verdict } else { rule.verdict_without_os() };
    Finding {
        rule: rule.id.to_owned(),
        severity: verdict.0,
        consequence: verdict.1,
        object: subject.workload.object(),
        field: format!("{}.{}", subject.workload.path, hit.field),
        message: hit.message.unwrap_or_else(|| rule.sentence(says_os)),
        remedy: hit.remedy.unwrap_or_else(|| rule.remedy.to_owned()),
    }
}
