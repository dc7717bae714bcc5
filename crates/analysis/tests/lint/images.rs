//! Rules and blockers about images that registries were asked for.

use serde_json::{Value, json};
use winpool_analysis::explain::blockers::blockers;
use winpool_analysis::explain::images::other_tags;
use winpool_analysis::image::{ImagePlatforms, Images, Platform, Source, Unresolved};
use winpool_analysis::lint::Facts;
use winpool_analysis::workload::WorkloadManifest;
use winpool_core::node::NodeFields;
use winpool_core::windows::Build;

use super::{class_object, findings, seen, view, workload};

/// `windows 10.0.20348.1` or `linux`.
fn platform(text: &str) -> Platform {
    let (os, version) = text.split_once(' ').unwrap_or((text, ""));
    let os_version = (!version.is_empty()).then(|| version.to_owned());
    Platform { os: os.to_owned(), architecture: "amd64".to_owned(), os_version, ..Platform::default() }
}

fn image(source: Source, platforms: &[&str]) -> ImagePlatforms {
    let platforms = platforms.iter().map(|text| platform(text)).collect();
    ImagePlatforms { digest: "sha256:0".to_owned(), source, platforms }
}

fn failed(reason: &str, is_missing: bool) -> Unresolved {
    Unresolved { reason: reason.to_owned(), is_missing }
}

fn images() -> Images {
    let mut images = Images::default();
    for (name, answer) in [
        ("both:1", Ok(image(Source::Index, &["linux", "windows 10.0.17763.1", "windows 10.0.20348.1"]))),
        ("new:1", Ok(image(Source::Index, &["windows 10.0.20348.3000"]))),
        ("old:1", Ok(image(Source::Manifest, &["windows 10.0.17763.1"]))),
        ("old:ltsc2022", Ok(image(Source::Manifest, &["windows 10.0.17763.1"]))),
        ("app:ltsc2019", Ok(image(Source::Index, &["windows 10.0.17763.1"]))),
        ("app:ltsc2025", Ok(image(Source::Index, &["windows 10.0.26100.1"]))),
        ("gone:ltsc2019", Ok(image(Source::Index, &["windows 10.0.17763.1"]))),
        ("gone:ltsc2025", Err(failed("no such image", true))),
        ("one:1", Ok(image(Source::Index, &["windows 10.0.17763.1"]))),
        ("one:1-ltsc2025", Ok(image(Source::Index, &["windows 10.0.26100.1"]))),
        ("full:10.0.17763.1", Ok(image(Source::Index, &["windows 10.0.17763.1"]))),
        ("full:10.0.26100.1", Ok(image(Source::Index, &["windows 10.0.26100.1"]))),
        ("all:1", Ok(image(Source::Index, &["windows 10.0.17763.1", "windows 10.0.26100.1"]))),
        ("linux:1", Ok(image(Source::Index, &["linux"]))),
        ("nothing:1", Err(failed("cannot reach a.b", false))),
        ("host:1", Ok(image(Source::Index, &["windows"]))),
    ] {
        images.add(name, answer);
    }
    images
}

/// Nodes by kernel version and containerd, and classes.
fn facts(nodes: &[(&str, &str)], classes: &[Value]) -> Facts {
    let node = |(kernel, containerd): &(&str, &str)| {
        let build = kernel.rsplit_once('.').unwrap().0;
        let labels = [
            ("kubernetes.io/os", "windows"),
            ("kubernetes.io/arch", "amd64"),
            ("node.kubernetes.io/windows-build", build),
        ];
        seen(NodeFields {
            labels: labels.into_iter().collect(),
            kernel_version: Some((*kernel).into()),
            container_runtime: Some(format!("containerd://{containerd}").into()),
            ..NodeFields::default()
        })
    };
    let mut view = view(nodes.iter().map(node));
    for class in classes {
        view.classes.add(class_object(class));
    }
    let mut facts = Facts::of(&view);
    facts.add_images(images());
    facts
}

const NODES: [(&str, &str); 3] =
    [("10.0.17763.9", "1.7.20"), ("10.0.20348.2000", "1.7.20"), ("10.0.20348.4000", "2.2.0")];

fn of(image: &str) -> Value {
    json!({
        "os": {"name": "windows"}, "nodeSelector": {"kubernetes.io/os": "windows"},
        "tolerations": [{"operator": "Exists"}], "containers": [{"image": image}],
    })
}

fn on(build: &str, image: &str) -> Value {
    let mut spec = of(image);
    spec["nodeSelector"]["node.kubernetes.io/windows-build"] = json!(build);
    spec
}

/// The findings about images and builds, with their messages.
fn found(spec: &Value, facts: &Facts) -> Vec<String> {
    let found = findings(&workload("Deployment", spec), facts).into_iter();
    let found = found.filter(|finding| finding.rule.starts_with("image-") || finding.rule == "build-not-selected");
    found.map(|finding| format!("{}: {}", finding.rule, finding.message)).collect()
}

#[test]
fn the_rules_speak_of_the_nodes_on_which_the_pod_may_land() {
    let facts = facts(&NODES, &[]);
    let linux = json!({"os": {"name": "linux"}, "containers": [{"image": "new:1"}]});
    let unsaid = json!({"containers": [{"image": "new:1"}], "tolerations": []});
    let mut host = of("host:1");
    host["securityContext"] = json!({"windowsOptions": {"hostProcess": true}});
    for (spec, expected) in [
        (of("both:1"), vec![]),
        (of("host:1"), vec![]),
        (host, vec![]),
        (on("10.0.17763", "both:1"), vec![]),
        (of("linux:1"), vec!["image-for-another-os: the image is for Linux amd64, and the pod is for Windows"]),
        (linux, vec!["image-for-another-os: the image is for Windows 2022, and the pod is for Linux"]),
        (
            unsaid,
            vec!["image-for-another-os: the image is for Windows 2022, and nothing keeps the pod off Linux nodes"],
        ),
        (
            on("10.0.20348", "old:1"),
            vec!["image-without-variant: the image is for Windows 2019, and not for Windows 2022 (2 nodes)"],
        ),
        // The registry is right, and the tag is wrong.
        (
            on("10.0.20348", "old:ltsc2022"),
            vec!["image-without-variant: the image is for Windows 2019, and not for Windows 2022 (2 nodes)"],
        ),
        (on("10.0.17763", "old:ltsc2022"), vec![]),
        (
            of("old:1"),
            vec!["image-variant-for-some-nodes: the image is for Windows 2019, and not for Windows 2022 (2 nodes)"],
        ),
        (
            on("10.0.20348", "new:1"),
            vec![
                "image-newer-than-node: the image is for 10.0.20348.3000, and 1 node on which the pod may land is older, the \
                 oldest 10.0.20348.2000: such a node can refuse to start it with 0xc0370106",
            ],
        ),
        (
            on("10.0.20348", "nothing:1"),
            vec!["image-platforms-unknown: the platforms of the image are unknown: cannot reach a.b"],
        ),
        // Nothing looked it up, so its tag counts.
        (
            on("10.0.20348", "other:ltsc2019"),
            vec![
                "image-build-mismatch: the image is for build 10.0.17763 and does not start on hosts of 10.0.20348, which the pod selects",
            ],
        ),
    ] {
        assert_eq!(found(&spec, &facts), expected, "{spec}");
    }
}

#[test]
fn hyperv_starts_an_older_image_and_an_index_needs_the_hosts_variant() {
    let class = json!({
        "metadata": {"name": "vms"}, "handler": "runhcs-wcow-hypervisor",
        "scheduling": {"nodeSelector": {"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": "10.0.20348"}},
    });
    let facts = facts(&NODES, &[class]);
    for (image, expected) in [
        ("old:1", vec![]),
        ("both:1", vec![]),
        ("new:1", vec![]),
        (
            "app:ltsc2019",
            vec!["image-without-variant: the image is for Windows 2019, and not for Windows 2022 (2 nodes)"],
        ),
    ] {
        let mut spec = of(image);
        spec["runtimeClassName"] = json!("vms");
        assert_eq!(found(&spec, &facts), expected, "{image}");
    }
}

#[test]
fn without_nodes_a_requested_build_has_a_current_containerd() {
    let facts = facts(&[], &[]);
    assert_eq!(found(&on("10.0.26100", "new:1"), &facts), [""; 0]);
    assert_eq!(
        found(&on("10.0.26100", "old:1"), &facts),
        ["image-without-variant: the image is for Windows 2019, and not for Windows 2025"]
    );
    assert_eq!(found(&of("old:1"), &facts), [""; 0], "nothing says on which build it lands");
}

#[test]
fn a_migration_is_a_list_of_images_and_where_they_are() {
    let facts = facts(&[], &[]);
    let pins = |image: &str, selects: bool, target: u32| {
        let spec = if selects { on("10.0.17763", image) } else { of(image) };
        let object = workload("Deployment", &spec);
        let found = blockers(
            &WorkloadManifest::read(&object).unwrap().unwrap(),
            &facts,
            Build::new(17763),
            Some(Build::new(target)),
        );
        let pins = found.into_iter().flat_map(|blocker| blocker.pins);
        let pins = pins.filter_map(|pin| Some(format!("{:?}: {}", pin.moves_to?, pin.remedy.text)));
        pins.collect::<Vec<_>>().join("; ")
    };
    for (image, selects, target, expected) in [
        ("all:1", false, 26100, ""),
        ("all:1", true, 26100, "SameTag: none: this image has a variant that runs there, 10.0.26100.1"),
        ("new:1", true, 26100, "SameTag: none: this image has a variant that runs there, 10.0.20348.3000"),
        ("app:ltsc2019", false, 26100, "OtherTag: set containers[0].image: app:ltsc2025"),
        ("one:1", false, 26100, "OtherTag: set containers[0].image: one:1-ltsc2025"),
        ("full:10.0.17763.1", false, 26100, "OtherTag: set containers[0].image: full:10.0.26100.1"),
        ("one:1", false, 20348, "Nowhere: build the image for 10.0.20348"),
        ("gone:ltsc2019", false, 26100, "Nowhere: set containers[0].image: gone:ltsc2025, once it exists"),
        ("nothing:1", true, 26100, "Unknown: unknown: cannot reach a.b"),
        ("nothing:1", false, 26100, ""),
        ("linux:1", false, 26100, ""),
    ] {
        assert_eq!(pins(image, selects, target), expected, "{image} to {target}");
    }
}

#[test]
fn other_tags_are_those_that_an_image_of_the_build_would_have() {
    for (image, expected) in [
        ("app:1.0-ltsc2019", &["app:1.0-ltsc2025"][..]),
        ("a.b:5000/app:1.0", &["a.b:5000/app:1.0-ltsc2025"]),
        ("a.b:5000/app", &[]),
        ("app:1@sha256:0", &[]),
        ("mcr.microsoft.com/windows/servercore:10.0.17763.1", &[]),
    ] {
        assert_eq!(other_tags(image, Build::new(26100), &[]), expected, "{image}");
    }
    let listed = ["1.0", "1.0-2025"].map(str::to_owned);
    assert_eq!(other_tags("app:1.0-ltsc2019", Build::new(26100), &listed), ["app:1.0-2025"]);
    assert_eq!(
        other_tags("app:2.0-ltsc2019", Build::new(26100), &listed),
        ["app:2.0-ltsc2025"],
        "it may be in another page"
    );
}
