# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Labels of single decisions as a file keeps them, and as rows to learn from.

Pool workers import this: nothing here loads TensorFlow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.policy.arrays import (
    ArraysError,
    read_arrays,
    require_vector,
    write_arrays,
)
from compiler_opt_perf.policy.problem import Problem
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import atomic_write


class LabelsError(UserError):
    """A file of labels that cannot be used."""


@dataclass(frozen=True)
class Labels:
    """The tested decisions of one module, in the order in which the policy took them.

    Attributes:
      module: its name.
      keys: the keys of the decisions (docs/reference/features.md).
      observations: [decisions], structured: the logged tensors.
      logged: the same of some hundred decisions drawn from all that the policy took, labelled or
        not.
      difference: float64 [decisions], bytes of the module with the decision taken the other way,
        less bytes as it is; copies count as parts.
      bytes: size of the module as it is; copies count as parts.
      compilations: that it took.
    """

    module: str
    keys: tuple[str, ...]
    observations: npt.NDArray[np.void]
    logged: npt.NDArray[np.void]
    difference: npt.NDArray[np.float64]
    bytes: float
    compilations: int


def write_labels(path: Path, labels: Labels) -> None:
    """Keeps them in a file. Raises FileWriteError."""
    with atomic_write(path) as temporary:
        write_arrays(
            temporary,
            compressed=True,
            module=np.array(labels.module),
            keys=np.array(labels.keys, str),
            observations=labels.observations,
            logged=labels.logged,
            difference=labels.difference,
            bytes=np.array(labels.bytes),
            compilations=np.array(labels.compilations),
        )


def read_labels(path: Path) -> Labels:
    """Reads a file that `write_labels` wrote.

    Raises:
      LabelsError: missing or damaged.
    """
    try:
        arrays = read_arrays(path, [field.name for field in fields(Labels)])
        _require_labels(arrays)
        return Labels(
            str(arrays["module"]),
            tuple(arrays["keys"].tolist()),
            arrays["observations"],
            arrays["logged"],
            arrays["difference"],
            float(arrays["bytes"]),
            int(arrays["compilations"]),
        )
    except (ArraysError, TypeError, ValueError, SystemError) as error:
        # The last one is numpy's of what is no character.
        raise LabelsError(f"{path}: damaged ({error}); remove it to label again") from error


def _require_labels(arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Raises ArraysError where the arrays are no labels."""
    count = arrays["keys"].size
    require_vector("difference", arrays["difference"], "float64", count)
    require_vector("bytes", arrays["bytes"].reshape(-1), "float64", 1)
    texts = (arrays["keys"].ndim, arrays["module"].ndim) == (1, 0)
    if not texts or {arrays["keys"].dtype.kind, arrays["module"].dtype.kind} != {"U"}:
        raise ArraysError("keys and module are expected to be text")
    count_type = arrays["compilations"].dtype
    if count_type.kind != "i" or arrays["compilations"].shape != ():
        raise ArraysError(f"compilations is {count_type}, expected a whole number")
    for name in ("observations", "logged"):
        if arrays[name].dtype.names is None or arrays[name].ndim != 1:
            raise ArraysError(f"{name} is {arrays[name].dtype}, expected records")
    if len(arrays["observations"]) != count:
        raise ArraysError(f"{len(arrays['observations'])} observations of {count} decisions")


def labelled_rows(
    problem: Problem, labels: Sequence[Labels], *, with_pmu: bool = False
) -> tuple[dict[str, npt.NDArray[np.int64]], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Labels as rows to learn from.

    Args:
      with_pmu: the PMU features are among the inputs.

    Returns:
      The inputs by feature, [rows] each; the advantage of deciding otherwise than the compiler,
      bytes saved, [rows]; the cross-validation groups (`groups_of`), [rows].

    Raises:
      LabelsError: a label lacks a feature.
    """
    inputs = _inputs(problem, [one.observations for one in labels], with_pmu)
    decided = np.concatenate([one.observations[problem.decision].reshape(-1) for one in labels])
    difference = np.concatenate([one.difference for one in labels])
    modules = [one.module for one in labels for _ in one.keys]
    # A difference is that of flipping the policy's decision, an advantage that of flipping the
    # compiler's own.
    is_default = decided == inputs[problem.default_feature]
    return inputs, np.where(is_default, -difference, difference), groups_of(modules)


def groups_of(modules: Sequence[str]) -> npt.NDArray[np.int64]:
    """The cross-validation group of each row: its program, or its module if there is one program.

    Args:
      modules: the name of each row's module.

    Returns:
      [rows], a number for each group.
    """
    programs = [name.split("/")[0] for name in modules]
    names = programs if len(set(programs)) > 1 else modules
    number = {name: i for i, name in enumerate(sorted(set(names)))}
    return np.array([number[name] for name in names], np.int64)


def logged_rows(
    problem: Problem, labels: Sequence[Labels], *, with_pmu: bool = False
) -> dict[str, npt.NDArray[np.int64]]:
    """The inputs of logged decisions, with and without a label, by feature, [rows] each.

    Raises as `labelled_rows`.
    """
    parts = [*(one.logged for one in labels), *(one.observations for one in labels)]
    return _inputs(problem, parts, with_pmu)


def _inputs(
    problem: Problem, parts: Sequence[npt.NDArray[np.void]], with_pmu: bool
) -> dict[str, npt.NDArray[np.int64]]:
    names = [feature.name for feature in problem.inputs(with_pmu)]
    # Logs without a decision may have another layout.
    columns = [_columns(problem, part, names) for part in parts if len(part)]
    return {name: np.concatenate([own[name] for own in columns]) for name in names}


def _columns(
    problem: Problem, part: npt.NDArray[np.void], names: Sequence[str]
) -> dict[str, npt.NDArray[np.int64]]:
    """Some features of a module's records, by name, [rows] each. Raises LabelsError."""
    # Modules of programs without a profile have no PMU features in their logs.
    own = problem.unprofiled_inputs(len(part))
    own |= {name: part[name] for name in part.dtype.names or ()}
    for name in names:
        if name not in own:
            raise LabelsError(
                f"labels without the feature {name}, of another version; remove the training's "
                "folder labels/ to label again"
            )
    return {name: np.asarray(own[name], np.int64).reshape(-1) for name in names}
