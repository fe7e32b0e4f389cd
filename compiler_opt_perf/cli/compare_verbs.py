# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs that compare policies with the compiler's default."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from compiler_opt_perf.cli import options
from compiler_opt_perf.cli.options import problem_name, required_model_folder
from compiler_opt_perf.cli.parameters import TOOLCHAIN, Argument, Flag
from compiler_opt_perf.cli.verb import Group, Table
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.run.files import write_json
from compiler_opt_perf.toolchain.layout import BUILD, set_folder

_RELEASE = set_folder("release")

compare = Group("compare", help="Policies against the compiler's default, on modules and programs.")


@compare.verb(
    "policy",
    example="compare policy --corpus=corpus/held_out --model=trainings/inline-size/policy "
    "--profile=zstd.pmu.json --output=inline-size.json",
    json_version=1,
)
def policy(
    corpus: Annotated[Path, Flag("corpus of modules that the policy was not trained on")],
    model: Annotated[
        Path,
        Flag(
            "the policy: a folder, as `cop train policy` writes it, or the name of one in models/"
        ),
    ],
    output: Annotated[Path, Flag("where to write the comparison, JSON")],
    problem: options.ProblemOfModel = None,
    profile: options.Profiles = (),
    toolchain: Annotated[
        Path,
        Flag(
            "folder or name of the patched tools for development and interactive mode",
            type=TOOLCHAIN,
        ),
    ] = options.DEV,
    release_toolchain: Annotated[
        Path,
        Flag(
            "folder or name of the patched tools that have the policy compiled in; may be the same",
            type=TOOLCHAIN,
        ),
    ] = _RELEASE,
    compile_time: Annotated[
        Literal["auto", "instructions", "processor-time"],
        Flag(
            "what to measure of compilations: instructions are counted by the processor or else "
            "by QEMU, which takes 15 to 30 times as long; auto counts if either can, else takes "
            "times"
        ),
    ] = "auto",
    repetitions: Annotated[
        int | None,
        Flag(
            "measured pairs of compilations a module; by default 3 if the processor counts, 2 if "
            "QEMU does, 7 for times",
            low=1,
        ),
    ] = None,
    seed: Annotated[int, Flag("of the order of measured compilations, and of intervals")] = 1,
) -> Table:
    """Compare a policy with the compiler's default on modules: size, score, compile time."""
    from compiler_opt_perf.compare.comparison import compare
    from compiler_opt_perf.compare.comparison_tables import describe
    from compiler_opt_perf.compare.modes import require_compiled_in
    from compiler_opt_perf.compare.subject import Subject, policy_in
    from compiler_opt_perf.compare.summary import to_json
    from compiler_opt_perf.corpus.corpus import Corpus
    from compiler_opt_perf.corpus.profiles import Profiles
    from compiler_opt_perf.toolchain.installation import Toolchain

    model = required_model_folder(model)
    problem = problem_name(problem, model)
    profiles = Profiles.parse(profile)
    loaded = policy_in(model, problem, profiles)
    decided = PROBLEMS[problem] if loaded is None else loaded.network.problem
    modules = Corpus.load(corpus)
    release = Toolchain.load(release_toolchain)
    require_compiled_in(release, decided, model)
    comparison = compare(
        Subject(decided, Toolchain.load(toolchain), release, model, profiles, loaded),
        modules,
        compile_time=compile_time,
        repetitions=repetitions,
        seed=seed,
    )
    written = to_json(comparison)
    write_json(output, written)
    return Table(
        lambda: f"{describe(comparison)}Written: {output}\n",
        lambda: {"written": str(output), "comparison": written},
    )


@compare.verb(
    "programs",
    example="compare programs ninja lua --model=models/inline-size --output=build/linked.json",
    json_version=1,
)
def programs(
    names: Annotated[Sequence[str], Argument("PROGRAM...")],
    model: Annotated[Path, Flag("the policy: a folder, or the name of one in models/")],
    output: Annotated[
        Path, Flag("where to write the comparison, JSON; `cop compare page` reads it")
    ],
    modules: Annotated[
        Path, Flag("folder for the programs' modules, extracted where they are not there yet")
    ] = BUILD / "programs",
    toolchain: options.Toolchain = options.DEV,
    workers: options.Workers = 0,
) -> Table:
    """Compare the linked text of real programs with a policy and without."""
    from compiler_opt_perf.compare.linked import (
        compare_linked,
        describe,
        to_json,
        unprofiled_policy,
    )
    from compiler_opt_perf.corpus.programs import find_program, program_modules
    from compiler_opt_perf.toolchain.installation import Toolchain

    names = list(dict.fromkeys(names))
    for name in names:
        find_program(name)
    model = required_model_folder(model).resolve()
    folder = modules.resolve()
    problem = unprofiled_policy(model).network.problem
    tools = Toolchain.load(toolchain)
    extracted = {
        name: program_modules(
            name,
            folder / "programs",
            folder / "corpora",
            opt_level=problem.optimization_level,
            stage=problem.corpus_stage,
        )
        for name in names
    }
    linked = compare_linked(model, extracted, tools, workers or None)
    written = to_json(linked)
    write_json(output, written)
    return Table(
        lambda: f"{describe(linked)}Written: {output}\n",
        lambda: {"written": str(output), "comparison": written},
    )


@compare.verb(
    "page",
    example="compare page build/demo/try.json build/demo/shipped.json "
    "--training=build/demo/training --output=build/demo/report.html",
)
def page(
    files: Annotated[
        Sequence[Path],
        Argument(
            "FILE...",
            "comparisons, as `cop compare policy` and `cop compare programs` write them, what "
            "`cop try --json` prints, and manifests of profiles, NAME.pmu.json",
        ),
    ],
    output: Annotated[Path, Flag("the page to write, HTML")],
    training: Annotated[Sequence[Path], Flag("folder of a training, ended or not")] = (),
) -> None:
    """Write one HTML page with a table and a plot for each file and each training."""
    from compiler_opt_perf.compare.comparison import read_comparison
    from compiler_opt_perf.compare.linked import is_linked, read_linked
    from compiler_opt_perf.compare.training_run import read_run
    from compiler_opt_perf.pages import sections
    from compiler_opt_perf.pages.comparison import write_page
    from compiler_opt_perf.profile.manifest import SUFFIX
    from compiler_opt_perf.profile.profile import Profile
    from compiler_opt_perf.trial.result import is_trial, read_trial

    shown, by_module = [], []
    for path in files:
        if path.name.endswith(SUFFIX):
            shown.append(sections.profile_section(Profile.load(path)))
        elif is_trial(path):
            shown.append(sections.trial_section(read_trial(path)))
        elif is_linked(path):
            shown.append(sections.linked_section(read_linked(path)))
        else:
            by_module.append(read_comparison(path))
    shown += [sections.training_section(read_run(path)) for path in training]
    write_page(by_module, output, shown)
    print(output)
