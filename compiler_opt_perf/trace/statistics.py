# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Computes statistics of a trace and formats them as text and JSON values."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.run.progress import Progress
from compiler_opt_perf.trace.trace_file import Trace


def block_counts(trace: Trace) -> npt.NDArray[np.int64]:
    """Counts the executions of each block, [B] int64, without gaps. Raises TraceError."""
    counts = np.zeros(len(trace.table) + 1, np.int64)
    with Progress("blocks read", trace.total) as progress:
        for stream in trace.streams.values():
            for numbers in trace.pieces(stream):
                counts += np.bincount(numbers, minlength=len(counts))
                progress.advance(len(numbers))
    return counts[:-1]


@dataclass(frozen=True)
class HotFunction:
    """The executions of one function.

    Attributes:
      name: linkage name.
      executions: sum of the executions of its blocks.
      share: its share of all executions in the trace, 0 to 1.
      blocks: number of its executed blocks.
      all_blocks: number of all its blocks.
      code_bytes: size of its executed blocks, bytes.
    """

    name: str
    executions: int
    share: float
    blocks: int
    all_blocks: int
    code_bytes: int

    def document(self) -> dict[str, Any]:
        """The fields as JSON values; `all_blocks` is called "of"."""
        fields = dataclasses.asdict(self)
        return {"of" if name == "all_blocks" else name: value for name, value in fields.items()}


@dataclass(frozen=True)
class Statistics:
    """Statistics of a trace.

    Attributes:
      trace: the trace.
      counts: [B] int64, executions of each block.
      functions: executed functions, by falling executions.
    """

    trace: Trace
    counts: npt.NDArray[np.int64]
    functions: tuple[HotFunction, ...]

    @classmethod
    def read(cls, trace: Trace) -> Self:
        """Computes the statistics of a trace. Raises TraceError when it is damaged."""
        table, counts = trace.table, block_counts(trace)
        number = len(table.names)
        executed = counts > 0
        executions = np.bincount(table.function, counts, number)
        blocks = np.bincount(table.function, executed, number)
        all_blocks = np.bincount(table.function, minlength=number)
        code = np.bincount(table.function, executed * table.size, number)
        total = max(1, int(counts.sum()))
        order = sorted(np.flatnonzero(blocks), key=lambda f: (-executions[f], f))
        functions = tuple(
            HotFunction(
                table.names[f],
                int(executions[f]),
                float(executions[f]) / total,
                int(blocks[f]),
                int(all_blocks[f]),
                int(code[f]),
            )
            for f in order
        )
        return cls(trace, counts, functions)

    @property
    def total(self) -> int:
        """Number of executed blocks."""
        return int(self.counts.sum())

    @property
    def running(self) -> npt.NDArray[np.int64]:
        """Cumulative executions of the executed blocks, hottest first; int64."""
        return np.cumsum(np.sort(self.counts[self.counts > 0])[::-1])

    def hottest(self, share: float) -> int:
        """Returns the smallest number of blocks that make up `share` of all executions."""
        return int(np.searchsorted(self.running, share * self.total)) + 1 if self.total else 0

    def summary(self) -> str:
        """Formats a few lines about the whole trace."""
        trace, table = self.trace, self.trace.table
        size = trace.path.stat().st_size
        executed = self.counts > 0
        state = "whole" if trace.complete else "cut off (killed or truncated)"
        description = trace.description
        lines = [
            f"program    {description.program}, build-id {description.build_id}",
            f"command    {' '.join(description.command)}",
            f"recorded   by {description.tool}; the file is {state}"
            + (", a trace of fragments" if description.fragments else ""),
            f"executed   {self.total:,} blocks in {len(trace.streams)} streams; "
            f"{size:,} bytes, {size / max(1, self.total):.3f} a block",
            f"distinct   {int(executed.sum()):,} of {len(table):,} blocks, "
            f"{int(table.size[executed].sum()):,} bytes of code, "
            f"in {len(self.functions):,} of {len(table.names):,} functions; "
            f"{self.hottest(0.9):,} blocks make up 90%, {self.hottest(0.99):,} 99%",
        ]
        return "\n".join(lines) + "\n"

    def text(self, top: int) -> str:
        """Formats the summary, the streams and the `top` most executed functions."""
        lines = [self.summary(), "   stream      pid      tid           blocks  state"]
        for stream in self.trace.streams.values():
            state = "ended" if stream.ended else "killed: its last blocks are missing"
            lines.append(
                f"{stream.number:9} {stream.pid:8} {stream.tid:8} {len(stream):16,}  {state}"
            )
        lines += ["", "    share       executions      blocks     bytes  function"]
        for hot in self.functions[:top]:
            lines.append(
                f"  {hot.share:6.2%} {hot.executions:16,} {hot.blocks:5} / {hot.all_blocks:<4} "
                f"{hot.code_bytes:7,}  {hot.name}"
            )
        return "\n".join(lines) + "\n"

    def summary_document(self) -> dict[str, Any]:
        """Returns the content of `summary` as JSON values."""
        trace, table, executed = self.trace, self.trace.table, self.counts > 0
        description = trace.description
        return {
            "trace": str(trace.path),
            "bytes": trace.path.stat().st_size,
            "program": {"path": description.program, "build_id": description.build_id},
            "command": list(description.command),
            "tool": description.tool,
            "complete": trace.complete,
            "fragments": description.fragments,
            "stream_count": len(trace.streams),
            "executed_blocks": self.total,
            "distinct_blocks": int(executed.sum()),
            "blocks": len(table),
            "executed_code_bytes": int(table.size[executed].sum()),
            "executed_functions": len(self.functions),
            "functions": len(table.names),
            "blocks_of_90_percent": self.hottest(0.9),
            "blocks_of_99_percent": self.hottest(0.99),
        }

    def document(self, top: int) -> dict[str, Any]:
        """Returns the content of `text` as JSON values."""
        return {
            **self.summary_document(),
            "streams": [
                {
                    "stream": stream.number,
                    "pid": stream.pid,
                    "tid": stream.tid,
                    "blocks": len(stream),
                    "ended": stream.ended,
                }
                for stream in self.trace.streams.values()
            ],
            "hot_functions": [hot.document() for hot in self.functions[:top]],
        }


def list_blocks(trace: Trace, stream: int, first: int, number: int) -> list[dict[str, Any]]:
    """Returns `number` blocks of a stream from place `first` on, as JSON values.

    Each has its `place` in the stream and its `block`. Blocks, but not gaps, have `address` and
    `bytes`.

    Raises:
      TraceError: the stream is missing, or the trace is damaged.
    """
    blocks: list[dict[str, Any]] = []
    table = trace.table
    for numbers in trace.part(trace.stream(stream), first, first + number):
        for block in numbers.tolist():
            entry: dict[str, Any] = {"place": first + len(blocks), "block": table.describe(block)}
            if block != len(table):
                entry["address"] = int(table.address[block])
                entry["bytes"] = int(table.size[block])
            blocks.append(entry)
    return blocks


def format_blocks(blocks: Sequence[Mapping[str, Any]]) -> str:
    """Formats the blocks of `list_blocks` as text, one line each."""
    lines = [f"{'place':>12}  {'address':>10}  {'bytes':>5}  block"]
    for block in blocks:
        address = f"{block['address']:#x}" if "address" in block else ""
        lines.append(
            f"{block['place']:12,}  {address:>10}  {block.get('bytes', ''):>5}  {block['block']}"
        )
    return "\n".join(lines) + "\n"
