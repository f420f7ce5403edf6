# Targets are exactly what CI runs. Needs only git, make and Python 3.11+.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Most installed modules are never imported: each is compiled when it is.
INSTALL := -m pip --disable-pip-version-check install --quiet --no-compile
PIP := $(BIN)/python $(INSTALL) --constraint constraints.txt
# Where this is set, each of the many processes of the tests would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test test-spark test-oldest lint theory fuzz bench docs package clean
.DEFAULT_GOAL := demo

setup: $(VENV)/.core
demo: setup
	$(BIN)/uncurse demo

test: $(VENV)/.dev
	@echo "make test-spark runs at the same time; its output follows"
	@$(MAKE) --no-print-directory test-spark > $(VENV)/spark.log 2>&1 & spark=$$!; \
	trap 'kill $$spark' INT TERM; status=0; \
	$(BIN)/python -m pytest -n auto --dist worksteal -m 'not theory and not spark' -rs || status=1; \
	wait $$spark || status=1; cat $(VENV)/spark.log; exit $$status

# One process runs the tests of Spark, because each process would start a Java machine of its own.
test-spark: $(VENV)/.dev
	$(BIN)/python -m pytest -m spark $$(grep -rlE 'spark|engines' tests lab/tests --include='test_*.py') -rs -p no:cacheprovider

# The oldest packages that pyproject.toml allows, and the tests that use them most; all of the core: TESTS=core
TESTS ?= $(wildcard $(addprefix tests/,foundations calibration evidence maps metrics logs/test_collect.py report/test_displays.py))
# The tests and doctests of the core are those of these packages and of single modules.
PACKAGES := calibration estimators evidence maps methods metrics monitoring
MODULES := $(filter-out %/demo.py %/mlflow.py %/__main__.py,$(wildcard src/uncurse/*.py))
CORE := $(wildcard $(addprefix tests/,contracts foundations $(PACKAGES))) $(addprefix src/uncurse/,$(PACKAGES)) $(MODULES)
test-oldest: $(VENV)-oldest/.dev
	@if [ ! -x $(VENV)-oldest/bin/pytest ]; then echo "skipped: NumPy 2.0 and SciPy 1.13 have no wheels for Python 3.13 and later"; \
	else $(VENV)-oldest/bin/python -m pytest -p no:cacheprovider \
	  $(if $(filter core,$(TESTS)),$(CORE),$(TESTS)); fi

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.docstrings
	$(BIN)/python -m tools.prose
	$(BIN)/codespell *.md docs/*.md docs/[a-z]*/*.md src lab tests tools examples benchmarks

theory: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto -m theory tests lab/tests

# The property tests with fresh draws, many of each.
fuzz: $(VENV)/.dev
	HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest -n auto -p no:cacheprovider $$(grep -rl 'from hypothesis' tests --include='test_*.py')

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.logs
	$(BIN)/python -m benchmarks.start
	$(BIN)/python -m benchmarks.monitoring
	$(BIN)/python -m benchmarks.estimators
	$(BIN)/python -m benchmarks.serving
	$(BIN)/python -m lab.benchmarks.auction

# The site, in docs/_build/html. Needs no network once the packages are installed; a warning is an error.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --quiet docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Build the source archive and the wheel, check both, and run the wheel in an empty environment.
package: $(VENV)-package/bin/python
	rm -rf dist
	$(VENV)-package/bin/python -m build --outdir dist .
	$(VENV)-package/bin/twine check --strict dist/*
	$(VENV)-package/bin/check-wheel-contents dist
	$(VENV)-package/bin/pyroma --min=10 .
	@test $$(stat -c %s dist/*.tar.gz) -lt 1000000 || { echo "the source archive is larger than 1 MB"; exit 1; }
	rm -rf $(VENV)-package/empty
	$(PYTHON) -m venv $(VENV)-package/empty
	$(VENV)-package/empty/bin/python $(INSTALL) --constraint constraints.txt "$$(ls dist/*.whl)[report]"
	cd $(VENV)-package && empty/bin/uncurse demo --out demo

clean:
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-package build dist docs/_build docs/gallery docs/reference/api docs/reference/commands.md

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "uncurse needs Python 3.11 or newer; try: make PYTHON=python3.12"; exit 2; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.core: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[report]'
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) --editable '.[dev]' --editable ./lab
	@touch $@

$(VENV)/.docs: $(VENV)/.dev
	$(PIP) --editable '.[docs]'
	@touch $@

$(VENV)-package/bin/python:
	$(PYTHON) -m venv $(VENV)-package
	$(VENV)-package/bin/python $(INSTALL) build twine check-wheel-contents pyroma

# Libraries that are large are left out, and their tests skipped: netcal needs PyTorch.
$(VENV)-oldest/.dev: pyproject.toml constraints-oldest.txt
	rm -rf $(VENV)-oldest
	$(PYTHON) -m venv $(VENV)-oldest
	if $(PYTHON) -c 'import sys; sys.exit(sys.version_info >= (3, 13))'; then \
	  $(VENV)-oldest/bin/python $(INSTALL) --constraint constraints-oldest.txt --only-binary numpy,scipy,scikit-learn \
	  --editable '.[duckdb,plot,report]' pytest hypothesis pandas prometheus-client betacal uncertainty-calibration; fi
	@touch $@
