//! Decides which hosts run the container images of a build.
//!
//! Sources: Microsoft's "Windows container version compatibility" (MicrosoftDocs/Virtualization-Documentation, the
//! current text and its history), microsoft/hcsshim `osversion/platform_compat_windows.go`, and the code with which
//! containerd chooses an image from a manifest list. The rule of each release of containerd is in
//! `crates/analysis/src/image/containerd.rs`.
//!
//! A host before 20348 needs its own build. Host-process containers are exempt from these rules.

use std::ops::RangeBounds;

use super::container_runtime::{ContainerRuntime, RuntimeName, RuntimeVersion, VersionStage};
use super::{Build, builds};

/// The first build whose images run on later hosts without a virtual machine. Microsoft calls this the stable ABI.
pub const STABLE_ABI: Build = Build::new(20348);

/// The first containerd that winpool counts on to run images of an older build: the rule is part of it.
const COUNTED_ON: RuntimeVersion = RuntimeVersion::release(1, 7, 19);

/// The first containerd 1.6 with the same rule, by hcsshim 0.9.10 (containerd/containerd#8854).
const BACKPORTED: RuntimeVersion = RuntimeVersion::release(1, 6, 23);

/// The properties of a Windows node that decide which images it runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WindowsHost {
    pub build: Build,
    /// The container runtime; `None` if the node does not report it.
    pub runtime: Option<ContainerRuntime>,
}

/// The answer to "does this host run images of that build?", the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Runs {
    Yes,
    /// Only if its containerd, which the host does not report, is this version or a later one.
    IfContainerd(RuntimeVersion),
    Unknown,
    No,
}

/// Returns whether a host runs images of a build by process isolation, the default of Kubernetes.
///
/// Before Windows Server 2022 both builds must be equal. Hosts of 2022 and later run images from the previous LTSC
/// release up to their own build; 2022 itself runs only its own. winpool counts on that from containerd 1.7.19 on, with
/// which the rule is part of containerd. With an earlier containerd or another runtime the answer is that only equal
/// builds run. That is cautious for 1.7.6 to 1.7.18: they choose the same images, by a check of hcsshim 0.11. For 1.6.23 and later
/// 1.6, which have that check too and were not tried, the answer is that it is unknown.
///
/// The rules differ on hosts newer than the newest LTSC release, such as 26200 (Windows 11 25H2): only some take images of
/// 2022 there, and hcsshim refuses them. This function returns the cautious answer, 26100, for every containerd. No
/// source contradicts it.
///
/// For Windows Server 2016 the function compares only the builds, so the answer for 14393 on 14393 is yes. But there
/// the revision must be equal too (Microsoft: 10.0.14393.1914 may fail to run 10.0.14393.1944).
pub fn runs(image: Build, host: WindowsHost) -> Runs {
    if image == host.build {
        return Runs::Yes;
    }
    // Some pre-releases of 2.0.0 are older than 1.7.19, and it is unknown which of them have the rule.
    let unchecked = RuntimeVersion { stage: VersionStage::PreRelease, ..RuntimeVersion::release(2, 0, 0) };
    match host.runtime {
        _ if !can_run(image, host.build) => Runs::No,
        None | Some(ContainerRuntime { name: RuntimeName::Containerd, version: None }) => {
            Runs::IfContainerd(COUNTED_ON)
        }
        Some(runtime) if runtime.version == Some(unchecked) => Runs::Unknown,
        Some(runtime) if runtime.is_containerd_at_least(COUNTED_ON) => Runs::Yes,
        Some(runtime) if has_backport(runtime) => Runs::Unknown,
        Some(_) => Runs::No,
    }
}

fn has_backport(runtime: ContainerRuntime) -> bool {
    runtime.is_containerd_at_least(BACKPORTED)
        && runtime.version.is_some_and(|version| version.minor == BACKPORTED.minor)
}

/// True if a host with this build, and containerd 1.7.19 or later, runs images of a build by process isolation.
pub fn can_run(image: Build, host: Build) -> bool {
    image == host || (newest_ltsc(..host)..=host).contains(&image)
}

/// The newest LTSC release of the stable ABI among these builds, or else its first one.
pub fn newest_ltsc(among: impl RangeBounds<Build>) -> Build {
    let ltsc = builds::all().iter().filter(|product| product.is_ltsc).map(|product| product.build);
    ltsc.filter(|build| *build >= STABLE_ABI && among.contains(build)).max().unwrap_or(STABLE_ABI)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    /// Every build in one of the sources.
    const BUILDS: &[u32] =
        &[14393, 16299, 17134, 17763, 18362, 18363, 19041, 19042, 19045, 20348, 22000, 22621, 25398, 26100, 26200];

    fn host_of(build: u32, runtime: &str) -> WindowsHost {
        WindowsHost { build: Build::new(build), runtime: runtime.parse().ok() }
    }

    fn by_process(host: u32, runtime: &str, image: u32) -> bool {
        runs(Build::new(image), host_of(host, runtime)) == Runs::Yes
    }

    #[test]
    fn the_matrix_of_hosts_and_images() {
        let images = [14393, 17763, 19042, 20348, 25398, 26100, 26200];
        let matrix = [
            (14393, "Y n n n n n n"),
            (17763, "n Y n n n n n"),
            (19042, "n n Y n n n n"),
            (20348, "n n n Y n n n"),
            (22621, "n n n Y n n n"),
            (25398, "n n n Y Y n n"),
            (26100, "n n n Y Y Y n"),
            // hcsshim refuses 20348 and 25398, containerd after 2.3 accepts them.
            (26200, "n n n n n Y Y"),
        ];
        for runtime in ["containerd://1.7.19", "containerd://2.1.5", "containerd://2.1.6", "containerd://2.4.0"] {
            for (host, row) in matrix {
                let computed = images.map(|image| if by_process(host, runtime, image) { "Y" } else { "n" });
                assert_eq!(computed.join(" "), row, "{host} with {runtime}");
                let able = images.map(|image| can_run(Build::new(image), Build::new(host)));
                assert_eq!(able.map(|able| if able { "Y" } else { "n" }).join(" "), row, "{host}");
            }
        }
    }

    #[test]
    fn pairs_that_hcsshim_and_containerd_test() {
        // hcsshim osversion/platform_compat_windows_test.go; the two with 25398 are from containerd/platforms.
        let pairs = [
            (17763, 17763, true),
            (17763, 20348, false),
            (20348, 17763, false),
            (20348, 20348, true),
            (22621, 17763, false),
            (22621, 20348, true),
            (25398, 17763, false),
            (25398, 20348, true),
            (26100, 20348, true),
            (20348, 26100, false),
            (20348, 22621, false),
            (26100, 22621, true),
        ];
        for (host, image, runs) in pairs {
            assert_eq!(by_process(host, "containerd://2.2.0", image), runs, "{image} on {host}");
        }
    }

    #[test]
    fn up_to_windows_server_2022_each_release_runs_only_its_own_images() {
        // Microsoft's table when it still included the Semi-Annual Channel (2018-06-13, 2022-03-03).
        let released = || builds::all().iter().map(|product| product.build).filter(|build| *build <= STABLE_ABI);
        let runtime = "containerd://2.3.0".parse().ok();
        for host in released() {
            for image in released() {
                let by_process = runs(image, WindowsHost { build: host, runtime });
                assert_eq!(by_process == Runs::Yes, image == host, "{image} on {host}");
            }
        }
    }

    #[test]
    fn images_of_2022_run_on_2025_only_with_containerd_1_7_19_or_later() {
        let able =
            ["1.7.19", "1.7.19+azure", "1.7.27-k3s1", "2.0.0", "2.0.4+azure", "2.1.0-rc.1", "2.1.5", "2.1.6", "2.3.1"];
        for version in able {
            assert!(by_process(26100, &format!("containerd://{version}"), 20348), "{version}");
        }
        let unable = ["1.7.18", "1.7.19-rc.1", "1.7.17+azure", "1.6.36", "2.0.0-beta.0", "2.0.0-rc.6", "Unknown", ""];
        for version in unable {
            assert!(!by_process(26100, &format!("containerd://{version}"), 20348), "{version}");
            assert!(by_process(26100, &format!("containerd://{version}"), 26100), "{version}");
        }
        for other in ["docker://28.0.0", "docker://Unknown", "cri-o://2.0.0", "", "2.0.4"] {
            assert!(!by_process(26100, other, 20348), "{other}");
            assert!(by_process(26100, other, 26100), "{other}");
        }
    }

    #[test]
    fn without_a_version_of_containerd_the_answer_depends_on_it_only_where_the_pair_does() {
        let answer = |host, runtime, image| runs(Build::new(image), host_of(host, runtime));
        for unreported in ["", "containerd://Unknown"] {
            assert_eq!(answer(26100, unreported, 20348), Runs::IfContainerd(COUNTED_ON), "{unreported}");
            assert_eq!(answer(26100, unreported, 26100), Runs::Yes, "{unreported}");
            assert_eq!(answer(26100, unreported, 17763), Runs::No, "{unreported}");
            assert_eq!(answer(17763, unreported, 20348), Runs::No, "{unreported}");
        }
        assert_eq!(answer(26100, "containerd://2.0.0-rc.6", 20348), Runs::Unknown);
        assert_eq!(answer(26100, "containerd://1.7.18", 20348), Runs::No);
        assert_eq!(answer(26100, "containerd://1.6.23", 20348), Runs::Unknown);
        assert_eq!(answer(26100, "containerd://1.6.36", 20348), Runs::Unknown);
        assert_eq!(answer(26100, "containerd://1.6.36", 17763), Runs::No);
        assert_eq!(answer(26100, "containerd://1.6.22", 20348), Runs::No);
        assert_eq!(answer(26100, "docker://Unknown", 20348), Runs::No);
    }

    fn builds() -> impl Strategy<Value = u32> {
        prop_oneof![3 => select(BUILDS), 1 => 1_u32..=999_999]
    }

    proptest! {
        #[test]
        fn every_host_runs_images_of_its_own_build(build in builds(), runtime: String) {
            prop_assert!(by_process(build, &runtime, build));
        }

        #[test]
        fn what_runs_is_never_newer_than_the_host(
            host in builds(), image in builds(), patch in 0_u32..40,
        ) {
            if by_process(host, &format!("containerd://1.7.{patch}"), image) {
                prop_assert!(host == image || (20348..host).contains(&image));
            }
        }

        #[test]
        fn a_newer_containerd_runs_no_less(
            host in builds(), image in builds(), one in (1_u32..3, 0_u32..9, 0_u32..40), other in (1_u32..3, 0_u32..9, 0_u32..40),
        ) {
            let runs = |(major, minor, patch)| by_process(host, &format!("containerd://{major}.{minor}.{patch}"), image);
            prop_assert!(runs(one.max(other)) || !runs(one.min(other)));
        }

        #[test]
        fn a_host_runs_every_image_between_two_that_it_runs(host in builds(), image in builds(), between in builds()) {
            let runs = |image| by_process(host, "containerd://2.2.0", image);
            if (image..=host).contains(&between) && runs(image) {
                prop_assert!(runs(between));
            }
        }
    }
}
