//! Decides which hosts run the container images of a build.
//!
//! Sources: Microsoft's "Windows container version compatibility" (MicrosoftDocs/Virtualization-Documentation, the
//! current text and its history), microsoft/hcsshim `osversion/platform_compat_windows.go`, and the code with which
//! containerd chooses an image from a manifest list: containerd/platforms `platform_windows_compat.go` in the versions
//! that containerd's tags vendor.
//!
//! Host-process containers are exempt from these rules.

use super::Build;
use super::container_runtime::{ContainerRuntime, RuntimeVersion, VersionStage};
use super::product::{Channel, PRODUCTS};

/// The first build whose images run on later hosts without a virtual machine. Microsoft calls this the stable ABI.
const STABLE_ABI: Build = Build::new(20348);

/// True if a host with this build and container runtime runs images of a build by process isolation, the
/// default of Kubernetes.
///
/// Before Windows Server 2022 both builds must be equal. Hosts of 2022 and later run images from the previous LTSC
/// release up to their own build; 2022 itself runs only its own. winpool counts on that from containerd 1.7.19 on, with
/// which the rule is part of containerd. With an earlier containerd, another runtime or an unknown one (`None`, or a
/// version that cannot be read) the answer is that only equal builds run. That is cautious for 1.7.6 to 1.7.18: they
/// choose the same images, by a check of hcsshim 0.11.
///
/// The sources differ on hosts newer than the newest LTSC release, such as 26200 (Windows 11 25H2), and 2022 images:
///
/// | | oldest image on 26200 |
/// |---|---|
/// | containerd 1.7.19 to 2.1.5 | 20348, as on every host |
/// | containerd 2.1.6 to 2.3.x, hcsshim | 26100: the largest LTSC release below the host's build |
/// | containerd after 2.3 (containerd/platforms#34) | 20348: the LTSC release before that of the host's generation |
///
/// This function returns the cautious answer, 26100, for every containerd. No source contradicts it.
///
/// For Windows Server 2016 the function compares only the builds, so the answer for 14393 on 14393 is true. But there
/// the revision must be equal too (Microsoft: 10.0.14393.1914 may fail to run 10.0.14393.1944).
pub fn runs_by_process_isolation(host: Build, runtime: Option<ContainerRuntime>, image: Build) -> bool {
    host == image || can_run_by_process_isolation(host, image) && runtime.is_some_and(knows_stable_abi)
}

/// True if a host with this build, and containerd 1.7.19 or later, runs images of a build by process isolation.
pub fn can_run_by_process_isolation(host: Build, image: Build) -> bool {
    host == image || host >= STABLE_ABI && (oldest_image(host)..=host).contains(&image)
}

/// True if a host runs images of a build by Hyper-V isolation: its own build and every older one.
///
/// The image has its own kernel in a virtual machine, but never a newer one than the host's (Microsoft, and Kubernetes
/// enhancement proposal 1301). The build does not show if the host supports Hyper-V. Microsoft does not document
/// version 23H2.
pub fn runs_by_hyperv_isolation(host: Build, image: Build) -> bool {
    image <= host
}

/// Returns the oldest image that a host of the stable ABI runs: that of the largest LTSC release below its build.
fn oldest_image(host: Build) -> Build {
    let ltsc = PRODUCTS.iter().filter(|product| product.channel == Channel::Ltsc).map(|product| product.build);
    ltsc.filter(|build| (STABLE_ABI..host).contains(build)).max().unwrap_or(STABLE_ABI)
}

/// True if this containerd has the rule itself: v1.7.19 is the first tag of its line, and v2.0.0 has it. Some
/// pre-releases of 2.0.0 are older than 1.7.19, and it is unknown which of them have the rule.
fn knows_stable_abi(runtime: ContainerRuntime) -> bool {
    let unknown = RuntimeVersion { major: 2, minor: 0, patch: 0, stage: VersionStage::PreRelease };
    runtime.is_containerd_at_least(1, 7, 19) && runtime.version != Some(unknown)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    /// Every build in one of the sources.
    const BUILDS: &[u32] =
        &[14393, 16299, 17134, 17763, 18362, 18363, 19041, 19042, 19045, 20348, 22000, 22621, 25398, 26100, 26200];

    fn by_process(host: u32, runtime: &str, image: u32) -> bool {
        runs_by_process_isolation(Build::new(host), runtime.parse().ok(), Build::new(image))
    }

    fn by_hyperv(host: u32, image: u32) -> bool {
        runs_by_hyperv_isolation(Build::new(host), Build::new(image))
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
                let able = images.map(|image| can_run_by_process_isolation(Build::new(host), Build::new(image)));
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
    fn the_table_of_microsoft() {
        // Process (P) and Hyper-V (H) isolation of images of Windows Server 2025, 2022, 2019, 2016. An image newer
        // than the host is absent there, or "no".
        let table = [
            (26100, ["PH", "PH", "H", "H"]),
            (20348, ["", "PH", "H", "H"]),
            (17763, ["", "", "PH", "H"]),
            (14393, ["", "", "", "PH"]),
            // Windows 11 runs images of 2025 from 24H2 (26100) only.
            (22000, ["", "PH", "H", "H"]),
            (22621, ["", "PH", "H", "H"]),
            // Windows 10.
            (19045, ["", "", "H", "H"]),
        ];
        for (host, row) in table {
            for (image, isolations) in [26100, 20348, 17763, 14393].into_iter().zip(row) {
                let runtime = "containerd://2.0.4+azure";
                assert_eq!(by_process(host, runtime, image), isolations.contains('P'), "{image} on {host} by process");
                assert_eq!(by_hyperv(host, image), isolations.contains('H'), "{image} on {host} by Hyper-V");
            }
        }
        // Another text documents version 23H2, for process isolation only.
        let by_23h2 = [26100, 20348, 17763, 14393].map(|image| by_process(25398, "containerd://2.0.4", image));
        assert_eq!(by_23h2, [false, true, false, false]);
    }

    #[test]
    fn up_to_windows_server_2022_each_release_runs_its_own_images_by_process_and_older_ones_by_hyperv() {
        // Microsoft's table when it still included the Semi-Annual Channel (2018-06-13, 2022-03-03).
        let released = || PRODUCTS.iter().map(|product| product.build).filter(|build| *build <= STABLE_ABI);
        let runtime = "containerd://2.3.0".parse().ok();
        for host in released() {
            for image in released() {
                assert_eq!(runs_by_process_isolation(host, runtime, image), image == host, "{image} on {host}");
                assert_eq!(runs_by_hyperv_isolation(host, image), image <= host, "{image} on {host}");
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

    fn builds() -> impl Strategy<Value = u32> {
        prop_oneof![3 => select(BUILDS), 1 => 1_u32..=999_999]
    }

    proptest! {
        #[test]
        fn every_host_runs_images_of_its_own_build(build in builds(), runtime: String) {
            prop_assert!(by_process(build, &runtime, build));
            prop_assert!(by_hyperv(build, build));
        }

        #[test]
        fn what_runs_by_process_is_never_newer_than_the_host_and_so_runs_by_hyperv(
            host in builds(), image in builds(), patch in 0_u32..40,
        ) {
            if by_process(host, &format!("containerd://1.7.{patch}"), image) {
                prop_assert!(by_hyperv(host, image));
                prop_assert!(host == image || image >= 20348);
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
