//! Rules about Linux images and programs in pods for Windows.
//!
//! The sources of the images and injectors are beside them, in `crates/analysis/src/image/linux_only.rs`.

use serde_json::Value;

use crate::finding::Consequence::Fails;
use crate::finding::Severity::{Error, Warning};
use crate::image::linux_only::{INJECTORS, injector_of, is_only_for_linux};
use crate::lint::field::containers;
use crate::lint::placement::builds::image_of;
use crate::lint::rule::{Hit, Judgement, Rule, Subject, own, rules};
use crate::remedy::{Edit, Remedy};
use crate::workload::get;

pub(super) const IMAGES: &[Rule] = rules!([
    /// - Breaks: `containers: [{image: docker.io/istio/proxyv2:1.24.0}]`
    /// - Breaks: `containers: [{image: docker:27.3-dind}]`
    /// - Keeps: `containers: [{image: docker:27-windowsservercore-ltsc2022}]`
    Rule {
        id: "linux-image",
        verdict: Judgement(Error, Fails),
        field: "containers[*].image",
        reason: "the pod is for Windows, and the image exists only for Linux",
        remedy: "remove the container, or use an image for Windows",
        test: own(images),
        ..Rule::DEFAULT
    },
]);

pub(super) const PROGRAMS: &[Rule] = rules!([
    /// - Breaks in a template: `metadata: {annotations: {linkerd.io/inject: enabled}}`
    Rule {
        id: "linux-sidecar-injected",
        verdict: Judgement(Warning, Fails),
        field: "metadata.annotations",
        reason: "an injector adds a Linux container to the pod, which is for Windows",
        remedy: "set the label or annotation with which the injector leaves the pod alone",
        test: own(injected),
        ..Rule::DEFAULT
    },
    /// - Breaks: `containers: [{livenessProbe: {exec: {command: [/bin/true]}}}]`
    /// - Breaks: `containers: [{readinessProbe: {exec: {command: [bash, -c, check]}}}]`
    /// - Breaks: `containers: [{lifecycle: {preStop: {exec: {command: [sh, -c, stop]}}}}]`
    /// - Keeps: `containers: [{livenessProbe: {exec: {command: [cmd, /c, check.cmd]}}}]`
    /// - Keeps: `containers: [{livenessProbe: {exec: {command: [sh.exe, -c, check]}}}]`
    /// - Keeps: `containers: [{livenessProbe: {httpGet: {path: /bin/sh, port: 80}}}]`
    Rule {
        id: "linux-program",
        verdict: Judgement(Warning, Fails),
        field: "containers[*].livenessProbe.exec.command",
        reason: "a probe or a lifecycle hook runs a program of Linux, which Windows images usually do not have",
        remedy: "run a program of the image, such as cmd /c or powershell -Command",
        test: own(programs),
        ..Rule::DEFAULT
    },
]);

fn images(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let unknown = subject.pod.images().filter(|(_, image)| subject.facts.images().platforms(image).is_none());
    for (container, image) in unknown.filter(|(_, image)| is_only_for_linux(image)) {
        let hit = Hit::at(image_of(container));
        hits.push(match injector_of(image) {
            Some(injector) => {
                let added = format!("{} has added this container, whose image exists only for Linux", injector.name);
                hit.saying(added).remedied_by(injector.remedy())
            }
            None => hit,
        });
    }
}

fn injected(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    // Istio leaves pods alone that use the network of the node.
    let namespace = subject
        .facts
        .namespaces
        .get_key_value(subject.workload.namespace())
        .filter(|_| subject.workload.raw["hostNetwork"] != true);
    for injector in &INJECTORS {
        let Some((asked_in, asks)) = injector.asked(subject.workload.metadata, namespace) else { continue };
        let (field, key) = injector.switch.place();
        let other = asked_in.filter(|asked_in| *asked_in != field || injector.off.is_none());
        let remove = other.map(|asked_in| Edit::remove(&["metadata", asked_in, key]));
        let set = injector.off.map(|off| Edit::set(&["metadata", field, key], off));
        let message = format!("{} adds a Linux container to the pod, which is for Windows: {asks}", injector.name);
        // Somebody has asked for it, and an injector may have images for Windows.
        let remedy = Remedy::of(remove.into_iter().chain(set).collect()).saying(injector.remedy());
        let remedy = remedy.and("; keep it if the container that it adds is for Windows").undecided();
        let place = format!("metadata.{}[{key}]", asked_in.unwrap_or(field));
        hits.push(Hit::at(place).saying(message).remedied_by(remedy));
    }
}

fn programs(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    const COMMANDS: [&[&str]; 5] = [
        &["startupProbe", "exec", "command"],
        &["livenessProbe", "exec", "command"],
        &["readinessProbe", "exec", "command"],
        &["lifecycle", "postStart", "exec", "command"],
        &["lifecycle", "preStop", "exec", "command"],
    ];
    for (path, container) in containers(subject.workload.raw) {
        for keys in COMMANDS {
            let program = get(container, keys).and_then(|command| command.get(0)).and_then(Value::as_str);
            if let Some(program) = program.filter(|program| is_of_linux(program)) {
                let program: String = program.chars().take(100).collect();
                let message =
                    format!("it runs {program}, a program of Linux, which Windows images usually do not have");
                hits.push(Hit::at(format!("{path}.{}", keys.join("."))).saying(message));
            }
        }
    }
}

/// True for a shell of Linux without the end `.exe`, and for a program in a directory that Windows does not have.
fn is_of_linux(program: &str) -> bool {
    const DIRECTORIES: [&str; 4] = ["/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/"];
    ["sh", "bash", "ash"].contains(&program) || DIRECTORIES.iter().any(|directory| program.starts_with(directory))
}
