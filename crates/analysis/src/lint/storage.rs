//! Rules about the file systems of volumes.

use serde_json::Value;

use crate::finding::Consequence::Fails;
use crate::finding::Severity::Warning;
use crate::lint::Rule;
use crate::lint::field::volumes;
use crate::lint::rule::{Hit, Judgement, Scope, Subject, own, rules};
use crate::pod::Target;
use crate::view::{FILE_SYSTEM, IS_DEFAULT};
use crate::workload::get;

const OF_LINUX: [&str; 5] = ["ext2", "ext3", "ext4", "xfs", "btrfs"];

pub(super) const RULES: &[Rule] = rules!([
    /// Source: kubernetes-sigs/azuredisk-csi-driver#561, kubernetes/kubernetes#32187.
    ///
    /// - Breaks if that class asks for ext4:
    ///   `volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: ext4}}}}]`
    Rule {
        id: "volume-file-system",
        verdict: Judgement(Warning, Fails),
        scope: Scope::Any,
        field: "volumes",
        reason: "a StorageClass asks for a file system that the pod's nodes cannot format: Windows formats NTFS, and Linux \
                 does not",
        remedy: "use a StorageClass with another csi.storage.k8s.io/fstype",
        test: own(file_systems),
        ..Rule::DEFAULT
    },
]);

fn file_systems(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let foreign: &[&str] = match subject.target {
        Target::Windows | Target::WindowsImage => &OF_LINUX,
        Target::Linux => &["ntfs"],
        Target::Unknown => return,
    };
    for (path, claim) in claims(subject) {
        if let Some((class, own)) = file_system(subject, claim).filter(|(_, own)| foreign.contains(&own.as_str())) {
            let system = if own == "ntfs" { "Linux" } else { "Windows" };
            let message =
                format!("StorageClass {class} asks for the file system {own}, which {system} nodes cannot format");
            hits.push(Hit::at(path).saying(message));
        }
    }
}

/// Returns the specs of the claims of a workload, each with the path of its volume in the pod spec.
fn claims<'a>(subject: &Subject<'a>) -> impl Iterator<Item = (String, &'a Value)> {
    let workload = subject.workload;
    let related = &subject.facts.related;
    let named = move |volume: &'a Value| {
        let name = get(volume, &["persistentVolumeClaim", "claimName"])?.as_str()?;
        related.get("PersistentVolumeClaim", workload.namespace(), name)
    };
    let of_volumes = volumes(workload.raw).filter_map(move |(path, volume)| {
        let own = get(volume, &["ephemeral", "volumeClaimTemplate"]);
        Some((path, own.or_else(|| named(volume))?))
    });
    let templates = workload.claims().as_array().into_iter().flatten().map(|claim| ("volumes".to_owned(), claim));
    of_volumes.chain(templates).map(|(path, claim)| (path, &claim["spec"]))
}

/// Returns the name of the claim's `StorageClass` and the file system that it asks for, if they are known.
fn file_system<'a>(subject: &Subject<'a>, claim: &Value) -> Option<(&'a str, String)> {
    let related = &subject.facts.related;
    let is_default = |class: &&Value| class["metadata"]["annotations"][IS_DEFAULT] == "true";
    let class = match claim["storageClassName"].as_str() {
        Some(name) => related.get("StorageClass", "", name)?,
        None => related.all("StorageClass").find(is_default)?,
    };
    let own = FILE_SYSTEM.iter().find_map(|key| class["parameters"][key].as_str())?;
    Some((class["metadata"]["name"].as_str()?, own.to_ascii_lowercase()))
}
