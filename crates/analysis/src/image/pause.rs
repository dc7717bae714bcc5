//! Kubernetes' pause images for Windows, from which the sandbox of each pod starts.

use winpool_core::windows::Build;
use winpool_core::windows::builds::by_build;

use super::known::name_of;

/// Returns how to give a node of this build a pause image that it runs.
pub(crate) fn remedy(build: Option<Build>) -> String {
    let configure =
        "configure another pause image in containerd on the node: sandbox_image, in containerd 2 pinned_images.sandbox";
    let versions = build.and_then(|build| by_build(build)?.pause_images);
    match (build, versions) {
        (Some(build), Some((first, last))) => {
            let until = last.map_or_else(|| " or later".to_owned(), |last| format!(" to {last}"));
            format!("{configure}; {} needs registry.k8s.io/pause:{first}{until}", name_of(build))
        }
        (Some(build), None) => {
            format!("{configure}; no version of registry.k8s.io/pause is known to be for {}", name_of(build))
        }
        (None, _) => configure.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_for_the_build_of_the_node_are_named() {
        for (build, ends) in [
            (17763, "registry.k8s.io/pause:3.4 or later"),
            (19042, "registry.k8s.io/pause:3.4.1 to 3.8"),
            (20348, "registry.k8s.io/pause:3.6 or later"),
            (26100, "registry.k8s.io/pause:3.10.2 or later"),
            (25398, "no version of registry.k8s.io/pause is known to be for Windows Server, version 23H2"),
        ] {
            let remedy = remedy(Some(Build::new(build)));
            assert!(remedy.ends_with(ends), "{remedy}");
        }
    }
}
