# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""All groups of verbs: each verb turns flags into one call of the package.

Verbs import the rest of the package inside their functions, so that `cop --help` and the light
verbs do not wait for TensorFlow.
"""

import click

from compiler_opt_perf import __version__
from compiler_opt_perf.cli import (
    compare_verbs,
    corpus_verbs,
    cost_verbs,
    gate_bisect_verbs,
    policy_verbs,
    profile_verbs,
    toolchain_verbs,
    trace_verbs,
    train_verbs,
    try_verbs,
)
from compiler_opt_perf.cli.verb import Group

COP = Group(
    "cop",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help=f"compiler-opt-perf {__version__}: machine-learned optimisation in LLVM, with PMU data",
)
click.version_option(__version__, message="%(version)s")(COP)
COP.add_command(try_verbs.VERB)
for _group in (
    toolchain_verbs.toolchain,
    corpus_verbs.corpus,
    profile_verbs.profile,
    trace_verbs.trace,
    train_verbs.train,
    policy_verbs.policy,
    compare_verbs.compare,
    gate_bisect_verbs.gate,
    cost_verbs.cost,
):
    COP.add_command(_group)
