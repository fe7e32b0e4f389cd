# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A reader to fuzz, and inputs that several readers share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.inputs import Make
from tests.fuzz.mutations import REPLACEMENTS
from tests.fuzz.runners import LIMIT_S, Runner

#: Files of a PMU profile, a trace and a window histogram, each with its kind of damage.
PROFILE = {
    "one.pmu.json": "json",
    "one.functions": "bytes",
    "one.pmu.index": "bytes",
    "one.sources.json": "json",
    "one.*.afdo": "bytes",
}
TRACE = {"run.bbtrace": "trace"}
WINDOWS = {"run.bbwindows": "trace"}
#: Replacements for LLVM's tools, which read pipes and devices for ever.
NO_PIPES = tuple(kind for kind in REPLACEMENTS if kind not in ("pipe", "endless"))


@dataclass(frozen=True)
class Target:
    """One reader.

    Attributes:
      name: its name in the table.
      make: makes the sound inputs.
      damaged: pattern of files to damage -> kind of damage, a key of mutations.DAMAGES.
      run: runs the reader.
      inputs: number of damaged inputs in a full run.
      seal: corrects checksums after the damage, so that the reader gets past them.
      replacements: kinds of objects that may replace a file.
      limit_s: time limit of a run, in seconds.
    """

    name: str
    make: Make
    damaged: Mapping[str, str]
    run: Runner
    inputs: int = 60
    seal: Callable[[Path], None] = field(default=lambda folder: None)
    replacements: Sequence[str] = REPLACEMENTS
    limit_s: float = LIMIT_S
