//! The platforms of the images of workloads, and their descriptions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use winpool_core::windows::{Build, builds};

use super::{ImagePlatforms, Platform};

/// The answers of registries, by the image as the workload names it. Empty if no registry was queried.
#[derive(Clone, Debug, Default)]
pub struct Images(Arc<BTreeMap<String, Result<ImagePlatforms, Unresolved>>>);

/// An image whose platforms are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresolved {
    /// The reason, in words.
    pub reason: String,
    /// True if the registry answered that it does not have the image.
    pub is_missing: bool,
}

impl Images {
    pub fn add(&mut self, image: &str, answer: Result<ImagePlatforms, Unresolved>) {
        Arc::make_mut(&mut self.0).insert(image.to_owned(), answer);
    }

    /// Returns the answer for an image; `None` if the image was not resolved.
    pub fn get(&self, image: &str) -> Option<Result<&ImagePlatforms, &Unresolved>> {
        self.0.get(image).map(Result::as_ref)
    }

    /// Returns the platforms of an image, if they are known.
    pub fn platforms(&self, image: &str) -> Option<&ImagePlatforms> {
        self.get(image)?.ok()
    }

    /// Returns the tags under which this repository was resolved.
    pub fn tags_beside(&self, image: &str) -> Vec<String> {
        let image = image.split('@').next().unwrap_or(image);
        let Some((repository, _)) = image.rsplit_once(':') else { return Vec::new() };
        let tags = self.0.keys().filter_map(|name| name.strip_prefix(repository)?.strip_prefix(':'));
        tags.filter(|tag| !tag.contains(['/', '@'])).map(str::to_owned).collect()
    }

    /// True if a registry did not answer for one of the images that were to be resolved. That it does not have an image
    /// is an answer.
    pub fn has_unknown(&self) -> bool {
        self.0.values().any(|answer| answer.as_ref().is_err_and(|unresolved| !unresolved.is_missing))
    }

    /// True if no image was resolved.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Describes the platforms of an image: `Windows 2019, 2022; Linux amd64, arm64`.
pub fn summary(image: &ImagePlatforms) -> String {
    let mut systems: BTreeMap<&str, BTreeSet<(Option<Build>, String)>> = BTreeMap::new();
    for platform in &image.platforms {
        systems.entry(&platform.os).or_default().insert(word(platform));
    }
    let words = systems.iter().rev().map(|(system, words)| {
        let words: Vec<&str> = words.iter().map(|(_, word)| word.as_str()).collect();
        let system = match *system {
            "windows" => "Windows",
            "linux" => "Linux",
            "" => "an unknown system",
            other => other,
        };
        format!("{system} {}", words.join(", "))
    });
    let words: Vec<String> = words.collect();
    if words.is_empty() { "no platform".to_owned() } else { words.join("; ") }
}

/// Returns the version of a Windows variant, or the architecture of another variant, with its sort key.
fn word(platform: &Platform) -> (Option<Build>, String) {
    let Platform { architecture, variant, os_version, .. } = platform;
    if !platform.is_windows() {
        let variant = variant.as_ref().map_or_else(String::new, |variant| format!("/{variant}"));
        return (None, format!("{architecture}{variant}"));
    }
    let build = platform.build_and_revision().map(|(build, _)| build);
    let name = match (build, os_version) {
        (Some(build), _) => short(build),
        (None, Some(version)) => version.clone(),
        (None, None) => "of any version".to_owned(),
    };
    (build, if architecture == "amd64" { name } else { format!("{name} {architecture}") })
}

/// Returns the name of the release with this build, or else the build.
pub fn name_of(build: Build) -> String {
    builds::by_build(build).map_or_else(|| build.to_string(), |product| product.name.to_owned())
}

/// Returns the version of a release, such as `2022`, or else the build.
pub fn short(build: Build) -> String {
    builds::by_build(build).map_or_else(|| build.to_string(), |product| product.version.to_owned())
}

/// Returns the same of a build as text; other text as it is.
pub fn short_of(build: &str) -> String {
    build.parse().map_or_else(|_| build.to_owned(), short)
}
