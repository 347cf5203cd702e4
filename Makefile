# Everything a fresh machine needs: `make demo` and `make test`. CI runs `make check`, `make test`, `make docs`, `make dist`.
# Without make (Windows): the same commands stand in docs/how_to/without_make.md.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One line decides how much of the tooling is installed: a demo needs none of it.
BASE := $(VENV)/.base
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test browser check format docs bench dist clean

$(BASE): pyproject.toml constraints.txt
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $@

$(STAMP): pyproject.toml constraints.txt
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[dev]'
	touch $@ $(BASE)

demo: $(BASE)
	$(BIN)/anchorroute demo --out out

test: $(STAMP)
	$(BIN)/python -m pytest -n auto

# The studio in headless Chromium, alone: rendering in software needs the machine for itself.
browser: $(STAMP)
	ANCHORROUTE_BROWSER=1 $(BIN)/python -m pytest tests/test_studio_browser.py

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP)
	$(BIN)/mkdocs build --strict --quiet --site-dir build/docs

bench: $(STAMP)
	$(BIN)/python benchmarks/speed_text_to_motion.py

# The wheel, in an empty environment outside of the clone, with the network switched off for the program itself.
dist: $(STAMP)
	rm -rf dist && mkdir -p dist
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	$(BIN)/python benchmarks/try_wheel.py dist/anchorroute-*.whl

clean:
	rm -rf $(VENV) out dist build
