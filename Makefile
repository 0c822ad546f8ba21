PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO := runs/demo-$(shell date +%Y%m%d-%H%M%S)
DEMO_STEPS ?= 1000
FUZZ ?= 2000

.PHONY: help setup demo test test-all fuzz docs bench lint format toys clean

help:  ## Show what there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'ffjord needs Python 3.11 or newer; set PYTHON=...'; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

setup: $(READY)  ## Make the virtual environment

demo: $(READY)  ## Train a pinwheel, evaluate it, draw it (about three minutes)
	$(BIN)/ffjord train toy/pinwheel --steps $(DEMO_STEPS) --out $(DEMO)
	$(BIN)/ffjord evaluate $(DEMO) --limit 20000
	$(BIN)/ffjord plot $(DEMO)
	@echo 'A Gaussian turned into a pinwheel: open $(DEMO)/figure.png and $(DEMO)/flow.gif'

test: $(READY)  ## Run the tests
	$(BIN)/python -m pytest

test-all: $(READY)  ## Run the tests, the slow ones too, with programs optimised as users have them
	$(BIN)/python -m pytest -m ''

fuzz: $(READY)  ## Try thousands of odd inputs, new ones every time (about ten minutes)
	FFJORD_FUZZ=$(FUZZ) $(BIN)/python -m pytest tests/test_fuzz.py -n 0 --hypothesis-show-statistics

DOCS_READY := $(VENV)/.docs-ready

$(DOCS_READY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

docs: $(DOCS_READY)  ## Build the documentation into build/site; a broken link fails
	rm -rf build/pages build/site
	mkdir -p build/pages/benchmarks
	cp -r README.md CONTRIBUTING.md CHANGELOG.md docs results build/pages
	cp benchmarks/*.md benchmarks/*.json benchmarks/*.png build/pages/benchmarks
	ZENSICAL_POLL_WATCHER=1 $(BIN)/zensical build --clean --strict  # where inotify is used up it would build nothing, and not say so
	@test -s build/site/index.html || { echo 'no site was built'; exit 1; }
	@! grep -rlE '<(script|link|img)[^>]+(src|href)="?(https?:)?//' build/site --include='*.html' || { echo 'these pages need the network'; exit 1; }
	@echo 'open build/site/index.html, or serve it: python3 -m http.server -d build/site'

BENCH_READY := .venv-bench/.ready

$(BENCH_READY): pyproject.toml constraints.txt benchmarks/requirements.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e . -r benchmarks/requirements.txt
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --no-deps torchdyn==1.0.6 torchcde==0.2.5 torchsde==0.2.6
	@touch $@

bench: $(BENCH_READY)  ## Measure this library against its peers, and alone (an hour; an environment of its own, with torch)
	.venv-bench/bin/python -m benchmarks.compare
	.venv-bench/bin/python -m benchmarks.alone
	.venv-bench/bin/python -m benchmarks.images
	.venv-bench/bin/python -m benchmarks.posteriors
	.venv-bench/bin/python -m benchmarks.large_pages

toys: $(READY)  ## Train and draw all toys again: results/ and pretrained/ (about an hour)
	$(BIN)/python scripts/toys.py

lint: $(READY)  ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

format: $(READY)  ## Put the code in style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## Remove the virtual environment and caches
	rm -rf $(VENV) build .pytest_cache .ruff_cache
