# Every target works as the very first command on a machine that has Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev
PYTEST := $(BIN)/python -m pytest

.PHONY: help setup demo test test-slow attack test-avalanche lint bench docs results clean
help:
	@echo "make demo       what a model lost, what one number brings back, what is gone (embedded data)"
	@echo "make test       the tests (under five minutes on two cores)"
	@echo "make test-slow  kills, browser, real data: what takes longer"
	@echo "make test-avalanche  the plugin for Avalanche, with Avalanche"
	@echo "make attack     kill, suspend and damage runs, feed hostile input: CASES=10000 cases"
	@echo "make lint       ruff and mypy"
	@echo "make bench      what is fast, as ratios"
	@echo "make results    the tables and figures of the evidence, from the runs kept in results/runs"
	@echo "make docs       build the documentation into site/"

setup: $(READY_DEV)
# Installed again only when the list of packages changed. The demo does without the tools of developers.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "wane needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $(READY)
$(READY_DEV): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
	@touch $(READY_DEV)

demo: $(READY)
	$(BIN)/wane run diagnostics --scale demo --seed 0 --set record.ladder=true --out demo/run
	$(BIN)/wane run bounds --scale demo --seed 0 --set learner.name=joint --out demo/joint
	@echo
	@$(BIN)/wane report demo/run demo/joint --out demo/report.html
	@$(BIN)/wane figure ladder demo/run demo/joint --out demo/ladder.png
	@echo "demo/ladder.png shows it task by task; look at demo/report.html in a browser for the rest."

test: setup
	OMP_NUM_THREADS=1 $(PYTEST) -m "not slow" -n 2

test-slow: setup
	OMP_NUM_THREADS=1 $(PYTEST) -m slow

# See docs/reliability.md; a failed case prints how to repeat it.
CASES ?= 1000
attack: setup
	PYTHONPATH=src:. $(BIN)/python -m tests.attack --cases $(CASES)

# Without its dependencies, which name a torchvision that must fit torch's build, and without its package `tests`.
AVALANCHE := $(VENV)/avalanche
test-avalanche: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps --upgrade --target $(AVALANCHE) \
		avalanche-lib GPUtil PySocks beautifulsoup4 dill gdown pytorchcv qpsolvers soupsieve
	rm -rf $(AVALANCHE)/tests $(AVALANCHE)/examples
	PYTHONPATH=$(AVALANCHE) OMP_NUM_THREADS=1 $(PYTEST) tests/plugins/test_avalanche.py tests/test_docs.py -k avalanche

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m benchmarks

results: $(READY)
	$(BIN)/wane reproduce all --only-show --scale small --data cifar100 --data tiny_imagenet --runs results/runs --out results
	$(BIN)/wane figure scales results/runs --out results/scales.png
	$(BIN)/python results/methods.py
	$(BIN)/python results/corrections.py
	$(BIN)/python results/levers.py
	$(BIN)/python results/evidence.py
	$(BIN)/python results/shrink.py

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) site demo
