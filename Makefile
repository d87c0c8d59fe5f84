# make demo: set up and show the main job on embedded real data.   make test: set up and run every check.
# make docs: the documentation site in build/docs.   make wheel-test: the wheel, installed in an empty environment and tried.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test docs wheel wheel-test install clean
.DELETE_ON_ERROR:

demo: $(STAMP)
	@echo "==> vcr-graphormer demo"
	@$(BIN)/vcr-graphormer demo

# Every room must stay covered. Compiled loops are left out: coverage cannot see into them.
ROOMS := base data ranking tokens model training explain runs report cli
test: $(STAMP)
	@echo "==> ruff: lint and format"
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@echo "==> mypy --strict"
	@$(BIN)/mypy
	@echo "==> pytest, two processes, each file in one of them, which trains its runs once (real datasets: VCR_DATA=$${VCR_DATA:-not set, those tests skip})"
	@$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder --cov --cov-report=
	@for room in $(ROOMS); do \
		$(BIN)/coverage report --include="*/vcr_graphormer/$$room/*" --fail-under=90 > .coverage-$$room.txt || \
			{ cat .coverage-$$room.txt; echo "the room $$room is covered by less than 90 %"; exit 1; }; \
		echo "coverage of $$room: $$(tail -n 1 .coverage-$$room.txt | tr -s ' ' | cut -d' ' -f6)"; done

# Notebooks run while the site is built. Warnings, such as links that lead nowhere, are errors.
DOCS_STAMP := $(VENV)/.installed-docs
docs: $(DOCS_STAMP)
	@echo "==> sphinx: documentation site"
	@$(BIN)/python -m sphinx -E -W --keep-going -n -q -b html -d build/docs-cache docs build/docs
	@echo "open build/docs/index.html"

$(DOCS_STAMP): $(STAMP)
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev,docs]'
	@touch $(DOCS_STAMP)

wheel: $(STAMP)
	@echo "==> build: sdist, and the wheel from it"
	@rm -rf dist && $(BIN)/python -m build --no-isolation --outdir dist . > build-log.txt 2>&1 || { cat build-log.txt; exit 1; }
	@rm -f build-log.txt && ls -l dist

# The wheel alone, without extras, in an environment that holds nothing else; far from the checkout.
wheel-test: wheel
	@PYTHON=$(PYTHON) .ci/wheel-test dist/*.whl

install: $(STAMP)

# torch first and pinned: an open range can pull a newer one with other CUDA packages. For a CPU build, point pip to
# PyTorch's CPU index by pip's own settings before the first run. Python compiles the files that are used, pip all.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) -V). Try: make PYTHON=python3.12 demo"; exit 1; }
	@echo "==> create the virtual environment $(VENV)"
	@$(BIN)/pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || \
		{ echo "venv failed: on Debian and Ubuntu, apt-get install python3-venv"; exit 1; }
	@echo "==> install torch, then the package and its tools, in the versions of constraints.txt (minutes, once)"
	@$(BIN)/pip install --quiet --no-compile --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	@$(BIN)/pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	@touch $(STAMP)

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
