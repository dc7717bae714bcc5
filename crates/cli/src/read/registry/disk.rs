//! Manifests and configs on disk, by digest, so that none is asked for twice.
//!
//! Files are compared with their digest, so a damaged or forged file counts as missing. If the cache cannot be
//! written, winpool only sends more requests. A command that asks registries first removes the oldest files of a large cache.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ring::digest::{SHA256, SHA512, digest};
use winpool_analysis::image::ImageReference;
use winpool_analysis::image::reference::is_digest;

/// The directory inside the cache directory that only winpool uses, so that it may remove any file in it.
const OWN: &str = "v1";
/// The largest cache, in bytes.
const LARGEST: u64 = 256 << 20;
/// The space that a small file needs.
const BLOCK: u64 = 4096;

/// A directory, or none if there is no place for it.
pub(super) struct Disk(Option<PathBuf>);

impl Disk {
    /// Uses this directory, or `winpool/registry` in the user's cache directory.
    pub(super) fn new(directory: Option<PathBuf>) -> Self {
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = || std::env::home_dir().filter(|path| path.is_absolute());
        let caches = || variable("XDG_CACHE_HOME").or_else(|| Some(home()?.join(".cache")));
        let directory = directory.or_else(|| Some(caches()?.join("winpool/registry")));
        Self(directory.map(|directory| directory.join(OWN)))
    }

    /// Removes the oldest files of a cache that is too large.
    pub(super) fn prune(&self) {
        let mut files = self.0.as_deref().map(files_in).unwrap_or_default();
        files.sort_unstable_by_key(|(modified, ..)| Reverse(*modified));
        let mut size = 0;
        for (_, length, path) in files {
            size += length.max(BLOCK);
            if size > LARGEST {
                // A file that cannot be removed is tried again by the next command.
                let _ = fs::remove_file(path);
            }
        }
    }

    pub(super) fn document(&self, digest: &str) -> Option<Vec<u8>> {
        fs::read(self.0.as_ref()?.join(digest.replace(':', "/"))).ok().filter(|bytes| matches(digest, bytes))
    }

    pub(super) fn keep_document(&self, digest: &str, bytes: &[u8]) {
        self.0.as_ref().map(|directory| write(&directory.join(digest.replace(':', "/")), bytes));
    }

    /// The digest that this tag had when the registry was last asked.
    pub(super) fn tagged(&self, image: &ImageReference) -> Option<String> {
        let file = self.0.as_ref()?.join("tags").join(file_name(image));
        fs::read_to_string(file).ok().filter(|text| is_digest(text))
    }

    pub(super) fn keep_tag(&self, image: &ImageReference, digest: &str) {
        self.0.as_ref().map(|directory| write(&directory.join("tags").join(file_name(image)), digest.as_bytes()));
    }
}

/// Returns the files in a directory and its subdirectories, with the time of the last change and the length.
fn files_in(directory: &Path) -> Vec<(SystemTime, u64, PathBuf)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| Some((entry.metadata().ok()?, entry.path())));
    let files = files.flat_map(|(metadata, path)| {
        if metadata.is_dir() {
            return files_in(&path);
        }
        metadata.modified().ok().map(|modified| (modified, metadata.len(), path)).into_iter().collect()
    });
    files.collect()
}

/// The name of an image as the path of a file: Windows allows no colons.
fn file_name(image: &ImageReference) -> String {
    image.to_string().replace(':', "%3A")
}

/// Writes a file that is complete or not there, and that other users of the machine cannot read.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (mut directories, mut files) = (DirBuilder::new(), OpenOptions::new());
    directories.recursive(true);
    files.write(true).create(true).truncate(true);
    // On Windows, other users cannot read the home directory.
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
        directories.mode(0o700);
        files.mode(0o600);
    }
    directories.create(path.parent().unwrap_or(path))?;
    let unfinished = path.with_added_extension(std::process::id().to_string());
    files.open(&unfinished)?.write_all(bytes)?;
    fs::rename(&unfinished, path)
}

/// The digest of a document, as registries write it.
pub(super) fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(digest(&SHA256, bytes).as_ref()))
}

/// True if the document has this digest.
pub(super) fn matches(expected: &str, bytes: &[u8]) -> bool {
    match expected.strip_prefix("sha512:") {
        Some(digits) => digits == hex(digest(&SHA512, bytes).as_ref()),
        None => expected == sha256(bytes),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
