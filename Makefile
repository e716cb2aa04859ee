# Pinion. `make run` shows it, `make test` proves it; `make help` lists the rest.
SHELL := /bin/bash
PREFIX ?= /usr/local
OUT := target/dist
HOST := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
SMALL := target/$(HOST)/small

.PHONY: help setup build wasm run stop test test-wasm test-external campaign lint bench bench-full bench-peers bench-here install uninstall packages clean

help: ## what there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: ## install what is missing to build and run (Debian packages)
	@scripts/setup build

build: setup ## build all programs into target/dist
	@scripts/build release $(OUT)

wasm: setup ## build pinion-wasm, which runs WebAssembly modules (docs/wasm.md), into target/dist
	@scripts/build release $(OUT) wasm

run: build ## build, start the daemon and run a pod of two containers
	@scripts/demo $(OUT)

stop: ## end what `make run` left
	@scripts/demo-stop $(OUT)

test: ## everything: unit, kernel, system; leaves the machine as it was
	@scripts/test

test-wasm: ## WebAssembly modules: pinion-wasm, and as containers
	@scripts/test-wasm

test-external: build ## sessions of containerd, Podman, Docker and CRI-O with pinrun, and the OCI validation programs
	@PINION_BIN=$(CURDIR)/$(OUT) tests/external/run all
	@scripts/test-wasm

campaign: ## fault campaigns: kills, errors and delays at every system call, attackers, disks, power cuts (ARGS: see docs/campaigns.md)
	@tests/campaign/run $(ARGS)

lint: setup ## formatting, lints
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

bench-peers: build ## build what Pinion is measured with: containerd, CRI-O, runc, crun, youki, runsc, a guest (15 min, once)
	@PINION_BIN=$(CURDIR)/$(OUT) tests/external/bench build

bench: build ## Pinion next to all of them in 20 min: target/bench/…/report.html (docs/pinion-bench.md; ARGS: names of parts)
	@PINION_BIN=$(CURDIR)/$(OUT) tests/external/bench short $(ARGS)

bench-full: build ## the same with the settings of published comparisons, in hours (docs/benchmarks/README.md)
	@PINION_BIN=$(CURDIR)/$(OUT) tests/external/bench full $(ARGS)

bench-here: build ## Pinion next to the engines that run here and the runtimes in PATH (ARGS: --engine NAME=SOCKET)
	@scripts/bench $(OUT) $(ARGS)

install: build ## install into PREFIX (/usr/local), with unit file and completions
	@scripts/install $(OUT) $(PREFIX)

uninstall: ## remove what `make install` put there
	@scripts/install --remove $(PREFIX)

packages: setup ## build .deb, .rpm and .tar.gz into target/packages (docs/install.md)
	@scripts/package all

clean: ## remove what was built
	cargo clean
