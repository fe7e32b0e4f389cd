# The demo: from a program's run to a clang with trained, PMU-aware policies, and what the shipped
# policies do for programs that they never saw, as a sequence of `cop` commands. make runs only what
# is not done yet, so that an interrupted demo goes on where it was. Run it with `make demo`.

OUT := build/demo
COP := build/venv/bin/cop
PROFILE := $(OUT)/zstd.pmu.json
PROGRAMS := zstd lua
PROBLEMS := inline-size regalloc-evict
# Small budgets: the whole demo shall end in 20 minutes on two cores. The limit in seconds is for slower
# machines; where it strikes, the policies are not those of another machine.
ITERATIONS := 6
BUDGET := 300
SEED := 1
# For the policies in models/: test programs of their recipes, one of C, one that grows.
UNSEEN := lua jsoncpp ninja tinyxml

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.PHONY: demo toolchain release

headline = @printf '\n== %s  %s\n' "$$(date +%T)" '$(1)'

demo: $(OUT)/report.html
	$(call headline,done)
	@echo 'Tables and plots: $<'
	@echo 'The clang with both policies inside: build/toolchain/release/bin/clang'
	@echo 'Use it (zstd and Lua are compiled so above):'
	@echo '  build/toolchain/release/bin/clang -Oz -g -fdebug-info-for-profiling \'
	@echo '    -mllvm -enable-npm-pgo-inline-deferral=false -mllvm -enable-ml-inliner=release \'
	@echo '    -mllvm -regalloc-enable-advisor=release -mllvm -pmu-profile=$(PROFILE) -c FILE.c'

# Takes a second when nothing changed; it knows better than file dates whether something did.
toolchain:
	$(call headline,patched clang and opt and llc for development mode)
	$(COP) toolchain build --toolchain=dev

$(PROGRAMS:%=$(OUT)/%/compile_commands.json): $(OUT)/%/compile_commands.json:
	$(call headline,building $* from the archive)
	$(COP) corpus program $* --output=$(OUT)/$*

$(PROFILE): $(OUT)/zstd/compile_commands.json
	$(call headline,zstd under the cache and branch simulator)
	$(COP) profile collect --binary=$(OUT)/zstd/zstd --output=$@ -- \
	  -9 --single-thread -f -q -o /dev/null $(OUT)/zstd/input
	$(COP) profile check $@ --binary=$(OUT)/zstd/zstd
	for event in $(OUT)/zstd.*.afdo; do \
	  /usr/lib/llvm-22/bin/llvm-profdata show --sample "$$event" > /dev/null; done

CORPORA := $(PROBLEMS:%=$(OUT)/corpus/%/train/corpus_description.json)
$(CORPORA): $(OUT)/corpus/%/train/corpus_description.json: $(PROGRAMS:%=$(OUT)/%/compile_commands.json)
	$(call headline,corpus for $*)
	$(COP) corpus extract --problem=$* --output=$(OUT)/corpus/$* --seed=$(SEED) \
	  $(foreach program,$(PROGRAMS),$(program)=$(OUT)/$(program)/compile_commands.json)

POLICIES := $(PROBLEMS:%=$(OUT)/%/policy/model.json)
# With so small a budget a policy may come out worse than the default; the demo goes on and shows it.
$(POLICIES): $(OUT)/%/policy/model.json: \
    $(OUT)/corpus/%/train/corpus_description.json $(PROFILE) | toolchain
	$(call headline,training $*)
	$(COP) train policy --problem=$* --corpus=$(OUT)/corpus/$*/train --profile=$(PROFILE) \
	  --output=$(OUT)/$* --iterations=$(ITERATIONS) --budget=$(BUDGET) --seed=$(SEED) || { \
	    status=$$?; [ $$status -eq 4 ] || exit $$status; \
	    echo "NOTE: the demo's policy for $* is worse than the default; do not ship it"; }

# Like `toolchain`, asked each time: a change of the patches must not leave an old compiler behind.
release: $(POLICIES) toolchain
	$(call headline,both policies ahead of time into clang and opt and llc)
	$(COP) toolchain build --toolchain=release --inline-model=$(OUT)/inline-size/policy \
	  --evict-model=$(OUT)/regalloc-evict/policy
build/toolchain/release/bin/clang: release ;

COMPARISONS := $(PROBLEMS:%=$(OUT)/%.comparison.json)
$(COMPARISONS): $(OUT)/%.comparison.json: $(OUT)/%/policy/model.json \
    build/toolchain/release/bin/clang
	$(call headline,$* on held-out modules)
	$(COP) compare policy --problem=$* --corpus=$(OUT)/corpus/$*/held_out --model=$(OUT)/$*/policy \
	  --profile=$(PROFILE) --output=$@

$(OUT)/shipped.json: models/inline-size/model.json | toolchain
	$(call headline,the policy in models/inline-size on programs that it never saw)
	$(COP) compare programs $(UNSEEN) --model=$(dir $<) --modules=$(OUT)/unseen --output=$@

# The first table is what was shipped.
$(OUT)/report.html: $(COMPARISONS) $(OUT)/shipped.json
	$(COP) compare page $(OUT)/shipped.json $(COMPARISONS) \
	  $(foreach problem,$(PROBLEMS),--training=$(problem)=$(OUT)/$(problem)) \
	  --output=$@
