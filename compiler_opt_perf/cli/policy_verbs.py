# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs that use a policy: by flags of the compiler, or in Python."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from absl import logging
from click import UsageError

from compiler_opt_perf.cli import options
from compiler_opt_perf.cli.options import model_folder
from compiler_opt_perf.cli.parameters import Argument, Flag
from compiler_opt_perf.cli.verb import Group
from compiler_opt_perf.policy.problem import NO_PROFILE, PROBLEMS
from compiler_opt_perf.run.symbol_names import printable, printable_lines

policy = Group("policy", help="Policies: compile with them, try them, publish a rule as one.")

_INSTEAD = "for development mode instead of the compiled-in one"


@policy.verb(
    "flags",
    example="policy flags --toolchain=mine --profile=zstd.pmu.json --output=mine.cfg --cmake",
)
def flags(
    toolchain: options.Toolchain,
    profile: Annotated[Path | None, Flag("PMU profile manifest, NAME.pmu.json")] = None,
    inline_model: Annotated[
        Path | None,
        Flag(f"policy for inline-size, a folder or the name of one in models/, {_INSTEAD}"),
    ] = None,
    evict_model: Annotated[
        Path | None,
        Flag(f"policy for regalloc-evict, a folder or the name of one in models/, {_INSTEAD}"),
    ] = None,
    output: Annotated[
        Path | None,
        Flag(
            "write a configuration file of clang's, NAME.cfg, and print the one flag that names it"
        ),
    ] = None,
    autofdo: Annotated[
        bool,
        Flag(
            "with --profile: the compiler itself uses its executions (-fprofile-sample-use), "
            "besides the policies, or without any"
        ),
    ] = False,
    small_cold: Annotated[
        bool, Flag("with --autofdo: what the profile knows cold is compiled for size")
    ] = False,
    link: Annotated[bool, Flag("print the flags of links")] = False,
    cmake: Annotated[bool, Flag("print what to give to cmake; needs --output")] = False,
) -> None:
    """Print the compiler's or linker's flags for policies and profile, or write them to a file."""
    from compiler_opt_perf.policy.compiler_flags import compiler_flags, shell_line
    from compiler_opt_perf.run.files import write_text
    from compiler_opt_perf.toolchain.installation import Toolchain

    if cmake and output is None:
        raise UsageError("--cmake needs --output=NAME.cfg, the file that compilations shall read")
    if link and output is not None:
        raise UsageError("with --output, compilations and links get the same flag; omit --link")
    if small_cold and not autofdo:
        raise UsageError("--small-cold needs --autofdo, by whose profile code is cold")
    models = {
        "inline-size": model_folder(inline_model, "--inline-model"),
        "regalloc-evict": model_folder(evict_model, "--evict-model"),
    }
    result = compiler_flags(Toolchain.load(toolchain), models, profile, autofdo=autofdo)
    if small_cold:
        result = result.with_small_cold_code(profile)
    for used in result.policies:
        logging.info("%s", used)
    for warning in result.warnings:
        logging.warning("%s", warning)
    if output is None:
        print(shell_line(result.link_words() if link else result.compile_words()))
        return
    write_text(output, result.configuration())
    if cmake:
        definitions = result.cmake_definitions(output).items()
        print(shell_line(f"-D{name}={value}" for name, value in definitions))
    else:
        print(shell_line([f"--config={output.absolute()}"]))


@policy.verb(
    "interact",
    example="policy interact --model=trainings/inline-size/policy -- -Oz -c file.c -o file.o",
)
def interact(
    arguments: Annotated[Sequence[str], Argument("-- CLANG-ARGUMENT...")],
    problem: options.ProblemOfModel = None,
    model: Annotated[
        Path | None,
        Flag("policy that is evaluated in Python, a folder or the name of one in models/"),
    ] = None,
    decide: Annotated[
        Path | None,
        Flag("Python file with a function decide(observation) that returns the decision"),
    ] = None,
    profile: Annotated[Path | None, Flag("PMU profile manifest")] = None,
    toolchain: options.Toolchain = options.DEV,
    timeout: Annotated[
        float | None, Flag("limit of the compilation with its decisions, seconds")
    ] = None,
) -> None:
    """Compile with a policy, or with a decision function of your own, that runs in Python."""
    from compiler_opt_perf.policy.export import load
    from compiler_opt_perf.policy.interactive import (
        InteractiveHost,
        Observation,
        load_decisions,
        policy_decisions,
    )
    from compiler_opt_perf.policy.problem import for_clang
    from compiler_opt_perf.toolchain.installation import Toolchain

    folder = model_folder(model)
    if folder is not None and decide is None:
        loaded = load(folder)
        problem = problem or loaded.network.problem.name
        if loaded.network.problem.name != problem:
            raise UsageError(
                f"--model={folder}: a policy for {loaded.network.problem.name}, not {problem}"
            )
        decided = loaded.network.problem
        if loaded.network.with_pmu and profile is None:
            logging.warning("%s: %s", folder, NO_PROFILE)
        choose = policy_decisions(loaded)
    elif decide is not None and folder is None:
        if problem is None:
            raise UsageError("--decide: name the decision that it takes with --problem")
        decided, choose = PROBLEMS[problem], load_decisions(decide)
    else:
        raise UsageError("expected one of --model=FOLDER and --decide=FILE.py")

    def shown(observation: Observation) -> int:
        decision = choose(observation)
        where = f" in {printable(observation.function)}" if observation.function else ""
        print(f"{observation.number}{where}: {decided.decision}={decision}")
        return decision

    clang = Toolchain.load(toolchain).clang
    with InteractiveHost(decided, shown) as host:
        interactive = decided.interactive_options(host.channel, profile=profile)
        done = host.run([clang, *arguments, *for_clang(interactive)], timeout_s=timeout)
    print(printable_lines(done.stderr), end="", file=sys.stderr)


@policy.verb(
    "publish-rule",
    example="policy publish-rule --problem=regalloc-evict --output=models/regalloc-evict",
)
def publish_rule(
    problem: options.Problem,
    output: Annotated[
        Path,
        Flag(
            "folder for the policy; of an earlier one, what was measured of the same rule is kept"
        ),
    ],
) -> None:
    """Publish the rule behind models/inline-speed or models/regalloc-evict as a policy."""
    from compiler_opt_perf.policy.shipped_rules import publish_rule

    publish_rule(problem, output)
    print(output)
