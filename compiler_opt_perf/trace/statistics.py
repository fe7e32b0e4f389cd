# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Statistics of a trace: numbers and text."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.trace.counts import block_counts
from compiler_opt_perf.trace.edit import part
from compiler_opt_perf.trace.errors import TraceError
from compiler_opt_perf.trace.trace_file import Stream, Trace


@dataclass(frozen=True)
class HotFunction:
    """What a trace holds of one function.

    Attributes:
      name: linkage name.
      executions: executions of its blocks, summed.
      share: of all executions of the trace.
      blocks: how many of its blocks were executed.
      of: how many blocks it has.
      code_bytes: size of its executed blocks, in bytes.
    """

    name: str
    executions: int
    share: float
    blocks: int
    of: int
    code_bytes: int


@dataclass(frozen=True)
class Statistics:
    """Statistics of a trace.

    Attributes:
      trace: the trace.
      counts: [B] int64, executions of each block.
      functions: the executed functions, by falling executions.
    """

    trace: Trace
    counts: npt.NDArray[np.int64]
    functions: tuple[HotFunction, ...]

    @classmethod
    def of(cls, trace: Trace) -> Self:
        """Reads a trace. Raises TraceError when it is damaged."""
        table, counts = trace.table, block_counts(trace)
        number = len(table.names)
        executed = counts > 0
        executions = np.bincount(table.function, counts, number)
        blocks = np.bincount(table.function, executed, number)
        of = np.bincount(table.function, minlength=number)
        code = np.bincount(table.function, executed * table.size, number)
        total = max(1, int(counts.sum()))
        order = sorted(np.flatnonzero(blocks), key=lambda f: (-executions[f], f))
        functions = tuple(
            HotFunction(
                table.names[f],
                int(executions[f]),
                float(executions[f]) / total,
                int(blocks[f]),
                int(of[f]),
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
        """[executed blocks] int64, executions of the 1, 2, 3, ... hottest blocks, summed."""
        return np.cumsum(np.sort(self.counts[self.counts > 0])[::-1])

    def hottest(self, share: float) -> int:
        """The smallest number of blocks that make up `share` of all executions."""
        return int(np.searchsorted(self.running, share * self.total)) + 1 if self.total else 0

    def summary(self) -> str:
        """A few lines about the whole trace."""
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
        """The summary, the streams and the `top` most executed functions."""
        lines = [self.summary(), "   stream      pid      tid           blocks  state"]
        for stream in self.trace.streams.values():
            state = "ended" if stream.ended else "killed: its last blocks are missing"
            lines.append(
                f"{stream.number:9} {stream.pid:8} {stream.tid:8} {len(stream):16,}  {state}"
            )
        lines += ["", "    share       executions      blocks     bytes  function"]
        for hot in self.functions[:top]:
            lines.append(
                f"  {hot.share:6.2%} {hot.executions:16,} {hot.blocks:5} / {hot.of:<4} "
                f"{hot.code_bytes:7,}  {hot.name}"
            )
        return "\n".join(lines) + "\n"

    def summary_document(self) -> dict[str, Any]:
        """What `summary` says, as JSON values."""
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
        """What `text` says, as JSON values."""
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
            "hot_functions": [dataclasses.asdict(hot) for hot in self.functions[:top]],
        }


def listed(trace: Trace, stream: int, first: int, number: int) -> list[dict[str, Any]]:
    """`number` blocks of a stream from the one at `first` on, as JSON values.

    Each has its `place` in the stream and the `block`, and if that is none of a gap, `address` and
    `bytes`.

    Raises:
      TraceError: there is no such stream, or the trace is damaged.
    """
    found: Stream | None = trace.streams.get(stream)
    if found is None:
        raise TraceError(
            f"{trace.path}: has no stream {stream}; there are {', '.join(map(str, trace.streams))}"
        )
    blocks: list[dict[str, Any]] = []
    table = trace.table
    for numbers in part(trace, found, first, first + number):
        for block in numbers.tolist():
            entry: dict[str, Any] = {"place": first + len(blocks), "block": table.describe(block)}
            if block != len(table):
                entry["address"] = int(table.address[block])
                entry["bytes"] = int(table.size[block])
            blocks.append(entry)
    return blocks


def listing(blocks: Sequence[Mapping[str, Any]]) -> str:
    """What `listed` found as text, a line each."""
    lines = [f"{'place':>12}  {'address':>10}  {'bytes':>5}  block"]
    for block in blocks:
        address = f"{block['address']:#x}" if "address" in block else ""
        lines.append(
            f"{block['place']:12,}  {address:>10}  {block.get('bytes', ''):>5}  {block['block']}"
        )
    return "\n".join(lines) + "\n"
