# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""All verbs: each turns flags into one call of the package.

Imports of the floors below are inside the functions, so that `cop --help` and the light verbs do
not wait for TensorFlow.
"""

from compiler_opt_perf.cli import (
    corpus_verbs,
    cost_model_verbs,
    cost_verbs,
    gate_bisect_verbs,
    gate_history_verbs,
    gate_verbs,
    profile_verbs,
    program_verbs,
    report_verbs,
    toolchain_verbs,
    trace_verbs,
    training_verbs,
)
from compiler_opt_perf.cli.verb import Verb

VERBS: tuple[Verb, ...] = (
    *toolchain_verbs.VERBS,
    *program_verbs.VERBS,
    *profile_verbs.VERBS,
    *trace_verbs.VERBS,
    *cost_verbs.VERBS,
    *cost_model_verbs.VERBS,
    *corpus_verbs.VERBS,
    *training_verbs.VERBS,
    *report_verbs.VERBS,
    *gate_verbs.VERBS,
    *gate_bisect_verbs.VERBS,
    *gate_history_verbs.VERBS,
)
