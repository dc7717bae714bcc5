//! Reads the information about Windows in the name of a container image.
//!
//! Microsoft's tags are `ltsc2022`, `1809`, `1809-KB4493509`, `10.0.17763.437`
//! (MicrosoftDocs/Virtualization-Documentation `version-compatibility.md`), and some images have a prefix:
//! `windowsservercore-ltsc2022`, `4.8-windowsservercore-ltsc2019`, `nanoserver-1809`.

use winpool_core::windows::Build;
use winpool_core::windows::builds::{self, Product};

/// Repositories that hold only Windows images, with all below them.
const WINDOWS_REPOSITORIES: [&str; 2] = ["mcr.microsoft.com/windows", "mcr.microsoft.com/dotnet/framework"];
/// Words of a tag or of a name that stand for Windows.
pub const WINDOWS_WORDS: [&str; 5] = ["windows", "win", "windowsservercore", "servercore", "nanoserver"];
/// The words among these that name a base image.
pub const BASE_IMAGES: [&str; 3] = ["windowsservercore", "servercore", "nanoserver"];
/// The prefixes of the year of a release, and of Microsoft's tags: `win2019`, `win1809`, `winltsc2022` (Datadog's agent).
pub const BEFORE_A_YEAR: [&str; 3] = ["win", "ws", "windows"];

/// Microsoft's Windows images on Docker Hub, which get no more updates, with their current repositories.
const DOCKER_HUB: [(&str, &str); 5] = [
    ("microsoft/iis", "mcr.microsoft.com/windows/servercore/iis"),
    ("microsoft/aspnet", "mcr.microsoft.com/dotnet/framework/aspnet"),
    ("microsoft/dotnet-framework", "mcr.microsoft.com/dotnet/framework/runtime"),
    ("microsoft/windowsservercore", "mcr.microsoft.com/windows/servercore"),
    ("microsoft/nanoserver", "mcr.microsoft.com/windows/nanoserver"),
];

/// Returns the repository that replaces this image's, if that is one of Microsoft's on Docker Hub.
pub fn successor(image: &str) -> Option<&'static str> {
    let name = repository(image);
    let name = ["docker.io/", "index.docker.io/"].iter().find_map(|host| name.strip_prefix(host)).unwrap_or(name);
    DOCKER_HUB.iter().find(|(old, _)| *old == name).map(|(_, new)| *new)
}

/// True if the image can only be for Windows, by its repository or tag.
pub fn is_for_windows(image: &str) -> bool {
    is_in_windows_repository(image) || tag(image).is_some_and(|tag| has_windows_word(tag) || words(tag).any(names_base))
}

/// Returns the build in the tag, if the tag is unambiguous.
///
/// A bare number such as 1809, 2004 or 2019 is a Windows version only if another part of the name indicates Windows.
pub fn build_of(image: &str) -> Option<Build> {
    let tag = tag(image)?;
    let is_windows = is_in_windows_repository(image) || has_windows_word(tag) || has_windows_word(last_part(image));
    let by_word = words(tag).find_map(|word| TagWord::read(word).filter(|word| word.is_alone || is_windows));
    by_word.map(|word| word.product.build).or_else(|| full_build(tag).filter(|_| is_windows))
}

/// A word of a tag that names a build.
#[derive(Clone, Copy, Debug)]
pub struct TagWord<'a> {
    pub product: &'static Product,
    /// The version in it: `2019` of `win2019`, `21H2` of `servercore21H2`.
    pub version: &'a str,
    /// True if it needs no other word beside it.
    is_alone: bool,
}

impl<'a> TagWord<'a> {
    pub fn read(word: &'a str) -> Option<Self> {
        let after = |prefix: &str| {
            let (start, version) = word.split_at_checked(prefix.len())?;
            start.eq_ignore_ascii_case(prefix).then_some(version)
        };
        builds::all().iter().find_map(|product| {
            let is_year = |text: &&str| text.eq_ignore_ascii_case(product.version);
            let is_base_tag = |text: &&str| product.base_tags.iter().any(|tag| text.eq_ignore_ascii_case(tag));
            let is_half_year = |text: &&str| product.half_year.is_some_and(|half| text.eq_ignore_ascii_case(half));
            if is_base_tag(&word) || is_year(&word) {
                let is_number = word.starts_with(|c: char| c.is_ascii_digit());
                return Some(Self { product, version: word, is_alone: !is_number });
            }
            let is_after_base = |text: &&str| is_half_year(text) || is_base_tag(text) || is_year(text);
            let is_after_windows = |text: &&str| is_base_tag(text) || is_year(text);
            let mut years = BEFORE_A_YEAR.into_iter().filter_map(after);
            let after_base = || BASE_IMAGES.into_iter().filter_map(after).find(is_after_base);
            let version = years.find(is_after_windows).or_else(after_base)?;
            Some(Self { product, version, is_alone: true })
        })
    }
}

/// Returns true if the word names a build by itself, or the base image and a version, such as `servercore1809` of GitLab.
fn names_base(word: &str) -> bool {
    let with_version = |base: &&str| {
        let start = word.get(..base.len()).is_some_and(|start| start.eq_ignore_ascii_case(base));
        start && word[base.len()..].starts_with(|next: char| next.is_ascii_digit())
    };
    TagWord::read(word).is_some_and(|word| word.is_alone) || BASE_IMAGES.iter().any(with_version)
}

fn is_in_windows_repository(image: &str) -> bool {
    let repository = repository(image);
    let is_in = |windows_repository: &str| {
        let below = repository.strip_prefix(windows_repository);
        below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
    };
    WINDOWS_REPOSITORIES.into_iter().any(is_in) || successor(image).is_some()
}

/// True if one of the words stands for Windows. The name of a Linux program for Windows nodes may have one too.
pub fn has_windows_word(text: &str) -> bool {
    words(text).any(|word| WINDOWS_WORDS.iter().any(|sign| word.eq_ignore_ascii_case(sign)))
}

/// Returns the image's name without tag and digest.
pub fn repository(image: &str) -> &str {
    let name = &image[..image.len() - digest(image).len()];
    tag(image).map_or(name, |tag| &name[..name.len() - tag.len() - 1])
}

/// Returns the last part of the repository: `iis` of `mcr.microsoft.com/windows/servercore/iis`.
pub fn last_part(image: &str) -> &str {
    let repository = repository(image);
    repository.rsplit_once('/').map_or(repository, |(_, last)| last)
}

/// Returns the digest with its `@`; empty if there is none.
pub fn digest(image: &str) -> &str {
    image.find('@').map_or("", |at| &image[at..])
}

/// Returns the part after the last `:`, unless that is a port.
pub fn tag(image: &str) -> Option<&str> {
    let name = &image[..image.len() - digest(image).len()];
    name.rsplit_once(':').map(|(_, tag)| tag).filter(|tag| !tag.contains('/'))
}

/// Returns the parts of a tag between its separators.
pub fn words(tag: &str) -> impl Iterator<Item = &str> {
    tag.split(is_separator)
}

pub fn is_separator(c: char) -> bool {
    matches!(c, '-' | '_' | '.' | '+')
}

/// Parses `10.0.17763.437`, with or without a suffix after `-`.
fn full_build(tag: &str) -> Option<Build> {
    let version = tag.split('-').find(|word| word.starts_with("10.0."))?;
    let mut parts = version.split('.');
    let build = parts.nth(2)?;
    format!("10.0.{build}").parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_tag_is_that_of_two_builds() {
        let tags: Vec<_> = builds::all().iter().flat_map(|product| product.base_tags).collect();
        assert_eq!(tags.iter().collect::<BTreeSet<_>>().len(), tags.len());
    }

    #[test]
    fn tags_name_builds_only_where_they_can_mean_nothing_else() {
        for (image, build) in [
            ("mcr.microsoft.com/windows/servercore:ltsc2019", Some(17763)),
            ("mcr.microsoft.com/windows/nanoserver:1809", Some(17763)),
            ("mcr.microsoft.com/windows/nanoserver:1809-KB4493509", Some(17763)),
            ("mcr.microsoft.com/windows/servercore:10.0.17763.437", Some(17763)),
            ("mcr.microsoft.com/windows/servercore:10.0.20348.2655-amd64", Some(20348)),
            ("mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2022", Some(20348)),
            ("mcr.microsoft.com/dotnet/framework/aspnet:4.8-windowsservercore-ltsc2019", Some(17763)),
            ("mcr.microsoft.com/dotnet/aspnet:8.0-nanoserver-ltsc2025@sha256:0123", Some(26100)),
            ("registry.example.com:5000/app:1.4-LTSC2022", Some(20348)),
            ("golang:1.23-nanoserver-1809", Some(17763)),
            ("mcr.microsoft.com/windows/servercore:20H2", Some(19042)),
            ("registry.k8s.io/pause:3.9-windows-amd64-1809", Some(17763)),
            ("fluent/fluent-bit:windows-2019-3.2", Some(17763)),
            ("mcr.microsoft.com/windows:1809", Some(17763)),
            ("example.com/app:1.2-win2019", Some(17763)),
            ("example.com/app:windows2022", Some(20348)),
            ("example.com/app:ws2025", Some(26100)),
            ("example.com/app:windows-1809", Some(17763)),
            ("example.com/app-windows:2022", Some(20348)),
            ("gitlab/gitlab-runner-helper:x86_64-v17.0.0-servercore1809", Some(17763)),
            ("gitlab/gitlab-runner-helper:x86_64-v17.0.0-nanoserver21H2", Some(20348)),
            ("gitlab/gitlab-runner-helper:x86_64-v18.9.0-servercore24H2", Some(26100)),
            ("example.com/app:1.0-NanoServer1909", Some(18363)),
            ("example.com/app:servercoreltsc2022", Some(20348)),
            ("example.com/app:windowsservercore2019", Some(17763)),
            ("datadog/agent:7.58.0-win1809-servercore-amd64", Some(17763)),
            ("datadog/agent:7.58.0-winltsc2022-amd64", Some(20348)),
            ("jenkins/inbound-agent:jdk21-nanoserver-ltsc2019", Some(17763)),
            ("jenkins/inbound-agent:3261.v9-1-jdk17-windowsservercore-1809", Some(17763)),
            ("newrelic/infrastructure-windows:3.2.1-ltsc2019", Some(17763)),
            ("newrelic/infrastructure-windows:3-windows-2022", Some(20348)),
            ("fluent/fluent-bit:windows-2022-3.1.0", Some(20348)),
            ("calico/node-windows:v3.29.0-windows-ltsc2022", Some(20348)),
            ("calico/cni-windows:v3.29.0-windows-1809", Some(17763)),
            ("registry.k8s.io/sig-storage/livenessprobe:v2.15.0-windows-amd64-ltsc2022", Some(20348)),
            ("mcr.microsoft.com/oss/kubernetes-csi/azuredisk-csi:v1.31.0-windows-1809-amd64", Some(17763)),
            ("mcr.microsoft.com/dotnet/framework/aspnet:4.8.1-20250114-windowsservercore-ltsc2022", Some(20348)),
            ("mcr.microsoft.com/dotnet/runtime:9.0-windowsservercore-ltsc2025", Some(26100)),
            ("mcr.microsoft.com/powershell:lts-7.4-windowsservercore-1809", Some(17763)),
            ("chocolatey/choco:v2.4.0-windows-ltsc2019", Some(17763)),
            ("octopusdeploy/worker-tools:6.3.0-windows.ltsc2019", Some(17763)),
            ("rancher/pause:3.6-windows-ltsc2022-amd64", Some(20348)),
            ("grafana/alloy:v1.5.0-windowsservercore-ltsc2022", Some(20348)),
            ("example.com/app:winter2019", None),
            ("example.com/app:21H2", None),
            ("example.com/app:servercore21H1", None),
            ("example.com/minio:RELEASE.2022-11-17", None),
            ("example.com/app:win32", None),
            ("example.com/app:2004", None),
            ("example.com/app:1809", None),
            ("example.com/app:10.0.17763", None),
            ("example.com/ltsc2022/app:1.0", None),
            ("example.com/ltsc2022", None),
            ("registry.example.com:5000/ltsc2022", None),
            ("example.com/app:notltsc2022", None),
            ("mcr.microsoft.com/windows/servercore", None),
            ("mcr.microsoft.com/windows/servercore:latest", None),
            ("", None),
        ] {
            assert_eq!(build_of(image), build.map(Build::new), "{image}");
        }
    }

    #[test]
    fn windows_images_are_recognised_by_repository_or_tag() {
        for image in [
            "mcr.microsoft.com/windows/servercore",
            "mcr.microsoft.com/dotnet/framework/runtime:4.8",
            "golang:nanoserver",
            "app:ltsc2022",
            "microsoft/iis",
            "docker.io/microsoft/nanoserver:sac2016",
            "mcr.microsoft.com/windows:1809",
            "app:1.0-windows-amd64",
            "app:win2019",
            "gitlab/gitlab-runner-helper:x86_64-v16.7.0-servercore1809",
            "gitlab/gitlab-runner-helper:x86_64-v17.0.0-nanoserver21H2",
        ] {
            assert!(is_for_windows(image), "{image}");
        }
        assert!(has_windows_word(last_part("example.com/cyclonus-windows:v1")));
        for image in [
            "nginx",
            "example.com/cyclonus-windows:v1",
            "mcr.microsoft.com/windowsx",
            "mcr.microsoft.com/dotnet/aspnet:8.0",
            "windows:5000/app:1",
            "example.com/windows/app:1809",
            "example.com/app:win32",
            "example.com/app:servercores",
        ] {
            assert!(!is_for_windows(image), "{image}");
        }
    }

    proptest! {
        #[test]
        fn no_image_panics_and_one_with_a_build_is_for_windows(
            image in prop_oneof![any::<String>(), "[a-z/.:@_-]{0,12}(ltsc2022|1809|10\\.0\\.17763)?[a-z/.:@-]{0,8}"]
        ) {
            prop_assert!(build_of(&image).is_none() || is_for_windows(&image) || has_windows_word(last_part(&image)));
        }
    }
}
