//! `winpool images --annotate`: manifests with what registries say, for the admission policy `assign-class`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::{Value, json};
use winpool_analysis::explain::images::annotation;
use winpool_analysis::image::Images;
use winpool_analysis::pod::Target;
use winpool_analysis::workload::WorkloadManifest;
use winpool_client::terminal::{self, Outcome};
use winpool_core::api::{ObjectReference, names};

use crate::registry::Registry;

use super::Error;
use super::gaps::Gaps;
use super::input::{self, Copies, Keep, Manifest};
use super::output::{self, Format, OutputError};
use super::resolve::look_up;

/// An object as it was read.
struct Whole(Value);

impl Keep for Whole {
    const KEEPS_NULLS: bool = true;
    const COPIES: Copies = Copies::Kept;

    fn keep(manifest: Manifest) -> Result<Option<Self>, serde_json::Error> {
        let value = manifest.typed();
        WorkloadManifest::read(&value).map_err(<serde_json::Error as serde::de::Error>::custom)?;
        Ok(Some(Self(value)))
    }
}

/// Prints the manifests. Workloads about whose images nothing is known stay as they are, and standard error says so.
pub(super) async fn run(files: &[PathBuf], registry: &Registry, format: Format) -> Result<Outcome, Error> {
    let manifests = input::read::<Whole>(files)?;
    let gaps = Gaps::of_manifests(manifests.are_complete);
    let mut objects: Vec<Value> = manifests.found.into_iter().map(|(_, Whole(value))| value).collect();
    let names: BTreeSet<String> = objects.iter().flat_map(images_of).collect();
    let mut images = Images::default();
    look_up(registry, &names, &mut images).await;
    for object in &mut objects {
        if let Err((name, reason)) = annotate(object, &images) {
            eprintln!("winpool: {}", terminal::escape_lines(&format!("{name} is not annotated: {reason}")));
        }
    }
    output::emit(&output::objects(format, &objects)?).map_err(OutputError::from)?;
    Ok(gaps.outcome(Outcome::Done))
}

/// The images of a workload that may be for Windows.
fn images_of(object: &Value) -> Vec<String> {
    let workload = WorkloadManifest::read(object).ok().flatten();
    let workload = workload.filter(|workload| workload.pod.target(None) != Target::Linux);
    workload.iter().flat_map(|workload| workload.pod.images()).map(|(_, name)| name.to_owned()).collect()
}

/// Writes the annotation into the pod template of a Windows workload. One that is void is removed.
fn annotate(object: &mut Value, images: &Images) -> Result<(), (ObjectReference, String)> {
    let Ok(Some(workload)) = WorkloadManifest::read(object) else { return Ok(()) };
    if !matches!(workload.pod.target(None), Target::Windows | Target::WindowsImage) {
        return Ok(());
    }
    let annotated = annotation(&workload.pod, images);
    let (name, path) = (workload.object(), workload.path.clone());
    let mut template = object;
    for key in path.trim_end_matches("spec").split_terminator('.') {
        template = &mut template[key];
    }
    let has_one = template.pointer("/metadata/annotations").is_some_and(|all| all.get(names::IMAGES_RUN_ON).is_some());
    if annotated.is_err() && !has_one {
        return annotated.map(drop).map_err(|reason| (name, reason));
    }
    let written = json!({names::IMAGES_RUN_ON: annotated.as_ref().ok()});
    json_patch::merge(template, &json!({"metadata": {"annotations": written}}));
    if let Some(metadata) =
        template["metadata"].as_object_mut().filter(|all| all.get("annotations") == Some(&json!({})))
    {
        metadata.remove("annotations");
    }
    annotated.map(drop).map_err(|reason| (name, reason))
}

#[cfg(test)]
mod tests {
    use winpool_analysis::image::{ImagePlatforms, Platform, Source, Unresolved};

    use super::*;

    fn images() -> Images {
        let windows = |version: &str| Platform {
            os: "windows".to_owned(),
            architecture: "amd64".to_owned(),
            os_version: Some(version.to_owned()),
            ..Platform::default()
        };
        let platforms = vec![windows("10.0.17763.1"), windows("10.0.26100.1"), windows("10.0.20348.1")];
        let mut images = Images::default();
        let known = ImagePlatforms { digest: "sha256:0".to_owned(), source: Source::Index, platforms };
        images.add("app:1", Ok(known));
        images.add(
            "old:1",
            Ok(ImagePlatforms {
                digest: "sha256:1".to_owned(),
                source: Source::Manifest,
                platforms: vec![windows("10.0.17763.9")],
            }),
        );
        images.add("x:1", Err(Unresolved { reason: "no answer".to_owned(), is_missing: false }));
        images
    }

    #[test]
    fn the_template_gets_the_builds_on_which_all_images_run() {
        let pod = |images: &[&str]| {
            let containers: Vec<Value> = images.iter().map(|image| json!({"image": image})).collect();
            json!({"os": {"name": "windows"}, "containers": containers})
        };
        for (names, expected) in [
            (&["app:1"][..], Ok("10.0.26100 10.0.20348 10.0.17763 for app:1")),
            (&["app:1", "old:1"], Ok("10.0.17763 for app:1 old:1")),
            (&["app:1", "x:1"], Err("x:1: no answer")),
        ] {
            let mut deployment = json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
                "spec": {"template": {"metadata": {"annotations": {names::IMAGES_RUN_ON: "void"}}, "spec": pod(names)}},
            });
            let result = annotate(&mut deployment, &images());
            let written = &deployment["spec"]["template"]["metadata"]["annotations"][names::IMAGES_RUN_ON];
            assert_eq!(written.as_str(), expected.ok(), "{names:?}");
            assert_eq!(result.map_err(|(_, reason)| reason), expected.map(drop).map_err(str::to_owned), "{names:?}");
            let mut bare = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": pod(names)});
            let _ = annotate(&mut bare, &images());
            assert_eq!(bare["metadata"]["annotations"][names::IMAGES_RUN_ON].as_str(), expected.ok());
        }
    }

    #[test]
    fn a_template_without_an_annotation_stays_as_it_is_if_nothing_is_known() {
        let spec = json!({"os": {"name": "windows"}, "containers": [{"image": "x:1"}]});
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {"template": {"spec": spec}}});
        let mut annotated = object.clone();
        assert!(annotate(&mut annotated, &images()).is_err());
        assert_eq!(annotated, object);
    }

    #[test]
    fn other_objects_stay_as_they_are() {
        for object in [
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"image": "app:1"}]}}),
        ] {
            let mut annotated = object.clone();
            assert_eq!(annotate(&mut annotated, &images()), Ok(()));
            assert_eq!(annotated, object);
        }
    }
}
