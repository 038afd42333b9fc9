# What people type. `make test` installs what the tests need and runs all of them; CI calls the same.

CARGO ?= cargo
ARGS ?= serve

.PHONY: run test lint bench fuzz tools-for-tests

run: ## Run the gate; make run ARGS="explain UNKNOWN_TOOL" runs another command
	$(CARGO) run --release -- $(ARGS)

test: tools-for-tests lint ## Everything that must hold
	$(CARGO) nextest run --workspace --locked
	$(CARGO) test --workspace --locked --doc
	python3 spec/vectors/check.py
	$(CARGO) check --locked --manifest-path bench/Cargo.toml
	scripts/fuzz 10

lint: ## Formatting and clippy, warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

bench: ## Speed, as ratios in one run; one section: make bench SECTION=serve
	$(CARGO) build --release --locked
	$(CARGO) run --release --locked --manifest-path bench/Cargo.toml -- $(SECTION)

fuzz: ## Fuzz each target for ten minutes
	scripts/fuzz 600

tools-for-tests:
	scripts/tools-for-tests
