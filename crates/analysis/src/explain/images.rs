//! Images, their platforms as registries report them, and the nodes that run them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use winpool_core::api::{Isolation, ObjectReference};
use winpool_core::windows::Build;
use winpool_core::windows::builds::by_build;
use winpool_core::windows::compatibility::Runs;

use crate::image::name::{build_of, tag};
use crate::image::{Host, ImagePlatforms, Images, Platform, PlatformMatch, Source, Verdict, runs_on, tags, verdict};

/// The result for one image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageReport {
    /// The image as the workloads name it.
    pub image: String,
    /// The digest of the index, or of the single manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The document that contains the platforms. containerd compares the platforms of an index only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// The platforms, in the order of the index.
    pub platforms: Vec<Platform>,
    /// The reason why the platforms are unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// The Windows nodes, grouped by the same result: by the platforms or, if they are unknown, by the tag. Empty if it tells nothing.
    pub windows_nodes: Vec<NodesVerdict>,
    /// The workloads that use the image, each once.
    pub used_by: Vec<ObjectReference>,
}

/// The result for an image on a group of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodesVerdict {
    /// The Windows build of the nodes.
    pub build: String,
    /// The number of nodes.
    pub node_count: usize,
    /// False if the nodes do not run the image.
    pub runs: bool,
    /// The version of the variant that the nodes choose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub takes: Option<String>,
    /// The reason why they do not run it, or may not run it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Explains an image on these nodes, in containers with process isolation.
pub fn image_report<'h>(
    name: &str,
    images: &Images,
    hosts: impl Iterator<Item = &'h Host>,
    used_by: Vec<ObjectReference>,
) -> ImageReport {
    let empty = ImageReport { image: name.to_owned(), used_by, ..ImageReport::default() };
    match images.get(name) {
        Some(Ok(image)) => ImageReport {
            digest: Some(image.digest.clone()),
            source: Some(image.source),
            platforms: image.platforms.clone(),
            windows_nodes: verdicts(image, hosts),
            ..empty
        },
        found => {
            let reason = found.and_then(|found| Some(found.as_ref().err()?.reason.clone()));
            let unknown = Some(reason.unwrap_or_else(|| "it was not looked up".to_owned()));
            ImageReport { unknown, windows_nodes: by_tag(name, hosts), ..empty }
        }
    }
}

/// Returns what the tag of an image says; nothing if it names no build.
fn by_tag<'h>(name: &str, hosts: impl Iterator<Item = &'h Host>) -> Vec<NodesVerdict> {
    let unasked = Images::default();
    alike(hosts, |host| {
        let Verdict { runs, reason } = verdict(name, false, host, Isolation::Process, &unasked);
        Some((runs? == Runs::Yes, None, reason))
    })
}

fn verdicts<'h>(image: &ImagePlatforms, hosts: impl Iterator<Item = &'h Host>) -> Vec<NodesVerdict> {
    alike(hosts, |host| {
        let verdict = runs_on(image, host, Isolation::Process);
        let takes = match verdict {
            PlatformMatch::Runs(platform) | PlatformMatch::NewerRevision(platform) => platform.os_version.clone(),
            _ => None,
        };
        Some((verdict.runs(), takes, verdict.reason(host)))
    })
}

/// Groups the nodes by the same result: if they run the image, which version they take, and why not.
fn alike<'h>(
    hosts: impl Iterator<Item = &'h Host>,
    result: impl Fn(&Host) -> Option<(bool, Option<String>, Option<String>)>,
) -> Vec<NodesVerdict> {
    let mut alike: BTreeMap<_, usize> = BTreeMap::new();
    for (host, result) in hosts.filter_map(|host| Some((host, result(host)?))) {
        *alike.entry((host.kernel.build, result)).or_default() += 1;
    }
    let verdicts = alike.into_iter().map(|((build, (runs, takes, reason)), node_count)| NodesVerdict {
        build: build.to_string(),
        node_count,
        runs,
        takes,
        reason,
    });
    verdicts.collect()
}

/// The location of the image for the target of a migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move<'a> {
    /// The same tag has a variant for the target, with this version.
    SameTag(&'a str),
    /// Another tag has a variant for the target.
    OtherTag(String),
    /// None of the tags that winpool checked has one.
    Nowhere,
    /// The registry does not provide the answer, for this reason.
    Unknown(&'a str),
}

/// The largest number of other tags that winpool checks for an image.
const MOST_OTHERS: usize = 4;

/// Returns the same image with other tags that may have a variant for this build: those that the registry lists, or else the usual one.
pub fn other_tags(name: &str, target: Build, listed: &[String]) -> Vec<String> {
    let mut found = tags::tagged_for_build(name, target, listed);
    found.truncate(MOST_OTHERS);
    if !found.is_empty() {
        return found;
    }
    if let Some(moved) = tags::for_build(name, target) {
        return vec![moved];
    }
    match by_build(target).and_then(|product| product.base_tags.first()) {
        Some(word) if tag(name).is_some() && !name.contains('@') && build_of(name).is_none() => {
            vec![format!("{name}-{word}")]
        }
        _ => Vec::new(),
    }
}

/// Returns the location of an image for these nodes. `None` if no registry was queried.
pub fn moved<'a>(
    name: &str,
    target: Build,
    hosts: &[&Host],
    isolation: Isolation,
    images: &'a Images,
) -> Option<Move<'a>> {
    let supposed = Host::supposed(target);
    let runs = |image: &'a ImagePlatforms| {
        let mut verdicts = if hosts.is_empty() {
            vec![runs_on(image, &supposed, isolation)]
        } else {
            hosts.iter().map(|host| runs_on(image, host, isolation)).collect()
        };
        verdicts.retain(|verdict| !matches!(verdict, PlatformMatch::NoVersion(_)));
        let version = |verdict: &PlatformMatch<'a>| match verdict {
            PlatformMatch::Runs(platform) | PlatformMatch::NewerRevision(platform) => Some(platform.version()),
            _ => None,
        };
        verdicts.iter().map(version).collect::<Option<Vec<_>>>()?.first().copied()
    };
    let own = images.get(name)?;
    if let Some(version) = own.ok().and_then(runs) {
        return Some(Move::SameTag(version));
    }
    let others = other_tags(name, target, &images.tags_beside(name));
    if let Some(other) = others.iter().find(|other| images.platforms(other).and_then(runs).is_some()) {
        return Some(Move::OtherTag(other.clone()));
    }
    let failed = |name: &str| match images.get(name) {
        Some(Err(unresolved)) if !unresolved.is_missing => Some(unresolved.reason.as_str()),
        _ => None,
    };
    let reason = match own {
        Err(unresolved) => Some(unresolved.reason.as_str()),
        Ok(_) => others.iter().find_map(|other| failed(other)),
    };
    Some(reason.map_or(Move::Nowhere, Move::Unknown))
}
