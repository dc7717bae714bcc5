//! Compares the variant of an index that winpool chooses with the choice of containerd's own code.
//!
//! `e2e/platforms/main.go` is built with the package of containerd 1.7.18, and with each version of
//! `github.com/containerd/platforms` that later releases of containerd require. It is built for Windows, because half of the rule is compiled only there, and runs under
//! Wine. The test, not Wine, sets the Windows version of the host. The code around the rule is copied from containerd's
//! `core/images/handlers.go`.

use serde_json::json;
use winpool_analysis::image::Platform;
use winpool_analysis::image::matching::{Host, chosen};
use winpool_core::windows::KernelVersion;
use winpool_e2e::machine::dice::Dice;
use winpool_e2e::wine::judge::selected_by_containerd;
use winpool_e2e::wine::machine::Machine;

/// A version of `containerd/platforms`, or of containerd before it had that module, with the first and last release of
/// containerd that uses it.
const VERSIONS: [(&str, [&str; 2]); 7] = [
    ("1.7.18", ["1.7.6", "1.7.18"]),
    ("0.2.1", ["1.7.19", "1.7.30"]),
    ("1.0.0-rc.0", ["2.0.0", "2.0.0"]),
    ("1.0.0-rc.1", ["2.0.7", "2.1.5"]),
    ("1.0.0-rc.2", ["2.1.6", "2.2.0"]),
    ("1.0.0-rc.4", ["2.3.0", "2.3.4"]),
    ("1.0.0-rc.5", ["2.3.5", "2.4.0"]),
];
const HOSTS: [&str; 9] = [
    "10.0.14393.1",
    "10.0.17763.6189",
    "10.0.19042.1",
    "10.0.20348.2655",
    "10.0.22621.1",
    "10.0.25398.1",
    "10.0.26100.4061",
    "10.0.26200.1",
    "10.0.30000.1",
];
const OS: [&str; 7] = ["windows", "windows", "windows", "windows", "linux", "Windows", ""];
const ARCHITECTURES: [&str; 9] = ["amd64", "amd64", "amd64", "amd64", "arm64", "386", "x86_64", "i386", ""];
const VARIANTS: [&str; 5] = ["", "", "", "v1", "v8"];
const BUILDS: [&str; 10] = ["14393", "17763", "19042", "20348", "20348", "22621", "25398", "26100", "26100", "26200"];
const REVISIONS: [&str; 6] = ["", ".1", ".999", ".1006", ".2655", ".4061"];
/// Texts that are not versions of Windows 10 or later.
const OTHER_VERSIONS: [&str; 8] =
    ["10.0", "10.0.x", "10.0.20348.x", "6.3.9600.17031", "10.1.20348.1", "10.0.020348.1", "20348", "10.0.20348.1.2"];
const FEATURES: [&[&str]; 4] = [&[], &[], &["win32k"], &["other"]];
const INDEXES: usize = 1_000;

fn platform(dice: &mut Dice) -> Platform {
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let version = match dice.roll(12) {
        0 => String::new(),
        1 => dice.pick(&OTHER_VERSIONS).to_owned(),
        _ => format!("10.0.{}{}", dice.pick(&BUILDS), dice.pick(&REVISIONS)),
    };
    Platform {
        os: dice.pick(&OS).to_owned(),
        architecture: dice.pick(&ARCHITECTURES).to_owned(),
        variant: given(dice.pick(&VARIANTS)),
        os_version: given(&version),
        os_features: FEATURES[dice.roll(FEATURES.len())].iter().map(ToString::to_string).collect(),
    }
}

#[tokio::test]
async fn winpool_selects_the_same_variant_as_containerd() {
    if let Some(missing) = Machine::unavailable() {
        println!("skipped: {missing}");
        return;
    }
    let mut dice = Dice::new(7);
    let (mut questions, mut answers) = (Vec::new(), Vec::new());
    for _ in 0..INDEXES {
        let index: Vec<_> = (0..=dice.roll(6)).map(|_| platform(&mut dice)).collect();
        let manifests: Vec<_> = index
            .iter()
            .map(|platform| {
                json!({
                    "os": platform.os, "architecture": platform.architecture, "variant": platform.variant,
                    "os.version": platform.os_version, "os.features": platform.os_features,
                })
            })
            .collect();
        for host in HOSTS {
            let kernel: KernelVersion = host.parse().unwrap();
            // The version that Windows reports about itself has no revision.
            let spec = json!({"os": "windows", "architecture": "amd64", "os.version": kernel.build.to_string()});
            for (version, releases) in VERSIONS {
                questions.push(json!({"Version": version, "Host": spec, "Manifests": manifests}));
                answers.push(releases.map(|release| {
                    let runtime = Some(format!("containerd://{release}").parse().unwrap());
                    let host = Host { kernel, architecture: "amd64".to_owned(), runtime };
                    chosen(&index, &host)
                        .and_then(|found| index.iter().position(|platform| std::ptr::eq(platform, found)))
                }));
            }
        }
    }
    let expected = selected_by_containerd(&questions).await.unwrap();
    assert_eq!(expected.len(), questions.len());
    let different: Vec<_> = (0..questions.len()).filter(|at| answers[*at] != [expected[*at]; 2]).collect();
    let some = expected.iter().flatten().count();
    println!("{} questions, {some} with a variant that fits", questions.len());
    for at in different.iter().take(20) {
        println!("{}\n  containerd {:?}, winpool {:?}", questions[*at], expected[*at], answers[*at]);
    }
    assert!(different.is_empty(), "{} of {} answers differ", different.len(), questions.len());
    // Check that the questions distinguish the rules.
    for (one, other) in [(3, 4), (4, 5), (5, 6)] {
        let differ = expected.chunks(VERSIONS.len()).filter(|answers| answers[one] != answers[other]).count();
        println!("{} and {} differ in {differ} questions", VERSIONS[one].0, VERSIONS[other].0);
        assert!(differ > 0);
    }
    assert!(some > questions.len() / 5 && some < questions.len(), "{some} have a variant that fits");
}
