# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs of the patched compiler."""

from pathlib import Path
from typing import Any

from absl import flags, logging

from compiler_opt_perf.cli.options import define_path, model_folder, optional_path
from compiler_opt_perf.cli.verb import UsageError, Verb
from compiler_opt_perf.toolchain.layout import set_folder

# cop toolchain build


def _define_toolchain_build(values: flags.FlagValues) -> None:
    flags.DEFINE_string(
        "set",
        "dev",
        "name of the model set: dev has no models, mock upstream's mock models, any other name the "
        "models given",
        flag_values=values,
    )
    define_path(
        values,
        "inline_model",
        "folder of a policy for inline-size, or a SavedModel",
        required=False,
    )
    define_path(
        values,
        "evict_model",
        "folder of a policy for regalloc-evict, or a SavedModel",
        required=False,
    )
    define_path(
        values,
        "output",
        "a folder to install the set in besides, with all that it needs, for use without the "
        "project",
        required=False,
    )


def _toolchain_build(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.policy.compiler_flags import usage
    from compiler_opt_perf.run.files import atomic_directory
    from compiler_opt_perf.toolchain.build import build
    from compiler_opt_perf.toolchain.package import install, is_installed

    models = model_folder(values, "inline_model"), model_folder(values, "evict_model")
    output = optional_path(values, "output")
    if output is None:
        print(build(values.set, *models).directory)
        return
    with atomic_directory(output, ours=is_installed) as folder:
        toolchain = build(values.set, *models)
        install(toolchain, folder, usage(toolchain))
    print(output)


# cop toolchain pack


def _define_toolchain_pack(values: flags.FlagValues) -> None:
    flags.DEFINE_string(
        "set", None, "name of the model set, or its folder", flag_values=values, required=True
    )
    define_path(values, "output", "the archive, NAME.tar.xz; it holds a folder NAME")
    flags.DEFINE_integer(
        "level", 6, "of compression, 0 (fast) to 9 (small)", 0, 9, flag_values=values
    )


def _toolchain_pack(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.policy.compiler_flags import usage
    from compiler_opt_perf.toolchain.installation import Toolchain
    from compiler_opt_perf.toolchain.package import pack

    toolchain = Toolchain.load(_folder_of(values.set))
    pack(toolchain, Path(values.output), usage(toolchain), values.level)
    print(values.output)


def _folder_of(model_set: str) -> Path:
    """Of a set by its name, or by its folder."""
    return Path(model_set) if "/" in model_set else set_folder(model_set)


# cop flags


def _define_flags(values: flags.FlagValues) -> None:
    flags.DEFINE_string(
        "set", None, "name of the model set, or its folder", flag_values=values, required=True
    )
    define_path(values, "profile", "PMU profile manifest, NAME.pmu.json", required=False)
    for name, problem in (("inline_model", "inline-size"), ("evict_model", "regalloc-evict")):
        help = f"folder of a policy for {problem}, for development mode instead of the set's own"
        define_path(values, name, help, required=False)
    define_path(
        values,
        "config",
        "write a configuration file of clang's, NAME.cfg, and print the one flag that names it",
        required=False,
    )
    flags.DEFINE_boolean(
        "autofdo",
        False,
        "with --profile: the compiler itself uses its executions (-fprofile-sample-use), besides "
        "the policies, or without any",
        flag_values=values,
    )
    flags.DEFINE_boolean("link", False, "print the flags of links", flag_values=values)
    flags.DEFINE_boolean(
        "cmake", False, "print what to give to cmake; needs --config", flag_values=values
    )


def _flags(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.policy.compiler_flags import compiler_flags, shell_line
    from compiler_opt_perf.run.files import write_text
    from compiler_opt_perf.toolchain.installation import Toolchain

    config = optional_path(values, "config")
    if values.cmake and config is None:
        raise UsageError("--cmake needs --config=NAME.cfg, the file that compilations shall read")
    if values.link and config is not None:
        raise UsageError("with --config, compilations and links get the same flag; omit --link")
    models = {
        "inline-size": model_folder(values, "inline_model"),
        "regalloc-evict": model_folder(values, "evict_model"),
    }
    result = compiler_flags(
        Toolchain.load(_folder_of(values.set)),
        models,
        optional_path(values, "profile"),
        autofdo=values.autofdo,
    )
    for policy in result.policies:
        logging.info("%s", policy)
    for warning in result.warnings:
        logging.warning("%s", warning)
    if config is None:
        print(shell_line(result.link_words() if values.link else result.compile_words()))
        return
    write_text(config, result.configuration())
    if values.cmake:
        definitions = result.cmake_definitions(config).items()
        print(shell_line(f"-D{name}={value}" for name, value in definitions))
    else:
        print(shell_line([f"--config={config.absolute()}"]))


VERBS: tuple[Verb, ...] = (
    Verb(
        "toolchain build",
        "Fetch LLVM's source, apply the patches, build clang and the tools with a set of models.",
        "toolchain build --set=mine --inline-model=build/demo/inline-size/policy",
        _define_toolchain_build,
        _toolchain_build,
    ),
    Verb(
        "toolchain pack",
        "Pack a set of the patched tools for other machines: stripped, with all that it needs.",
        "toolchain pack --set=mine --output=build/mine.tar.xz",
        _define_toolchain_pack,
        _toolchain_pack,
    ),
    Verb(
        "flags",
        "Print the compiler's or linker's flags for policies and profile, or write them to a file.",
        "flags --set=mine --profile=build/demo/zstd.pmu.json --config=mine.cfg --cmake",
        _define_flags,
        _flags,
    ),
)
