# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds the patched compiler: source, patches, models, CMake and Ninja."""

import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from absl import logging

from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.files import atomic_directory, exclusive, write_text
from compiler_opt_perf.run.llvm import LLVM_PREFIX, LLVM_VERSION, stock_tool
from compiler_opt_perf.run.memo import stamped
from compiler_opt_perf.toolchain import overlay
from compiler_opt_perf.toolchain.aot import (
    aot_compile,
    generate_mock,
    has_tensorflow,
    package_directory,
    tensorflow_version,
)
from compiler_opt_perf.toolchain.installation import DEVELOPMENT_SET, MOCK_SET, Toolchain
from compiler_opt_perf.toolchain.layout import (
    BUILD,
    OVERLAY_PROJECT,
    PATCHES,
    ToolchainError,
    set_folder,
)
from compiler_opt_perf.toolchain.model_inputs import (
    EVICT_MODEL,
    INLINE_MODEL,
    MODELS,
    GeneratedModel,
    ReleaseModel,
    check_inputs,
    fed_features,
)
from compiler_opt_perf.toolchain.patches import PatchedTree

#: What is compiled in: a policy as C++, or the folder of a SavedModel, which TensorFlow compiles.
Model = GeneratedModel | Path


def build(
    set_name: str,
    inline_model: Model | None = None,
    evict_model: Model | None = None,
    build_directory: Path = BUILD,
) -> Toolchain:
    """Builds the tools with one set of models, in `build/toolchain/<set_name>`.

    All sets share what does not depend on the models, which is compiled once. Of two runs at the
    same time, the second waits. An up-to-date build takes about a second.

    Args:
      set_name: "dev" for no models (development and interactive mode only), "mock" for upstream's
        mock models, any other name for the models given.
      inline_model: the inliner's policy; `policy.cpp_source.release_model` makes it of a folder.
      evict_model: the register allocator's eviction policy, as well.
      build_directory: folder of all outputs.

    Returns:
      The tools built.

    Raises:
      ToolchainError: the source is missing, a patch does not apply, the overlay is unsound, a
        model cannot be compiled or does not fit, or a compilation or link fails.
    """
    models = check_models(set_name, inline_model, evict_model)
    stock_tool("llvm-config")
    tree = PatchedTree.in_build(build_directory)
    with exclusive(build_directory / "overlay" / ".lock"):
        tree.apply()
        directory = set_folder(set_name, build_directory)
        (directory / "models").mkdir(parents=True, exist_ok=True)
        # In parallel, for each model takes a process of one thread that loads TensorFlow.
        with ThreadPoolExecutor(len(MODELS)) as threads:
            if set_name == MOCK_SET:
                mocks = [build_directory / "models" / f"mock-{model.name}" for model in MODELS]
                list(threads.map(partial(_mock_model, tree.source), MODELS, mocks))
                models = dict(zip(MODELS, mocks, strict=True))
            compile_model = partial(_compile_model, tree, directory / "models", models)
            list(threads.map(compile_model, MODELS))
        return compile_overlay(tree, set_name, build_directory)


def compile_overlay(tree: PatchedTree, set_name: str, build_directory: Path) -> Toolchain:
    """Compiles and links the tools of one set, whose models have been compiled.

    Args:
      tree: the patched tree, which is compiled as it is, with whichever patches it has.
      set_name: the set's name.
      build_directory: folder of all outputs.

    Raises:
      ToolchainError: the overlay is unsound, or a compilation or link fails.
    """
    start = time.monotonic()
    write_plan(tree, build_directory / "overlay" / "plan.cmake")
    configure(tree, build_directory)
    compile_target(
        f"toolchain_{set_name}",
        f"clang, opt, llc, llvm-lto2 and ld.lld (model set {set_name})",
        build_directory / "overlay",
    )
    directory = set_folder(set_name, build_directory)
    logging.info("Built %s in %.0f s", directory / "bin", time.monotonic() - start)
    return Toolchain.load(directory)


def check_overlay(build_directory: Path = BUILD) -> overlay.Plan:
    """Checks that the overlay's objects may be linked with the stock archives.

    Returns:
      The translation units that the overlay compiles.

    Raises:
      UnsoundOverlayError: a unit from the archives would disagree with a patched header.
    """
    tree = PatchedTree.in_build(build_directory)
    tree.apply()
    changed = tree.changed_files()
    overlay.check_allowances(changed, overlay.load_allowances(PATCHES / "overlay.toml"))
    return _checked_plan(tree, changed)


def check_models(
    set_name: str, inline_model: Model | None, evict_model: Model | None
) -> dict[ReleaseModel, Model]:
    """The models of a set.

    Raises:
      ToolchainError: the name cannot be a folder's name, or the set cannot have these models.
    """
    set_folder(set_name)
    given = {INLINE_MODEL: inline_model, EVICT_MODEL: evict_model}
    models = {place: model for place, model in given.items() if model is not None}
    if set_name in (DEVELOPMENT_SET, MOCK_SET) and models:
        raise ToolchainError(
            f"{set_name}: this set's models are fixed; choose another name for a set of your own"
        )
    if set_name not in (DEVELOPMENT_SET, MOCK_SET) and not models:
        raise ToolchainError(
            f"{set_name}: give a policy for the inliner, for eviction, or for both (the set "
            f"without models is called {DEVELOPMENT_SET})"
        )
    return models


def _compile_model(
    tree: PatchedTree, output: Path, models: Mapping[ReleaseModel, Model], place: ReleaseModel
) -> None:
    """Writes what the set has for a place; removes an old model if it has none."""
    model = models.get(place)
    if isinstance(model, Path):
        aot_compile(model, place, fed_features(tree.directory, place), output)
        return
    header, description = (output / f"{place.name}{suffix}" for suffix in (".h", ".json"))
    if model is not None:
        check_inputs(model.inputs, place, fed_features(tree.directory, place), model.origin)
    # Also the objects of a SavedModel, first the digest that says that they are up to date.
    for old in sorted(output.glob(f"{place.name}*"), key=lambda file: file.suffix != ".digest"):
        if model is None or old not in (header, description):
            old.unlink()
    if model is None:
        return
    # A header that is written again would be compiled again.
    if not header.is_file() or header.read_text() != model.header:
        logging.info("Writing %s as C++ to %s", model.origin, header)
        write_text(header, model.header)
    write_text(description, model.description)


def _mock_model(source: Path, model: ReleaseModel, directory: Path) -> None:
    """Generates upstream's mock model in `directory` again if its script or TensorFlow changed."""
    script = source / model.generator
    digest = hashlib.sha256(script.read_bytes()).hexdigest()
    origin = f"{digest} TensorFlow {tensorflow_version(script)}\n"

    def generate() -> None:
        logging.info("Generating upstream's mock model %s", directory)
        with atomic_directory(directory) as partial:
            generate_mock(source, model, partial)

    stamped(directory.with_name(f"{directory.name}.origin"), origin, generate, [directory])


def _checked_plan(tree: PatchedTree, changed: Sequence[str]) -> overlay.Plan:
    allowed = overlay.load_allowances(PATCHES / "overlay.toml")
    graph = overlay.IncludeGraph(tree.directory)
    plan = overlay.make_plan(graph, changed, allowed)
    overlay.check(graph, changed, allowed, plan.units())
    return plan


def write_plan(tree: PatchedTree, path: Path) -> None:
    """Writes the list of units to compile to `path`, unless it has the list for the same tree."""
    changed = tree.changed_files()
    digest = hashlib.sha256(Path(overlay.__file__).read_bytes())
    for file in [PATCHES / "overlay.toml", *(tree.directory / name for name in changed)]:
        content = file.read_bytes() if file.is_file() else b"removed"
        digest.update(f"{file} {hashlib.sha256(content).hexdigest()}\n".encode())
    # The key is in the file itself, so that both are written at once.
    key = f"# {digest.hexdigest()}\n"
    if path.is_file() and path.read_text().startswith(key):
        return
    logging.info("Finding the translation units that %d patched files affect", len(changed))
    plan = _checked_plan(tree, changed)
    lists = {
        "OVERLAY_COMMON": plan.common,
        "OVERLAY_MODEL_DEPENDENT": plan.model_dependent,
        **{f"OVERLAY_MAIN_{tool}": units for tool, units in plan.mains.items()},
        "OVERLAY_DEVELOPMENT_MODE": ("ON" if plan.development_mode else "OFF",),
        "OVERLAY_UNIT_TESTS": plan.unit_tests,
    }
    text = "".join(f"set({name} {' '.join(units)})\n" for name, units in lists.items())
    write_text(path, key + text)


def configure(tree: PatchedTree, build_directory: Path) -> None:
    """Configures the overlay's CMake project, unless its settings and models are unchanged.

    Raises:
      ToolchainError: CMake fails.
    """
    # CMake decides by the models that exist what to compile.
    models = sorted((build_directory / "toolchain").glob("*/models/*.[ho]"))
    by_tensorflow = {path.parent.parent.name for path in models if path.suffix == ".o"}
    sets = {path.parent.name for path in (build_directory / "toolchain").glob("*/models")}
    if not has_tensorflow():
        # Sets that were built when it was installed stay as they are.
        sets -= by_tensorflow
        by_tensorflow = set()
    directory = build_directory / "overlay"
    definitions = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_CXX_COMPILER": LLVM_PREFIX / "bin" / "clang++",
        "LLVM_TREE": tree.directory,
        "LLVM_PREFIX": LLVM_PREFIX,
        "PLAN": directory / "plan.cmake",
        "TENSORFLOW": package_directory("tensorflow") if by_tensorflow else "",
        "TOOLCHAINS": build_directory / "toolchain",
        "SETS": ";".join(sorted(sets)),
    }
    command = ["cmake", "-G", "Ninja", "-S", str(OVERLAY_PROJECT), "-B", str(directory)]
    command += [f"-D{name}={value}" for name, value in definitions.items()]

    def configure() -> None:
        try:
            run_command(command, timeout_s=300)
        except CommandError as error:
            raise ToolchainError(f"{OVERLAY_PROJECT}: cannot be configured: {error}") from error

    stamped(directory / "configured", "\n".join([*command, *map(str, models)]), configure)


def compile_target(target: str, description: str, directory: Path) -> None:
    """Builds a target of the overlay.

    Args:
      target: the name in the CMake project.
      description: the target in words, for the log.
      directory: the overlay's build folder.

    Raises:
      ToolchainError: a compilation or link fails.
    """
    logging.info("Compiling and linking %s", description)
    jobs = os.cpu_count() or 1
    try:
        run_command(
            ["ninja", "-C", directory, f"-j{jobs}", target],
            timeout_s=7200,
            env={"NINJA_STATUS": "[%f/%t, %e s] "},
            show_output=True,
        )
    except CommandError as error:
        raise ToolchainError(
            f"LLVM {LLVM_VERSION} with the patches does not build; see the compiler's messages "
            f"above: {error}"
        ) from error
