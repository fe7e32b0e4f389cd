# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The folder of a training: locked by one process, and claimed by one training or by none."""

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler_opt_perf.corpus.corpus import Corpus
from compiler_opt_perf.corpus.programs import find_program, program_modules
from compiler_opt_perf.policy.problem import Problem
from compiler_opt_perf.run.files import exclusive, explained, read_input, write_json
from compiler_opt_perf.run.json_text import JsonError, decode
from compiler_opt_perf.train.errors import TrainingError

_LOCK = "lock"
# What `program_corpus` leaves.
_EXTRACTED = ("programs", "corpora")


class TrainingFolder:
    """The files of a training; see `train`.

    Attributes:
      path: the folder.
    """

    def __init__(self, path: Path):
        self.path = path
        self.default = path / "default"
        self.checkpoint = path / "checkpoint.npz"
        self.curve = path / "curve.jsonl"
        self.result = path / "training.json"
        self.failures = path / "failures"
        self.policy = path / "policy"
        self.model = path / "model"
        self.ablated = path / "ablated"
        self.labels = path / "labels"
        self.inputs_file = path / "inputs.json"

    @classmethod
    @contextlib.contextmanager
    def held(cls, path: Path) -> Iterator["TrainingFolder"]:
        """Locks the folder; a second process waits. A folder that is not claimed stays unchanged.

        Raises:
          TrainingError: the folder holds something else.
        """
        folder = cls(path)
        new = [part for part in (path, *path.parents) if not part.exists()]
        _require_own(path)
        with exclusive(path / _LOCK):
            # What a killed process was writing.
            for entry in path.rglob(".*.tmp"):
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink(missing_ok=True)
            try:
                yield folder
            except Exception:
                if not folder.is_claimed:
                    for made in (folder.default, folder.ablated):
                        shutil.rmtree(made, ignore_errors=True)
                    (path / _LOCK).unlink(missing_ok=True)
                    with contextlib.suppress(OSError):
                        for part in new:
                            os.rmdir(part)
                raise

    @property
    def is_claimed(self) -> bool:
        """Whether a training has begun here."""
        return self.inputs_file.exists()

    def inputs(self) -> dict[str, Any]:
        """The inputs of the training here. Raises TrainingError: they are missing or damaged."""
        if not self.is_claimed:
            raise TrainingError(
                f"{self.path}: no training has begun here; name a folder that "
                "`cop train policy` wrote"
            )
        try:
            return decode(read_input(self.inputs_file), dict[str, Any], self.inputs_file)
        except (OSError, JsonError) as error:
            raise TrainingError(
                f"{explained(error)}; remove the folder {self.path} to start again"
            ) from error

    def require_inputs(self, inputs: Mapping[str, Any]) -> None:
        """Raises TrainingError if the folder holds a training with other inputs."""
        if not self.is_claimed:
            return
        before = self.inputs()
        different = [key for key in inputs if inputs[key] != before.get(key)]
        if different:
            raise TrainingError(
                f"{self.path}: holds a training with another {' and '.join(different)}; "
                "choose another folder, or remove this one"
            )

    def claim(self, inputs: Mapping[str, Any]) -> None:
        """Records the inputs of this training. Raises FileWriteError."""
        write_json(self.inputs_file, inputs)


def _require_own(path: Path) -> None:
    """Raises TrainingError if a folder holds something else than a training, or is none."""
    folder = TrainingFolder(path)
    if path.exists() and not path.is_dir():
        raise TrainingError(f"{path}: is not a folder; choose another output folder")
    if path.is_dir() and not folder.is_claimed:
        # What a training leaves that was interrupted before it claimed the folder.
        own = {_LOCK, folder.default.name, folder.ablated.name, *_EXTRACTED}
        left = {entry.name for entry in path.glob(f".{folder.inputs_file.name}.*.tmp")}
        others = {entry.name for entry in path.iterdir()} - own - left
        if others:
            raise TrainingError(
                f"{path}: holds {sorted(others)[0]!r}, which is not part of a training; "
                "choose a new or empty output folder"
            )


def program_corpus(names: Sequence[str], problem: Problem, output: Path) -> Corpus:
    """The modules of programs of the table, extracted into a training's folder.

    What is there of the same sources is not extracted again.

    Raises: as `corpus.programs.program_modules`; TrainingError: `output` holds something else.
    """
    _require_own(output)
    for name in names:
        find_program(name)
    builds, corpora = (output / part for part in _EXTRACTED)
    level, stage = problem.optimization_level, problem.corpus_stage
    modules = [
        module
        for name in names
        for module in program_modules(name, builds, corpora, opt_level=level, stage=stage)
    ]
    return Corpus(corpora, tuple(modules))
