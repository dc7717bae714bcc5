//! The taints that keep Linux pods off Windows nodes in existing clusters. There is no standard taint.

/// A taint's key and value that mark a node as a Windows node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spelling {
    pub key: &'static str,
    pub value: &'static str,
    /// The tools or documentation that use it.
    pub used_by: &'static str,
}

const fn spelling(key: &'static str, value: &'static str, used_by: &'static str) -> Spelling {
    Spelling { key, value, used_by }
}

/// Every known spelling. The first one is from the Kubernetes documentation, and winpool uses it by default.
///
/// AKS, EKS and kubeadm add no taint themselves.
pub const SPELLINGS: &[Spelling] = &[
    spelling("os", "windows", "Kubernetes documentation, 1.17 and later"),
    // The value is capitalised: openshift/windows-machine-config-operator pkg/nodeconfig/nodeconfig.go.
    spelling("os", "Windows", "OpenShift Windows Machine Config Operator"),
    spelling("os", "Win1809", "Kubernetes documentation, 1.14 to 1.16"),
    spelling("node.kubernetes.io/os", "windows", "GKE, Google Distributed Cloud, Datadog, Azure Machine Learning"),
    spelling("node.kubernetes.io/os", "Windows", "AKS on Azure Stack HCI"),
    // From one report about an AKS cluster, whose users set it. According to its documentation, AKS adds no taint.
    spelling("kubernetes.io/os", "windows", "users of AKS"),
    spelling("windows", "true", "Kubernetes enhancement proposal 1301"),
    spelling("OS", "Windows", "users of EKS (terraform-aws-eks-node-group)"),
    spelling("sku", "windows", "users of AKS (azure-docs)"),
];

/// True if a taint with this key and value marks a Windows node: one of the [`SPELLINGS`], or another key whose last part is
/// `os` with a value that begins with `win`, in any letter case, such as `os=windows-2019` or `node.kubernetes.io/os=win1809`.
pub fn marks_windows(key: &str, value: &str) -> bool {
    let is_os = || key.rsplit('/').next().is_some_and(|last| last.eq_ignore_ascii_case("os"));
    let begins_with_win = || value.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("win"));
    is_known(key, value) || is_os() && begins_with_win()
}

/// True if it is one of the [`SPELLINGS`].
pub(crate) fn is_known(key: &str, value: &str) -> bool {
    SPELLINGS.iter().any(|spelling| spelling.key == key && spelling.value == value)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_first_spelling_is_that_of_the_kubernetes_documentation() {
        assert_eq!((SPELLINGS[0].key, SPELLINGS[0].value), ("os", "windows"));
    }

    #[test]
    fn no_spelling_occurs_twice() {
        let distinct: BTreeSet<_> = SPELLINGS.iter().map(|spelling| (spelling.key, spelling.value)).collect();
        assert_eq!(distinct.len(), SPELLINGS.len());
    }

    #[test]
    fn other_spellings_of_the_system_mark_windows_too() {
        let others = [
            ("os", "Win2019"),
            ("os", "windows-2019"),
            ("os", "WINDOWS"),
            ("OS", "windows"),
            ("node.kubernetes.io/os", "win1809"),
            ("example.com/OS", "windows"),
        ];
        for (key, value) in others {
            assert!(marks_windows(key, value), "{key}={value}");
        }
    }

    #[test]
    fn other_taints_are_not_taken_for_windows() {
        let others = [
            ("", ""),
            ("os", ""),
            ("os", "linux"),
            (" os", "windows"),
            ("maintenance", "windows"),
            ("operating-os", "windows"),
            ("windows", "false"),
            ("windows", ""),
            ("sku", "gpu"),
            ("node.kubernetes.io/not-ready", ""),
            ("kubernetes.azure.com/scalesetpriority", "spot"),
        ];
        for (key, value) in others {
            assert!(!marks_windows(key, value), "{key}={value}");
        }
    }
}
