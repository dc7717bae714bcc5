//! Tags under which a registry may have an image for another Windows build.

use std::cmp::Reverse;

use winpool_core::windows::Build;
use winpool_core::windows::builds::{self, Product, by_build};

use super::name::{BASE_IMAGES, BEFORE_A_YEAR, TagWord, WINDOWS_WORDS, build_of, digest, is_separator, tag, words};

/// Returns the same image for another build. Returns `None` unless the tag consists of one word for the build and words
/// that do not depend on the build, or if the latter could be read as the build.
pub fn for_build(image: &str, build: Build) -> Option<String> {
    let (from, tag) = (build_of(image)?, tag(image)?);
    let mut version_words = words(tag).filter_map(|word| Some((word, TagWord::read(word)?)));
    let (Some((old, word)), None) = (version_words.next(), version_words.next()) else { return None };
    if word.product.build != from {
        return None;
    }
    let to = for_release(old, word, by_build(build)?)?;
    // The same letters may be part of another word.
    let at = old.as_ptr().addr() - tag.as_ptr().addr();
    // An update such as KB4493509 belongs to the old build.
    let has_update = words(tag).any(|word| word.to_ascii_uppercase().starts_with("KB"));
    let start = image.len() - tag.len() - digest(image).len();
    let moved = format!("{}{to}{}", &image[..start + at], &tag[at + old.len()..]);
    (!has_update && build_of(&moved) == Some(build)).then_some(moved)
}

/// Returns the same word for another release.
fn for_release(word: &str, TagWord { product, version, .. }: TagWord<'_>, to: &Product) -> Option<String> {
    let prefix = &word[..word.len() - version.len()];
    let is_version = |text: &&str| version.eq_ignore_ascii_case(text);
    let base_tag = *to.base_tags.first()?;
    let is_year = !prefix.is_empty() && !is_base(prefix) && is_version(&product.version);
    let version = if is_base(prefix) && product.half_year.as_ref().is_some_and(is_version) {
        to.half_year?
    } else if !is_year && product.base_tags.iter().any(is_version) {
        base_tag
    } else {
        to.version
    };
    Some(format!("{prefix}{version}"))
}

/// True for the name of a base image, such as `servercore`.
fn is_base(word: &str) -> bool {
    BASE_IMAGES.iter().any(|base| word.eq_ignore_ascii_case(base))
}

/// Returns the same image with those of these tags that name `build` and otherwise agree with the image's own tag. A tag without
/// a version agrees with tags that add one, also with the name of a base image: `1.4` with `1.4-windowsservercore-ltsc2025`.
///
/// Microsoft's word for the build comes first, then other words, then full versions, the newest first.
pub fn tagged_for_build(image: &str, build: Build, tags: &[String]) -> Vec<String> {
    let Some(tag) = tag(image) else { return Vec::new() };
    let own_versions = versions(tag);
    let is_added = |word: &str| word.is_empty() || WINDOWS_WORDS.contains(&word);
    let agrees = |other: &Version<'_>| {
        let adds = || other.before.strip_prefix(tag).is_some_and(|added| words(added).all(is_added));
        own_versions.iter().any(|own| (own.before, own.after) == (other.before, other.after))
            || other.after.is_empty() && adds()
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
    let mut versions = Vec::new();
    for (before, rest) in (0..tag.len()).filter_map(|at| tag.split_at_checked(at)) {
        // A version follows a separator, or the name of a base image.
        let start = before.rsplit(is_separator).next().unwrap_or_default();
        if !start.is_empty() && !is_base(start) {
            continue;
        }
        for Product { build, version, base_tags, half_year, .. } in builds::all() {
            let mut add = |after, rank| versions.push(Version { before, after, build: *build, rank });
            let after_windows = || base_tags.iter().chain([version]);
            let years =
                BEFORE_A_YEAR.iter().flat_map(|prefix| after_windows().map(move |word| format!("{prefix}{word}")));
            let plain = base_tags.iter().chain([version]).chain(half_year).map(|word| (*word).to_owned());
            for (rank, word) in plain.chain(years).enumerate() {
                match rest.split_at_checked(word.len()) {
                    Some((candidate, after)) if candidate.eq_ignore_ascii_case(&word) => add(after, (rank, Reverse(0))),
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
    versions.retain(|version| version.after.is_empty() || version.after.starts_with(is_separator));
    versions
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
            ("app:windows-2019-3.2", Some("app:windows-2025-3.2")),
            ("app:win2022", Some("app:win2025")),
            ("app:7-winltsc2022-amd64", Some("app:7-winltsc2025-amd64")),
            ("app:7-win1809-amd64", Some("app:7-winltsc2025-amd64")),
            ("app:oldltsc2019-ltsc2019", Some("app:oldltsc2019-ltsc2025")),
            ("app:1809-windowsservercore-ltsc2019", None),
            ("app:ltsc2019-to-ltsc2022", None),
            ("helper:x86_64-v17.0.0-servercore1809", Some("helper:x86_64-v17.0.0-servercore24H2")),
            ("helper:nanoserver21H2", Some("helper:nanoserver24H2")),
            ("helper:nanoserver1909", Some("helper:nanoserverltsc2025")),
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
            "v1-servercore24H2",
            "v1-nanoserver24H2",
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
            ("v1-servercore1809", &["v1-servercore24H2"]),
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
        fn no_image_panics_and_one_with_a_build_moves_to_the_other(
            image in prop_oneof![any::<String>(), "[a-z/.:@_-]{0,12}(ltsc2022|1809|10\\.0\\.17763)?[a-z/.:@-]{0,8}"]
        ) {
            if let Some(moved) = for_build(&image, Build::new(26100)) {
                prop_assert_eq!(build_of(&moved), Some(Build::new(26100)));
            }
            let _ = tagged_for_build(&image, Build::new(26100), std::slice::from_ref(&image));
        }
    }
}
