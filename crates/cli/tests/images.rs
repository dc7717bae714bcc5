//! Tests of `winpool images` and `--resolve-images` as processes, with a real registry.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::servers::registry::{ImageRegistry, Protection};

use crate::input::with_input;

fn winpool(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
    command.env("COLUMNS", "80");
    let command = command.args(arguments).current_dir(folder).env("KUBECONFIG", "/nonexistent");
    // Isolate the test from the user's cache and credentials.
    with_input(command.env("HOME", folder).env_remove("XDG_CACHE_HOME").env_remove("DOCKER_CONFIG"), "")
}

fn out(output: &Output, host: &str) -> String {
    let text = String::from_utf8(output.stdout.clone()).unwrap().replace(host, "HOST");
    let errors = String::from_utf8_lossy(&output.stderr).replace(host, "HOST");
    format!("exit code {}\n{text}{errors}", output.status.code().unwrap())
}

/// Returns a directory of manifests. The registry has images for two Windows versions, for one, for Linux, and with a
/// newer revision than the nodes have.
async fn scene(registry: &ImageRegistry) -> TempDir {
    let config = |version: &str| json!({"os": "windows", "architecture": "amd64", "os.version": version});
    for (repository, tag, config) in [
        ("old", "1.0", config("10.0.17763.1000")),
        ("new", "1.0", config("10.0.20348.4000")),
        ("app", "1.0-ltsc2019", config("10.0.17763.1000")),
        ("app", "1.0-ltsc2022", config("10.0.20348.1000")),
        ("linux", "1.0", json!({"os": "linux", "architecture": "amd64"})),
    ] {
        registry.push_image(repository, tag, &config, false).await.unwrap();
    }
    let entry = |number: u32, platform: Value| {
        let media_type = "application/vnd.oci.image.manifest.v1+json";
        json!({"mediaType": media_type, "size": 1, "digest": format!("sha256:{number:064}"), "platform": platform})
    };
    let index = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [
            entry(1, json!({"os": "linux", "architecture": "amd64"})),
            entry(2, config("10.0.17763.1000")),
            entry(3, config("10.0.20348.1000")),
            entry(4, json!({"os": "unknown", "architecture": "unknown"})),
        ],
    });
    registry.push("both", "1.0", &index).await.unwrap();

    let host = registry.host();
    let workloads = [
        ("both", format!("{host}/both:1.0"), "windows-2019"),
        ("old", format!("{host}/old:1.0"), "windows-2022"),
        ("new", format!("{host}/new:1.0"), "windows-2022"),
        ("app", format!("{host}/app:1.0-ltsc2019"), "windows-2019"),
        ("linux", format!("{host}/linux:1.0"), "windows-2019"),
        ("absent", format!("{host}/absent:1.0"), "windows-2019"),
    ];
    let deployment = |(name, image, class): &(&str, String, &str)| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "shop"},
            "spec": {"selector": {"matchLabels": {"app": name}}, "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"os": {"name": "windows"}, "runtimeClassName": class, "containers": [{"name": "c", "image": image}]},
            }},
        })
    };
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "shop"},
        "spec": {"os": {"name": "windows"}, "containers": [{"name": "c", "image": format!("{host}/old:1.0")}],
                 "nodeSelector": {"kubernetes.io/os": "windows"}},
    });
    let node = |name: &str, kernel: &str| {
        let build = kernel.rsplit_once('.').unwrap().0;
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {
                "kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64", "node.kubernetes.io/windows-build": build,
            }},
            "status": {"nodeInfo": {
                "kernelVersion": kernel, "operatingSystem": "windows", "containerRuntimeVersion": "containerd://2.2.0",
            }},
        })
    };
    let pool = json!({
        "apiVersion": "winpool.dev/v1alpha1", "kind": "WindowsPool", "metadata": {"name": "default"}, "spec": {},
    });
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, items: Vec<Value>| {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        std::fs::write(folder.path().join(name), list.to_string()).unwrap();
    };
    write("apps.json", workloads.iter().map(deployment).collect());
    write("pod.json", vec![pod]);
    write("nodes.json", vec![node("win-2019", "10.0.17763.2000"), node("win-2022", "10.0.20348.2000"), pool]);
    folder
}

#[tokio::test]
#[ignore = "needs a registry: make verify"]
async fn commands_say_what_the_registry_says() {
    let registry = ImageRegistry::start(Protection::None).await.unwrap();
    let folder = scene(&registry).await;
    let before = registry.requests().unwrap().len();
    let told = |arguments: &[&str]| out(&winpool(arguments, folder.path()), &registry.host());
    let both = ["-f", "apps.json", "-f", "nodes.json"];
    let with = |command: &[&str], more: &[&str]| told(&[command, &both, more].concat());

    let by_tags = [with(&["check"], &[]), with(&["blockers", "--retire", "2019"], &[]), with(&["plan"], &[])];
    assert_eq!(registry.requests().unwrap().len(), before, "nothing is asked without the flag");

    insta::assert_snapshot!("images", with(&["images"], &[]));
    let resolved = with(&["check", "--min-severity", "warning"], &["--resolve-images"]);
    insta::assert_snapshot!("check", resolved);
    insta::assert_snapshot!(
        "blockers",
        with(&["blockers", "--retire", "2019", "--move-to", "2022"], &["--resolve-images"])
    );
    let pod = told(&["why", "pod", "p", "-n", "shop", "-f", "pod.json", "-f", "nodes.json", "--resolve-images"]);
    insta::assert_snapshot!("why", pod);
    let plan = with(&["plan"], &["--resolve-images"]);
    assert!(plan.contains("Deployment shop/old") && plan.contains("not for Windows 2022 (1 node)"), "{plan}");
    assert_eq!(plan.lines().next(), by_tags[2].lines().next(), "what a registry says is no change");
    // The earlier answers are on disk.
    let asked = registry.requests().unwrap().len();
    let offline = with(&["check", "--min-severity", "warning"], &["--resolve-images", "--offline"]);
    assert_eq!(offline, resolved);
    assert_eq!(registry.requests().unwrap().len(), asked);
}

#[test]
fn an_answer_without_an_answer_of_the_registry_is_not_a_clean_one() {
    let folder = tempfile::tempdir().unwrap();
    // Nothing listens on port 1.
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {os: {name: windows}, \
               nodeSelector: {kubernetes.io/os: windows}, tolerations: [{key: os, operator: Exists}], \
               containers: [{name: c, image: '127.0.0.1:1/app:1'}, {name: d, image: 'a b'}]}\n";
    std::fs::write(folder.path().join("pod.yaml"), pod).unwrap();
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: win, labels: {kubernetes.io/os: windows}}\n";
    std::fs::write(folder.path().join("node.yaml"), node).unwrap();
    let files = ["-f", "pod.yaml", "-f", "node.yaml"];
    for (command, plain) in [
        (&["check", "--min-severity", "warning"][..], Some(0)),
        (&["why", "pod", "p", "-n", "default"], Some(0)),
        (&["blockers", "--retire", "2019", "--move-to", "2025"], Some(0)),
        (&["images"], Some(2)),
        (&["report"], Some(2)),
    ] {
        let run = |more: &[&str]| winpool(&[command, &files, more].concat(), folder.path());
        let code = |more: &[&str]| run(more).status.code();
        if command == ["images"] {
            assert_eq!(code(&[]), plain);
            continue;
        }
        assert_eq!(code(&[]), plain, "{command:?}");
        let resolved = run(&["--resolve-images"]);
        assert_eq!(resolved.status.code(), Some(2), "{command:?}: {resolved:?}");
    }
    let ignored = ["check", "--min-severity", "warning", "--resolve-images", "--ignore", "image-platforms-unknown"];
    assert_eq!(winpool(&[&ignored[..], &files].concat(), folder.path()).status.code(), Some(0));
    let output = winpool(&[&["check", "--resolve-images"], &files[..]].concat(), folder.path());
    let text = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("image-platforms-unknown") && text.contains("cannot reach 127.0.0.1:1"), "{text}");
    assert!(text.contains("is not the name of an image"), "{text}");
    for command in [&["check"][..], &["blockers", "--retire", "2019"]] {
        let output = winpool(&[command, &["--offline"], &files].concat(), folder.path());
        assert!(String::from_utf8_lossy(&output.stderr).contains("no effect without --resolve-images"), "{command:?}");
    }
}

#[test]
fn without_the_flag_no_command_connects_to_anything() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    std::thread::spawn(move || {
        for _ in listener.incoming() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{os: {{name: windows}}, containers: [\
         {{name: c, image: '{address}/app:1-ltsc2019'}}, {{name: d, image: 'registry.test/app:1'}}]}}\n\
         ---\napiVersion: winpool.dev/v1alpha1\nkind: WindowsPool\nmetadata: {{name: default}}\nspec: {{}}\n\
         ---\napiVersion: v1\nkind: Node\nmetadata: {{name: win, labels: {{kubernetes.io/os: windows}}}}\n"
    );
    std::fs::write(folder.path().join("pod.yaml"), pod).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
        command.env("COLUMNS", "80");
        command.args(arguments).args(["-f", "pod.yaml"]).current_dir(folder.path()).env("HOME", folder.path());
        // A request to another host would come here, too.
        let proxy = format!("http://{address}");
        command.envs(["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"].map(|name| (name, &proxy)));
        command.env_remove("NO_PROXY").env_remove("no_proxy").env_remove("XDG_CACHE_HOME").env_remove("DOCKER_CONFIG");
        assert_ne!(with_input(&mut command, "").status.code(), Some(1), "{arguments:?}");
        connections.load(Ordering::SeqCst)
    };
    for command in [&["check"][..], &["why", "pod", "p", "-n", "default"], &["blockers", "--retire", "2019"], &["plan"]]
    {
        assert_eq!(run(command), 0, "{command:?}");
    }
    assert!(run(&["check", "--resolve-images"]) >= 2, "with the flag it asks both registries");
}

#[tokio::test]
#[ignore = "needs a registry: make verify"]
async fn five_hundred_images_take_seconds_and_one_request_for_each_digest() {
    const IMAGES: usize = 500;
    let registry = ImageRegistry::start(Protection::None).await.unwrap();
    let mut items = Vec::new();
    for number in 0..IMAGES {
        let index = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [{
                "mediaType": "application/vnd.oci.image.manifest.v1+json", "size": 1,
                "digest": format!("sha256:{number:064}"),
                "platform": {"os": "windows", "architecture": "amd64", "os.version": "10.0.20348.1"},
            }],
        });
        registry.push(&format!("app-{}", number % 10), &format!("v{number}"), &index).await.unwrap();
        let image = format!("{}/app-{}:v{number}", registry.host(), number % 10);
        items.push(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{number}")},
            "spec": {"containers": [{"name": "c", "image": image}]},
        }));
    }
    for number in 0..60 {
        items.push(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": format!("n{number}"), "labels": {"kubernetes.io/os": "windows"}},
            "status": {"nodeInfo": {"kernelVersion": "10.0.20348.1", "containerRuntimeVersion": "containerd://2.2.0"}},
        }));
    }
    let folder = tempfile::tempdir().unwrap();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    std::fs::write(folder.path().join("all.json"), list).unwrap();
    let started = Instant::now();
    let output = winpool(&["images", "-f", "all.json", "-o", "json"], folder.path());
    let took = started.elapsed();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let images = report["images"].as_array().unwrap();
    assert_eq!(images.len(), IMAGES);
    assert!(
        images
            .iter()
            .all(|image| image["windowsNodes"][0]["nodeCount"] == 60 && image["windowsNodes"][0]["runs"] == true)
    );
    // The registry writes its log after it answers.
    let logged = async || {
        let requests = registry.requests()?.into_iter().map(|(request, _)| request);
        let asked: Vec<_> = requests.filter(|line| line.starts_with("GET /v2/") || line.starts_with("HEAD")).collect();
        Ok((asked.len() >= IMAGES).then_some(asked))
    };
    let asked = wait_for("the requests are logged", LIMIT, logged).await.unwrap();
    assert_eq!(asked.len(), IMAGES, "one manifest request for each digest, and no other");
    println!("{IMAGES} images in {took:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}
