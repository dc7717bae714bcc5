//! Reads the information about Windows in the name of a container image.
//!
//! Microsoft's tags are `ltsc2022`, `1809`, `1809-KB4493509`, `10.0.17763.437`
//! (MicrosoftDocs/Virtualization-Documentation `version-compatibility.md`), and some images have a prefix:
//! `windowsservercore-ltsc2022`, `4.8-windowsservercore-ltsc2019`, `nanoserver-1809`.

use std::cmp::Reverse;

use super::{
    Build,
    product::{PRODUCTS, Product},
};

/// Repositories that hold only Windows images.
const WINDOWS_REPOSITORIES: [&str; 2] = ["mcr.microsoft.com/windows/", "mcr.microsoft.com/dotnet/framework/"];
/// Parts of a tag that stand for Microsoft's base images.
const BASE_IMAGES: [&str; 3] = ["windowsservercore", "servercore", "nanoserver"];

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
    let name = ["docker.io/", "index.docker.io/"].iter().find_map(|host| image.strip_prefix(host)).unwrap_or(image);
    let repository = name.split([':', '@']).next()?;
    DOCKER_HUB.iter().find(|(old, _)| *old == repository).map(|(_, new)| *new)
}

/// Returns true if the image can only be for Windows.
pub fn is_for_windows(image: &str) -> bool {
    is_in_windows_repository(image) || build_of(image).is_some() || names_base_image(image)
}

/// Returns the build in the tag, if the tag is unambiguous.
///
/// A bare number such as 1809 or 2004 is a Windows version only if another part of the name indicates Windows.
pub fn build_of(image: &str) -> Option<Build> {
    let tag = tag(image)?;
    let is_windows = is_in_windows_repository(image) || names_base_image(image);
    let by_word = PRODUCTS.iter().find(|product| {
        product.image_tags.iter().any(|name| {
            let is_plain = name.bytes().next().is_some_and(|byte| byte.is_ascii_digit());
            (is_windows || !is_plain) && words(tag).any(|word| word.eq_ignore_ascii_case(name))
        })
    });
    by_word.map(|product| product.build).or_else(|| full_build(tag).filter(|_| is_windows))
}

/// Returns the same image for another build. Returns `None` unless the tag consists of one word for the build and words
/// that do not depend on the build, or if the latter could be read as the build.
pub fn for_build(image: &str, build: Build) -> Option<String> {
    let (from, tag) = (build_of(image)?, tag(image)?);
    let to = super::product::by_build(build)?.image_tags.first()?;
    let mut old = words(tag).filter(|word| {
        let of_product = PRODUCTS.iter().filter(|product| product.build == from);
        of_product.flat_map(|product| product.image_tags).any(|name| word.eq_ignore_ascii_case(name))
    });
    let (Some(old), None) = (old.next(), old.next()) else { return None };
    // The same letters may be part of another word.
    let at = old.as_ptr().addr() - tag.as_ptr().addr();
    // An update such as KB4493509 belongs to the old build.
    let has_update = words(tag).any(|word| word.to_ascii_uppercase().starts_with("KB"));
    let start = image.len() - tag.len() - digest(image).len();
    let moved = format!("{}{to}{}", &image[..start + at], &tag[at + old.len()..]);
    (!has_update && build_of(&moved) == Some(build)).then_some(moved)
}

/// Returns the same image with those of these tags that name `build` and otherwise agree with the image's own tag. A tag without a version
/// agrees with tags that add one, also with the name of a base image: `1.4` with `1.4-windowsservercore-ltsc2025`.
///
/// Microsoft's word for the build comes first, then other words, then full versions, the newest first.
pub fn tagged_for_build(image: &str, build: Build, tags: &[String]) -> Vec<String> {
    let Some(tag) = tag(image) else { return Vec::new() };
    let own = versions(tag);
    let is_base = |word: &str| word.is_empty() || word == "windows" || BASE_IMAGES.contains(&word);
    let agrees = |other: &Version<'_>| {
        let adds = || other.before.strip_prefix(tag).is_some_and(|added| words(added).all(is_base));
        own.iter().any(|own| (own.before, own.after) == (other.before, other.after)) || other.after.is_empty() && adds()
    };
    let ranked = tags.iter().filter(|other| *other != tag).filter_map(|other| {
        let versions = versions(other).into_iter().filter(|version| version.build == build && agrees(version));
        Some((versions.map(|version| version.rank).min()?, other))
    });
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_unstable();
    let repository = &image[..image.len() - tag.len() - digest(image).len()];
    ranked.into_iter().map(|(_, other)| format!("{repository}{other}")).collect()
}

/// A word of a tag that can be a Windows version.
struct Version<'a> {
    /// The parts of the tag before and after the word.
    before: &'a str,
    after: &'a str,
    build: Build,
    /// Lower for words that are more usual, and for newer revisions.
    rank: (usize, Reverse<u32>),
}

fn versions(tag: &str) -> Vec<Version<'_>> {
    let mut found = Vec::new();
    for at in (0..tag.len()).filter(|at| *at == 0 || is_separator(char::from(tag.as_bytes()[at - 1]))) {
        let (before, rest) = tag.split_at(at);
        for Product { build, image_tags, version, .. } in PRODUCTS {
            let mut add = |after, rank| found.push(Version { before, after, build: *build, rank });
            for (rank, word) in image_tags.iter().chain([version]).enumerate() {
                match rest.split_at_checked(word.len()) {
                    Some((own, after)) if own.eq_ignore_ascii_case(word) => add(after, (rank, Reverse(0))),
                    _ => {}
                }
            }
            if let Some(after) = rest.strip_prefix(&build.to_string()) {
                let digits =
                    after.strip_prefix('.').map_or("", |text| text.split(is_separator).next().unwrap_or_default());
                let revision = digits.parse().ok();
                let after = revision.map_or(after, |_: u32| &after[1 + digits.len()..]);
                add(after, (usize::MAX, Reverse(revision.unwrap_or_default())));
            }
        }
    }
    found.retain(|version| version.after.is_empty() || version.after.starts_with(is_separator));
    found
}

fn is_in_windows_repository(image: &str) -> bool {
    WINDOWS_REPOSITORIES.iter().any(|repository| image.starts_with(repository)) || successor(image).is_some()
}

fn names_base_image(image: &str) -> bool {
    tag(image).is_some_and(|tag| words(tag).any(|word| BASE_IMAGES.contains(&word.to_ascii_lowercase().as_str())))
}

fn digest(image: &str) -> &str {
    image.find('@').map_or("", |at| &image[at..])
}

/// Returns the part after the last `:`, unless that is a port.
fn tag(image: &str) -> Option<&str> {
    let name = &image[..image.len() - digest(image).len()];
    name.rsplit_once(':').map(|(_, tag)| tag).filter(|tag| !tag.contains('/'))
}

fn words(tag: &str) -> impl Iterator<Item = &str> {
    tag.split(is_separator)
}

fn is_separator(c: char) -> bool {
    matches!(c, '-' | '_' | '.')
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
    use proptest::prelude::*;

    use super::*;

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
        ] {
            assert!(is_for_windows(image), "{image}");
        }
        for image in
            ["nginx", "mcr.microsoft.com/dotnet/aspnet:8.0", "windows:5000/app:1", "example.com/windows/app:1809"]
        {
            assert!(!is_for_windows(image), "{image}");
        }
    }

    #[test]
    fn an_image_moves_to_another_build_if_only_the_word_for_it_changes() {
        let to_2025 = |image: &str| for_build(image, Build::new(26100));
        for (image, moved) in [
            ("mcr.microsoft.com/windows/servercore:ltsc2019", Some("mcr.microsoft.com/windows/servercore:ltsc2025")),
            ("app:4.8-windowsservercore-ltsc2022", Some("app:4.8-windowsservercore-ltsc2025")),
            ("app:1.0-ltsc2019@sha256:0123", Some("app:1.0-ltsc2025")),
            ("mcr.microsoft.com/windows/nanoserver:1809", Some("mcr.microsoft.com/windows/nanoserver:ltsc2025")),
            ("mcr.microsoft.com/windows/nanoserver:1809-KB4493509", None),
            ("mcr.microsoft.com/windows/servercore:10.0.17763.437", None),
            ("app:1.0", None),
            ("app:oldltsc2019-ltsc2019", Some("app:oldltsc2019-ltsc2025")),
            ("app:1809-windowsservercore-ltsc2019", None),
            ("app:ltsc2019-to-ltsc2022", None),
        ] {
            assert_eq!(to_2025(image).as_deref(), moved, "{image}");
        }
        assert_eq!(for_build("app:ltsc2022", Build::new(25398)), None, "23H2 has no images of its own");
    }

    #[test]
    fn tags_that_differ_in_the_windows_version_alone_are_found_among_those_of_a_registry() {
        let tags = [
            "latest",
            "1.4",
            "1.4-ltsc2019",
            "1.4-ltsc2025",
            "1.4-LTSC2025",
            "1.4-2025",
            "1.4-10.0.26100.999",
            "1.4-10.0.26100.4061",
            "1.4-10.0.26100",
            "1.5-ltsc2025",
            "1.40-ltsc2025",
            "1.4-ltsc2025-debug",
            "1.4-windowsservercore-ltsc2025",
            "1.4-linux-2025",
            "ltsc2025",
            "2025",
            "2025-x",
            "10.0.26100.1",
            "ltsc2025-amd64",
            "windows-2025",
            "4.8_2025_a",
            "2025.1",
        ];
        let tags = tags.map(str::to_owned);
        let full = ["1.4-10.0.26100.4061", "1.4-10.0.26100.999", "1.4-10.0.26100"];
        let words = ["1.4-LTSC2025", "1.4-ltsc2025"];
        let all = [&words[..], &["1.4-2025"], &full].concat();
        for (tag, expected) in [
            ("1.4-ltsc2019", &all[..]),
            ("1.4-2019@sha256:0", &all),
            ("1.4-10.0.17763.1", &all),
            ("1.4", &[&words[..], &["1.4-windowsservercore-ltsc2025", "1.4-2025"], &full].concat()),
            ("ltsc2019", &["ltsc2025", "2025", "10.0.26100.1"]),
            ("1809", &["ltsc2025", "2025", "10.0.26100.1"]),
            ("10.0.17763.437", &["ltsc2025", "2025", "10.0.26100.1"]),
            ("10.0.17763.437-amd64", &["ltsc2025-amd64"]),
            ("1809-KB4493509", &[]),
            ("windows-2019", &["windows-2025"]),
            ("4.8_2019_a", &["4.8_2025_a"]),
            ("ltsc2025", &["2025", "10.0.26100.1"]),
            ("2", &[]),
        ] {
            let found = tagged_for_build(&format!("a.b:5000/app:{tag}"), Build::new(26100), &tags);
            let expected: Vec<_> = expected.iter().map(|tag| format!("a.b:5000/app:{tag}")).collect();
            assert_eq!(found, expected, "{tag}");
        }
        assert!(tagged_for_build("a.b:5000/app", Build::new(26100), &tags).is_empty(), "it has no tag");
    }

    proptest! {
        #[test]
        fn no_image_panics_and_one_with_a_build_is_for_windows(
            image in prop_oneof![any::<String>(), "[a-z/.:@_-]{0,12}(ltsc2022|1809|10\\.0\\.17763)?[a-z/.:@-]{0,8}"]
        ) {
            let _ = for_build(&image, Build::new(26100));
            let _ = tagged_for_build(&image, Build::new(26100), std::slice::from_ref(&image));
            prop_assert!(build_of(&image).is_none() || is_for_windows(&image));
        }
    }
}
