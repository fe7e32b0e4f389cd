# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles a module with one policy in the compiler's three modes, which must agree.

Training measures a policy in development mode, users run it in release mode, and interactive mode
evaluates it in Python. They must take the same decisions and give the same object file, bit by bit.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from absl import logging

from compiler_opt_perf.compare.errors import CompareError
from compiler_opt_perf.compare.remarks import Decision, read_decisions, remark_options
from compiler_opt_perf.compare.subject import Subject
from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.policy.interactive import InteractiveHost, policy_decisions
from compiler_opt_perf.policy.problem import Problem, for_clang
from compiler_opt_perf.policy.tflite import MODEL_FILE
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.files import read_input, sha256
from compiler_opt_perf.run.json_text import FieldError, JsonError, decode
from compiler_opt_perf.toolchain.installation import Toolchain, build_advice
from compiler_opt_perf.toolchain.model_inputs import MODELS


class ModesError(CompareError):
    """Two modes take different decisions, or write different object files."""


class _Description(msgspec.Struct, frozen=True):
    """The part of model.json that is read: the checksums of the files."""

    files: dict[str, str]

    def __post_init__(self) -> None:
        if MODEL_FILE not in self.files:
            raise FieldError("files", f"{MODEL_FILE} is missing")


def require_compiled_in(toolchain: Toolchain, problem: Problem, model: Path) -> None:
    """Checks that the policy in a toolchain is the one in the folder `model`, by its checksum.

    Without a description (model.json) on both sides it passes: only decisions can tell then.

    Raises:
      ModesError: the toolchain has another policy for the problem, or none.
    """
    (place,) = (place for place in MODELS if place.problem == problem.name)
    compiled = toolchain.directory / "models" / place.name
    # Building a set drops the models that the command does not name.
    models: dict[str, str | Path] = {place.option: model}
    for other in MODELS:
        if other != place and compiled.with_name(f"{other.name}.h").is_file():
            models[other.option] = "POLICY"
    build_it = build_advice(toolchain.directory, models)
    if not compiled.with_suffix(".h").is_file():
        raise ModesError(
            f"{toolchain.directory}: has no policy for {problem.name} compiled in, so "
            f"that nothing can be compared; {build_it}"
        )
    try:
        given = sha256(model / MODEL_FILE)
    except OSError as error:
        raise ModesError(
            f"{model / MODEL_FILE}: {error.strerror}; name the folder of a policy"
        ) from error
    description = compiled.with_suffix(".json")
    if not description.is_file():
        if not (model / "model.json").exists():
            logging.info("%s: does not say which policy it has", toolchain.directory)
            return
        held = "a policy without description"
    else:
        try:
            files = decode(read_input(description), _Description, description).files
        except (OSError, JsonError) as error:
            raise ModesError(f"{error}; {build_it}") from error
        checksum = files[MODEL_FILE]
        if checksum == given:
            return
        held = f"one whose {MODEL_FILE} has SHA-256 {checksum}"
    raise ModesError(
        f"{toolchain.directory}: holds another policy for {problem.name} than {model}, whose "
        f"{MODEL_FILE} has SHA-256 {given}: {held}; {build_it}"
    )


def mode_names(subject: Subject) -> tuple[str, ...]:
    """The modes that `compile_in_modes` compares."""
    return ("release", "development", *(["interactive"] if subject.interactive else []))


def compile_in_modes(
    subject: Subject, module: Module, folder: Path
) -> tuple[bytes, list[Decision]]:
    """Compiles in each mode; leaves `<mode>.o` and `<mode>.yaml` (remarks) in `folder`.

    Args:
      subject: must have tools for release mode.

    Returns:
      The object file's bytes and the decisions, which are the same in all modes.

    Raises:
      ModesError: they are not the same; names the module and the first difference.
      CommandError: a compilation fails.
      RemarksError: the compiler leaves a damaged file.
    """
    assert subject.release is not None
    tools = {"release": subject.release}
    problem, profile = subject.problem, subject.profiles.of(module.program)

    def command(mode: str, options: list[str]) -> list[str]:
        arguments = [*for_clang(options), *remark_options(problem, folder / f"{mode}.yaml")]
        clang = tools.get(mode, subject.toolchain).clang
        return module.compile_command(clang, folder / f"{mode}.o", arguments)

    for mode, options in (
        ("release", subject.release_options(module)),
        ("development", problem.development_options(model=subject.model, profile=profile)),
    ):
        run_command(command(mode, options), timeout_s=subject.timeout_s, env=subject.environment)
    if subject.interactive is not None:
        with InteractiveHost(problem, policy_decisions(subject.interactive)) as host:
            options = problem.interactive_options(host.channel, profile=profile)
            host.run(command("interactive", options), timeout_s=subject.timeout_s)
    decisions = read_decisions(folder / "release.yaml", problem)
    image = (folder / "release.o").read_bytes()
    for mode in mode_names(subject)[1:]:
        if not _same(folder / "release.yaml", folder / f"{mode}.yaml"):
            read = read_decisions(folder / f"{mode}.yaml", problem)
            difference = first_difference(decisions, read, mode)
            if difference:
                raise ModesError(f"{module.name}: {difference}")
        if (folder / f"{mode}.o").read_bytes() != image:
            raise ModesError(f"{module.name}: release and {mode} mode objects differ")
    return image, decisions


def first_difference(
    release: Sequence[Decision], other: Sequence[Decision], mode: str
) -> str | None:
    """The first decision in which release mode and `mode` differ, in words; None if none does."""
    for index, (left, right) in enumerate(zip(release, other, strict=False)):
        if left != right:
            return f"decision {index}: release {left}, {mode} {right}"
    if len(release) != len(other):
        return f"{len(release)} decisions in release mode, {len(other)} in {mode} mode"
    return None


def _same(left: Path, right: Path) -> bool:
    return left.read_bytes() == right.read_bytes()
