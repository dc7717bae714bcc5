# `make` lists the targets. Everything runs on this machine alone; no cluster is touched but the local one it starts.
.DEFAULT_GOAL := help
.NOTPARALLEL:
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

CARGO_DENY_VERSION := 0.20.2
TOOLS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/winpool/tools
CARGO_DENY := $(TOOLS)/cargo-deny-$(CARGO_DENY_VERSION)/bin/cargo-deny
CRD := crds/winpool.dev_windowspools.yaml

# $(call timed,commands): runs the commands, then says how long they took, also when they fail.
timed = @start=$$(date +%s); code=0; ( $(1) ) || code=$$?; \
	result=passed; if [ $$code -ne 0 ]; then result=failed; fi; \
	echo "make $@: $$result after $$(( $$(date +%s) - start )) s"; exit $$code

# $(call step,text)
step = @echo "==> $(1)"

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Show winpool at work on a local control plane with simulated Windows nodes
	$(call timed,cargo build --locked -p winpool-e2e --bin demo && cargo run -q --locked -p winpool-e2e --bin demo)

.PHONY: cluster
cluster: ## The cluster of the demo, left running to try things by hand (Ctrl-C ends it)
	@cargo build --locked -p winpool-e2e --bin cluster
	@cargo run -q --locked -p winpool-e2e --bin cluster

.PHONY: test
test: ## Everything that has to pass: format, lints, dependencies, unit and control-plane tests
	$(call timed,$(MAKE) --no-print-directory fmt-check lint core-alone deny unit control-plane-test)

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
		&& RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet)

.PHONY: core-alone
core-alone: ## Check that the core builds by itself and has no client, runtime or metrics among its dependencies
	$(call step,the core alone)
	$(call timed,cargo check --locked -p winpool-core \
		&& tree=$$(cargo tree --locked -p winpool-core -e normal --prefix none --format '{p}') \
		&& if grep -E '^(kube-client|kube-runtime|tokio|hyper|tracing|prometheus-client) ' <<< "$$tree"; \
		then echo "winpool-core must not depend on these"; exit 1; fi)

.PHONY: deny
deny: $(CARGO_DENY) ## Check licences, sources and versions of all dependencies (cargo-deny)
	$(call step,cargo-deny)
	$(call timed,$(CARGO_DENY) --locked --workspace check --hide-inclusion-graph bans licenses sources)

$(CARGO_DENY):
	@echo "==> cargo-deny $(CARGO_DENY_VERSION) is built from crates.io, once, into $(TOOLS) (about 3 minutes)"
	@cargo install --locked --version $(CARGO_DENY_VERSION) --root $(TOOLS)/cargo-deny-$(CARGO_DENY_VERSION) cargo-deny

.PHONY: unit
unit: ## Unit, property and snapshot tests of the core and the operator
	$(call step,unit tests)
	$(call timed,cargo test --locked -p winpool-core -p winpool)

.PHONY: control-plane-test
control-plane-test: ## Tests on a real local control plane, which is built from Go modules the first time (about 5 minutes)
	$(call step,control-plane tests)
	$(call timed,cargo test --locked -p winpool-e2e)

.PHONY: crd
crd: ## Write the CustomResourceDefinition of the code to crds/
	@mkdir -p $(dir $(CRD))
	@cargo run -q --locked -- crd > $(CRD).new && mv $(CRD).new $(CRD)
