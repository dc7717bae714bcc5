# `make` lists the targets. Everything runs on this machine; make uses no cluster but the local one that it starts.
.DEFAULT_GOAL := help
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*\#\# .*/\1/p' $(MAKEFILE_LIST))
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

TOOLS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/winpool/tools
# $(call tool,name,version): the path of a binary from crates.io.
tool = $(TOOLS)/$(1)-$(2)/bin/$(1)
CARGO_AUDITABLE := $(call tool,cargo-auditable,0.7.7)
CARGO_CYCLONEDX := $(call tool,cargo-cyclonedx,0.5.9)
CARGO_DENY := $(call tool,cargo-deny,0.20.2)
CARGO_FUZZ := $(call tool,cargo-fuzz,0.13.2)
MDBOOK := $(call tool,mdbook,0.5.4)
ACTIONLINT_VERSION := v1.7.12

# The Kubernetes version of the control-plane tests: one of $(OLDER), or by default the newest.
OLDER := 1.33 1.34 1.35 1.36
KUBERNETES ?=
ifneq ($(KUBERNETES),)
export WINPOOL_E2E_KUBERNETES := $(KUBERNETES)
endif

# The features of a dependency follow from the packages and the kinds of targets that Cargo is told to build. These name
# the whole workspace, and `--examples` (there are none) adds the dependencies of tests: no dependency is compiled twice. The demo
# alone needs half of them.
BUILD := cargo build --locked --workspace --examples
TEST := cargo test --locked --workspace

# $(call timed,commands): runs the commands and prints their duration, also if they fail.
timed = @echo "==> $@"; start=$$(date +%s); code=0; ( $(1) ) || code=$$?; \
	result=passed; if [ $$code -ne 0 ]; then result=failed; fi; \
	echo "make $@: $$result after $$(( $$(date +%s) - start )) s"; exit $$code

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The kubelets of the demo: simulated, or with KUBELETS=real those of Windows under Wine.
KUBELETS ?=

demo: ## Show winpool at work on a local control plane with simulated Windows nodes; KUBELETS=real: with real kubelets
	@[ -x target/debug/demo ] || echo "==> the first run compiles winpool (2 minutes on 2 cores), and the control plane with kwok (5)"
	$(call timed,cargo build --locked -p winpool-e2e --bin demo && $(if $(KUBELETS),WINPOOL_E2E_KUBERNETES=1.36) target/debug/demo $(KUBELETS))
demo-image: ## Draw docs/images/demo.svg from the output of the demo
	@$(BUILD) --bins
	@target/debug/demo | target/debug/recording 'make demo' > docs/images/demo.svg.new
	@mv docs/images/demo.svg.new docs/images/demo.svg
cluster: ## The cluster of the guides with winpool installed, for experiments (Ctrl-C ends it)
	@$(BUILD) --bin winpool --bin winpool-operator --bin cluster
	@target/debug/cluster

test: ## What every change has to pass: format, lints, tests on the control plane; KUBERNETES=1.33: the tests on that version
	$(call timed,$(if $(KUBERNETES),,$(MAKE) --no-print-directory fmt-check lint &&) \
		$(MAKE) --no-print-directory -j2 unit control-plane-test)
verify: ## What CI runs besides: the core alone, licences, the static binary, tests with other programs, faults, real kubelets (40 minutes)
	$(call timed,$(MAKE) --no-print-directory core-alone deny binary-test programs-test chaos kubelet-test)
soak: ## The long tests, before a release: the guard, each older Kubernetes version, long runs of faults (2 hours)
	$(call timed,$(MAKE) --no-print-directory guard-test test-all chaos-long)
test-all: ## The tests on each older supported Kubernetes version (each is built once, 4 minutes)
	$(call timed,for version in $(OLDER); do $(MAKE) --no-print-directory test KUBERNETES=$$version || exit; done)

fmt: ## Format the Rust code
	cargo fmt --all
fmt-check: ## Check that the Rust code is formatted
	$(call timed,cargo fmt --all --check)

lint: ## Clippy and rustdoc, warnings are errors
	$(call timed,cargo clippy --locked --workspace --all-targets -- -D warnings \
		&& RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet --lib --examples \
			$(patsubst e2e/src/bin/%,--bin %,$(basename $(wildcard e2e/src/bin/*))))
core-alone: ## Check what each program may depend on
	$(call timed,cargo check --locked -p winpool-core && hack/dependencies)

deny: $(CARGO_DENY) ## Check licences, sources and versions of all dependencies (cargo-deny)
	$(call timed,$(CARGO_DENY) --locked --workspace check --hide-inclusion-graph bans licenses sources)
advisories: $(CARGO_DENY) ## Check all dependencies against the RustSec advisories (cargo-deny; fetches their Git repository)
	$(call timed,$(CARGO_DENY) --locked --workspace check --hide-inclusion-graph advisories)

# The path contains the version: <tools>/<name>-<version>/bin/<name>.
CARGO_TOOLS := $(CARGO_AUDITABLE) $(CARGO_CYCLONEDX) $(CARGO_DENY) $(CARGO_FUZZ) $(MDBOOK)
# Neither the web server nor the file watcher of mdBook is needed.
$(MDBOOK): features = --no-default-features --features search
$(CARGO_TOOLS): root = $(patsubst %/bin/$(@F),%,$@)
$(CARGO_TOOLS): version = $(patsubst $(@F)-%,%,$(notdir $(root)))
$(CARGO_TOOLS):
	@echo "==> $(@F) $(version) is built from crates.io, once, into $(TOOLS) (up to 3 minutes)"
	@cargo install --locked --version $(version) $(features) --root $(root) $(@F)

# Many tests wait for a control plane, so more of them than processors run at a time.
unit control-plane-test: export RUST_TEST_THREADS ?= $(shell echo $$(( 2 * $$(nproc) )))

unit: ## Unit, property and snapshot tests of the core, tests of the binary, some on the control plane, and the examples in doc comments
	$(call timed,$(TEST) --lib --test testsuite --test new-build && $(TEST) --doc)
control-plane-test: ## Tests on a real local control plane, which is built from Go modules the first time (about 5 minutes)
	$(call timed,$(TEST) --test control_plane --test operator)

programs-test: ## Tests with Helm, Prometheus, Karpenter and a registry, built from Go modules the first time (10 minutes), and with Chromium, skipped where it is missing
	$(call timed,browser=; export WINPOOL_AXE; WINPOOL_AXE=$$(e2e/browser/prepare.sh) || { browser="--skip browser::"; \
			echo "make $@: the report is not tested in a browser"; }; \
		$(TEST) --test testsuite --test control_plane --test operator \
			-- --ignored --skip measure --skip container:: --skip install::upgrade --skip release:: $$browser \
		&& $(TEST) --test karpenter --test registry)

# Real kubelets need Wine. The script names the packages, and installs them only in CI.
KUBELETS_RUN := e2e/kubelet/wine.sh

kubelet-test: export WINPOOL_E2E_KUBERNETES := 1.36
kubelet-test: export WINPOOL_EXE := $(CURDIR)/target/x86_64-pc-windows-gnu/debug/winpool.exe
kubelet-test: ## Tests with real Windows kubelets of 1.36 and winpool.exe under Wine, built the first time (12 minutes); skipped where Wine is missing
	$(call timed,if $(KUBELETS_RUN); then hack/release windows-debug && $(TEST) --test kubelet -- --include-ignored; \
		else echo "make $@: skipped"; fi)

# The commit from which `make upgrade-test` upgrades: until the first release, the last one with an older design of the node
# loop. It is found by the subject of the next commit, because a rebase changes the hashes.
FROM := $(shell git rev-parse --short 'HEAD^{/^Decide about nodes in one table}~1' 2>/dev/null)
upgrade-test: export WINPOOL_OLDER_PROGRAM := $(CURDIR)/target/upgrade/operator-$(FROM)
upgrade-test: export WINPOOL_OLDER_TREE := $(CURDIR)/target/upgrade/$(FROM)
upgrade-test: ## Test an upgrade from an older commit with both programs side by side, and the way back; FROM=COMMIT
	$(call timed,hack/older $(FROM) && $(TEST) --test testsuite -- --ignored install::upgrade)

test-real: ## Try winpool on a cluster with real Windows nodes: KUBECONFIG=FILE; it asks before it writes, and prints a report
	@$(BUILD) -q --bin test-real
	@target/debug/test-real $(if $(YES),--yes)
guard-test: ## The operator's control-plane tests once more, under the admission policy guard
	$(call timed,WINPOOL_E2E_GUARD=1 $(TEST) --test operator)

# Seconds for each target.
FUZZ_SECONDS ?= 60

# Without a sanitizer: no crate of winpool's has unsafe code.
fuzz: $(CARGO_FUZZ) ## Fuzz everything that parses and plans, FUZZ_SECONDS for each target (needs nightly Rust and a C++ compiler)
	$(call timed,cd fuzz && for target in annotation node patch list manifests; do \
		echo "==> $$target" && mkdir -p corpus/$$target \
		&& PATH="$(dir $(CARGO_FUZZ)):$$PATH" cargo +nightly fuzz run --fuzz-dir . --sanitizer none $$target \
			corpus/$$target seeds/$$target -- -max_total_time=$(FUZZ_SECONDS) -dict=json.dict -max_len=16384 \
			-timeout=10 -rss_limit_mb=2048 -print_final_stats=1 || exit 1; done)

# Repeats one run of all faults at once, with the seed that a failed test printed.
SEED ?=
# $(call faults,arguments): runs the tests with faults.
faults = RUST_LOG=$${RUST_LOG:-off} WINPOOL_CHAOS_SEED=$(SEED) $(TEST) --test chaos --test reliability -- --nocapture $(1)

chaos: ## Test the operator with faults, crashes, outages and races; SEED=7 repeats a run (docs/reliability.md)
	$(call timed,$(call faults,))
chaos-long: ## The long runs of chaos (25 minutes)
	$(call timed,$(call faults,--ignored))

# `make test` checks every link and every command in it.
docs: $(MDBOOK) ## Build the book of docs/ into target/book, in seconds (mdBook)
	$(call timed,mkdir -p target && $(MDBOOK) build docs 2>&1 | tee target/book.log && ! grep -E ' (WARN|ERROR) ' target/book.log)

HOST_ARCH := $(if $(filter aarch64 arm64,$(shell uname -m)),arm64,amd64)
# The scenarios and their sizes: BENCH=--help lists them. By default everything, including the core.
BENCH ?=

bench: binary-$(HOST_ARCH) $(if $(BENCH),,bench-core) ## Measure the static binary beside a bare client, e.g. BENCH="--nodes 1000 converge" (docs/performance.md)
	$(call timed,WINPOOL_STATIC=$(STATIC)-$(HOST_ARCH) cargo bench --locked -p winpool-e2e --bench operator -- $(BENCH))
bench-core: ## Measure the pure core: planning, builds, compatibility (Criterion)
	$(call timed,cargo bench --locked -p winpool-core --bench plan)
generate: ## Write all generated files: CRD, policy advise, image tags of policy assign-class, references, values table of the chart
	@$(BUILD) -q --bin generate
	@target/debug/generate files

# The files of a release. hack/release has the commands.
ARCHS := amd64 arm64
OTHER_ARCH := $(filter-out $(HOST_ARCH),$(ARCHS))
STATIC := $(CURDIR)/target/dist/winpool-operator-linux
release = CARGO_AUDITABLE=$(CARGO_AUDITABLE) CARGO_CYCLONEDX=$(CARGO_CYCLONEDX) hack/release
# The release workflow sets both: the architectures of the programs for macOS, and the address of the source.
export ARCHS DARWIN SOURCE TAG

binary: $(ARCHS:%=binary-%) ## Build the static programs of a release, for amd64 and arm64
binary-%: $(CARGO_AUDITABLE)
	$(call timed,$(release) binary $*)

# $(call container_test,architecture)
container_test = WINPOOL_STATIC=$(STATIC)-$(1) $(TEST) --test testsuite -- --ignored container::
binary-test: other = $(wildcard $(STATIC)-$(OTHER_ARCH))
binary-test: emulator = $(shell command -v qemu-$(if $(filter arm64,$(OTHER_ARCH)),aarch64,x86_64)-static)
binary-test: binary-$(HOST_ARCH) ## Test the static binary as in a container; the other architecture's too, if built, with qemu-user-static
	$(call timed,$(call container_test,$(HOST_ARCH)) \
		$(and $(other),$(emulator),&& WINPOOL_EMULATOR=$(emulator) $(call container_test,$(OTHER_ARCH))))

windows: $(CARGO_AUDITABLE) ## Build the command line for Windows (amd64; needs the package gcc-mingw-w64-x86-64)
sbom: $(CARGO_CYCLONEDX) ## Write the list of the crates in each program, for each platform (SBOM, CycloneDX)
image: binary ## Build the container image as an OCI archive in target/image (buildah); ARCHS=amd64: for one architecture
chart: ## Package the Helm chart, with the Helm of the tests
helm-plugin: ## Package the post-renderer plugin for Helm 4
install-yaml: ## Write install.yaml: the CRD and the operator in one file
krew: binary windows ## Build the archives of the kubectl plugin and krew's manifest of it, and install it with krew
dist: image windows sbom chart helm-plugin install-yaml krew ## Build all files of a release, in target/dist, target/image and target/krew, and test them
windows sbom image chart helm-plugin install-yaml krew dist:
	$(call timed,$(release) $@)

notes: ## Write the section of this version in CHANGELOG.md to target/notes.md; TAG=v0.1.0: fail if the version is another
version: ## Print the version in Cargo.toml
notes version:
	@$(release) $@
workflows: ## Check the workflows of the hosted CI (actionlint, from the Go module proxy)
	go run github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT_VERSION)
