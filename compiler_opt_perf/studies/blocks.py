# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares predicted with measured cycles of basic blocks, and two measurings of the same blocks.

Predictions are of llvm-mca, of the evaluators of cycles without a profile, and of the number of
instructions alone. The evaluators replay a run that is made up: each block, copied until it has so
many instructions that the context of a window is one of those, is executed once, after itself.
"""

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import iced_x86
import numpy as np
import numpy.typing as npt

from compiler_opt_perf.binary.elf import build_id
from compiler_opt_perf.cost.block_file import MeasuredBlocks, Row, read_blocks
from compiler_opt_perf.cost.cpu_files import llvm_name
from compiler_opt_perf.cost.evaluator import EVALUATORS, Context
from compiler_opt_perf.cost.measure_blocks import sampled
from compiler_opt_perf.execution.command import run_command
from compiler_opt_perf.execution.llvm import stock_tool
from compiler_opt_perf.execution.pool import Pool
from compiler_opt_perf.learned.judge import HEAD, figures, groups, left_out
from compiler_opt_perf.learned.model import load
from compiler_opt_perf.studies.common import StudyError
from compiler_opt_perf.traces.block_table import read_block_table
from compiler_opt_perf.traces.trace_file import (
    WINDOWS,
    Description,
    write_end,
    write_record,
    write_start,
)
from compiler_opt_perf.traces.windows import FORMAT as WINDOWS_FORMAT
from compiler_opt_perf.traces.windows import SUFFIX, to_leb128

Floats = npt.NDArray[np.float64]

_BATCH = 250
# As the context of a window has at most.
_INSTRUCTIONS = 100
_WINDOW = 2
_MCA_ITERATIONS = 100
_REPLAYED = ("mca", "mca-pmu")
PREDICTORS = ("llvm-mca", *_REPLAYED)
_CLOSE, _NEAR = 0.01, 0.05
_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class _Job:
    """Blocks to predict.

    Attributes:
      codes: hexadecimal digits.
      mcpu: LLVM's name of the CPU.
      tool: llvm-trace-cost.
      cpu: CPU file.
    """

    codes: Sequence[str]
    mcpu: str
    tool: Path
    cpu: Path


def study(
    files: Sequence[Path],
    again: Sequence[Path],
    *,
    tool: Path,
    cpu: Path,
    most: int,
    seed: int,
    model: Path | None = None,
) -> str:
    """The tables, in Markdown.

    Args:
      files: of measured blocks.
      again: of the same blocks, measured once more.
      tool: llvm-trace-cost.
      cpu: CPU file.
      most: blocks of each file that are predicted, drawn at random.
      seed: of that draw.
      model: folder of a learned cost model, which then predicts, too; only blocks that it was not
        trained on are drawn.

    Raises:
      StudyError: a file has no measured blocks, or was measured on another CPU than `cpu`.
      BlockFileError, JsonError: a file is damaged.
      CommandError: a tool failed.
    """
    read = {path.stem: read_blocks(path) for path in files}
    mcpu = llvm_name(cpu)
    for name, blocks in read.items():
        _require(name, blocks, mcpu)
    parts = [_yields(read)]
    second = [row for path in again for row in read_blocks(path).measured()]
    if second:
        parts.append(_repeated(read, second))
    results = {}
    learned = load(model) if model else None
    for name, blocks in read.items():
        measured = blocks.measured()
        if learned:
            measured = left_out(measured, learned.config)
        rows = sampled(measured, most, seed)
        codes = [row.code for row in rows]
        predictions = _predictions(codes, mcpu, tool, cpu, name)
        if learned:
            with Pool() as pool:
                found, _ = learned.predict(list(map(bytes.fromhex, codes)), mcpu, None, pool)
            predictions[learned.config.name] = found
        results[name] = (rows, predictions)
    parts.append(_judged(results))
    return "\n".join(parts)


def _require(name: str, blocks: MeasuredBlocks, mcpu: str) -> None:
    if not blocks.measured():
        raise StudyError(f"{name}: no block of it was measured")
    if blocks.cpu is not None and blocks.cpu.mcpu != mcpu:
        raise StudyError(
            f"{name}: measured on a {blocks.cpu.mcpu}, and the CPU file is of a {mcpu}; give --cpu"
        )


def _yields(read: Mapping[str, MeasuredBlocks]) -> str:
    """How many blocks were measured, and why others were not."""
    reasons = sorted({reason for blocks in read.values() for reason in blocks.dropped()})
    lines = ["| | " + " | ".join(read) + " |", "|---|" + "---|" * len(read)]

    def line(name: str, counts: Sequence[int]) -> str:
        totals = [len(blocks.rows) for blocks in read.values()]
        cells = [f"{n:,} ({n / of:.2%})" for n, of in zip(counts, totals, strict=True)]
        return f"| {name} | " + " | ".join(cells) + " |"

    lines.append(line("distinct blocks", [len(blocks.rows) for blocks in read.values()]))
    lines.append(line("measured", [len(blocks.measured()) for blocks in read.values()]))
    lines += [
        line(f"dropped: {reason}", [blocks.dropped().get(reason, 0) for blocks in read.values()])
        for reason in reasons
    ]
    return "\n".join(lines) + "\n"


def _repeated(read: Mapping[str, MeasuredBlocks], second: Sequence[Row]) -> str:
    """How far two measurings of the same blocks agree."""
    known = {row.code: row for row in second}
    lines = [
        "| measured twice | blocks | within 1% | within 5% | half of them differ by less than |",
        "|---|---|---|---|---|",
    ]
    for name, blocks in read.items():
        pairs = [(row, known[row.code]) for row in blocks.measured() if row.code in known]
        sure = [pair for pair in pairs if all(2 * one.agreeing >= one.rounds for one in pair)]
        for what, chosen in ((name, pairs), (f"{name}, half of the rounds agree", sure)):
            if chosen:
                cycles = np.array([[one.cycles for one in pair] for pair in chosen], np.float64)
                change = np.abs(cycles[:, 0] / cycles[:, 1] - 1)
                shares = [f"{np.mean(change < limit):.2%}" for limit in (_CLOSE, _NEAR)]
                cells = [what, f"{len(chosen):,}", *shares, f"{np.median(change):.2%}"]
                lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _judged(results: Mapping[str, tuple[Sequence[Row], Mapping[str, Floats]]]) -> str:
    """Errors and rank correlation of the predictions."""
    lines = []
    for name, (rows, predictions) in results.items():
        measured = np.array([row.cycles for row in rows], np.float64)
        pages = np.array([row.pages for row in rows])
        for what, group in groups(name, pages).items():
            for predictor, predicted in predictions.items():
                lines.append(figures(predicted[group], measured[group]).row(what, predictor))
    return HEAD + "\n".join(lines) + "\n"


def _predictions(
    codes: Sequence[str], mcpu: str, tool: Path, cpu: Path, label: str
) -> dict[str, Floats]:
    """Cycles of an execution by predictor, [blocks] each; NaN where there is no prediction."""
    jobs = [
        _Job(codes[start : start + _BATCH], mcpu, tool, cpu)
        for start in range(0, len(codes), _BATCH)
    ]
    with Pool() as pool:
        outcomes = pool.map(_predict, jobs, label=f"{label}, {_BATCH} blocks at a time")
    found = [outcome.get() for outcome in outcomes]
    predictions = {name: np.concatenate([one[name] for one in found]) for name in PREDICTORS}
    sizes = np.array([_instructions(code) for code in codes], np.float64)
    return {**predictions, "a quarter of a cycle an instruction": sizes / 4}


def _instructions(code: str) -> int:
    return sum(1 for _ in iced_x86.Decoder(64, bytes.fromhex(code)))


def _predict(job: _Job) -> dict[str, Floats]:
    sizes = [_instructions(code) for code in job.codes]
    copies = [-(-_INSTRUCTIONS // size) for size in sizes]
    with tempfile.TemporaryDirectory(prefix="blocks-") as scratch:
        folder = Path(scratch)
        binary = _assemble(job.codes, copies, folder)
        found = {"llvm-mca": _mca(binary, sizes, job.mcpu, folder)}
        trace = _trace(binary, folder)
        context = Context(tool=job.tool, trace=trace, cpu=job.cpu, threads=1)
        for name in _REPLAYED:
            cost = EVALUATORS[name].cost([binary], context)
            cycles = [cost.parts.get(_name(number), np.nan) for number in range(len(sizes))]
            found[name] = np.array(cycles) / copies
    return found


def _name(number: int) -> str:
    return f"block{number}"


def _assemble(codes: Sequence[str], copies: Sequence[int], folder: Path) -> Path:
    """A binary with a function of one machine block for each: its copies in a row."""
    lines = [".text"]
    for number, (code, count) in enumerate(zip(codes, copies, strict=True)):
        text = ",".join(f"0x{byte:02x}" for byte in bytes.fromhex(code))
        name = _name(number)
        lines += [f".globl {name}", f".type {name},@function", f"{name}:", f".rept {count}"]
        lines += [f".byte {text}", ".endr", f".Lend{number}:", f".size {name},.Lend{number}-{name}"]
    lines.append('.section .llvm_bb_addr_map,"o",@llvm_bb_addr_map,.text')
    for number in range(len(codes)):
        name = _name(number)
        # Version, features, address, one block with number, offset, size and properties.
        lines += [".byte 5", ".short 0", f".quad {name}", ".byte 1, 0, 0"]
        lines += [f".uleb128 .Lend{number}-{name}", ".byte 0"]
    (folder / "blocks.s").write_text("\n".join(lines) + "\n")
    run_command([stock_tool("clang"), "-c", "blocks.s", "-o", "blocks.o"], cwd=folder)
    options = ["--entry=0", "--build-id"]
    run_command([stock_tool("ld.lld"), *options, "blocks.o", "-o", "blocks"], cwd=folder)
    return folder / "blocks"


def _trace(binary: Path, folder: Path) -> Path:
    """A window histogram of a run in which each block follows itself once."""
    table = read_block_table(binary)
    path = folder / f"blocks{SUFFIX}"
    description = Description(binary.name, build_id(binary), (binary.name,), "made up")
    more = {"window": _WINDOW, "total": len(table)}
    codes = [number for block in range(len(table)) for number in (1, block << 1, 0)]
    with path.open("wb") as stream:
        write_start(stream, description, table, WINDOWS_FORMAT, more)
        write_record(stream, WINDOWS, to_leb128(codes), count=len(table))
    write_end(path)
    return path


def _mca(binary: Path, sizes: Sequence[int], mcpu: str, folder: Path) -> Floats:
    """What llvm-mca says: a hundredth of the cycles of 100 executions, as BHive has it."""
    listed = run_command(
        [stock_tool("llvm-objdump"), "-d", "--no-show-raw-insn", "--no-leading-addr", binary]
    ).stdout
    text = []
    for function in re.split(r"^<(?=block\d+>:)", listed, flags=re.MULTILINE)[1:]:
        name, _, body = function.partition(">:\n")
        lines = [line.partition("#")[0].rstrip() for line in body.splitlines() if line.strip()]
        size = sizes[int(name.removeprefix("block"))]
        text += [f"# LLVM-MCA-BEGIN {name}", *lines[:size], f"# LLVM-MCA-END {name}"]
    (folder / "blocks.mca.s").write_text("\n".join(text) + "\n")
    options = [f"-mcpu={mcpu}", f"-iterations={_MCA_ITERATIONS}", "-instruction-info=0"]
    options += ["-resource-pressure=0", "-skip-unsupported-instructions=any"]
    command: list[str | Path] = [
        stock_tool("llvm-mca"),
        "-mtriple=x86_64",
        *options,
        folder / "blocks.mca.s",
    ]
    said = run_command(command, timeout_s=_TIMEOUT_S).stdout
    cycles = np.full(len(sizes), np.nan)
    for region in re.split(r"^\[\d+\] Code Region - block", said, flags=re.MULTILINE)[1:]:
        total = re.search(r"^Total Cycles:\s+(\d+)$", region, re.MULTILINE)
        if total:
            cycles[int(region.split()[0])] = int(total[1]) / _MCA_ITERATIONS
    return cycles
