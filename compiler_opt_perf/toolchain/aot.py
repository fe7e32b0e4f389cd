# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles a SavedModel ahead of time to a C++ header and an object file, for release mode.

Policies of this project need none of that: `policy.cpp_source` writes them as C++.

A digest beside each result says what it was compiled from. `run.memo` does not fit here: it drops
the old result first, but a model that does not compile or fit must leave the old one in place.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from absl import logging

from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.files import atomic_write, files_of, write_text
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.tensorflow_environment import TENSORFLOW_ENVIRONMENT
from compiler_opt_perf.toolchain.layout import ToolchainError
from compiler_opt_perf.toolchain.model_inputs import (
    ModelTensor,
    ReleaseModel,
    check_header,
    digest_macro,
)

# Without a CPU's name, the code runs on every x86-64 machine.
_OPTIONS = (
    "--multithreading=false",
    "--tag_set=serve",
    "--signature_def_key=action",
    "--target_triple=x86_64-pc-linux-gnu",
)


def aot_compile(
    saved_model: Path, model: ReleaseModel, features: Mapping[str, ModelTensor], output: Path
) -> None:
    """Writes `output/<name>.h` and `output/<name>.o`; does nothing if they are up to date.

    `<name>.digest` beside them holds the digest of everything that they depend on.

    Args:
      saved_model: directory with `saved_model.pb`, whose signature "action" is compiled.
      model: the place in the compiler that the model is for.
      features: the features that the compiler feeds, from `model_inputs.fed_features`.
      output: directory, which is made if needed.

    Raises:
      ToolchainError: there is no SavedModel, TensorFlow is not installed or cannot compile it, or
        it takes inputs that the compiler does not feed.
    """
    if not (saved_model / "saved_model.pb").is_file():
        raise ToolchainError(
            f"{saved_model}: neither a policy (model.json is missing) nor a SavedModel "
            "(saved_model.pb is missing); name the folder of a policy"
        )
    digest = _digest(saved_model, features)
    stamp = output / f"{model.name}.digest"
    if stamp.is_file() and stamp.read_text() == digest:
        return
    logging.info("Compiling %s ahead of time to %s", saved_model, output / model.name)
    with tempfile.TemporaryDirectory() as folder:
        prefix = Path(folder) / model.name
        try:
            run_command(
                [venv_program("saved_model_cli"), "aot_compile_cpu", *_OPTIONS,
                 "--dir", saved_model, "--output_prefix", prefix,
                 "--cpp_class", model.cpp_class],
                timeout_s=600,
                env={**TENSORFLOW_ENVIRONMENT, "CUDA_VISIBLE_DEVICES": ""},
            )  # fmt: skip
            # Code and constants. Nothing refers to the third object that TensorFlow writes.
            objects = [f"{prefix}.o", f"{prefix}_constants.o"]
            run_command(
                [stock_tool("ld.lld"), "-r", "-o", f"{prefix}.linked", *objects], timeout_s=60
            )
            os.replace(f"{prefix}.linked", f"{prefix}.o")
        except CommandError as error:
            raise ToolchainError(
                f"{saved_model}: TensorFlow cannot compile it ahead of time (it needs a signature "
                f"'action' with static shapes and no variables): {error}"
            ) from error
        check_header(Path(f"{prefix}.h").read_text(), model, features, saved_model)
        stamp.unlink(missing_ok=True)
        with open(f"{prefix}.h", "a", encoding="utf-8") as header:
            header.write(digest_macro(digest, model))
        for suffix in (".h", ".o"):
            with atomic_write(output / f"{model.name}{suffix}") as temporary:
                shutil.copyfile(f"{prefix}{suffix}", temporary)
        (output / f"{model.name}.json").unlink(missing_ok=True)
    write_text(stamp, digest)


def generate_mock(tree: Path, model: ReleaseModel, output: Path) -> None:
    """Writes upstream's mock model for `model`, as a SavedModel in the new directory `output`.

    Raises:
      ToolchainError: upstream's script fails.
    """
    try:
        run_command(
            [sys.executable, tree / model.generator, output],
            timeout_s=600,
            env={**TENSORFLOW_ENVIRONMENT, "CUDA_VISIBLE_DEVICES": ""},
        )
    except CommandError as error:
        raise ToolchainError(f"{tree / model.generator}: {error}") from error


def venv_program(name: str) -> Path:
    """The program `name` of the virtual environment of this process.

    Raises:
      ToolchainError: the program does not exist.
    """
    program = Path(sys.executable).with_name(name)
    if not program.is_file():
        raise ToolchainError(
            f"{program}: no such program; run tools/bootstrap and use build/venv/bin/python"
        )
    return program


def package_directory(package: str) -> Path:
    """The folder of an installed Python package, without importing it.

    Raises:
      ToolchainError: the package is not installed.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ToolchainError(
            f"Python package {package} is not installed for {sys.executable}; run tools/bootstrap "
            "and use build/venv/bin/python"
        )
    return Path(spec.submodule_search_locations[0])


def has_tensorflow() -> bool:
    """Whether TensorFlow is installed."""
    return importlib.util.find_spec("tensorflow") is not None


def tensorflow_version(needed_for: Path) -> str:
    """The version of the installed TensorFlow, without importing it.

    Args:
      needed_for: what TensorFlow is to compile or run, for the message.

    Raises:
      ToolchainError: TensorFlow is not installed.
    """
    if not has_tensorflow():
        raise ToolchainError(
            f"{needed_for}: needs TensorFlow, which is not installed; run "
            "tools/bootstrap --with=tensorflow"
        )
    return importlib.metadata.version("tensorflow-cpu")


def _digest(saved_model: Path, features: Mapping[str, ModelTensor]) -> str:
    """The digest, in hexadecimal, of everything that a compiled model and its checks depend on."""
    # An up-to-date result is not checked again: the features belong to the digest, too.
    settings = (tensorflow_version(saved_model), _OPTIONS, sorted(features.items()), "constants")
    digest = hashlib.sha256(repr(settings).encode())
    for file in files_of(saved_model):
        digest.update(f"{file.relative_to(saved_model)}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()
