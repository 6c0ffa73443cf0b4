# Everything here makes its own virtual environment, ./.venv: a fresh clone needs only
# Python >= 3.11, make and a package index. PYTHON=python3.12 picks another interpreter.
SHELL := /bin/bash
ifndef PYTHON
PYTHON := $(firstword $(foreach p,python3 python3.14 python3.13 python3.12 python3.11,$(shell \
	$(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))) python3)
endif
# Where a driver is, Numba's compiler for its CUDA version (12 or 13) is installed as well.
ifndef CUDA
CUDA := $(shell nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: *\([0-9]*\).*/\1/p' | head -n 1)
endif
VENV := .venv
# What setup.py compiles, where there is a C compiler.
COMPILED := $(wildcard graphjit/*.pxd graphjit/*/*.pxd graphjit/*/*/*.pxd)
COMPILED += $(filter $(wildcard $(COMPILED:.pxd=.py) $(COMPILED:.pxd=.pyx)),$(COMPILED:.pxd=.py) $(COMPILED:.pxd=.pyx))
BIN := $(VENV)/bin
comma := ,

# What must hold of the call path as Python, too, where it is compiled.
CALL_TESTS := $(addprefix tests/,footguns $(addsuffix .py,$(addprefix test_,binding cache call guards \
	memory properties surprises)))

.PHONY: help demo test gpu-test lint bench fuzz clean
.DELETE_ON_ERROR:

help:
	@echo 'make demo      run examples/heat.py, which writes out/heat.png'
	@echo 'make test      all tests that this machine can run'
	@echo 'make gpu-test  the tests that need one'
	@echo 'make lint      ruff and mypy'
	@echo 'make bench     the benchmarks of the CPU, and of the GPU where there is one'
	@echo 'make fuzz      the property tests, with many more examples'
	@echo 'make clean     remove the environment and everything that was built'

demo: $(VENV)/.has-examples
	$(BIN)/python examples/heat.py

test: $(VENV)/.has-test
	$(BIN)/python -m pytest
	if ls graphjit/*.so >/dev/null 2>&1; then \
		GRAPHJIT_PURE_PYTHON=1 $(BIN)/python -m pytest -q $(CALL_TESTS); fi

gpu-test: $(VENV)/.has-test
	$(BIN)/python -m pytest tests -m gpu

lint: $(VENV)/.has-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.has-test
	$(BIN)/python -m benchmarks.cpu
	$(BIN)/python -m benchmarks.dispatch
	$(BIN)/python -m benchmarks.loops
	if $(BIN)/python -c 'import dpctl' 2>/dev/null; then $(BIN)/python -m benchmarks.sycl; fi
	$(if $(CUDA),$(BIN)/python -m benchmarks.cuda)
	$(if $(CUDA),$(BIN)/python -m benchmarks.compiler)

fuzz: $(VENV)/.has-test
	$(BIN)/python -m pytest tests --ignore=tests/gpu --timeout=0 \
		-p tests.fuzz_profile --hypothesis-profile=fuzz

clean:
	rm -rf $(VENV) build dist *.egg-info out .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find graphjit -name '*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for each set of optional dependencies; a change of pyproject.toml installs again, and
# one of what is compiled compiles it again.
$(VENV)/.has-%: pyproject.toml setup.py $(COMPILED) | $(VENV)/.made
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*$(if $(CUDA),$(comma)cuda$(CUDA))]'
	@touch $@

.PRECIOUS: $(VENV)/.has-%

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo 'graphjit needs Python 3.11 or newer; name one with make PYTHON=python3.12' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) can't make a virtual environment: its modules venv and ensurepip are" \
			'missing. On Debian and Ubuntu: apt install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@
