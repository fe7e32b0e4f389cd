# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The data of learned cost models: measured blocks, split into training, validation and test."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import iced_x86
import msgspec
import numpy as np
import numpy.typing as npt
from absl import logging

from compiler_opt_perf.blocks.block_code import canonical
from compiler_opt_perf.blocks.block_file import MeasuredBlock, MeasuredBlocks, read_blocks
from compiler_opt_perf.blocks.config import CostModelConfig, LearnedError
from compiler_opt_perf.blocks.graphs import PMU_INPUTS, Floats
from compiler_opt_perf.run.files import sha256
from compiler_opt_perf.run.seeds import derive_seed

TRAINING, VALIDATION, TEST = "training", "validation", "test"
#: A block with several purposes gets the last of them.
PURPOSES = (TRAINING, VALIDATION, TEST)
_SHARES = 1 << 32


@dataclass(frozen=True)
class DataFile:
    """A file of measured blocks.

    Attributes:
      path: the file.
      digest: its SHA-256.
      cpu: LLVM's name of the CPU.
      rows: the blocks that have cycles.
    """

    path: Path
    digest: str
    cpu: str
    rows: Sequence[MeasuredBlock]


def read_data(paths: Sequence[Path]) -> list[DataFile]:
    """Reads files of measured blocks.

    Raises:
      LearnedError: a file has no measured blocks, or does not name its CPU.
      BlockFileError, JsonError: a file is damaged.
    """
    found = []
    for path in paths:
        blocks: MeasuredBlocks = read_blocks(path)
        if blocks.cpu is None:
            raise LearnedError(
                f"{path}: does not name its CPU; give a file of cop cost measure-blocks"
            )
        rows = blocks.measured()
        if not rows:
            raise LearnedError(f"{path}: has no block with cycles; measure other blocks")
        found.append(DataFile(path, sha256(path), blocks.cpu.mcpu, rows))
    return found


def cpus_of(files: Sequence[DataFile]) -> tuple[str, ...]:
    """The CPUs of the files, sorted."""
    return tuple(sorted({file.cpu for file in files}))


@dataclass(frozen=True)
class Samples:
    """Blocks of all files, without duplicates.

    Attributes:
      codes: [blocks], bytes.
      cycles: float32 [blocks].
      cpus: int32 [blocks], index in `cpus_of(files)`.
      files: int32 [blocks], index of the file.
      programs: [blocks], names.
      pages: int32 [blocks], number of pages that the block touched.
      pmu: [blocks], PMU inputs of the instructions as in GraphBuilder.graphs; None if unknown.
      purposes: int8 [blocks], index in PURPOSES.
    """

    codes: Sequence[bytes]
    cycles: npt.NDArray[np.float32]
    cpus: npt.NDArray[np.int32]
    files: npt.NDArray[np.int32]
    programs: Sequence[str]
    pages: npt.NDArray[np.int32]
    pmu: Sequence[Floats | None]
    purposes: npt.NDArray[np.int8]

    def of_purpose(self, purpose: str) -> npt.NDArray[np.int64]:
        """The indices of blocks with a purpose."""
        return np.flatnonzero(self.purposes == PURPOSES.index(purpose))


def samples(files: Sequence[DataFile], config: CostModelConfig) -> Samples:
    """Reads the blocks of files, and assigns purposes.

    Blocks are duplicates if canonical code, CPU and PMU inputs are equal; the first is kept. All
    blocks of equal canonical code get the same purpose, the last in PURPOSES.

    Raises:
      LearnedError: a PMU input is unknown, or has a wrong number of values.
    """
    names = cpus_of(files)
    rows = [(number, row) for number, file in enumerate(files) for row in file.rows]
    keys = [canonical(bytes.fromhex(row.code)) for _, row in rows]
    purposes: dict[bytes, int] = {}
    for (_, row), key in zip(rows, keys, strict=True):
        purpose = PURPOSES.index(purpose_of(row.program, key, config))
        purposes[key] = max(purposes.get(key, 0), purpose)
    first: dict[tuple[int, bytes, bytes], tuple[int, MeasuredBlock]] = {}
    for (number, row), key in zip(rows, keys, strict=True):
        known = msgspec.json.encode(row.pmu, order="sorted")
        first.setdefault((names.index(files[number].cpu), key, known), (number, row))
    if len(first) < len(rows):
        logging.info("left out %d duplicate blocks", len(rows) - len(first))
    kept = [row for _, row in first.values()]
    pmu = [known_of(row, files[number].path) for number, row in first.values()]
    if config.shuffled_pmu:
        pmu = _shuffled(pmu, config.seed)
    return Samples(
        codes=[bytes.fromhex(row.code) for row in kept],
        cycles=np.array([row.cycles for row in kept], np.float32),
        cpus=np.array([cpu for cpu, *_ in first], np.int32),
        files=np.array([number for number, _ in first.values()], np.int32),
        programs=[row.program for row in kept],
        pages=np.array([row.pages for row in kept], np.int32),
        pmu=pmu,
        purposes=np.array([purposes[key] for _, key, _ in first], np.int8),
    )


def known_of(row: MeasuredBlock, path: Path) -> Floats | None:
    """The PMU inputs of a block's instructions, as in GraphBuilder.graphs; None if unknown.

    Raises:
      LearnedError: a PMU input is unknown, or has a wrong number of values; the message names
        `path`.
    """
    if not row.pmu:
        return None
    count = sum(1 for _ in iced_x86.Decoder(64, bytes.fromhex(row.code)))
    found = np.full((count, len(PMU_INPUTS)), np.nan, np.float32)
    for name, values in row.pmu.items():
        if name not in PMU_INPUTS or len(values) != count:
            raise LearnedError(
                f"{path}: block {row.code[:40]}: pmu: expected some of "
                f"{', '.join(PMU_INPUTS)}, {count} values each, found {name!r}, {len(values)}"
            )
        found[:, PMU_INPUTS.index(name)] = [np.nan if value is None else value for value in values]
    return found


def _shuffled(pmu: Sequence[Floats | None], seed: int) -> list[Floats | None]:
    """Shuffles PMU inputs among all instructions that have the same known inputs."""
    lengths = [0 if rows is None else len(rows) for rows in pmu]
    values = np.concatenate([np.zeros((0, len(PMU_INPUTS))), *(p for p in pmu if p is not None)])
    kinds = np.isfinite(values) @ (1 << np.arange(len(PMU_INPUTS)))
    random = np.random.default_rng(derive_seed(seed, "shuffled PMU"))
    for kind in np.unique(kinds):
        members = np.flatnonzero(kinds == kind)
        values[members] = values[random.permutation(members)]
    parts = np.split(values.astype(np.float32), np.cumsum(lengths)[:-1])
    return [None if rows is None else part for rows, part in zip(pmu, parts, strict=True)]


def purpose_of(program: str, key: bytes, config: CostModelConfig) -> str:
    """The purpose of a block, by its program; by its code if the program is a collection.

    Args:
      program: the block's program.
      key: the block's canonical code.
      config: split of the data.
    """
    if program in config.test_programs:
        return TEST
    if program in config.validation_programs:
        return VALIDATION
    if program not in config.mixed_programs:
        return TRAINING
    share = derive_seed(config.seed, "purpose", hashlib.sha256(key).hexdigest()) % _SHARES / _SHARES
    if share < config.test_share:
        return TEST
    return VALIDATION if share < config.test_share + config.validation_share else TRAINING
