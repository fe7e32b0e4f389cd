# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs of the patched compiler."""

from pathlib import Path
from typing import Annotated

from click import UsageError

from compiler_opt_perf.cli import options
from compiler_opt_perf.cli.options import model_folder
from compiler_opt_perf.cli.parameters import TOOLCHAIN, Flag
from compiler_opt_perf.cli.verb import Group
from compiler_opt_perf.toolchain.layout import set_folder

toolchain = Group("toolchain", help="The patched compiler, with policies compiled in.")


@toolchain.verb(
    "build", example="toolchain build --toolchain=mine --inline-model=trainings/inline-size/policy"
)
def build(
    toolchain: Annotated[
        Path,
        Flag(
            "name of the folder in build/toolchain: dev has no models, mock upstream's mock "
            "models, any other name the models given",
            type=TOOLCHAIN,
        ),
    ] = options.DEV,
    inline_model: Annotated[
        Path | None,
        Flag("policy for inline-size: a folder, the name of one in models/, or a SavedModel"),
    ] = None,
    evict_model: Annotated[
        Path | None,
        Flag("policy for regalloc-evict: a folder, the name of one in models/, or a SavedModel"),
    ] = None,
    output: Annotated[
        Path | None,
        Flag(
            "a folder to install the tools in besides, with all that they need, for use without "
            "the project"
        ),
    ] = None,
) -> None:
    """Fetch LLVM's source, apply the patches, build clang and the tools with these models."""
    from compiler_opt_perf.policy.compiler_flags import usage
    from compiler_opt_perf.policy.cpp_source import release_model
    from compiler_opt_perf.run.files import atomic_directory
    from compiler_opt_perf.toolchain.build import build
    from compiler_opt_perf.toolchain.model_inputs import EVICT_MODEL, INLINE_MODEL
    from compiler_opt_perf.toolchain.package import install, is_installed

    if toolchain.absolute() != set_folder(toolchain.name):
        raise UsageError(
            f"--toolchain={toolchain}: expected the name of a folder in build/toolchain; --output "
            "installs the tools elsewhere"
        )
    inline_folder = model_folder(inline_model, "--inline-model")
    evict_folder = model_folder(evict_model, "--evict-model")
    models = (
        inline_folder and release_model(inline_folder, INLINE_MODEL),
        evict_folder and release_model(evict_folder, EVICT_MODEL),
    )
    if output is None:
        print(build(toolchain.name, *models).directory)
        return
    with atomic_directory(output, ours=is_installed) as folder:
        built = build(toolchain.name, *models)
        install(built, folder, usage(built))
    print(output)


@toolchain.verb("pack", example="toolchain pack --toolchain=mine --output=build/mine.tar.xz")
def pack(
    toolchain: options.Toolchain,
    output: Annotated[Path, Flag("the archive, NAME.tar.xz; it holds a folder NAME")],
    level: Annotated[int, Flag("of compression, 0 (fast) to 9 (small)", low=0, high=9)] = 6,
) -> None:
    """Pack the patched tools for other machines: stripped, with all that they need."""
    from compiler_opt_perf.policy.compiler_flags import usage
    from compiler_opt_perf.toolchain.installation import Toolchain
    from compiler_opt_perf.toolchain.package import pack

    packed = Toolchain.load(toolchain)
    pack(packed, output, usage(packed), level)
    print(output)
