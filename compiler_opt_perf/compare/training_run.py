# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A training's folder as people read it: what was done so far, by what settings, with what result.

`cop train policy` writes the folder. What a training has not written yet is not there; what is
damaged is an error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from compiler_opt_perf.compare.errors import CompareError
from compiler_opt_perf.corpus.corpus import DESCRIPTION, Corpus, Module
from compiler_opt_perf.run.curve import curve_values
from compiler_opt_perf.run.files import read_input
from compiler_opt_perf.run.json_text import Count, JsonError, decode, parse_json
from compiler_opt_perf.train.folder import TrainingFolder
from compiler_opt_perf.train.label_files import read_labels

# Inputs that are shown elsewhere, or too long.
_NOT_SETTINGS = {"corpus", "compiler", "profile", "versions", "kind", "problem"}
_REMEDY = "go on with the training, which writes it again"

#: A change against the default's cost that a plot can show.
Change = Annotated[float, msgspec.Meta(gt=-(2.0**64), lt=2.0**64)]
_Size = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


@dataclass(frozen=True)
class Point:
    """A step of a training.

    Attributes:
      step: generation or round; 0 is the start, which has no candidates.
      values: what was measured, by name; `unit_of` tells the units.
    """

    step: int
    values: Mapping[str, float]


class _Row(msgspec.Struct, frozen=True):
    """What each row of a curve has; further fields are those of its stage."""

    generation: Count
    validation_of_mean: Change | None
    candidates_mean: Change | None = None
    validation_of_fittest: Change | None = None


#: A change against the default's cost, -0.01 for 1% less; and a part of a whole, from 0 to 1.
CHANGE, SHARE = "change", "share"
# Of the fields of a curve; those that are not here are plain numbers, whatever wrote them.
_UNITS = {
    "validation": CHANGE,
    "validation_of_mean": CHANGE,
    "validation_of_fittest": CHANGE,
    "candidates_mean": CHANGE,
    "candidates_best": CHANGE,
    "equals_default": SHARE,
    "value_told": SHARE,
    "best_saves": SHARE,
}


def unit_of(field: str) -> str:
    """CHANGE, SHARE, or nothing for a plain number; "validation/NAME" is as "validation"."""
    return _UNITS.get(field.partition("/")[0], "")


class _Bytes(msgspec.Struct, frozen=True):
    linked: tuple[_Size, _Size]
    objects: tuple[_Size, _Size]


class _Results(msgspec.Struct, frozen=True):
    """What every training has; `programs` where it linked some."""

    reward: str
    verdict: str
    test_change: Change
    validation_change: Change
    programs: dict[str, _Bytes] = {}


class _Ended(msgspec.Struct, frozen=True):
    problem: str
    results: _Results
    modules: dict[str, Annotated[list[str], msgspec.Meta(max_length=10**6)]] = {}


@dataclass(frozen=True)
class TrainingRun:
    """What a folder holds of a training.

    Attributes:
      path: the folder.
      problem: name of what is decided.
      settings: by name, with dots between the parts of nested ones; JSON values.
      versions: of packages, by name.
      modules: how many it is on.
      curve: the generations so far.
      labels: by round, the differences of all labels in bytes; empty without labels.
      results: what the test gave; None while it is not ended.
      policy: folder of the published policy; None while there is none.
      validation: names of modules or of programs by which the policy is chosen, as far as known.
    """

    path: Path
    problem: str
    settings: Mapping[str, Any]
    versions: Mapping[str, str]
    modules: int
    curve: Sequence[Point]
    labels: Mapping[int, npt.NDArray[np.float64]]
    results: _Results | None
    policy: Path | None
    validation: frozenset[str]

    def choose(self, modules: Sequence[Module]) -> list[Module]:
        """The modules for validation; all modules if none of them is."""
        chosen = [m for m in modules if m.name in self.validation or m.program in self.validation]
        return chosen or list(modules)


def read_run(path: Path) -> TrainingRun:
    """Reads a training's folder.

    Raises:
      TrainingError: there is no training, or a file of it is damaged.
      LabelsError: damaged labels.
      CompareError: a damaged curve or result.
    """
    folder = TrainingFolder(path)
    inputs = folder.inputs()
    ended = _read_ended(folder.result)
    settings = dict(_flat("", {k: v for k, v in inputs.items() if k not in _NOT_SETTINGS}))
    validation = _texts(settings.get("config.programs.validation", ()))
    validation += ended.modules.get("validation", []) if ended else []
    problem = inputs.get("problem")
    versions, corpus = inputs.get("versions"), inputs.get("corpus")
    return TrainingRun(
        path,
        problem if isinstance(problem, str) else "",
        {name.removeprefix("config."): v for name, v in settings.items()},
        {str(k): str(v) for k, v in versions.items()} if isinstance(versions, dict) else {},
        len(corpus) if isinstance(corpus, dict) else 0,
        read_curve(folder.curve) if folder.curve.exists() else [],
        _read_differences(folder.labels),
        ended.results if ended else None,
        folder.policy if folder.policy.exists() else None,
        frozenset(validation),
    )


def read_curve(path: Path) -> list[Point]:
    """Reads a training run's `curve.jsonl`. Raises CompareError that names the line."""
    remedy = f"{_REMEDY}, or name a folder of `cop train policy`"
    try:
        lines = read_input(path).splitlines()
    except OSError as error:
        raise CompareError(f"{path}: {error.strerror}; {remedy}") from error
    points = []
    for number, line in enumerate(lines, 1):
        try:
            row = decode(line, _Row, f"{path}:{number}")
            points.append(Point(row.generation, curve_values(parse_json(line))))
        except JsonError as error:
            raise CompareError(f"{error}; {remedy}") from error
    return points


def find_modules(paths: Sequence[Path]) -> list[Module]:
    """The modules of corpora, each once.

    Args:
      paths: of corpora, or of folders that hold some, two levels below at most.

    Raises:
      CorpusError: a corpus is damaged, or there is none.
    """
    modules: dict[str, Module] = {}
    for path in paths:
        levels = ("", "*/", "*/*/")
        found = [file for one in levels for file in sorted(path.glob(f"{one}{DESCRIPTION}"))]
        # Where there is none, reading tells what is expected.
        for corpus in [file.parent for file in found] or [path]:
            modules |= {module.name: module for module in Corpus.load(corpus).modules}
    return [modules[name] for name in sorted(modules)]


def _texts(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _flat(name: str, value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        return [(name, value)]
    prefix = f"{name}." if name else ""
    return [one for key, own in value.items() for one in _flat(f"{prefix}{key}", own)]


def _read_ended(path: Path) -> _Ended | None:
    try:
        return decode(read_input(path), _Ended, path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CompareError(f"{path}: {error.strerror}") from error
    except JsonError as error:
        raise CompareError(f"{error}; {_REMEDY}") from error


def _read_differences(path: Path) -> dict[int, npt.NDArray[np.float64]]:
    found: dict[int, list[npt.NDArray[np.float64]]] = {}
    for file in sorted(path.glob("*/**/*.npz")):
        number = file.relative_to(path).parts[0]
        if number.isdecimal():
            found.setdefault(int(number), []).append(read_labels(file).difference)
    return {number: np.concatenate(found[number]) for number in sorted(found)}
