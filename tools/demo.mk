# The demo: what the project gives for real programs, each gain with its figure, and a training that
# gains on programs that it did not see. It is a sequence of `cop` commands. make runs only what is
# not done yet, so that an interrupted demo goes on where it was. Run it with `make demo`.
#
# The test runs it in miniature: tools/demo_test.py sets the variables otherwise.

OUT := build/demo
COP := build/venv/bin/cop
DEV := dev
RELEASE := release
# JsonCpp's test program reads a document and writes it again. The profiled document holds records;
# the other one holds polygons of a map, by which nothing was chosen.
SOURCES := src/lib_json/*.cpp src/jsontestrunner/main.cpp
COMPILE := -std=c++11 -Iinclude -w
PROGRAM := jsontest
RUN := ./jsontest records.json
RUN2 := ./jsontest map.json
ROUNDS := 12
# Programs that models/inline-size never saw: three in C++, one in C.
UNSEEN := jsoncpp ninja tinyxml lua
RECIPE := tools/demo.toml

TREE := $(OUT)/jsoncpp
TRY := $(OUT)/try
PROFILE := $(TRY)/way-00/profile/$(PROGRAM).pmu.json

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.PHONY: demo toolchains

# A headline, what the step does, and nothing else: the commands print their figures.
step = @printf '\n== %s  %s\n%s\n\n' "$$(date +%T)" '$(1)' '$(2)'

demo: $(OUT)/report.html
	$(call step,Done,All tables with pictures: $<)
	@echo 'Your own program: docs/try-your-program.md'

# Takes a second when nothing changed; it knows better than file dates whether something did.
toolchains:
	$(call step,1. Build clang,The patched clang and the same with the policy for speed inside.)
	$(COP) toolchain build --toolchain=$(DEV)
	$(COP) toolchain build --toolchain=$(RELEASE) --inline-model=models/inline-speed

$(TREE): | toolchains
	$(call step,2. A real program,JsonCpp from Debian and two documents for it to read.)
	$(COP) corpus program jsoncpp --output=$(OUT)/program
	@rm -rf $@.new && cp -r build/sources/libjsoncpp $@.new
	@build/venv/bin/python -c 'from pathlib import Path; \
	  from benchmarks.programs.inputs import write_document, write_map; \
	  write_document(Path("$@.new/records.json"), 12000, 2); \
	  write_map(Path("$@.new/map.json"), 1000, 3)'
	@mv $@.new $@

# The table of the first call, as JSON in the second, which has nothing left to do.
$(OUT)/try.json: | $(TREE)
	$(call step,3. Speed at -O2,\
	  Profile a run. Build by AutoFDO or the policy or both. Count and time on both documents.)
	$(TRY_IT)
	@$(TRY_IT) --json > $@
	$(COP) profile show $(PROFILE) --top=5
TRY_IT = $(COP) try --source=$(TREE) --output=$(TRY) --toolchain=$(DEV) --rounds=$(ROUNDS) \
  --build='ls $(SOURCES) | xargs -P2 -n1 $$CXX $$CXXFLAGS $(COMPILE) -c && $$CXX *.o -o $(PROGRAM)' \
  --run='$(RUN)' --run2='$(RUN2)'

# The second clang has the policy inside, the first one loads it by the trial's flags.
$(OUT)/equal.txt: $(OUT)/try.json | toolchains
	$(call step,4. Release mode,The clang with the policy inside must write the same object files.)
	$(COP) policy flags --toolchain=$(RELEASE) --profile=$(PROFILE) --output=$(OUT)/release.cfg
	@cd $(TREE); number=0; \
	for source in $(SOURCES); do \
	  $(COMPILER_IN)/$(RELEASE)/bin/clang++ --config=$(abspath $(OUT)/release.cfg) \
	    -O2 $(COMPILE) -c "$$source" -o $(abspath $(OUT)/release.o); \
	  $(COMPILER_IN)/$(DEV)/bin/clang++ --config=$(abspath $(TRY)/policies.cfg) \
	    -O2 $(COMPILE) -c "$$source" -o $(abspath $(OUT)/flag.o); \
	  cmp $(abspath $(OUT)/release.o) $(abspath $(OUT)/flag.o); \
	  number=$$((number + 1)); \
	done; \
	echo "object files that are the same by release mode and by flags: $$number" \
	  | tee $(abspath $@)
COMPILER_IN = "$(CURDIR)"/build/toolchain

# The training finds modules of two of the programs there.
$(OUT)/shipped.json: models/inline-size/model.json | toolchains
	$(call step,5. Size at -Oz,models/inline-size on programs that its training never saw. It needs no profile.)
	$(COP) compare programs $(UNSEEN) --model=$(dir $<) --toolchain=$(DEV) \
	  --modules=$(OUT)/training --output=$@

$(OUT)/training/policy/model.json: $(RECIPE) | toolchains
	$(call step,6. Training,\
	  Learn from three C++ programs what single inlining decisions are worth. Test on two others.)
	$(COP) train policy --problem=inline-size --recipe=$(RECIPE) --toolchain=$(DEV) \
	  --output=$(OUT)/training || { \
	    status=$$?; [ $$status -eq 4 ] || exit $$status; \
	    echo 'NOTE: this policy is worse than the default; do not ship it'; }

$(OUT)/report.html: $(OUT)/try.json $(OUT)/equal.txt $(OUT)/shipped.json \
    $(OUT)/training/policy/model.json
	@$(COP) compare page $(PROFILE) $(OUT)/try.json $(OUT)/shipped.json --training=$(OUT)/training \
	  --output=$@
