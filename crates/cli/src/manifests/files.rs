//! Files, directories, patterns and standard input.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::documents::{STDIN, read_stream};
use super::error::InputError;
use super::manifest::Keep;
use super::objects::Objects;

/// The part of a file, in bytes, in which winpool looks for signs of a template.
const TEMPLATE: u64 = 1 << 20;

/// Returns the paths that a pattern such as `deploy\*.yaml` matches. kubectl expands patterns too, because shells of Windows do not.
pub(super) fn expand(path: &Path) -> Vec<PathBuf> {
    let matches = path.to_str().filter(|_| !path.exists()).and_then(|pattern| glob::glob(pattern).ok());
    // A directory that cannot be read results in the error of reading it.
    let matches = matches.into_iter().flatten();
    let paths: Vec<_> = matches.map(|path| path.unwrap_or_else(|error| error.path().to_owned())).collect();
    if paths.is_empty() { vec![path.to_owned()] } else { paths }
}

/// Reads a file, a directory or standard input, and returns the errors.
pub(super) fn read_path<K: Keep>(path: &Path, stdin: &mut impl Read, kept: &mut Objects<K>) -> Vec<InputError> {
    if path == Path::new("-") {
        let before = kept.seen;
        let mut unread = read_stream(STDIN, stdin, true, kept);
        if unread.is_empty() && kept.seen == before {
            // A command that fails writes nothing into a pipe.
            unread.push(InputError::Nothing(STDIN.to_owned()));
        }
        return unread;
    }
    if path.starts_with("http:") || path.starts_with("https:") {
        return vec![InputError::Url(path.display().to_string())];
    }
    if !path.is_dir() {
        return read_file(path, true, kept);
    }
    let (mut files, mut unread) = (Vec::new(), Vec::new());
    find_files(path, &mut files, &mut unread);
    if files.is_empty() && unread.is_empty() {
        unread.push(InputError::Empty(path.display().to_string()));
    }
    unread.extend(files.iter().flat_map(|file| read_file(file, false, kept)));
    unread
}

/// Finds the manifests in a directory and its subdirectories, sorted by name, and adds an error for each directory that cannot be
/// read. It does not follow links to directories.
fn find_files(directory: &Path, files: &mut Vec<PathBuf>, unread: &mut Vec<InputError>) {
    let entries = std::fs::read_dir(directory).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut entries = entries.unwrap_or_else(|error| {
        unread.push(InputError::Unreadable { path: directory.display().to_string(), error });
        Vec::new()
    });
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            find_files(&path, files, unread);
        } else if path.extension().is_some_and(|ending| ["yaml", "yml", "json"].iter().any(|e| ending == *e)) {
            files.push(path);
        }
    }
}

fn read_file<K: Keep>(path: &Path, named: bool, kept: &mut Objects<K>) -> Vec<InputError> {
    let name = path.display().to_string();
    let mut unread = match File::open(path) {
        Ok(file) => read_stream(&name, file, named, kept),
        Err(error) => vec![InputError::Unreadable { path: name, error }],
    };
    if let Some(InputError::Syntax { message, .. }) = unread.last_mut()
        && is_template(path)
    {
        message.push_str("; this looks like a template: render it first, for example with helm template");
    }
    unread
}

/// True if the file seems to be a template of Helm.
fn is_template(path: &Path) -> bool {
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(TEMPLATE).read_to_end(&mut start));
    read.is_ok() && start.windows(2).any(|pair| pair == b"{{")
}
