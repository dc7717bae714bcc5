//! The documentation: links have a target, manifests are valid, and every command prints the output that is shown.
//!
//! A page names the cluster for its commands in a comment, `<!-- scene: windows-nodes -->`, and in another one the
//! oldest Kubernetes that prints the same, `<!-- kubernetes: 1.36 -->`. In a block of the language `console` each line
//! after `$ ` is a command, and the lines below it are its output; without output, the command only has to succeed.
//! `…` stands for any text within a line, and alone on a line for any lines. Ages and times may differ. Marks follow
//! the language after a comma: `console,fails` for a last command that has to fail, `console,norun` for commands that
//! cannot run here, with the reason in a comment above, `yaml,file=pool.yaml` for a manifest that the reader saves
//! under this name.

mod links;
mod logs;
mod manifests;
mod page;
mod scene;
mod terminal;
mod transcript;

use page::Page;
use scene::Scene;
use terminal::Terminal;
use winpool_e2e::needs;
use winpool_e2e::servers::version::Feature;

/// One test for each page that has commands.
macro_rules! pages {
    ($($(#[$mark:meta])? $name:ident: $path:literal,)*) => {
        /// The pages that are tested.
        const TRIED: &[&str] = &[$($path),*];

        $(#[tokio::test]
        $(#[$mark])?
        async fn $name() {
            does_what_it_shows($path).await;
        })*
    };
}

pages! {
    readme: "README.md",
    check: "docs/guides/check.md",
    clouds: "docs/guides/clouds.md",
    daemon_sets: "docs/guides/daemonsets.md",
    existing_clusters: "docs/guides/existing-clusters.md",
    first_pool: "docs/guides/first-pool.md",
    gitops: "docs/guides/gitops.md",
    hyper_v: "docs/guides/hyper-v.md",
    #[ignore = "needs Helm: make verify"]
    install: "docs/guides/install.md",
    json_output: "docs/guides/json-output.md",
    #[ignore = "needs Helm: make verify"]
    monitoring: "docs/guides/monitoring.md",
    pull_requests: "docs/guides/pull-requests.md",
    removal: "docs/guides/removal.md",
    scale_from_zero: "docs/guides/autoscaling.md",
    security: "docs/guides/security.md",
    troubleshooting: "docs/guides/troubleshooting.md",
    upgrade: "docs/guides/upgrade.md",
    windows_2025: "docs/guides/windows-2025.md",
    windows_versions: "docs/guides/windows-versions.md",
}

async fn does_what_it_shows(path: &str) {
    let page = Page::read(path);
    needs!(Feature { name: path, since: page.kubernetes });
    let scene = Scene::set(page.scene.as_deref().unwrap_or_else(|| panic!("{path} names no scene"))).await;
    let terminal = Terminal::open(&scene, &page).await;
    let mut wrong = Vec::new();
    for block in page.blocks.iter().filter(|block| !block.has("norun")) {
        if let Some(file) = block.file() {
            terminal.save(file, &block.text);
        }
        if block.language != "console" {
            continue;
        }
        let steps = transcript::steps(&block.text);
        for (number, step) in steps.iter().enumerate() {
            let fails = block.has("fails") && number + 1 == steps.len();
            if let Err(difference) = terminal.follow(step, fails).await {
                wrong.push(format!("{path}:{}: {difference}", block.line + step.line));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_page_with_commands_is_tried() {
    let has_commands = |page: &Page| page.blocks.iter().any(|block| block.language == "console" && !block.has("norun"));
    let mut found: Vec<String> =
        Page::of_users().into_iter().filter(has_commands).map(|page| page.path.display().to_string()).collect();
    let mut tried: Vec<&str> = TRIED.to_vec();
    found.sort();
    tried.sort_unstable();
    assert_eq!(found, tried);
}

/// Commands that cannot run here: each has its reason beside it, and there should be few.
#[test]
fn commands_that_are_not_run_are_listed() {
    let mut found = Vec::new();
    for page in Page::of_users() {
        for block in page.blocks.iter().filter(|block| block.has("norun")) {
            let (path, line) = (page.path.display(), block.line);
            assert!(block.comment.starts_with("norun: "), "{path}:{line}: write <!-- norun: why --> above it");
            found.extend(transcript::steps(&block.text).into_iter().map(|step| format!("{path}: {}", step.command)));
        }
    }
    println!("{} commands are not run:\n{}", found.len(), found.join("\n"));
    assert_eq!(found, NOT_RUN);
}

const NOT_RUN: &[&str] = &[
    "README.md: cargo install --locked --path crates/cli",
    "docs/guides/check.md: winpool fix deployment/web -n shop",
    "docs/guides/check.md: winpool check -f deploy/ -f windowspool.yaml --fail-on error",
    "docs/guides/check.md: helm template web | winpool fix -f - | kubectl apply -f -",
    "docs/guides/check.md: helm install web ./web --post-renderer winpool --post-renderer-args fix --post-renderer-args -f --post-renderer-args - # Helm 3",
    "docs/guides/check.md: helm plugin install --verify=false winpool-fix-0.1.0.tgz",
    "docs/guides/check.md: helm install web ./web --post-renderer winpool-fix",
    "docs/guides/images.md: winpool images",
    "docs/guides/images.md: kubectl get nodes -o yaml | winpool images -f deploy/ -f -",
    "docs/guides/images.md: winpool blockers --retire 2019 --move-to 2025 --resolve-images",
    "docs/guides/install.md: kubectl apply -f https://github.com/winpool/winpool/releases/latest/download/install.yaml",
    "docs/guides/install.md: helm install winpool oci://ghcr.io/winpool/winpool/charts/winpool --namespace winpool-system --create-namespace",
    "docs/guides/install.md: git clone https://github.com/winpool/winpool && cd winpool",
    "docs/guides/install.md: make image ARCHS=amd64",
    "docs/guides/install.md: kind load image-archive target/image/winpool.tar",
    "docs/guides/install.md: skopeo copy --all oci-archive:target/image/winpool.tar docker://registry.example.com/winpool:v0.1.0",
    "docs/guides/install.md: cargo install --locked --path crates/cli",
    "docs/guides/json-output.md: winpool status -o json | jq '.nodesByState.held // 0'",
    r#"docs/guides/json-output.md: winpool plan -o json | jq -r '.nodes[] | .name as $node | .changes[] | "\($node): \(.field) = \(.to)"'"#,
    r#"docs/guides/json-output.md: winpool check -A -o json | jq -r '.findings[] | select(.severity == "error") | "\(.object.kind) \(.object.name): \(.rule)"'"#,
    "docs/guides/json-output.md: winpool blockers --retire 2019 -o json | jq -c '.blockers[].object'",
    r"docs/guides/real-windows.md: powershell -ExecutionPolicy Bypass -File hack\windows\run.ps1",
];

/// Other shell languages would be taken for commands and never run.
#[test]
fn every_command_of_the_guides_is_in_a_block_that_is_run() {
    for page in Page::of_users() {
        for block in &page.blocks {
            let shell = matches!(block.language.as_str(), "bash" | "sh" | "shell" | "zsh");
            let untold = block.language != "console" && block.text.lines().any(|line| line.starts_with("$ "));
            assert!(!shell && !untold, "{}:{}: write ```console and `$ `", page.path.display(), block.line);
        }
    }
}
