# Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
#
# Every command of the project. `make` lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

JOBS ?= 2
CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
PYTHON := .venv/bin/python
STAMP := .venv/.requirements-$(shell sha256sum tools/requirements.txt | cut -c1-16)

export CARGO_BUILD_JOBS ?= $(JOBS)

.PHONY: help
help: ## this list
	@echo "phub: gradient exchange in a network card"
	@grep -hE '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | expand -t 14 | sed 's/^/  make /'

# ---------------------------------------------------------------- use

.PHONY: demo build
demo: build ## train a model through the simulated card (ARGS="--workers 2 --steps 100")
	$(TARGET)/release/phubctl demo $(ARGS)

build: venv ## phubctl, phubd and phub-sim, optimized
	$(CARGO) build --release -p phubctl -p phubd -p phub-sim

.PHONY: venv requirements
venv: $(STAMP) ## the Python tools, pinned by hash, in .venv

$(STAMP):
	@tools/bootstrap
	@.venv/bin/python -c '' 2>/dev/null || python3 -m venv --clear .venv
	@echo "installing Python tools into .venv"
	@$(PYTHON) -m pip install -q --disable-pip-version-check --only-binary :all: --require-hashes -r tools/requirements.txt
	@rm -f .venv/.requirements-*
	@touch $@

requirements: ## pin tools/requirements.in anew
	python3 -m venv .cache/uv
	.cache/uv/bin/python -m pip install -q uv
	(head -1 tools/requirements.in; \
	 echo '# Made from tools/requirements.in by `make requirements`: do not edit.'; \
	 .cache/uv/bin/uv pip compile -q --universal --generate-hashes --python-version 3.10 \
	     --no-emit-find-links --no-header tools/requirements.in) > .cache/requirements.txt
	mv .cache/requirements.txt tools/requirements.txt

# ---------------------------------------------------------------- test

.PHONY: check test
check: ## the quick tier, a few minutes: lint and the tests that are not slow
	@MAKE=$(MAKE) tools/stages lint quick

test: ## everything
	@MAKE=$(MAKE) tools/stages lint doc unit doctest blocks formal demo test-vm

.PHONY: unit quick doctest doc
unit: venv nextest programs ## the Rust tests, co-simulation included (PHUB_SEEDS=N for long runs)
	$(CARGO) nextest run --workspace

quick: venv nextest programs
	$(CARGO) nextest run --workspace --profile quick

# A virtual machine with a virtual IOMMU, and the Verilated card on its PCI bus. PHUB_VM_ACCEL=kvm where that works.
GUEST_TARGET := x86_64-unknown-linux-gnu
.PHONY: test-vm
test-vm: build nextest ## the driver on a real kernel, in QEMU (TEST=soak for one boot)
	@if tests/vm/fetch .cache/vm; then $(MAKE) --no-print-directory boots; \
	elif [ $$? = 3 ]; then echo; echo "#### SKIPPED: the driver was NOT tested on a real kernel: no packages"; echo; \
	else exit 1; fi

.PHONY: boots
boots:
	RUSTFLAGS="-C target-feature=+crt-static" $(CARGO) build -q --release --target $(GUEST_TARGET) \
	    -p phubd -p phubctl -p phub-vm --bins
	PHUB_VM_PROGRAMS=$(abspath $(TARGET)/$(GUEST_TARGET)/release) PHUB_VM_SIM=$(abspath $(TARGET)/release/phub-sim) \
	    $(CARGO) nextest run -p phub-vm --features vm --test boots --no-capture $(if $(TEST),-E 'test($(TEST))')

# Tests start phubctl, phubd and phub-sim as processes.
.PHONY: programs
programs: venv
	$(CARGO) build --workspace --bins

doctest: venv
	$(CARGO) test -q --workspace --doc

doc: venv ## the Rust documentation, without warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc -q --workspace --no-deps --document-private-items

.PHONY: nextest
nextest:
	@$(CARGO) nextest --version >/dev/null 2>&1 || $(CARGO) install cargo-nextest --locked

.PHONY: blocks
blocks: venv ## the block tests of the RTL (TEST=stream_fifo for one)
	$(PYTHON) -m pytest -q -n $(JOBS) hw/sim/blocks $(if $(TEST),-k "$(TEST)")

.PHONY: formal
formal: venv ## the proofs of hw/formal
	$(PYTHON) hw/formal/run.py $(TEST)

# ---------------------------------------------------------------- lint

.PHONY: lint lint-rust lint-rtl
lint: lint-rust lint-rtl ## rustfmt, clippy, Verilator, Verible, Yosys

lint-rust: venv
	$(CARGO) fmt --check
	$(CARGO) clippy -q --workspace --all-targets --features phub-vm/vm -- -D warnings

lint-rtl: venv
	$(PYTHON) tools/lint_rtl.py
	$(PYTHON) hw/synth/elaborate.py

# ---------------------------------------------------------------- make and look

.PHONY: regs
regs: venv ## what follows from hw/regs/hub.rdl: SystemVerilog, C, HTML, Rust
	$(PYTHON) tools/gen/regs.py

.PHONY: bench
bench: venv ## how fast the simulated card is: cycles/s, gradient MB/s, cycles a beat
	$(CARGO) run -q --release -p phub-sim --example throughput

.PHONY: wave
wave: build ## waves of a short training run, in wave.fst (STEPS=2)
	$(TARGET)/release/phubctl demo --workers 2 --steps $(or $(STEPS),2) --trace wave.fst

.PHONY: clean
clean: ## remove what was built; keep .venv
	$(CARGO) clean
	rm -rf .cache hw/sim/blocks/sim_build wave.fst
