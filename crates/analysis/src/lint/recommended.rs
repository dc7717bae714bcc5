//! Rules for recommendations of the documentation, and for field values that are valid but have no effect.
//!
//! Source, unless a rule names another: "Windows containers in Kubernetes" and "Guide for Running Windows Containers in
//! Kubernetes" in kubernetes/website. `docs/reference/windows-documentation.md` maps their statements to rules.

use serde_json::Value;

use crate::finding::Consequence::{Fails, Ignored, Note};
use crate::finding::Severity::{Error, Info, Warning};
use crate::image::name::successor;
use crate::lint::field::{containers, mounts, volumes};
use crate::lint::rule::{Hit, Judgement, Rule, Scope, Subject, own, rules};
use crate::pod::path_of;
use crate::remedy::{Edit, Remedy};
use crate::workload::{ISOLATION_ANNOTATION, get};

const ISOLATION_REMEDY: &str = "remove it, and use a RuntimeClass whose handler isolates with Hyper-V";

pub(super) const RULES: &[Rule] = rules!([
    /// - Breaks: `containers: [{resources: {}}]`
    /// - Breaks: `containers: [{resources: {requests: {cpu: '1'}}}]`
    /// - Keeps: `containers: [{resources: {limits: {cpu: '1', memory: 1Gi}}}]`
    Rule {
        id: "resources-missing",
        verdict: Judgement(Info, Note),
        field: "containers[*].resources",
        reason: "without a cpu and a memory request the scheduler assumes that the container uses nothing, and \
                 Windows, which has no out-of-memory killer, pages to disk when the node is full",
        remedy: "set requests of cpu and memory, and a memory limit",
        test: own(resources),
        ..Rule::DEFAULT
    },
    /// - Breaks with Docker: `terminationGracePeriodSeconds: 60`
    /// - Keeps with Docker: `terminationGracePeriodSeconds: 30`
    Rule {
        id: "termination-grace-period",
        verdict: Judgement(Warning, Ignored),
        field: "terminationGracePeriodSeconds",
        reason: "the runtime of a Windows node is not containerd: it sends CTRL_SHUTDOWN_EVENT, and ends the container \
                 after 5 seconds",
        remedy: "use nodes with containerd, or set WaitToKillServiceTimeout in the image's registry",
        test: own(grace_period),
        ..Rule::DEFAULT
    },
    /// - Breaks in a template:
    ///   `metadata: {annotations: {experimental.windows.kubernetes.io/isolation-type: hyperv}}`
    Rule {
        id: "isolation-annotation",
        verdict: Judgement(Warning, Ignored),
        scope: Scope::Any,
        field: "metadata.annotations[experimental.windows.kubernetes.io/isolation-type]",
        reason: "nothing reads this annotation since Kubernetes 1.21 removed the feature gate HyperVContainer",
        remedy: ISOLATION_REMEDY,
        test: own(|subject, hits| {
            if subject.workload.metadata["annotations"].get(ISOLATION_ANNOTATION).is_some() {
                let edit = Edit::remove(&["metadata", "annotations", ISOLATION_ANNOTATION]);
                let remedy = Remedy::of(vec![edit]).saying(ISOLATION_REMEDY).undecided();
                hits.push(Hit::at(format!("metadata.annotations[{ISOLATION_ANNOTATION}]")).remedied_by(remedy));
            }
        }),
        ..Rule::DEFAULT
    },
    /// - Breaks: `containers: [{image: microsoft/iis}]`
    /// - Breaks: `containers: [{image: docker.io/microsoft/nanoserver:sac2016}]`
    /// - Keeps: `containers: [{image: mcr.microsoft.com/windows/servercore/iis}]`
    /// - Keeps: `containers: [{image: example.com/microsoft/iis}]`
    Rule {
        id: "docker-hub-image",
        verdict: Judgement(Warning, Note),
        scope: Scope::Any,
        field: "containers[*].image",
        reason: "Microsoft's Windows images on Docker Hub no longer get updates; their Windows builds are out of \
                 support",
        remedy: "use Microsoft's registry",
        test: own(docker_hub_images),
        ..Rule::DEFAULT
    },
    /// - Breaks: `dnsConfig: {searches: [example.com]}`
    /// - Breaks: `dnsPolicy: None, dnsConfig: {searches: [a.example, b.example]}`
    /// - Keeps: `dnsPolicy: None, dnsConfig: {searches: [a.example]}`
    /// - Keeps: `dnsConfig: {searches: []}`
    Rule {
        id: "dns-searches",
        verdict: Judgement(Info, Note),
        field: "dnsConfig.searches",
        reason: "Windows resolves short names with one DNS suffix, by default that of the pod's namespace",
        remedy: "use full names, or one suffix with dnsPolicy: None",
        test: own(dns_searches),
        ..Rule::DEFAULT
    },
    /// - Breaks: `containers: [{volumeMounts: [{mountPath: "C:\temp"}]}]`
    /// - Breaks: `volumes: [{hostPath: {path: "C:\new"}}]`
    /// - Keeps: `containers: [{volumeMounts: [{mountPath: C:\temp}]}]`
    /// - Keeps: `volumes: [{hostPath: {path: C:/new}}]`
    Rule {
        id: "path-control-character",
        verdict: Judgement(Error, Fails),
        scope: Scope::Any,
        field: "containers[*].volumeMounts[*].mountPath",
        reason: "the path has a control character: in double quotes YAML and JSON read \\t and \\n as one",
        remedy: "write C:/data, or double each backslash",
        test: own(control_characters),
        ..Rule::DEFAULT
    },
    /// - Breaks: `containers: [{volumeMounts: [{mountPath: 'C:'}]}]`
    /// - Breaks: `containers: [{volumeMounts: [{mountPath: c:\}]}]`
    /// - Breaks: `containers: [{volumeMounts: [{mountPath: C:/}]}]`
    /// - Breaks: `containers: [{volumeMounts: [{mountPath: /}]}]`
    /// - Keeps: `containers: [{volumeMounts: [{mountPath: /data}]}]`
    /// - Keeps: `containers: [{volumeMounts: [{mountPath: D:/}]}]`
    /// - Keeps: `containers: [{volumeMounts: [{mountPath: C:/data}]}]`
    Rule {
        id: "mount-path-root",
        verdict: Judgement(Error, Fails),
        field: "containers[*].volumeMounts[*].mountPath",
        reason: "a Windows container cannot mount a volume over its whole drive",
        remedy: "mount it in a directory, such as C:/data",
        test: own(mount_roots),
        ..Rule::DEFAULT
    },
    /// - Breaks: `volumes: [{hostPath: {path: /var/log}}]`
    /// - Breaks: `volumes: [{hostPath: {path: data}}]`
    /// - Keeps: `volumes: [{hostPath: {path: C:/data}}]`
    /// - Keeps: `volumes: [{hostPath: {path: \\.\pipe\docker_engine}}]`
    /// - Keeps: `volumes: [{hostPath: {path: d:\data}}]`
    Rule {
        id: "host-path-without-drive",
        verdict: Judgement(Info, Note),
        field: "volumes[*].hostPath.path",
        reason: "a path without a drive is on the drive that the kubelet runs from",
        remedy: "name the drive, such as C:/data; a named pipe is written \\\\.\\pipe\\name",
        test: own(host_paths),
        ..Rule::DEFAULT
    },
]);

fn resources(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    for (path, container) in containers(subject.workload.raw).filter(|(path, _)| !path.starts_with("ephemeral")) {
        // A limit is the default for the request.
        let lacks = |name: &&str| {
            ["requests", "limits"].iter().all(|kind| get(container, &["resources", kind, name]).is_none())
        };
        let lacking: Vec<&str> = ["cpu", "memory"].into_iter().filter(lacks).collect();
        if !lacking.is_empty() {
            let message = format!(
                "the container has no request of {}: the scheduler assumes that it uses nothing, and Windows, which has no \
                 out-of-memory killer, pages to disk when the node is full",
                lacking.join(" and ")
            );
            hits.push(Hit::at(format!("{path}.resources")).saying(message));
        }
    }
}

fn grace_period(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let period = get(subject.workload.raw, &["terminationGracePeriodSeconds"]).and_then(Value::as_i64);
    // 30 is the API server's default.
    if period.is_some_and(|period| period != 30) && subject.facts.has_node_without_containerd(subject.pods) {
        hits.push(Hit::at("terminationGracePeriodSeconds"));
    }
}

fn docker_hub_images(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    for (container, image) in subject.pod.images() {
        if let Some(successor) = successor(image) {
            let hit = Hit::at(format!("{}.image", path_of(container)));
            hits.push(hit.remedied_by(format!("use {successor}, with a tag for the Windows version of the nodes")));
        }
    }
}

fn dns_searches(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let pod = subject.workload.raw;
    let searches = get(pod, &["dnsConfig", "searches"]).and_then(Value::as_array).map_or(0, Vec::len);
    let own = usize::from(get(pod, &["dnsPolicy"]).and_then(Value::as_str) != Some("None"));
    if searches > 0 && searches + own > 1 {
        hits.push(Hit::at("dnsConfig.searches"));
    }
}

/// Returns every `mountPath` with its field.
fn mount_paths(pod: &Value) -> impl Iterator<Item = (String, &str)> {
    mounts(pod).filter_map(|(path, mount)| Some((format!("{path}.mountPath"), mount["mountPath"].as_str()?)))
}

fn paths_on_host(pod: &Value) -> impl Iterator<Item = (String, &str)> {
    volumes(pod).filter_map(|(path, volume)| {
        Some((format!("{path}.hostPath.path"), get(volume, &["hostPath", "path"])?.as_str()?))
    })
}

fn control_characters(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let all = mount_paths(subject.workload.raw).chain(paths_on_host(subject.workload.raw));
    hits.extend(all.filter(|(_, path)| path.contains(char::is_control)).map(|(field, _)| Hit::at(field)));
}

fn mount_roots(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    // moby/moby volume/mounts/windows_parser.go: the destination cannot be `c:` or `c:\`.
    let is_root = |path: &str| {
        let without_drive = path.strip_prefix(['C', 'c']).and_then(|rest| rest.strip_prefix(':')).unwrap_or(path);
        without_drive.chars().all(|letter| matches!(letter, '/' | '\\'))
    };
    let roots = mount_paths(subject.workload.raw).filter(|(_, path)| !path.is_empty() && is_root(path));
    hits.extend(roots.map(|(field, _)| Hit::at(field)));
}

fn host_paths(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let has_drive = |path: &str| {
        let mut letters = path.chars();
        let (first, second) = (letters.next(), letters.next());
        first.is_some_and(|letter| letter.is_ascii_alphabetic()) && second == Some(':') || path.starts_with(r"\\")
    };
    let without = paths_on_host(subject.workload.raw).filter(|(_, path)| !path.is_empty() && !has_drive(path));
    hits.extend(without.map(|(field, _)| Hit::at(field)));
}
