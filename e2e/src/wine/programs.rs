//! The programs of a machine: kubelet.exe and the stand-in for containerd, built once from Go modules.

use crate::error::{Error, FileContext, Result, text};
use crate::machine::assets::{cache_folder, fingerprint, kubernetes_linker_flags, make_once};
use crate::machine::go::{self, BuildOptions, Module};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

const MODULE: Module = Module {
    directory: concat!(env!("CARGO_MANIFEST_DIR"), "/kubelet"),
    go_mod: include_str!("../../kubelet/go.mod"),
    go_sum: include_str!("../../kubelet/go.sum"),
    tags: "",
    duration: "up to 8 minutes",
};

/// The stand-in for containerd.
const RUNTIME: [&str; 2] =
    [include_str!("../../kubelet/runtime/main.go"), include_str!("../../kubelet/runtime/refusals.go")];

/// Features that Go's standard library needs and Wine 8 lacks: each with its file, the present code, and its
/// replacement. No line of Kubernetes is changed.
const OVERLAY: [(&str, &str, &str); 2] = [
    // Wine has no AF_UNIX sockets, and the kubelet exits if it cannot listen for device plugins.
    (
        "net/unixsock_posix.go",
        r#"unixSocket(ctx, sl.network, laddr, nil, "listen", ctrlCtxFn)"#,
        r#"internetSocket(ctx, "tcp4", &TCPAddr{IP: IPv4(127, 0, 0, 1)}, nil, syscall.SOCK_STREAM, 0, "listen", ctrlCtxFn)"#,
    ),
    // Wine answers STATUS_NOT_IMPLEMENTED to a deletion with POSIX semantics: without this, pods with volumes never end.
    (
        "internal/syscall/windows/at_windows.go",
        "STATUS_NOT_SUPPORTED: ",
        "STATUS_NOT_SUPPORTED, NTStatus(0xC0000002): ",
    ),
];

pub(super) fn kubelet() -> Result<PathBuf> {
    let version = MODULE.version_of("k8s.io/kubernetes")?;
    let flags = kubernetes_linker_flags(version);
    let changes: Vec<&str> = OVERLAY.iter().flat_map(|(file, from, to)| [*file, from, to]).collect();
    let fingerprint = fingerprint(&[&[MODULE.go_mod, MODULE.go_sum, &flags], &changes[..]].concat());
    let target = cache_folder()?.join(format!("kubelet-{version}-{fingerprint}.exe"));
    make_once(&target, "kubelet.exe", |path| {
        let directory = path.with_added_extension("overlay");
        fs::create_dir_all(&directory).when("make the directory", &directory)?;
        let overlay = overlay(&directory)?;
        let options = BuildOptions { linker_flags: &flags, os: Some("windows"), overlay: Some(text(&overlay)?) };
        go::build(&MODULE, &["k8s.io/kubernetes/cmd/kubelet"], &options, "kubelet.exe", path)?;
        fs::remove_dir_all(&directory).when("remove", &directory)
    })?;
    Ok(target)
}

/// The program that replaces containerd.
pub(super) fn runtime() -> Result<PathBuf> {
    let fingerprint = fingerprint(&[&[MODULE.go_mod, MODULE.go_sum], &RUNTIME[..]].concat());
    let target = cache_folder()?.join(format!("container-runtime-{fingerprint}"));
    let options = BuildOptions { linker_flags: "-s -w", ..BuildOptions::default() };
    make_once(&target, "container-runtime", |path| {
        go::build(&MODULE, &["./runtime"], &options, "container-runtime", path)
    })?;
    Ok(target)
}

/// Writes the changed files of the standard library, and the overlay file that lists them.
fn overlay(directory: &Path) -> Result<PathBuf> {
    let root = go::run(&MODULE, &["env", "GOROOT"])?;
    let mut replaced = serde_json::Map::new();
    for (name, from, to) in OVERLAY {
        let original = Path::new(root.trim()).join("src").join(name);
        let source = fs::read_to_string(&original).when("read", &original)?;
        if !source.contains(from) {
            return Err(Error::Moved { file: original, line: from });
        }
        let changed = directory.join(name.replace('/', "-"));
        // The first match is the one that listens for streams.
        fs::write(&changed, source.replacen(from, to, 1)).when("write", &changed)?;
        replaced.insert(text(&original)?.to_owned(), json!(text(&changed)?));
    }
    let file = directory.join("overlay.json");
    fs::write(&file, json!({"Replace": replaced}).to_string()).when("write", &file)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::MODULE;
    use crate::machine::assets::all_kubernetes;

    #[test]
    fn the_kubelet_has_the_version_of_a_control_plane() {
        let kubelet = MODULE.version_of("k8s.io/kubernetes").unwrap();
        assert!(all_kubernetes().any(|version| version == kubelet), "{kubelet}");
    }
}
