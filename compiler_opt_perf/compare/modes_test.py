# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles the programs of the corpus in every mode, with PMU-aware policies for both problems.

Release mode has the policies as generated C++. Networks are compiled in as SavedModels, too, as
those of others are, and must give the same object files.
"""

import dataclasses
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from absl import logging

from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.compare.modes import ModesError, compile_in_modes
from compiler_opt_perf.compare.remarks import count_pmu
from compiler_opt_perf.compare.subject import Subject
from compiler_opt_perf.corpus.corpus import Corpus, Module
from compiler_opt_perf.corpus.extract import extract_corpus
from compiler_opt_perf.corpus.profiles import Profiles
from compiler_opt_perf.corpus.program_table import PROGRAMS
from compiler_opt_perf.corpus.programs import (
    build_program,
    compile_commands,
    program_tree,
)
from compiler_opt_perf.policy.cpp_source import release_model
from compiler_opt_perf.policy.export import Policy, load, publish
from compiler_opt_perf.policy.network import DecisionKind
from compiler_opt_perf.policy.problem import PROBLEMS, Problem, for_clang
from compiler_opt_perf.policy.testing import random_network, save_saved_model
from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.profile.merge import merge
from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.files import write_json
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.toolchain.build import build
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT
from compiler_opt_perf.toolchain.model_inputs import EVICT_MODEL, INLINE_MODEL

pytestmark = [pytest.mark.compiler, pytest.mark.long(180), pytest.mark.timeout(1800)]

INLINE = PROBLEMS["inline-size"]
# Its policy takes a rate that the compiler knows nothing about, too.
EVICT = PROBLEMS["regalloc-evict"].with_rates(["branch-mispredict-rate"])
# Each problem's policy decides with both answers, and otherwise than the default, often enough.
SEEDS = {"inline-size": 3, "regalloc-evict": 2}
# They keep many of the default's decisions: evictions at random would ask for ever more of them.
LEADS = {"inline-size": 1.0, "regalloc-evict": 2.0}
MODULES = 200
LINKED_MODULES = 20
LUA_SCRIPT = """
local seen = {}
for i = 1, 200 do
  local key = ("%x"):format(i * 7919 % 1009)
  seen[key] = (seen[key] or 0) + #key
end
local keys = {}
for key in pairs(seen) do keys[#keys + 1] = key end
table.sort(keys)
print(#table.concat(keys), select(2, table.concat(keys):gsub("a(%d)", "%1")))
"""

# Programs in C and C++ with more small modules than are compiled. The problems take turns, so that
# each module is compiled for one of them.
COMPARED = (
    *("zstd", "lua", "bzip2", "cmark", "jansson", "libgsm", "minisat", "mujs", "zlib"),
    *("box2d", "leveldb", "ninja"),
)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="modes-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def profile(folder: Path) -> Path:
    """A merged profile of a compressor and an interpreter."""
    clang = stock_tool("clang")
    manifests = []
    for name in ("bzip2", "lua"):
        program = PROGRAMS[name]
        tree = program_tree(program)
        built = build_program(program, tree, folder / "programs" / name, clang=clang)
        given = folder / f"{name}.input"
        if built.workload_input is not None:
            given.write_bytes(built.workload_input.read_bytes()[:4_000])
        else:
            given.write_text(LUA_SCRIPT)
        arguments = ["-k", "-f", str(given)] if name == "bzip2" else [str(given)]
        manifests.append(folder / f"{name}.pmu.json")
        collect(built.binary, arguments, manifests[-1])
    merge(manifests, folder / "all.pmu.json", allow_different=True)
    return folder / "all.pmu.json"


@pytest.fixture(scope="module")
def policies(folder: Path) -> dict[str, Policy]:
    """By problem's name: published in `folder / name`."""
    made = {}
    for problem in (INLINE, EVICT):
        network = random_network(problem)
        weights = network.initial_weights(SEEDS[problem.name])
        led = dataclasses.replace(network, default_lead=LEADS[problem.name])
        if problem is INLINE:
            # Release mode leaves the other kinds to the compiler without asking.
            led = dataclasses.replace(
                led, asked=(DecisionKind(0, 0, 0), DecisionKind(1, 0, 1), DecisionKind(1, 1, 1))
            )
        made[problem.name] = Policy(led, weights, {})
        publish(made[problem.name], folder / problem.name)
    return made


@pytest.fixture(scope="module")
def both(folder: Path, policies: dict[str, Policy]) -> Toolchain:
    """The tools with both policies compiled in as C++."""
    assert policies
    return build(
        "modes",
        release_model(folder / INLINE.name, INLINE_MODEL),
        release_model(folder / EVICT.name, EVICT_MODEL),
    )


@pytest.fixture(scope="module")
def foreign(folder: Path, policies: dict[str, Policy]) -> Toolchain:
    """The tools with the same policies as SavedModels, compiled in by TensorFlow."""
    for name, policy in policies.items():
        save_saved_model(folder / f"saved-{name}", policy.network, policy.weights)
    return build("foreign", folder / f"saved-{INLINE.name}", folder / f"saved-{EVICT.name}")


RULES = {"inline-size": REPO_ROOT / "models/inline-speed"}
RULES["regalloc-evict"] = REPO_ROOT / "models/regalloc-evict"


@pytest.fixture(scope="module")
def rules() -> Toolchain:
    """The tools with the shipped rules compiled in."""
    return build(
        "rules",
        release_model(RULES["inline-size"], INLINE_MODEL),
        release_model(RULES["regalloc-evict"], EVICT_MODEL),
    )


def subject_of(
    problem: Problem, tools: Toolchain, model: Path, policy: Policy, profile: Path
) -> Subject:
    return Subject(problem, tools, tools, model, Profiles(profile), policy)


def source_bytes(entry: dict[str, Any]) -> int:
    """How large the source of an entry of compile_commands.json is."""
    return Path(entry["directory"], entry["file"]).stat().st_size


def corpus_of(problem: Problem, folder: Path) -> list[Module]:
    """Every other of the smallest modules of all programs, as the problem wants them.

    The eighty modules with most code would take half of the time. Lookups in a profile need line
    tables alone.
    """
    corpus = folder / f"corpus-{problem.name}"
    if not corpus.exists():
        flags = ("-O2", *PROFILING_FLAGS.split(), "-gline-tables-only")
        sources = []
        for name in COMPARED:
            program = PROGRAMS[name]
            builds = folder / f"sources-{problem.name}" / name
            for entry in compile_commands(
                program, program_tree(program), builds, clang=stock_tool("clang"), flags=flags
            ):
                sources.append((source_bytes(entry), name, entry))
        smallest = sorted(sources, key=lambda source: source[:1])[:MODULES]
        chosen = smallest[(INLINE, EVICT).index(problem) :: 2]
        databases = {}
        for name in COMPARED:
            databases[name] = folder / f"sources-{problem.name}" / name / "compile_commands.json"
            write_json(databases[name], [entry for _, owner, entry in chosen if owner == name])
        extract_corpus(
            databases,
            corpus,
            clang=stock_tool("clang"),
            opt_level=problem.optimization_level,
            stage=problem.corpus_stage,
            held_out_share=0.5,
            seed=1,
        )
    return [m for side in ("train", "held_out") for m in Corpus.load(corpus / side).modules]


@dataclass(frozen=True)
class _Job:
    """A module to compile in all modes.

    Attributes:
      foreign: has the policy compiled in as a SavedModel; None leaves this out.
    """

    subject: Subject
    module: Module
    foreign: Toolchain | None = None


def _compile(job: _Job) -> tuple[int, int, int]:
    """Decisions, those that are not the default's, and those with PMU data."""
    with tempfile.TemporaryDirectory(prefix="modes-") as name:
        image, decisions = compile_in_modes(job.subject, job.module, Path(name))
        if job.foreign is not None:
            output = Path(name) / "foreign.o"
            options = for_clang(job.subject.release_options(job.module))
            run_command(job.module.compile_command(job.foreign.clang, output, options))
            assert output.read_bytes() == image, job.module.name
    differing = sum(decision.chosen != decision.default for decision in decisions)
    return len(decisions), differing, len(decisions) - count_pmu(decisions)["missing"]


def _counts(problem: Problem, folder: Path, job: _Job) -> tuple[int, int, int]:
    """Compiles every module as the job says, and adds up what `_compile` returns."""
    modules = corpus_of(problem, folder)
    with Pool(2) as pool:
        outcomes = pool.map(_compile, [dataclasses.replace(job, module=one) for one in modules])
    counts = [outcome.get() for outcome in outcomes]
    assert len(counts) == MODULES // 2
    decisions, differing, with_pmu = (sum(column) for column in zip(*counts, strict=True))
    logging.info(
        "%s: %d modules, %d decisions (%d differ from the default, %d with PMU data): equal in "
        "release, development and interactive mode, as are all object files",
        *(job.subject.model, len(modules), decisions, differing, with_pmu),
    )
    return decisions, differing, with_pmu


@pytest.mark.parametrize("problem", (INLINE, EVICT), ids=lambda problem: problem.name)
def test_all_modes_agree_on_real_modules(
    problem: Problem,
    both: Toolchain,
    foreign: Toolchain,
    folder: Path,
    policies: dict[str, Policy],
    profile: Path,
) -> None:
    model = folder / problem.name
    subject = subject_of(problem, both, model, policies[problem.name], profile)
    job = _Job(subject, corpus_of(problem, folder)[0], foreign)
    decisions, differing, with_pmu = _counts(problem, folder, job)
    assert decisions > 10 * MODULES // 2
    assert 0.05 * decisions < differing < decisions
    assert 0.02 * decisions < with_pmu


@pytest.mark.parametrize("problem", (INLINE, EVICT), ids=lambda problem: problem.name)
def test_all_modes_agree_by_rules(
    problem: Problem, rules: Toolchain, folder: Path, profile: Path
) -> None:
    model = RULES[problem.name]
    subject = subject_of(PROBLEMS[problem.name], rules, model, load(model), profile)
    job = _Job(subject, corpus_of(problem, folder)[0])
    decisions, differing, with_pmu = _counts(problem, folder, job)
    assert decisions > MODULES // 2
    assert 0 < differing < decisions
    assert 0.02 * decisions < with_pmu


def test_another_policy_in_interactive_mode_is_an_error(
    both: Toolchain,
    folder: Path,
    policies: dict[str, Policy],
    profile: Path,
) -> None:
    policy = policies[EVICT.name]
    other = Policy(policy.network, -policy.weights, {})
    subject = subject_of(EVICT, both, folder / EVICT.name, other, profile)
    modules = {module.name: module for module in corpus_of(EVICT, folder)}
    with pytest.raises(ModesError, match=r"zlib/inffast: decision \d+: release .*, interactive "):
        compile_in_modes(subject, modules["zlib/inffast"], folder)


def test_rates_that_the_compiled_model_takes_must_be_given(both: Toolchain, folder: Path) -> None:
    def compile_with(*options: str) -> tuple[str, str]:
        """The assembly, and what the compiler says."""
        output = folder / "pressure.s"
        source = REPO_ROOT / "lit_tests/Inputs/pressure.ll"
        result = run_command([both.llc, *options, source, "-o", output])
        return output.read_text(), result.stderr

    (release,) = EVICT.release_options()
    default, _ = compile_with()
    with_rate, message = compile_with(release, "-pmu-extra-features=branch-mispredict-rate")
    assert with_rate != default and not message
    unknown = "the model in the compiler takes 1 inputs that the compiler doesn't have"
    with pytest.raises(CommandError, match=f"error: {unknown}"):
        compile_with(release)
    fallen_back, message = compile_with(release, "-mlgo-on-model-error=fallback")
    assert fallen_back == default
    assert f"warning: {unknown}" in message and "using the default policy" in message


def _link_arguments(folder: Path) -> list[str]:
    """Arguments of `llvm-lto2 run`: small modules of Lua for ThinLTO, and who defines what."""
    program = PROGRAMS["lua"]
    tree = program_tree(program)
    inputs, resolutions, defined = [], [], set()
    entries = compile_commands(program, tree, folder / "thinlto", clang=stock_tool("clang"))
    for entry in sorted(entries, key=source_bytes)[:LINKED_MODULES]:
        bitcode = Path(entry["arguments"][-1]).with_suffix(".bc")
        bitcode.parent.mkdir(parents=True, exist_ok=True)
        compile_it = [*entry["arguments"][:-1], str(bitcode), "-flto=thin"]
        run_command(compile_it, cwd=Path(entry["directory"]))
        inputs.append(str(bitcode))
        symbols = run_command([stock_tool("llvm-nm"), "-P", "--extern-only", bitcode]).stdout
        for name, kind, *_ in (line.split() for line in symbols.splitlines()):
            # Prevailing, and final in the program; main is seen from outside.
            defines = "" if kind in "Uwv" or name in defined else "plx" if name == "main" else "pl"
            resolutions.append(f"-r={bitcode},{name},{defines}")
            if defines:
                defined.add(name)
    return [*inputs, *resolutions]


def test_thinlto_gives_the_same_objects_with_one_and_with_two_threads(
    both: Toolchain, folder: Path, policies: dict[str, Policy], profile: Path
) -> None:
    """Both advisors at once, in all modules of a program, in one process."""
    modules = _link_arguments(folder)
    release = [o for p in (INLINE, EVICT) for o in p.release_options(profile=profile)]
    development = [
        option
        for problem in (INLINE, EVICT)
        for option in problem.development_options(model=folder / problem.name, profile=profile)
    ]
    runs = {
        "default": ([], 2),
        "one": (release, 1),
        "two": (release, 2),
        "development": (development, 2),
    }
    objects = {}
    for name, (options, threads) in runs.items():
        output = folder / f"linked-{name}"
        output.mkdir()
        arguments = [*modules, f"-thinlto-threads={threads}", *dict.fromkeys(options)]
        run_command(
            [both.llvm_lto2, "run", *arguments, "-o", output / "lua"],
            env={"LLVM_LITERT_LIBRARY": str(both.litert_library)},
        )
        objects[name] = [path.read_bytes() for path in sorted(output.iterdir())]
    assert len(objects["one"]) == LINKED_MODULES
    for name in ("two", "development"):
        assert objects[name] == objects["one"], name
    differing = sum(a != b for a, b in zip(objects["one"], objects["default"], strict=True))
    logging.info("ThinLTO: %d objects, %d not the default's", len(objects["one"]), differing)
    assert differing > LINKED_MODULES // 4


def test_programs_have_their_own_profiles(both: Toolchain, folder: Path) -> None:
    profiles = Profiles(None, {"one": folder / "one.pmu.json"})
    subject = Subject(EVICT, both, both, folder, profiles)
    for program, expected in (("one", f"-pmu-profile={folder / 'one.pmu.json'}"), ("two", None)):
        options = subject.release_options(Module(f"{program}/a", folder, ("-cc1",)))
        given = [option for option in options if option.startswith("-pmu-profile")]
        assert given == ([expected] if expected else [])
