# Everything happens in .venv; the only needs are Python >= 3.11 and a C++ compiler.
PYTHON ?= python3
VENV ?= .venv
# The torch build to install. TORCH=keep uses the torch of $(PYTHON) when it is in range.
TORCH ?= torch==2.13.0

BIN := $(VENV)/bin
PLUGINS := builtin_rules torch_handlers aten_lowerings cpu_cpp gpu_triton
STAMP := $(VENV)/.installed

# What test-matrix runs: PYTHON-TORCH, each in an environment .venvs/PYTHON-TORCH.
MATRIX ?= 3.11-2.13.0 3.12-2.13.0 3.13-2.13.0 3.12-2.11.0 3.12-2.15.0

# Processes that run tests side by side.
JOBS ?= 2

# Models of the zoo, drawn at random by the date; 0: all.
SAMPLE ?= 0

.PHONY: setup demo test test-slow test-lenient test-matrix sweep fuzz lint bench bench-frontend zoo opinfo clean

setup: $(STAMP)

$(STAMP): pyproject.toml $(PLUGINS:%=plugins/%/pyproject.toml) Makefile
	PYTHON="$(PYTHON)" VENV="$(VENV)" TORCH="$(TORCH)" PLUGINS="$(PLUGINS)" sh scripts/setup.sh
	@touch $@

demo: setup
	$(BIN)/armature demo $(ARGS)

test: setup
	$(BIN)/python -m pytest -m "not slow and not sweep and not gpu" -n $(JOBS) --dist loadfile $(ARGS)

test-slow: setup
	$(BIN)/python -m pytest -m "slow and not sweep and not gpu" -n $(JOBS) --dist loadfile $(ARGS)

# The suite as programs run: what strict mode turns into an error falls back to eager here.
test-lenient: setup
	ARMATURE_STRICT=0 $(BIN)/python -m pytest -m "not slow and not sweep and not gpu" -n $(JOBS) --dist loadfile $(ARGS)

test-matrix: setup
	$(BIN)/python scripts/test_matrix.py --plugins "$(PLUGINS)" --jobs $(JOBS) $(MATRIX) -- $(ARGS)

sweep: setup
	$(BIN)/python -m pytest -m sweep -n $(JOBS) $(ARGS)

# The tests of random inputs, with others than those of `make test`, which are always the same.
fuzz: setup
	$(BIN)/python -m pytest -m "hypothesis and not sweep" --hypothesis-profile random -n $(JOBS) $(ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p armature $(PLUGINS:%=-p armature_%)
	PYTHONPATH=src $(BIN)/lint-imports
	PYTHONPATH=src $(BIN)/lint-imports .importlinter-annotations

bench: setup
	$(BIN)/python -m benchmarks.run $(ARGS)

zoo: setup
	$(BIN)/python -m benchmarks.zoo --sample $(SAMPLE) --jobs $(JOBS) $(ARGS)

opinfo: setup
	$(BIN)/python -m benchmarks.opinfo $(ARGS)

bench-frontend: setup
	$(BIN)/python -m benchmarks.frontend $(ARGS)

clean:
	rm -rf $(VENV) .venvs build dist .mypy_cache .ruff_cache .pytest_cache
