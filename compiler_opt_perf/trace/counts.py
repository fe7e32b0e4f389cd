# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Executions of the blocks of a trace."""

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.run.progress import Progress
from compiler_opt_perf.trace.trace_file import Trace


def block_counts(trace: Trace) -> npt.NDArray[np.int64]:
    """How often each block was executed [B]; gaps are not counted. Raises TraceError."""
    counts = np.zeros(len(trace.table) + 1, np.int64)
    total = trace.total
    with Progress("blocks read", total) as progress:
        for stream in trace.streams.values():
            for numbers in trace.pieces(stream):
                counts += np.bincount(numbers, minlength=len(counts))
                progress.advance(len(numbers))
    return counts[:-1]
