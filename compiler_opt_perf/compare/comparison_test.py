# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares upstream's mock eviction policy, compiled in and as a .tflite file, on real modules."""

import hashlib
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from compiler_opt_perf.compare.baseline import Detail, ModuleRow, pack
from compiler_opt_perf.compare.comparison import (
    Comparison,
    ModuleComparison,
    compare,
    side_by_side,
)
from compiler_opt_perf.compare.errors import CompareError
from compiler_opt_perf.compare.measure import EffortJob, measure_effort
from compiler_opt_perf.compare.modes import ModesError, require_compiled_in
from compiler_opt_perf.compare.subject import Subject
from compiler_opt_perf.compare.summary import CostChange, summarise
from compiler_opt_perf.compare.testing import failing_toolchain
from compiler_opt_perf.corpus.corpus import Corpus, Module
from compiler_opt_perf.corpus.extract import extract_corpus
from compiler_opt_perf.corpus.testing import lua_compile_commands
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.policy.testing import convert_to_tflite
from compiler_opt_perf.profile.events import EVENTS
from compiler_opt_perf.profile.function_table import FunctionTable
from compiler_opt_perf.profile.manifest import Collector, EventFile, Manifest, ProfiledBinary
from compiler_opt_perf.profile.profile import Profile
from compiler_opt_perf.profile.sample_profile import FunctionSamples, SampleProfile
from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.timing import Meter, find_meter
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import BUILD

EVICT = PROBLEMS["regalloc-evict"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("corpus")
    commands = lua_compile_commands(folder, ["lcode", "lmem", "llex", "ltm"])
    extract_corpus(
        {"lua": commands},
        folder / "corpus",
        clang=stock_tool("clang"),
        opt_level=EVICT.optimization_level,
        stage=EVICT.corpus_stage,
        held_out_share=0.25,
        seed=1,
    )
    return Corpus.load(folder / "corpus" / "train")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> Path:
    """The policy that is compiled into `toolchain`, as development mode loads it."""
    saved_model = BUILD / "models" / "mock-RegAllocEvictModel"
    folder = tmp_path_factory.mktemp("model")
    (folder / "model.tflite").write_bytes(convert_to_tflite(saved_model))
    shutil.copy(saved_model / "output_spec.json", folder)
    return folder


def _compare(corpus: Corpus, toolchain: Toolchain, model: Path, repetitions: int = 1) -> Comparison:
    return compare(
        Subject(EVICT, toolchain, toolchain, model),
        corpus,
        compile_time="processor-time",
        repetitions=repetitions,
        seed=3,
        workers=2,
    )


@pytest.mark.compiler
def test_both_modes_agree_and_every_column_is_filled(
    corpus: Corpus, toolchain: Toolchain, model: Path
) -> None:
    comparison = _compare(corpus, toolchain, model)
    assert [row.name for row in comparison.modules] == [m.name for m in corpus.modules]
    assert (comparison.modes, comparison.seed) == (("release", "development"), 3)
    assert comparison.compile_time == "processor time, 1 pair a module"
    total = summarise(comparison).total
    assert total.decisions > 0
    # The mock policy takes the first candidate that it may take, whatever that costs.
    assert 0 < total.differing <= total.decisions
    assert total.with_pmu == 0
    assert total.score is not None and total.score.value > 0
    assert total.text is not None and total.text.value != 0
    assert total.compile_time is not None
    functions = [one for row in comparison.modules for one in row.functions]
    assert len({one.name for one in functions}) == len(functions) > len(comparison.modules)
    again = _compare(corpus, toolchain, model)
    for first, second in zip(comparison.modules, again.modules, strict=True):
        assert replace(first, compile_default=(), compile_policy=()) == replace(
            second, compile_default=(), compile_policy=()
        )


@pytest.mark.compiler
def test_nothing_to_compare_is_refused(corpus: Corpus, toolchain: Toolchain, model: Path) -> None:
    with pytest.raises(CompareError, match="has no modules"):
        _compare(corpus.subset([]), toolchain, model)
    with pytest.raises(CompareError, match="0 repetitions"):
        _compare(corpus, toolchain, model, repetitions=0)


@pytest.mark.compiler
def test_another_policy_in_development_mode_is_an_error(
    corpus: Corpus, toolchain: Toolchain, repo_root: Path
) -> None:
    other = repo_root / "lit_tests" / "Inputs" / "evict-last"
    with pytest.raises(ModesError, match=r"lua/\w+: .*release"):
        _compare(corpus, toolchain, other)


@pytest.mark.compiler
def test_one_compilation_with_another_object_is_an_error(
    corpus: Corpus, toolchain: Toolchain, model: Path, tmp_path: Path
) -> None:
    """All modes agree, and the compilation that logs decisions differs from them."""
    logging = '*-mlgo-decision-keys*) set -- "$@" -mllvm -align-all-functions=5 ;;'
    broken = failing_toolchain(tmp_path / "broken", toolchain, logging)
    with pytest.raises(CompareError, match="lua/lcode: compiling it again gave another object"):
        _compare(corpus.subset(["lua/lcode"]), Toolchain.load(broken), model)


@pytest.mark.compiler
def test_a_model_that_is_missing_is_the_compilers_error(
    corpus: Corpus, toolchain: Toolchain, tmp_path: Path
) -> None:
    with pytest.raises(
        CommandError, match=r"^clang: exit status 1.*(?s:.*)to reproduce: \S+/clang "
    ):
        _compare(corpus, toolchain, tmp_path / "no-model")


# Stands for a compiler: it takes so many rounds, more of them with the policy's option.
COMPILER = """
#include <string.h>
int main(int argc, char **argv) {
  volatile unsigned Sink = 0;
  unsigned Rounds = 20000000;
  for (int I = 1; I < argc; ++I)
    if (!strncmp(argv[I], "-more=", 6))
      Rounds += Rounds / 100 * (argv[I][6] - '0');
  for (unsigned I = 0; I < Rounds; ++I)
    Sink += I;
  return 0;
}
"""


def _effort(
    module: Module, compiler: Path, more: int, meter: Meter, pairs: int, seed: int
) -> EffortJob:
    """The effort of a compiler that the policy makes slower by `more` percent."""
    ways = ((compiler, ()), (compiler, (f"-more={more}",)))
    return EffortJob(module, ways, meter, pairs, seed, timeout_s=300.0)


def _timed(
    folder: Path, meter: Meter, more: int, pairs: int, modules: int = 1
) -> CostChange | None:
    """The total of compile times of a compiler that the policy makes slower by so many percent."""
    (folder / "compiler.c").write_text(COMPILER)
    compiler = folder / "compiler"
    run_command([stock_tool("clang"), "-O1", folder / "compiler.c", "-o", compiler])
    rows = []
    for number in range(modules):
        module = Module(f"p/{number}", folder / "none.bc", ("-cc1",))
        default, policy = measure_effort(_effort(module, compiler, more, meter, pairs, number))
        times = (default, policy)
        assert len(times[0]) == len(times[1]) == pairs
        rows.append(ModuleComparison(module.name, 1, 1, (), 0, 0, 0, 0, *times))
    comparison = Comparison("inline-size", "-Oz", (), 1, str(meter), tuple(rows))
    return summarise(comparison).total.compile_time


@pytest.mark.compiler
def test_counted_instructions_resolve_one_percent(tmp_path: Path) -> None:
    meter = find_meter("instructions", tmp_path)
    change = _timed(tmp_path, meter, 1, pairs=3, modules=2)
    assert change is not None and change.low is not None and change.high is not None
    assert 0.0098 < change.low <= change.value <= change.high < 0.0102
    assert change.resolution is not None and change.resolution < 0.0002
    none = _timed(tmp_path, meter, 0, pairs=1)
    assert none is not None and abs(none.value) < 0.0002


@pytest.mark.compiler
def test_processor_time_says_what_it_resolves(tmp_path: Path) -> None:
    # A real clock's noise has no bound: what it says of a change is only that it has an interval.
    change = _timed(tmp_path, find_meter("processor-time", tmp_path), 9, pairs=3)
    assert change is not None and change.low is not None and change.high is not None
    assert change.low <= change.value <= change.high
    assert change.resolution == pytest.approx((change.high - change.low) / 2)


@pytest.mark.compiler
@pytest.mark.parametrize("seed", range(8))
def test_the_interval_of_noisy_times_holds_the_change(tmp_path: Path, seed: int) -> None:
    change = _timed(tmp_path, _Noisy("time", rng=np.random.default_rng(seed)), 9, pairs=9)
    assert change is not None and change.low is not None and change.high is not None
    assert change.resolution is not None and 0.001 < change.resolution < 0.05
    assert change.low <= 0.09 + change.resolution and change.high >= 0.09 - change.resolution


@dataclass(frozen=True)
class _Noisy(Meter):
    """Stands for a clock: a second for the default, and up to three hundredths more by chance."""

    rng: np.random.Generator = field(default_factory=np.random.default_rng)

    def measure(self, argv: Sequence[str | Path], timeout_s: float | None = None) -> float:
        seconds = 1.09 if "-more=9" in argv else 1.0
        return seconds * (1.01 + 0.02 * float(self.rng.random()))


@dataclass(frozen=True)
class _Noting(Meter):
    """Counts nothing, but notes which command was the next."""

    commands: list[str] = field(default_factory=list)

    def measure(self, argv: Sequence[str | Path], timeout_s: float | None = None) -> float:
        self.commands.append("policy" if "-more=1" in argv else "default")
        return float(len(self.commands))


def test_pairs_are_in_random_order_after_a_warm_up(tmp_path: Path) -> None:
    module = Module("p/0", tmp_path / "none.bc", ("-cc1",))
    meter = _Noting("time")
    times = measure_effort(_effort(module, tmp_path, 1, meter, 20, seed=1))
    pairs = [set(meter.commands[i : i + 2]) for i in range(0, 42, 2)]
    assert pairs == [{"default", "policy"}] * 21
    first = meter.commands[2::2].count("default")
    assert 4 <= first <= 16
    assert sorted([*times[0], *times[1]]) == list(range(3, 43))


def test_calls_are_those_that_the_profile_knows() -> None:
    samples = SampleProfile([event for event in EVENTS if event.name == "executions"])
    for name, calls in (("often", 7), ("inlined", 0)):
        samples.functions[name] = FunctionSamples()
        samples.entries[name] = calls
    collector = Collector("callgrind", "test", (), (), {})
    file = EventFile("executions", "executions", 1, "max", True, 7, 7)
    manifest = Manifest(Path("a"), ProfiledBinary("p", ""), collector, (file,), ())
    profile = Profile(manifest, samples, table=FunctionTable.from_names(["often", "idle"], {}))
    scores = dict.fromkeys(("often", "inlined", "idle", "x"), 1.0)
    row = ModuleRow(name="p/0", digest="0", status="ok", detail=pack(Detail(scores=scores)))
    functions = side_by_side(row, row, profile, ((1.0,), (1.0,))).functions
    assert {one.name: one.calls for one in functions} == {
        "often": 7,
        "inlined": 0,
        "idle": 0,
        "x": None,
    }


@pytest.fixture
def described(tmp_path: Path) -> Toolchain:
    """A toolchain that says which policy it has for evictions."""
    models = tmp_path / "set" / "models"
    models.mkdir(parents=True)
    (models / "RegAllocEvictModel.h").touch()
    digest = hashlib.sha256(b"one").hexdigest()
    (models / "RegAllocEvictModel.json").write_text(json.dumps({"files": {"model.tflite": digest}}))
    return Toolchain(tmp_path / "set", *(tmp_path / name for name in ("a", "b", "c", "d")))


def _policy(folder: Path, content: bytes) -> Path:
    folder.mkdir()
    (folder / "model.tflite").write_bytes(content)
    return folder


def test_a_toolchain_with_another_policy_is_refused_at_once(
    described: Toolchain, tmp_path: Path
) -> None:
    require_compiled_in(described, EVICT, _policy(tmp_path / "one", b"one"))
    other = _policy(tmp_path / "other", b"other")
    digests = [hashlib.sha256(content).hexdigest() for content in (b"other", b"one")]
    with pytest.raises(
        ModesError,
        match=f"other, whose model.tflite has SHA-256 {digests[0]}.*"
        f"SHA-256 {digests[1]}.*--toolchain=set --evict-model=",
    ):
        require_compiled_in(described, EVICT, other)
    with pytest.raises(ModesError, match="has no policy for inline-size compiled in"):
        require_compiled_in(described, PROBLEMS["inline-size"], other)
    with pytest.raises(ModesError, match=r"model\.tflite: No such file"):
        require_compiled_in(described, EVICT, tmp_path)
    description = described.directory / "models" / "RegAllocEvictModel.json"
    for text, problem in (
        ("[]", ": $: expected `object`, found []"),
        ("{", ":1:2: not JSON: "),
        ('{"files": {}}', ": $.files: model.tflite is missing; build it with `cop toolchain"),
        ('{"files": {"model.tflite": 3}}', ': $.files["model.tflite"]: expected `str`, found 3'),
    ):
        description.write_text(text)
        with pytest.raises(ModesError, match=re.escape(f"RegAllocEvictModel.json{problem}")):
            require_compiled_in(described, EVICT, other)
    description.unlink()
    # What neither describes, only the decisions can tell.
    require_compiled_in(described, EVICT, other)
    (other / "model.json").write_text("{}")
    with pytest.raises(ModesError, match="a policy without description"):
        require_compiled_in(described, EVICT, other)
