//! The facts about Windows that a simulated kubelet needs.

/// The value of `node.kubernetes.io/windows-build`: the first three parts of `kernelVersion`, in every form that
/// kubelets have used (`10.0.B.R`, `10.0.B`, `10.0 B (…)`).
pub(super) fn build_label(kernel_version: &str) -> Option<String> {
    let mut numbers = kernel_version.split('.');
    let parts: Vec<&str> = numbers.by_ref().take(3).collect();
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    (parts.len() == 3 && parts.iter().all(is_number)).then(|| parts.join("."))
}

/// The product name in the registry, for synthetic machines.
pub(super) fn os_image(build: &str) -> &'static str {
    match build {
        "10.0.14393" => "Windows Server 2016 Datacenter",
        "10.0.17763" => "Windows Server 2019 Datacenter",
        "10.0.20348" => "Windows Server 2022 Datacenter",
        "10.0.26100" => "Windows Server 2025 Datacenter",
        // The releases in between report no year.
        _ => "Windows Server Datacenter",
    }
}

/// Windows Server 2025 came with containerd 2; the others still use 1.x.
pub(super) fn container_runtime(build: &str) -> &'static str {
    match build {
        "10.0.26100" => "containerd://2.0.4+azure",
        _ => "containerd://1.7.17+azure",
    }
}

#[cfg(test)]
mod tests {
    use super::build_label;

    #[test]
    fn the_build_is_read_from_every_form_of_kernel_version() {
        let of = |kernel| build_label(kernel).unwrap_or_default();
        assert_eq!(of("10.0.20348.2655"), "10.0.20348");
        assert_eq!(of("10.0.14393"), "10.0.14393");
        assert_eq!(build_label("unknown"), None);
        assert_eq!(build_label("10.0."), None);
    }
}
