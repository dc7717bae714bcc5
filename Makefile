# `make` lists the targets. Everything runs on this machine; make uses no cluster but the local one that it starts.
.DEFAULT_GOAL := help
.NOTPARALLEL:
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
CRD := crds/winpool.dev_windowspools.yaml

# A release is built in $(DIST), for each of $(ARCHS).
DIST := target/dist
ARCHS := amd64 arm64
HOST_ARCH := $(if $(filter aarch64 arm64,$(shell uname -m)),arm64,amd64)
OTHER_ARCH := $(filter-out $(HOST_ARCH),$(ARCHS))
MACHINE_amd64 := x86_64
MACHINE_arm64 := aarch64
# The command line runs on these platforms. Programs for macOS link only there: the release workflow puts them into $(DIST), and
# names their architectures.
DARWIN :=
PLATFORMS = $(ARCHS:%=linux-%) windows-amd64 $(DARWIN:%=darwin-%)
WINDOWS := x86_64-pc-windows-gnu
# $(call triple,linux-amd64): the target of this platform in Rust.
triple = $(MACHINE_$(subst darwin-,,$(subst windows-,,$(subst linux-,,$(1)))))-$(if $(filter linux-%,$(1)),unknown-linux-musl,$(if \
	$(filter windows-%,$(1)),pc-windows-gnu,apple-darwin))
VERSION = $(shell sed -n '/^\[workspace.package\]/,/^\[/ s/^version = "\(.*\)"/\1/p' Cargo.toml)
REVISION = $(shell git rev-parse HEAD)
# The Kubernetes version of the control-plane tests: one of $(OLDER), or by default the newest.
OLDER := 1.33 1.34 1.35 1.36
KUBERNETES ?=
ifneq ($(KUBERNETES),)
export WINPOOL_E2E_KUBERNETES := $(KUBERNETES)
endif
# The address of the source, for the labels of an image, krew's manifest and links. The release workflow sets it.
SOURCE ?=
PUBLISHED = $(or $(SOURCE),https://github.com/winpool/winpool)
# All timestamps are that of the commit, and not that of the build.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)

# The features of a dependency follow from the packages and the kinds of targets that Cargo is told to build. These name
# the whole workspace, and `--examples` (there are none) adds the dependencies of tests: no dependency is compiled twice.
BUILD := cargo build --locked --workspace --examples
TEST := cargo test --locked --workspace

# $(call timed,commands): runs the commands and prints their duration, also if they fail.
timed = @start=$$(date +%s); code=0; ( $(1) ) || code=$$?; \
	result=passed; if [ $$code -ne 0 ]; then result=failed; fi; \
	echo "make $@: $$result after $$(( $$(date +%s) - start )) s"; exit $$code

comma := ,
space := $(subst ,, )

# Programs contain no path of the machine that built them.
REMAP := --remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo --remap-path-prefix=$(CURDIR)=/winpool
# $(call target,triple): adds the standard library of this target.
target = ! command -v rustup >/dev/null || rustup target list --installed | grep -qx $(1) || { \
	echo "==> rustup adds the target $(1)"; rustup target add $(1); }
# Builds for Windows with Debian's mingw.
export CC_x86_64_pc_windows_gnu := x86_64-w64-mingw32-gcc
FOR_WINDOWS := --target $(WINDOWS) --config 'target.$(WINDOWS).linker="$(CC_x86_64_pc_windows_gnu)"'

# $(call step,text)
step = @echo "==> $(1)"

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The kubelets of the demo: simulated, or with KUBELETS=real those of Windows under Wine.
KUBELETS ?=

.PHONY: demo
demo: ## Show winpool at work on a local control plane with simulated Windows nodes; KUBELETS=real: with real kubelets
	@[ -x target/debug/demo ] || echo "==> the first run compiles winpool (3 minutes on 2 cores), the control plane (4) and kwok (1)"
	$(call timed,$(BUILD) --bin demo && $(if $(KUBELETS),WINPOOL_E2E_KUBERNETES=1.36) target/debug/demo $(KUBELETS))

.PHONY: demo-image
demo-image: ## Draw docs/images/demo.svg from the output of the demo
	@$(BUILD) --bins
	@target/debug/demo | target/debug/recording 'make demo' > docs/images/demo.svg.new
	@mv docs/images/demo.svg.new docs/images/demo.svg

.PHONY: cluster
cluster: ## The cluster of the guides with winpool installed, for experiments (Ctrl-C ends it)
	@$(BUILD) --bin winpool --bin winpool-operator --bin cluster
	@target/debug/cluster

.PHONY: test
test: ## What every change has to pass: format, lints, tests on the control plane; KUBERNETES=1.33: the tests on that version
	$(call timed,$(MAKE) --no-print-directory $(if $(KUBERNETES),,fmt-check lint) unit control-plane-test)

.PHONY: verify
verify: ## What CI runs besides: the core alone, licences, the static binary, tests with other programs, faults, real kubelets (40 minutes)
	$(call timed,$(MAKE) --no-print-directory core-alone deny binary-test programs-test chaos kubelet-test)

.PHONY: soak
soak: ## The long tests, before a release: the guard, each older Kubernetes version, long runs of faults (2 hours)
	$(call timed,$(MAKE) --no-print-directory guard-test test-all chaos-long)

.PHONY: test-all
test-all: ## The tests on each older supported Kubernetes version (each is built once, 4 minutes)
	$(call timed,for version in $(OLDER); do $(MAKE) --no-print-directory test KUBERNETES=$$version || exit; done)

.PHONY: fmt
fmt: ## Format the Rust code
	cargo fmt --all

.PHONY: fmt-check
fmt-check: ## Check that the Rust code is formatted
	$(call step,format)
	$(call timed,cargo fmt --all --check)

.PHONY: lint
lint: ## Clippy and rustdoc, warnings are errors
	$(call step,clippy and rustdoc)
	$(call timed,cargo clippy --locked --workspace --all-targets -- -D warnings \
		&& RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet --lib --examples \
			$(patsubst e2e/src/bin/%,--bin %,$(basename $(wildcard e2e/src/bin/*))))

.PHONY: core-alone
core-alone: ## Check what each program may depend on
	$(call step,the core alone)
	$(call timed,cargo check --locked -p winpool-core \
		&& tree=$$(cargo tree --locked -p winpool-core -e normal --prefix none --format '{p}') \
		&& if grep -E '^(kube-client|kube-runtime|tokio|hyper|tracing|prometheus-client) ' <<< "$$tree"; \
		then echo "winpool-core must not depend on these"; exit 1; fi \
		&& tree=$$(cargo tree --locked -p winpool-operator -e normal --prefix none --format '{p}') \
		&& if grep -E '^(winpool|clap_complete) ' <<< "$$tree"; \
		then echo "winpool-operator must not depend on these"; exit 1; fi \
		&& tree=$$(cargo tree --locked -p winpool -e normal --prefix none --format '{p}') \
		&& if grep -E '^(winpool-operator|prometheus-client) ' <<< "$$tree"; \
		then echo "winpool must not depend on these"; exit 1; fi)

.PHONY: deny
deny: $(CARGO_DENY) ## Check licences, sources and versions of all dependencies (cargo-deny)
	$(call step,cargo-deny)
	$(call timed,$(CARGO_DENY) --locked --workspace check --hide-inclusion-graph bans licenses sources)

.PHONY: advisories
advisories: $(CARGO_DENY) ## Check all dependencies against the RustSec advisories (cargo-deny; fetches their Git repository)
	$(call step,cargo-deny advisories)
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
unit control-plane-test: export RUST_TEST_THREADS ?= $(shell echo $$(( 3 * $$(nproc) )))

.PHONY: unit
unit: ## Unit, property and snapshot tests of the core, and tests of the binary, some on the control plane
	$(call step,unit tests)
	$(call timed,$(TEST) --exclude winpool-e2e)

.PHONY: control-plane-test
control-plane-test: ## Tests on a real local control plane, which is built from Go modules the first time (about 5 minutes)
	$(call step,control-plane tests)
	$(call timed,$(TEST) --lib --test control_plane --test operator)

.PHONY: programs-test
programs-test: ## Tests with Helm, Prometheus, Karpenter and a registry, built from Go modules the first time (10 minutes), and with Chromium, skipped where it is missing
	$(call step,tests with other programs)
	$(call timed,browser=; export WINPOOL_AXE; WINPOOL_AXE=$$(e2e/browser/prepare.sh) || { browser="--skip browser::"; \
			echo "make $@: the report is not tested in a browser"; }; \
		$(TEST) --test testsuite --test control_plane --test operator \
			-- --ignored --skip measure --skip container:: --skip install::upgrade --skip release:: $$browser \
		&& $(TEST) --test karpenter --test registry)

# Real kubelets need Wine. The script names the packages, and installs them only in CI.
KUBELETS_RUN := e2e/kubelet/wine.sh

.PHONY: kubelet-test
kubelet-test: export WINPOOL_E2E_KUBERNETES := 1.36
kubelet-test: export WINPOOL_EXE := $(CURDIR)/target/$(WINDOWS)/debug/winpool.exe
kubelet-test: ## Tests with real Windows kubelets of 1.36 and winpool.exe under Wine, built the first time (12 minutes); skipped where Wine is missing
	$(call step,tests with real kubelets)
	$(call timed,if $(KUBELETS_RUN); then $(call target,$(WINDOWS)) && cargo build --locked -p winpool $(FOR_WINDOWS) \
			&& $(TEST) --test kubelet -- --include-ignored; \
		else echo "make $@: skipped"; fi)

# The commit from which `make upgrade-test` upgrades: until the first release, the last one with an older design of the node
# loop. It is found by the subject of the next commit, because a rebase changes the hashes.
FROM := $(shell git rev-parse --short 'HEAD^{/^Decide about nodes in one table}~1' 2>/dev/null)
OLDER_TREE := $(CURDIR)/target/upgrade/$(FROM)
OLDER_PROGRAM := $(CURDIR)/target/upgrade/operator-$(FROM)

# Uses the directory of this build for the dependencies, and copies the program before the next build replaces it.
$(OLDER_PROGRAM):
	$(call step,program of $(FROM))
	@rm -rf $(OLDER_TREE) && mkdir -p $(OLDER_TREE) && git archive $(FROM) | tar --extract --directory $(OLDER_TREE)
	@name=winpool-operator; grep -q '^name = "winpool-operator"' $(OLDER_TREE)/Cargo.toml || name=winpool; \
		$(BUILD) --bin $$name --manifest-path $(OLDER_TREE)/Cargo.toml --target-dir target && cp target/debug/$$name $@ \
		&& rm target/debug/$$name

.PHONY: upgrade-test
upgrade-test: export WINPOOL_OLDER_PROGRAM := $(OLDER_PROGRAM)
upgrade-test: export WINPOOL_OLDER_TREE := $(OLDER_TREE)
upgrade-test: $(OLDER_PROGRAM) ## Test an upgrade from an older commit with both programs side by side, and the way back; FROM=COMMIT
	$(call step,upgrade from $(FROM))
	$(call timed,$(TEST) --test testsuite -- --ignored install::upgrade)

.PHONY: test-real
test-real: ## Try winpool on a cluster with real Windows nodes: KUBECONFIG=FILE; it asks before it writes, and prints a report
	@$(BUILD) -q --bin test-real
	@target/debug/test-real $(if $(YES),--yes)

.PHONY: guard-test
guard-test: ## The operator's control-plane tests once more, under the admission policy guard
	$(call step,operator tests under guard)
	$(call timed,WINPOOL_E2E_GUARD=1 $(TEST) --test operator)

FUZZ_TARGETS := versions annotation node patch class manifests
# Seconds for each target.
FUZZ_SECONDS ?= 60

# Without a sanitizer: no crate of winpool's has unsafe code.
.PHONY: fuzz
fuzz: $(CARGO_FUZZ) ## Fuzz everything that parses and plans, FUZZ_SECONDS for each target (needs nightly Rust and a C++ compiler)
	$(call step,fuzzing)
	$(call timed,cd fuzz && for target in $(FUZZ_TARGETS); do \
		echo "==> $$target" && mkdir -p corpus/$$target \
		&& PATH="$(dir $(CARGO_FUZZ)):$$PATH" cargo +nightly fuzz run --fuzz-dir . --sanitizer none $$target \
			corpus/$$target seeds/$$target -- -max_total_time=$(FUZZ_SECONDS) -dict=json.dict -max_len=16384 \
			-timeout=10 -rss_limit_mb=2048 -print_final_stats=1 || exit 1; done)

# Repeats one run of all faults at once, with the seed that a failed test printed.
SEED ?=

# $(call faults,arguments): runs the tests with faults.
faults = RUST_LOG=$${RUST_LOG:-off} WINPOOL_CHAOS_SEED=$(SEED) \
	$(TEST) --test chaos --test reliability -- --nocapture $(1)

.PHONY: chaos
chaos: ## Test the operator with faults, crashes, outages and races; SEED=7 repeats a run (docs/reliability.md)
	$(call step,chaos)
	$(call timed,$(call faults,))

.PHONY: chaos-long
chaos-long: ## The long runs of chaos (25 minutes)
	$(call step,long runs of chaos)
	$(call timed,$(call faults,--ignored))

# `make test` checks every link and every command in it.
.PHONY: docs
docs: $(MDBOOK) ## Build the book of docs/ into target/book, in seconds (mdBook)
	$(call step,book)
	$(call timed,mkdir -p target && $(MDBOOK) build docs 2>&1 | tee target/book.log && ! grep -E ' (WARN|ERROR) ' target/book.log)

# The scenarios and their sizes: BENCH=--help lists them. By default everything, including the core.
BENCH ?=

.PHONY: bench
bench: binary-$(HOST_ARCH) $(if $(BENCH),,bench-core) ## Measure the static binary beside a bare client, e.g. BENCH="--nodes 1000 converge" (docs/performance.md)
	$(call step,bench)
	$(call timed,WINPOOL_STATIC=$(CURDIR)/$(DIST)/winpool-operator-linux-$(HOST_ARCH) \
		cargo bench --locked -p winpool-e2e --bench operator -- $(BENCH))

.PHONY: bench-core
bench-core: ## Measure the pure core: planning, builds, compatibility (Criterion)
	$(call step,bench of the core)
	$(call timed,cargo bench --locked -p winpool-core --bench plan)

# The files that are made from the code, with their paths.
GENERATED := crd:$(CRD) advise:config/components/advise/policy.yaml \
	$(foreach what,check-rules command-line conditions errors metrics windowspool,$(what):docs/reference/$(what).md) \
	schema:docs/reference/output.schema.json

.PHONY: generate
generate: ## Write all generated files: CRD, policy advise, references, values table of the chart
	@$(BUILD) -q --bin generate
	@for pair in $(GENERATED); do \
		target/debug/generate print $${pair%%:*} > $${pair#*:}.new && mv $${pair#*:}.new $${pair#*:} || exit 1; done
	@awk -f charts/values.awk charts/winpool/values.yaml charts/winpool/README.md > charts/winpool/README.md.new
	@mv charts/winpool/README.md.new charts/winpool/README.md

.PHONY: binary
binary: $(ARCHS:%=binary-%) ## Build the static programs of a release, for amd64 and arm64

# The binary contains the list of its crates (cargo-auditable), and not the directory in which it was built. C parts
# are compiled and linked with the C compiler of this machine, or Debian's cross compiler for the other architecture.
# mimalloc contains the time of its build, which compilers take from SOURCE_DATE_EPOCH.
binary-%: rust_target = $(call triple,linux-$*)
binary-%: cc = $(if $(filter $(HOST_ARCH),$*),cc,$(MACHINE_$*)-linux-gnu-gcc)
binary-%: $(CARGO_AUDITABLE)
	$(call step,static binary for $*)
	@command -v $(cc) >/dev/null || { echo "$(cc) is not installed: it links for $* (Debian, Ubuntu: \
		gcc-$(subst _,-,$(MACHINE_$*))-linux-gnu and libc6-dev-$*-cross)" >&2; exit 1; }
	@$(call target,$(rust_target))
	$(call timed,export CC_$(subst -,_,$(rust_target))=$(cc) RUSTFLAGS="-C target-feature=+crt-static $(REMAP)" \
			SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) \
		&& $(CARGO_AUDITABLE) auditable build --locked --release -p winpool -p winpool-operator \
			--target $(rust_target) --config 'target.$(rust_target).linker="$(cc)"' \
		&& for program in winpool winpool-operator; do \
			install -D -m 755 target/$(rust_target)/release/$$program $(DIST)/$$program-linux-$* || exit; done)

# Without the option of the linker the file would contain the time of the build.
.PHONY: windows
windows: $(CARGO_AUDITABLE) ## Build the command line for Windows (amd64; needs the package gcc-mingw-w64-x86-64)
	$(call step,command line for Windows)
	@command -v $(CC_x86_64_pc_windows_gnu) >/dev/null || { \
		echo "$(CC_x86_64_pc_windows_gnu) is not installed (Debian, Ubuntu: gcc-mingw-w64-x86-64)" >&2; exit 1; }
	@$(call target,$(WINDOWS))
	$(call timed,export RUSTFLAGS="-C link-arg=-Wl$(comma)--no-insert-timestamp $(REMAP)" \
		&& $(CARGO_AUDITABLE) auditable build --locked --release -p winpool $(FOR_WINDOWS) \
		&& install -D -m 755 target/$(WINDOWS)/release/winpool.exe $(DIST)/winpool-windows-amd64.exe)

.PHONY: binary-test
binary-test: container_test = WINPOOL_STATIC=$(CURDIR)/$(DIST)/winpool-operator-linux-$(1) $(TEST) --test testsuite -- --ignored container::
binary-test: other = $(wildcard $(DIST)/winpool-operator-linux-$(OTHER_ARCH))
binary-test: emulator = $(shell command -v qemu-$(MACHINE_$(OTHER_ARCH))-static)
binary-test: binary-$(HOST_ARCH) ## Test the static binary as in a container; the other architecture's too, if built, with qemu-user-static
	$(call step,static binary)
	$(call timed,$(call container_test,$(HOST_ARCH)) \
		$(and $(other),$(emulator),&& WINPOOL_EMULATOR=$(emulator) $(call container_test,$(OTHER_ARCH))))

# $(call sbom,package,platform,file)
sbom = SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) $(CARGO_CYCLONEDX) cyclonedx -q --format json --spec-version 1.5 \
		--describe binaries --no-build-deps --target $(call triple,$(2)) \
	&& sed 's|path+file://$(CURDIR)|path+file:///winpool|g' $(1)_bin.cdx.json > $(DIST)/$(3).cdx.json

# Cargo cannot leave out the dependencies of tests (the CEL interpreter), so the list is slightly too long.
.PHONY: sbom
sbom: $(CARGO_CYCLONEDX) ## Write the list of the crates in each program, for each platform (SBOM, CycloneDX)
	$(call step,SBOM)
	$(call timed,mkdir -p $(DIST) $(foreach arch,$(ARCHS),&& $(call sbom,./winpool-operator,linux-$(arch),winpool-operator-linux-$(arch))) \
		$(foreach platform,$(PLATFORMS),&& $(call sbom,cli/winpool,$(platform),winpool-$(platform))) \
		&& rm *_bin.cdx.json */*_bin.cdx.json)

IMAGE := ghcr.io/winpool/winpool
BUILDAH = buildah --root $(CURDIR)/target/image/storage --runroot $(CURDIR)/target/image/run --storage-driver vfs
IMAGE_ARCHIVE := target/image/winpool.tar

.PHONY: buildah
buildah:
	@command -v buildah >/dev/null || { echo "buildah is not installed: it makes the image (package buildah)" >&2; exit 1; }

.PHONY: image
image: buildah binary ## Build the container image as an OCI archive in target/image (buildah); ARCHS=amd64: for one architecture
	$(call step,image)
	$(call timed,rm -rf target/image && mkdir -p target/image \
		&& $(BUILDAH) build --quiet --format oci --platform $(subst $(space),$(comma),$(ARCHS:%=linux/%)) \
			--manifest $(IMAGE):v$(VERSION) --timestamp $(SOURCE_DATE_EPOCH) --identity-label=false \
			--label org.opencontainers.image.version=$(VERSION) \
			--label org.opencontainers.image.revision=$(REVISION) \
			--label org.opencontainers.image.created=$$(date -u -d @$(SOURCE_DATE_EPOCH) +%FT%TZ) \
			$(if $(SOURCE),--label org.opencontainers.image.source=$(SOURCE)) --file Containerfile $(DIST) \
		&& $(BUILDAH) manifest push --quiet --all $(IMAGE):v$(VERSION) oci-archive:$(IMAGE_ARCHIVE):$(IMAGE):v$(VERSION))

.PHONY: chart
chart: ## Package the Helm chart, with the Helm of the tests
	$(call step,chart)
	$(call timed,mkdir -p $(DIST) && SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) CGO_ENABLED=0 GOFLAGS=-trimpath \
		go -C e2e/helm tool helm.sh/helm/v4/cmd/helm package $(CURDIR)/charts/winpool --destination $(CURDIR)/$(DIST))

.PHONY: helm-plugin
helm-plugin: ## Package the post-renderer plugin for Helm 4
	$(call step,plugin of Helm)
	$(call timed,mkdir -p $(DIST) && tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime=@$(SOURCE_DATE_EPOCH) \
		--transform 's|^|winpool-fix/|' --directory integrations/helm plugin.yaml | gzip --no-name --best > $(DIST)/winpool-fix-$(VERSION).tgz)

# The same manifests as with `kubectl apply -k config/`, for people without a checkout.
.PHONY: install-yaml
install-yaml: ## Write install.yaml: the CRD and the operator in one file
	$(call step,install.yaml)
	$(call timed,mkdir -p $(DIST) && go -C e2e/control-plane tool k8s.io/kubernetes/cmd/kubectl kustomize $(CURDIR)/config > $(DIST)/install.yaml)

# krew's own programs check the manifest, and install the archive for this machine.
KREW = go -C e2e/krew tool sigs.k8s.io/krew/cmd

# $(call exe,platform): what the names of programs end with.
exe = $(if $(filter windows-%,$(1)),.exe)
# $(call plugin,platform): packs the plugin of this platform.
plugin = install -D -m 755 $(DIST)/winpool-$(1)$(call exe,$(1)) target/krew/$(1)/kubectl-winpool$(call exe,$(1)) \
	&& install -m 644 LICENSE target/krew/$(1)/ \
	&& tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime=@$(SOURCE_DATE_EPOCH) \
		--directory target/krew/$(1) LICENSE kubectl-winpool$(call exe,$(1)) \
		| gzip --no-name --best > $(DIST)/kubectl-winpool-$(1).tar.gz

.PHONY: krew
krew: binary windows ## Build the archives of the kubectl plugin and krew's manifest of it, and install it with krew
	$(call step,krew)
	$(call timed,rm -rf target/krew && mkdir -p target/krew $(foreach platform,$(PLATFORMS),&& $(call plugin,$(platform))) \
		&& .ci/krew-manifest v$(VERSION) $(PUBLISHED) $(DIST) $(PLATFORMS) > target/krew/winpool.yaml \
		&& $(KREW)/validate-krew-manifest -skip-install -manifest $(CURDIR)/target/krew/winpool.yaml \
		&& KREW_ROOT=$(CURDIR)/target/krew/root $(KREW)/krew install --manifest $(CURDIR)/target/krew/winpool.yaml \
			--archive $(CURDIR)/$(DIST)/kubectl-winpool-linux-$(HOST_ARCH).tar.gz \
		&& target/krew/root/bin/kubectl-winpool --version)

.PHONY: dist
dist: image windows sbom chart helm-plugin install-yaml krew ## Build all files of a release, in target/dist, target/image and target/krew, and test them
	@cp $(CRD) $(DIST)/
	@cd $(DIST) && rm -f SHA256SUMS && sha256sum * > SHA256SUMS && cat SHA256SUMS
	@WINPOOL_DARWIN="$(DARWIN)" $(TEST) --test testsuite -- --ignored release::

.PHONY: notes
notes: ## Write the section of this version in CHANGELOG.md to target/notes.md; TAG=v0.1.0: fail if the version is another
	@[ -z "$(TAG)" ] || [ "$(TAG)" = v$(VERSION) ] || { echo "Cargo.toml has the version $(VERSION), and the tag is $(TAG)" >&2; exit 1; }
	@mkdir -p target
	@awk -v head="## [$(VERSION)]" 'index($$0, "## ") == 1 { on = index($$0, head) == 1; next } on' CHANGELOG.md \
		| sed -E 's|\]\(([^):#][^):]*)\)|]($(PUBLISHED)/blob/v$(VERSION)/\1)|g' > target/notes.md
	@grep -q '[^[:space:]]' target/notes.md || { echo "CHANGELOG.md has no section for $(VERSION)" >&2; exit 1; }

.PHONY: version
version: ## Print the version in Cargo.toml
	@echo $(VERSION)

.PHONY: workflows
workflows: ## Check the workflows of the hosted CI (actionlint, from the Go module proxy)
	go run github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT_VERSION)
