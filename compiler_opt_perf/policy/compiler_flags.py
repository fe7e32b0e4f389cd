# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The flags of a build with a patched compiler, so that nobody has to copy -mllvm options.

Policies decide where the optimiser or the code generator runs: in compile jobs, and in links with
link-time optimisation, whose options the linker takes. A configuration file of clang tells both:
`clang --config=FILE` uses the part for the link only when it links, and warns of nothing.
"""

import dataclasses
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from compiler_opt_perf.policy.problem import NO_PROFILE, PROBLEMS, Problem, for_clang
from compiler_opt_perf.profile.manifest import SUFFIX, Manifest
from compiler_opt_perf.run.files import read_input
from compiler_opt_perf.run.json_text import JsonError, decode
from compiler_opt_perf.toolchain.installation import Toolchain, build_advice
from compiler_opt_perf.toolchain.layout import ToolchainError
from compiler_opt_perf.toolchain.model_inputs import MODELS

# Debug info by which the profile is looked up, and the option that keeps it from changing
# inlining (docs/collect.md). A later
# -g, as in CMake's RelWithDebInfo, takes the place of the line tables.
_LOCATIONS = ("-gline-tables-only", "-fdebug-info-for-profiling")
# The compiler warns of a module that the profile does not know, such as one that the program does
# not link. With -Werror, that must not end the build.
_NO_ERROR = "-Wno-error=backend-plugin"
_NO_DEFERRAL = "-enable-npm-pgo-inline-deferral=false"
# Of functions that the profile knows cold, and of blocks.
_SMALL_FUNCTIONS = ("-mllvm", "-pgo-cold-func-opt=minsize")
_SMALL_BLOCKS = "-enable-machine-outliner=optimistic-pgo"
#: Of the outliner: the linker of the same toolchain keeps one entry for unwinding for all functions
#: that it makes.
ONE_UNWIND_ENTRY = "-x86-outlined-unwind-cost=0"
# Functions without samples are cold.
_ALL_SAMPLED = "-fprofile-sample-accurate"


@dataclass(frozen=True)
class CompilerFlags:
    """The flags of one toolchain, its policies and a profile.

    Attributes:
      toolchain: the patched tools.
      options: of LLVM; compile jobs take them after -mllvm, the linker as they are.
      location_words: options of clang, for the debug info by which the profile is looked up, and
        for warnings of the profile.
      profile_words: options of clang, for the compiler's own use of the profile.
      policies: for each policy, a sentence that says what it is for.
      warnings: what the user should know about them.
    """

    toolchain: Toolchain
    options: tuple[str, ...]
    location_words: tuple[str, ...] = ()
    profile_words: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def _all_words(self) -> list[str]:
        return [*self.location_words, *self.profile_words, *for_clang(self.options)]

    def compile_words(self) -> list[str]:
        """Flags for compile jobs; a link that gets them as well, as from CFLAGS, does not warn."""
        words = self._all_words
        return ["--start-no-unused-arguments", *words, "--end-no-unused-arguments"]

    def link_words(self) -> list[str]:
        """Flags for links through clang, with or without link-time optimisation."""
        # -Wl, would split options at their commas.
        words = for_clang(self.options)
        passed = [word for one in words for word in ("-Xlinker", one)]
        return ["-fuse-ld=lld", *self.profile_words, *passed]

    def with_small_cold_code(self, profile: Path | None) -> "CompilerFlags":
        """The same where what the profile knows cold is compiled for size, and outlined.

        Args:
          profile: manifest of AutoFDO's profile; None if code is cold by counters.

        Raises:
          PmuError: the profile is damaged.
        """
        complete = profile is not None and Manifest.load(profile).collector.has_all_executions
        words = (*self.profile_words, *_SMALL_FUNCTIONS, *(_ALL_SAMPLED,) * complete)
        options = (*self.options, _SMALL_BLOCKS, ONE_UNWIND_ENTRY)
        return dataclasses.replace(self, options=options, profile_words=words)

    def configuration(self) -> str:
        """The text of a configuration file for `clang --config=`."""
        linker, *link = self.link_words()
        link = link[len(self.profile_words) :]
        # What follows a $ is for links only.
        lines = [
            "# Written by cop policy flags for this compiler; others do not know all options:",
            f"# {self.toolchain.clang}",
            *(f"# {policy}" for policy in self.policies),
            *_pairs(self._all_words),
            "# With link-time optimisation, no other linker will do.",
            _quote(linker),
            *_pairs(link, "$"),
        ]
        return "".join(f"{line}\n" for line in lines)

    def cmake_definitions(self, configuration: Path) -> dict[str, str]:
        """CMake's variables for a build with the `configuration` file."""
        flag = f"--config={configuration.absolute()}"
        return {
            "CMAKE_C_COMPILER": str(self.toolchain.clang),
            "CMAKE_CXX_COMPILER": str(self.toolchain.clang.with_name("clang++")),
            "CMAKE_C_FLAGS": flag,
            "CMAKE_CXX_FLAGS": flag,
        }


def usage(toolchain: Toolchain) -> str:
    """How the compiler and the linker of a set are told to use its policies, as Markdown."""
    problems = [name for name, problem in PROBLEMS.items() if _compiled_in(toolchain, problem)]
    if not problems:
        return (
            "No policy is compiled in: the set is for development mode, with models that are "
            "loaded (`-mllvm -regalloc-enable-advisor=development -mllvm -regalloc-model=FOLDER`)."
        )
    flags = compiler_flags(toolchain, {}, None)
    return (
        f"Policies for {' and '.join(problems)} are compiled in. Compile with\n\n"
        f"    bin/clang {shell_line(flags.compile_words())} ...\n\n"
        f"and link with link-time optimisation with\n\n"
        f"    bin/clang {shell_line(flags.link_words())} ...\n\n"
        "A PMU profile is given by `-mllvm -pmu-profile=NAME.pmu.json` to both."
    )


def flags_without_policies(toolchain: Toolchain, profile: Path | None = None) -> CompilerFlags:
    """The flags of a build in which no policy decides, not even a compiled-in one.

    It has the debug info that a profile needs.

    Args:
      profile: manifest of a PMU profile, for AutoFDO; None for a plain build.

    Raises:
      ToolchainError: the profile has no executions.
      PmuError: the profile is damaged.
    """
    sampled = () if profile is None else _autofdo(profile.absolute())
    return CompilerFlags(toolchain, (_NO_DEFERRAL,), _LOCATIONS, sampled)


def compiler_flags(
    toolchain: Toolchain,
    models: Mapping[str, Path | None],
    profile: Path | None,
    *,
    autofdo: bool = False,
) -> CompilerFlags:
    """The flags for the policies compiled into `toolchain` or given as `models`, and for AutoFDO.

    Args:
      toolchain: the patched tools.
      models: problem name to the folder of a policy for development mode; problems that are not
        there are decided by the policy that the toolchain has, if it has one.
      profile: manifest of a PMU profile.
      autofdo: the compiler itself is given the profile's executions, too. There may be no policy
        then.

    Raises:
      ToolchainError: nothing to do, a policy that does not exist or is of another problem, no such
        profile, or one without executions that the compiler itself could use.
      PmuError: the profile is damaged.
    """
    if profile is not None and not profile.is_file():
        raise ToolchainError(f"{profile}: no such profile; give the manifest, NAME{SUFFIX}")
    if profile is not None and not profile.name.endswith(SUFFIX):
        raise ToolchainError(f"{profile}: no PMU profile; give the manifest, NAME{SUFFIX}")
    if autofdo and profile is None:
        raise ToolchainError("AutoFDO needs a profile: give its manifest, NAME.pmu.json")
    modes: list[str] = []
    rates: dict[str, None] = {}
    policies: list[str] = []
    warnings: list[str] = []
    development = False
    for name, problem in PROBLEMS.items():
        model = models.get(name)
        if model is not None:
            description = _model_description(model, name)
            modes += problem.development_options(model=model.absolute())
            development = True
        else:
            compiled = _compiled_in(toolchain, problem)
            if compiled is None:
                continue
            description = _description(compiled)
            modes += problem.release_options()
        rates |= dict.fromkeys(description.extra_rates)
        policy = (
            f"{name}: {model.absolute() if model is not None else 'the policy in the compiler'}"
        )
        if description.problem is not None:
            purpose = description.purpose or f"code compiled with {problem.optimization_level}"
            policy += f", for {purpose}"
        policies.append(policy)
        if description.with_pmu and profile is None:
            warnings.append(f"{name}: the policy {NO_PROFILE}")
    if not modes and not autofdo:
        build_it = build_advice(toolchain.directory, {"--inline-model": "POLICY"})
        raise ToolchainError(
            f"{toolchain.directory}: has no policy compiled in; give one for development mode, "
            "such as --inline-model=inline-speed or --evict-model=regalloc-evict, or have one "
            f"compiled in: {build_it}"
        )
    options = list(modes)
    locations = _LOCATIONS if profile is not None else ()
    if development:
        options.append(f"-litert-library={toolchain.litert_library}")
    if profile is not None:
        options.append(_NO_DEFERRAL)
    if profile is not None and modes:
        options.append(f"-pmu-profile={profile.absolute()}")
        locations = (*locations, _NO_ERROR)
        if rates:
            options.append(f"-pmu-extra-features={','.join(rates)}")
    return CompilerFlags(
        toolchain,
        tuple(options),
        location_words=locations,
        profile_words=_autofdo(profile.absolute()) if autofdo and profile is not None else (),
        policies=tuple(policies),
        warnings=tuple(warnings),
    )


def _model_description(model: Path, problem: str) -> "_Description":
    """What the policy in a folder says of itself. Raises ToolchainError: there is none."""
    if not model.is_dir():
        raise ToolchainError(f"{model}: no such folder; give that of a policy")
    description = _description(model / "model.json")
    if not (model / "model.tflite").is_file():
        raise ToolchainError(f"{model}: not a policy (model.tflite is missing)")
    if description.problem not in (None, problem):
        raise ToolchainError(f"{model}: a policy for {description.problem}, not {problem}")
    return description


def problem_in(model: Path) -> str | None:
    """Name of the problem that a policy is for; None where it does not say.

    Raises:
      ToolchainError: its description is damaged.
    """
    return _description(model / "model.json").problem


def _compiled_in(toolchain: Toolchain, problem: Problem) -> Path | None:
    """The description of the policy that `toolchain` has for `problem`; None if it has none."""
    (model,) = (model for model in MODELS if model.problem == problem.name)
    prefix = toolchain.directory / "models" / model.name
    return prefix.with_suffix(".json") if prefix.with_suffix(".h").is_file() else None


class _Description(msgspec.Struct, frozen=True):
    """The fields of model.json that flags depend on; models from elsewhere have none."""

    problem: str | None = None
    purpose: str | None = None
    with_pmu: bool = False
    extra_rates: tuple[str, ...] = ()


def _autofdo(profile: Path) -> tuple[str, ...]:
    """Gives the compiler itself the sample profile of executions."""
    manifest = Manifest.load(profile)
    for event in manifest.events:
        if event.name == "executions":
            return (f"-fprofile-sample-use={manifest.file(event)}",)
    raise ToolchainError(
        f"{profile}: has no executions, which AutoFDO needs; collect them, too "
        "(cop profile collect)"
    )


def _description(path: Path) -> _Description:
    if not path.is_file():
        return _Description()
    try:
        return decode(read_input(path), _Description, path)
    except (OSError, JsonError) as error:
        raise ToolchainError(f"{error}; copy the policy as a whole, or train again") from error


def shell_line(words: Iterable[str]) -> str:
    """`words` as a POSIX shell takes them."""
    return shlex.join(words)


def _quote(word: str) -> str:
    """A word in a configuration file, which is read by the rules of GNU's response files."""
    return "".join(f"\\{c}" if c in " \t\"'\\#" else c for c in word)


def _pairs(words: list[str], prefix: str = "") -> list[str]:
    """One line for an option and its value."""
    lines: list[str] = []
    quoted = [prefix + _quote(word) for word in words]
    continued = False
    for word in quoted:
        if continued:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
        continued = word in ("-mllvm", "$-Xlinker")
    return lines
