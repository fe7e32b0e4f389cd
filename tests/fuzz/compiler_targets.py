# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The readers of the patched compiler and of llvm-trace-cost."""

from collections.abc import Mapping

from tests.fuzz import inputs
from tests.fuzz.runners import hosted, tool
from tests.fuzz.target import NO_PIPES, PROFILE, TRACE, WINDOWS, Target

_MODEL = {"output_spec.json": "json", "model.tflite": "bytes"}
_COMPILE_PROFILE = "opt -passes=print<pmu-profile> -pmu-profile=one.pmu.json program.ll"
_COST = "llvm-trace-cost -trace={trace} -o out/cost.json"
_CYCLES = "-cpu=cpu.json -pmu-profile=one.pmu.json"


def _in(folder: str, files: Mapping[str, str]) -> dict[str, str]:
    return {f"{folder}/{name}": kind for name, kind in files.items()}


COMPILER_TARGETS: tuple[Target, ...] = (
    Target(
        "opt: profile",
        inputs.compiler_profile,
        PROFILE,
        tool(f"{_COMPILE_PROFILE} -disable-output"),
        200,
        inputs.seal_profile,
    ),
    Target(
        "opt: model",
        inputs.models,
        _in("inline-one-block", _MODEL),
        tool(
            f"opt {' '.join(inputs.INLINE)} calls.ll -S -o out/calls.ll "
            "-ml-inliner-model-under-training=inline-one-block"
        ),
        80,
    ),
    Target(
        "llc: model",
        inputs.models,
        _in("evict-first", _MODEL),
        tool(f"llc {' '.join(inputs.EVICT)} pressure.ll -o out/p.s -regalloc-model=evict-first"),
        80,
    ),
    Target(
        "opt: decisions",
        inputs.models,
        {"inline.txt": "text"},
        tool(
            f"opt {' '.join(inputs.INLINE)} calls.ll -S -o out/calls.ll -mlgo-decisions=inline.txt"
        ),
        replacements=NO_PIPES,
    ),
    Target(
        "llc: decisions",
        inputs.models,
        {"evict.txt": "text"},
        tool(f"llc {' '.join(inputs.EVICT)} pressure.ll -o out/p.s -mlgo-decisions=evict.txt"),
        replacements=NO_PIPES,
    ),
    Target(
        "opt: interactive",
        inputs.models,
        {"inline.answers": "bytes"},
        hosted(
            "opt -passes=scc-oz-module-inliner -enable-ml-inliner=release calls.ll -S "
            "-o out/calls.ll -inliner-interactive-channel-base=channel",
            "inline.answers",
        ),
    ),
    Target(
        "llc: interactive",
        inputs.models,
        {"evict.answers": "bytes"},
        hosted(
            "llc -O2 -mtriple=x86_64-linux-gnu -regalloc-enable-advisor=release pressure.ll "
            "-o out/p.s -regalloc-evict-interactive-channel-base=channel",
            "evict.answers",
        ),
    ),
    Target(
        "llvm-trace-cost: trace",
        inputs.trace,
        TRACE,
        tool(f"{_COST.format(trace='run.bbtrace')} -model=count program"),
        120,
        replacements=NO_PIPES,
    ),
    Target(
        "llvm-trace-cost: windows",
        inputs.trace,
        WINDOWS,
        tool(f"{_COST.format(trace='run.bbwindows')} -model=mca -cpu=cpu.json program.o"),
        120,
        replacements=NO_PIPES,
    ),
    Target(
        "llvm-trace-cost: code",
        inputs.trace,
        {"program.o": "bytes", "program": "bytes"},
        tool(
            f"{_COST.format(trace='run.bbwindows')} -model=mca -cpu=cpu.json -traced=program "
            "program.o"
        ),
        100,
        replacements=NO_PIPES,
    ),
    Target(
        "llvm-trace-cost: CPU, profile",
        inputs.trace,
        {"cpu.json": "json"} | PROFILE,
        tool(f"{_COST.format(trace='run.bbwindows')} {_CYCLES} program.o"),
        120,
        inputs.seal_profile,
        replacements=NO_PIPES,
    ),
)
