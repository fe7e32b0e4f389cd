# Everything here is a thin name for a command that can be run by itself; `make` lists them.

COP := build/venv/bin/cop
BENCHMARK := build/venv/bin/python -m benchmarks
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help bootstrap extras build demo train-inline check unit bazel bench-collect bench-cycles bench-harm bench-hits \
  bench-inline-speed bench-policies bench-rank bench-series bench-throughput bench-upstream fuzz lint clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 28

bootstrap: ## install Debian packages (as root) and build/venv with the pinned Python packages
	@tools/bootstrap

extras: ## the same with TensorFlow and Ray, which upstream's models, some trainings and clusters need
	@tools/bootstrap --with=tensorflow --with=ray

build: bootstrap ## build patched clang, opt and llc without models, in build/toolchain/dev
	@$(COP) toolchain build --toolchain=dev

demo: bootstrap ## what the project gives real programs, by time and by size, and a training that gains; ten minutes
	@exec 9>build/.demo.lock; flock -n 9 || { echo 'another demo is running: waiting'; flock 9; }; \
	  $(MAKE) --no-print-directory -f tools/demo.mk

train-inline: build ## train the policy in models/inline-size again, as its recipe says; 50 minutes to hours on two cores, resumable
	@$(COP) train policy --problem=inline-size --recipe=models/inline-size/recipe.toml --output=build/train-inline

check: ## bootstrap, overlay build, lint, types, unit tests, lit tests by Bazel, pytest, upstream's lit tests
	@tools/check

unit: extras ## the tests that need the Python packages only, under a minute
	@build/venv/bin/pytest --quiet --numprocesses=$$(($$(nproc) + 2)) --dist=loadfile -m 'not compiler and not long'

bazel: extras ## build and test the workspace with Debian's Bazel, which it installs
	@$(COP) toolchain build --toolchain=mock
	@tools/check-bazel

fuzz: extras ## thousands of damaged inputs for every reader, minutes: SEED=number ONLY=part of a reader's name
	@$(COP) toolchain build --toolchain=mock
	@build/venv/bin/python -m tests.fuzz --seed=$(or $(SEED),1) --only="$(ONLY)"

bench-collect: build ## measure PMU collection on four real programs, about 15 minutes
	@$(BENCHMARK) collect

bench-harm: extras ## does any of forty programs become slower by the policies? builds and profiles an hour, times half an hour, machine otherwise idle, resumable: PREPARE=1 only builds and profiles
	@$(COP) toolchain build --toolchain=mock
	@$(BENCHMARK) harm $(if $(PREPARE),--prepare)

bench-hits: extras ## what lookups in a profile find at other levels, with PGO and ThinLTO; half an hour
	@$(COP) toolchain build --toolchain=mock
	@$(BENCHMARK) hits

bench-series: extras ## build and test the patch series up to the end of each part, half an hour
	@$(COP) toolchain build --toolchain=mock
	@$(BENCHMARK) series

bench-hosts: bootstrap ## both commands on bare systems of Debian 12 and 13, as root; an hour and a half: ONLY=trixie SHARE=file that they need
	@$(BENCHMARK) hosts $(addprefix --only=,$(ONLY)) $(addprefix --share=,$(SHARE))

bench-upstream: extras ## upstream's tests around the advisors, on the patched and on Debian's tools
	@$(COP) toolchain build --toolchain=mock
	@tools/patches/series upstream --wide

bench-inline-speed: extras ## what a PMU profile adds to inlining for speed, beside AutoFDO and PGO, counted; hours
	@$(COP) toolchain build --toolchain=mock
	@$(BENCHMARK) inline-speed

bench-policies: extras ## programs by the policies in models/, by constants, AutoFDO, PGO and ThinLTO, by the clock; hours, machine otherwise idle
	@$(COP) toolchain build --toolchain=mock
	@$(BENCHMARK) policies

bench-throughput: extras ## modules a second by our worker and in other ways; after train-inline; 5 minutes
	@$(COP) toolchain build --toolchain=mock
	@$(BENCHMARK) throughput

bench-cycles: extras ## cycles of real runs and of their parts, predicted and measured, with PMU data and without; half an hour, machine otherwise idle: MODEL=folder of a learned cost model of this CPU (models/cost-znver3)
	@$(COP) toolchain build --toolchain=mock
	@$(BENCHMARK) cycles --model=$(or $(MODEL),models/cost-znver3)

bench-rank: extras ## do predicted costs rank register allocations, inlinings and branches as measured times do? hours, at the end half an hour otherwise idle: MODEL=folders of learned cost models of this CPU
	@$(COP) toolchain build --toolchain=mock
	@$(BENCHMARK) rank $(addprefix --model=,$(MODEL))

lint: bootstrap ## formatting, lint and types
	@tools/check lint

clean: ## remove all outputs, the downloaded sources and the virtual environment too
	rm -rf build
