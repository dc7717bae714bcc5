//! Image names, completed as Docker and containerd do (distribution/reference `normalize.go`, `regexp.go`).

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::name;

const DEFAULT_REGISTRY: &str = "docker.io";
const DEFAULT_TAG: &str = "latest";
/// The longest repository name that distribution/reference accepts.
const LONGEST_REPOSITORY: usize = 255;

/// The full name of an image: `nginx` is `docker.io/library/nginx:latest`.
///
/// It has a tag, a digest, or both. If it has both, the digest is used.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ImageReference {
    /// The host and optional port: `docker.io`, `localhost:5000`.
    pub registry: String,
    /// The repository: `library/nginx`.
    pub repository: String,
    /// The tag: `1.27`.
    pub tag: Option<String>,
    /// The digest: `sha256:…`.
    pub digest: Option<String>,
}

impl ImageReference {
    /// Returns the digest, or else the tag, for a request to the registry.
    pub fn version(&self) -> &str {
        self.digest.as_deref().or(self.tag.as_deref()).unwrap_or(DEFAULT_TAG)
    }

    /// Returns the same repository with another tag.
    pub fn with_tag(&self, tag: &str) -> Self {
        Self { tag: Some(tag.to_owned()), digest: None, ..self.clone() }
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        self.digest.as_ref().map_or(Ok(()), |digest| write!(f, "@{digest}"))
    }
}

/// The text is not the name of an image.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{read:?} is not the name of an image: {problem}")]
pub struct ParseReferenceError {
    read: String,
    problem: &'static str,
}

impl FromStr for ImageReference {
    type Err = ParseReferenceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map_err(|problem| ParseReferenceError { read: text.chars().take(80).collect(), problem })
    }
}

fn parse(text: &str) -> Result<ImageReference, &'static str> {
    let (name, tag, digest) = (name::repository(text), name::tag(text), name::digest(text).strip_prefix('@'));
    // Docker and containerd treat such a name as the ID of an image.
    if name.len() == 64 && name.bytes().all(is_lower_hex) {
        return Err("64 hexadecimal digits are the ID of an image; write <repository>@sha256:<digits>");
    }
    let (registry, repository) = match name.split_once('/') {
        Some((first, rest)) if is_registry(first) => (first, rest.to_owned()),
        _ => (DEFAULT_REGISTRY, name.to_owned()),
    };
    let registry = if registry == "index.docker.io" { DEFAULT_REGISTRY } else { registry };
    let repository = if registry == DEFAULT_REGISTRY && !repository.contains('/') {
        format!("library/{repository}")
    } else {
        repository
    };
    if !is_host(registry) {
        return Err("the registry in front of the first / must be a host name, perhaps with a port");
    }
    if repository.len() > LONGEST_REPOSITORY || !repository.split('/').all(is_component) {
        return Err("a repository is made of lower-case letters, digits and single separators (. _ __ - /)");
    }
    if tag.is_some_and(|tag| !is_tag(tag)) {
        return Err("a tag is made of up to 128 letters, digits, _ . and -");
    }
    if digest.is_some_and(|digest| !is_digest(digest)) {
        return Err("a digest is sha256:<64 hexadecimal digits> or sha512:<128 hexadecimal digits>");
    }
    let tag = tag.or(if digest.is_none() { Some(DEFAULT_TAG) } else { None });
    Ok(ImageReference {
        registry: registry.to_owned(),
        repository,
        tag: tag.map(str::to_owned),
        digest: digest.map(str::to_owned),
    })
}

/// True if the text before the first `/` is a registry and not the beginning of the repository.
fn is_registry(first: &str) -> bool {
    first == "localhost" || first.contains(['.', ':']) || first.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn is_host(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, "")) => (Err(address), None),
        Some((address, port)) => (Err(address), port.strip_prefix(':').or(Some("x"))),
        None => match text.split_once(':') {
            Some((host, port)) => (Ok(host), Some(port)),
            None => (Ok(text), None),
        },
    };
    let is_named = match host {
        Ok(name) => name.split('.').all(|label| {
            let is_inside = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            !label.is_empty() && label.bytes().all(is_inside) && !label.starts_with('-') && !label.ends_with('-')
        }),
        Err(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
    };
    is_named && port.is_none_or(|port| port.parse::<u16>().is_ok() && port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// True for lower-case letters and digits, separated by `.`, `_`, `__` or any number of `-`.
fn is_component(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let separators = text.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    let mut separators = separators.filter(|separator| !separator.is_empty());
    text.bytes().next().is_some_and(is_word)
        && text.bytes().next_back().is_some_and(is_word)
        && separators.all(|text| matches!(text, "." | "_" | "__") || text.bytes().all(|byte| byte == b'-'))
}

fn is_tag(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.len() <= 128
        && text.bytes().next().is_some_and(is_word)
        && text.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

/// True for a digest with an algorithm that registries and containerd use.
pub fn is_digest(text: &str) -> bool {
    text.split_once(':').is_some_and(|(algorithm, digits)| {
        let length = match algorithm {
            "sha256" => 64,
            "sha512" => 128,
            _ => return false,
        };
        digits.len() == length && digits.bytes().all(is_lower_hex)
    })
}

fn is_lower_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn names_are_completed_as_docker_completes_them() {
        for (name, full) in [
            ("nginx", "docker.io/library/nginx:latest"),
            ("nginx:1.27", "docker.io/library/nginx:1.27"),
            ("docker.io/nginx", "docker.io/library/nginx:latest"),
            ("index.docker.io/team/app:1", "docker.io/team/app:1"),
            ("team/app", "docker.io/team/app:latest"),
            ("mcr.microsoft.com/windows/servercore:ltsc2022", "mcr.microsoft.com/windows/servercore:ltsc2022"),
            ("localhost/app", "localhost/app:latest"),
            ("localhost:5000/app:1.4-LTSC2022", "localhost:5000/app:1.4-LTSC2022"),
            ("[::1]:5000/app", "[::1]:5000/app:latest"),
            ("[::1]/app", "[::1]/app:latest"),
            ("TEAM/app", "TEAM/app:latest"),
            ("a--b/c__d/e.f_g", "docker.io/a--b/c__d/e.f_g:latest"),
        ] {
            let read: ImageReference = name.parse().unwrap();
            assert_eq!(read.to_string(), full, "{name}");
            assert_eq!(full.parse(), Ok(read), "{name}");
        }
        for (name, full) in [("nginx@", "docker.io/library/nginx@"), ("a.b/c:1@", "a.b/c:1@")] {
            let read: ImageReference = format!("{name}{DIGEST}").parse().unwrap();
            assert_eq!(read.to_string(), format!("{full}{DIGEST}"));
            assert_eq!(read.version(), DIGEST, "the digest decides");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "/",
            "/app",
            "app/",
            "a//b",
            "App",
            "app:",
            "app:-x",
            "a b",
            "a___b",
            "-a",
            "a-",
            "a.",
            "http://a.b/c",
            "a.b:x/c",
            "a.b:99999/c",
            "a_b.c/d",
            ".a/b",
            "[::1/app",
            "[::1]x/app",
            "app@",
            "app@sha256:01",
            "app@md5:0123456789abcdef0123456789abcdef",
            "app:\u{1b}[31m",
            "a.b/c?d",
            "a.b/../c",
            &DIGEST[7..],
            &format!("app:{}", "x".repeat(129)),
            &format!("a.b/{}", "x".repeat(256)),
        ] {
            assert!(text.parse::<ImageReference>().is_err(), "{text:?}");
        }
        let error = "App".parse::<ImageReference>().unwrap_err();
        insta::assert_snapshot!(error, @r#""App" is not the name of an image: a repository is made of lower-case letters, digits and single separators (. _ __ - /)"#);
    }

    proptest! {
        #[test]
        fn no_input_panics_and_a_full_name_names_itself(
            text in prop_oneof![any::<String>(), "[a-zA-Z0-9.:/@_\\[\\]-]{0,40}"]
        ) {
            if let Ok(read) = text.parse::<ImageReference>() {
                prop_assert_eq!(read.to_string().parse(), Ok(read));
            }
        }
    }
}
