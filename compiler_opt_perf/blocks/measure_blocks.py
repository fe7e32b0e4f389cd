# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures basic blocks on this machine's CPU without performance counters (docs/cost.md).

measure_blocks.c runs the blocks. This module distributes them to workers, and keeps results in a
journal beside the output, so that an interrupted run can be resumed.
"""

import contextlib
import os
import random
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
from absl import logging

from compiler_opt_perf.blocks.block_code import Block, request
from compiler_opt_perf.blocks.block_file import (
    Cpu,
    MeasuredBlock,
    MeasuredBlocks,
    encoded,
    write_blocks,
)
from compiler_opt_perf.blocks.cpu_files import host_cpu
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import atomic_write, read_input
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.seeds import derive_seed

T = TypeVar("T")

SOURCE = Path(__file__).with_name("measure_blocks.c")
#: Number of blocks that a worker measures at a time.
BATCH = 100
# The relative difference of NOP cycles between two calls of `least_nop`.
_NOP_TOLERANCE = 0.06
_WORKERS_PER_CORE = 3


class MeasureError(UserError):
    """Blocks cannot be measured on this machine; the message gives the reason."""


class _Head(msgspec.Struct, frozen=True):
    """The first line of a journal."""

    cpu: Cpu
    nop_cycles: float


@dataclass(frozen=True)
class _Batch:
    program: Path
    nop_cycles: float
    blocks: Sequence[Block]


def measure_blocks(
    blocks: Sequence[Block],
    output: Path,
    *,
    workers: int | None = None,
    label: str | None = None,
) -> MeasuredBlocks:
    """Measures blocks; writes and returns the results.

    The journal is OUTPUT.part. Blocks in the journal of an earlier run are not measured again.

    Args:
      blocks: the blocks.
      output: file to write.
      workers: number of workers; None for a default.
      label: title of the progress display; None shows none.

    Raises:
      MeasureError: this is not an x86-64 machine; or the journal is damaged, or of another CPU.
      CommandError: the program that runs blocks does not compile or work here.
      FileWriteError: the output cannot be written.
    """
    cpu = present_cpu()
    with tempfile.TemporaryDirectory(prefix="measure-blocks-") as folder:
        program = build_runner(Path(folder))
        head = _Head(cpu, least_nop(program))
        journal = output.with_name(f"{output.name}.part")
        head, known = _resume(journal, head)
        keys = [_key(block.code.hex(), dict(block.pmu)) for block in blocks]
        left = [block for block, key in zip(blocks, keys, strict=True) if key not in known]
        batches = [
            _Batch(program, head.nop_cycles, left[start : start + BATCH])
            for start in range(0, len(left), BATCH)
        ]
        # Workers mostly wait until their core is otherwise idle.
        workers = workers or _WORKERS_PER_CORE * len(os.sched_getaffinity(0))
        with Pool(workers) as pool, journal.open("ab", buffering=0) as stream:

            def keep(_: _Batch, rows: Sequence[MeasuredBlock]) -> None:
                stream.write(b"".join(map(encoded, rows)))
                known.update((_key(row.code, row.pmu), row) for row in rows)

            for outcome in pool.map(_measure, batches, label=label, keep=keep):
                outcome.get()
    rows = [_placed(known[key], block) for block, key in zip(blocks, keys, strict=True)]
    measured = MeasuredBlocks(head.cpu, head.nop_cycles, rows)
    write_blocks(output, measured)
    journal.unlink()
    return measured


def sampled(blocks: Sequence[T], most: int | None, seed: int) -> list[T]:
    """Draws at most `most` blocks at random; None draws all.

    A smaller `most` gives a prefix, so that a run that takes too long can be ended with fewer
    blocks.
    """
    drawn = list(blocks)
    random.Random(derive_seed(seed, "measured blocks")).shuffle(drawn)
    return drawn[:most]


def build_runner(folder: Path) -> Path:
    """Compiles the program that runs blocks into a folder. Raises CommandError."""
    program = folder / "measure_blocks"
    run_command([stock_tool("clang"), "-O2", SOURCE, "-lm", "-o", program])
    return program


def least_nop(program: Path) -> float:
    """Measures the cycles of a NOP on an otherwise idle core, for about a second."""
    return float(run_command([program]).stdout)


def present_cpu() -> Cpu:
    """This machine's CPU. Raises MeasureError: it is not an x86-64 CPU."""
    text = Path("/proc/cpuinfo").read_text()

    def field(name: str) -> str:
        found = re.search(rf"^{name}\s*:\s*(.+)$", text, re.MULTILINE)
        if not found:
            raise MeasureError(f"/proc/cpuinfo: no {name!r}; blocks are measured on x86-64 only")
        return found[1].strip()

    numbers = (int(field(name)) for name in ("cpu family", "model", "stepping"))
    return Cpu(field("model name"), host_cpu(), *numbers)


def _key(code: str, pmu: Mapping[str, Sequence[float | None]]) -> str:
    """The key of a block: its code and its PMU inputs."""
    return code + msgspec.json.encode(pmu, order="sorted").decode()


def _resume(journal: Path, head: _Head) -> tuple[_Head, dict[str, MeasuredBlock]]:
    """Reads the journal of an earlier run, or begins one; returns its head and its rows.

    A truncated last line is dropped. The earlier NOP cycles stay, so that all rows use one
    reference, unless they were measured on a busy core: then all rows are dropped.
    """
    rows: dict[str, MeasuredBlock] = {}
    if journal.exists():
        lines = read_input(journal).splitlines(keepends=True)
        try:
            earlier = msgspec.json.decode(lines[0] if lines else b"", type=_Head)
        except msgspec.DecodeError as error:
            raise MeasureError(
                f"{journal}:1: not the journal of an unfinished run ({error}); remove it, or take "
                "another --output"
            ) from error
        if earlier.cpu != head.cpu:
            raise MeasureError(
                f"{journal}: an unfinished run of another CPU, {earlier.cpu.name} "
                f"({earlier.cpu.mcpu}); finish it there, remove it, or take another --output"
            )
        if earlier.nop_cycles < head.nop_cycles * (1 + _NOP_TOLERANCE):
            head = earlier
            rows = {_key(row.code, row.pmu): row for row in _whole_rows(lines[1:])}
        else:
            logging.warning("%s: begun on a busy machine; all blocks are measured anew", journal)
    with atomic_write(journal) as temporary:
        temporary.write_bytes(b"".join(encoded(line) for line in (head, *rows.values())))
    return head, rows


def _whole_rows(lines: Sequence[bytes]) -> Iterator[MeasuredBlock]:
    with contextlib.suppress(msgspec.DecodeError):
        for line in lines:
            yield msgspec.json.decode(line, type=MeasuredBlock)


def _measure(batch: _Batch) -> list[MeasuredBlock]:
    requests = [
        (block.request, block.refused) if block.request or block.refused else request(block.code)
        for block in batch.blocks
    ]
    lines = [line for line, _ in requests if line]
    with tempfile.TemporaryFile() as stream:
        stream.write("".join(f"{line}\n" for line in lines).encode())
        stream.seek(0)
        command: list[str | Path] = [batch.program, str(batch.nop_cycles)]
        printed = run_command(command, stdin=stream).stdout.splitlines()
    answers = iter(printed)
    rows = []
    for block, (line, reason) in zip(batch.blocks, requests, strict=True):
        answer = next(answers) if line else f"dropped {reason}"
        row = _row(block.code.hex(), answer)
        rows.append(msgspec.structs.replace(row, pmu=dict(block.pmu)))
    return rows


def _row(code: str, answer: str) -> MeasuredBlock:
    """Parses an output line of measure_blocks.c, or "dropped REASON"."""
    word, _, rest = answer.partition(" ")
    if word == "dropped":
        return MeasuredBlock(code=code, dropped=rest)
    cycles, agreeing, rounds, pages = rest.split()
    return MeasuredBlock(
        code=code,
        cycles=float(cycles),
        agreeing=int(agreeing),
        rounds=int(rounds),
        pages=int(pages),
    )


def _placed(row: MeasuredBlock, block: Block) -> MeasuredBlock:
    """A row with the place and the occurrences of its block."""
    return msgspec.structs.replace(
        row,
        program=block.program,
        function=block.function,
        address=block.address,
        occurrences=block.occurrences,
    )


def describe(blocks: MeasuredBlocks) -> str:
    """The number of measured blocks, and of dropped blocks by reason, as text."""
    total = len(blocks.rows)
    counts = {"measured": len(blocks.measured()), **blocks.dropped()}
    rows = [
        f"{count:>9,}  {count / max(total, 1):>7.2%}  {name if place == 0 else f'dropped: {name}'}"
        for place, (name, count) in enumerate(counts.items())
    ]
    return "\n".join([f"{total:>9,}           distinct blocks", *rows]) + "\n"
