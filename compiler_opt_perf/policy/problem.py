# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The optimisation problems as data: features, decision, reward and compiler options.

The tables follow LLVM 22.1.8: `llvm/Analysis/InlineModelFeatureMaps.h` and
`lib/CodeGen/MLRegAllocEvictAdvisor.cpp` (RA_EVICT_FEATURES_LIST), in the compiler's order, then the
patched compiler's: what the default policy decides by, and with a profile its PMU features.
Everything else in the package reads these tables; adding a problem means adding a row to PROBLEMS.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.corpus.corpus import FRONTEND, OPTIMIZED

#: Candidates of one eviction decision: 32 registers in allocation order, then the live range that
#: asks for a register (LLVM's NumberOfInterferences).
EVICTION_COLUMNS = 33


#: The compiler feeds these features to models that take them; with this option, it logs and sends
#: them in any case.
_DECISION_FEATURES = "-mlgo-decision-features"


@dataclass(frozen=True)
class Feature:
    """One tensor that the compiler feeds to a policy.

    Attributes:
      name: the tensor's name in training logs; models name their input the same.
      dtype: "int64" or "float32".
      shape: (1,) for a scalar, (1, columns) for one value a candidate.
      unit_scale: a power of two that makes the smallest difference that matters about 1; the
        networks see a logarithm of `1 + unit_scale * |value|`.
      largest: the value that replaces larger ones and NaN.
      signed: the value may be negative.
      may_be_missing: the value is -1 where the profile has no data.
      unprofiled: the value of a PMU feature when the compiler has no profile.
      scored: networks take it; a layer has room for 62 inputs only.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    unit_scale: float = 1.0
    largest: float = math.inf
    signed: bool = False
    may_be_missing: bool = False
    unprofiled: int = -1
    scored: bool = True


#: The warning about a policy that needs a profile and has none: it decides as the default does.
NO_PROFILE = "decides by a PMU profile, and there is none; give --profile="


@dataclass(frozen=True)
class Problem:
    """One optimisation decided by a policy.

    Attributes:
      name: as users write it.
      features: upstream's features in the compiler's order, then those of -mlgo-decision-features.
      pmu_features: features that follow when the compiler is given a profile.
      rate_features: features that follow for each rate of `extra_rates`; names have `{}` for it.
      mask: name of the feature that is 1 for admissible candidates; None when a decision is not
        among candidates.
      decision: the logged decision tensor, int64 [1].
      decisions: a decision is in [0, decisions).
      idle_decision: the decision that leaves the program as it is (no inlining, no eviction).
      default_decision: the logged tensor with the compiler's own choice; None if only the feature
        has it.
      default_feature: the feature with the compiler's own choice; among candidates, 1 for the
        chosen one.
      reward: the cost that training reduces, as reports name it.
      optimization_level: the level that corpora for this problem are extracted at.
      corpus_stage: the stage of `corpus.extract` up to which their modules are compiled.
      remark_pass: name of the pass in the optimisation remarks that report decisions.
      remark_decision: the remark argument that holds the decision.
      remark_subject: the remark argument that names the decision's callee or register.
      score_in_log: the last reward of each function in a development log is its score.
      keeps_blocks: decisions change neither functions nor blocks, so that a recorded run can be
        replayed with the code that they lead to.
      mode_option, model_option, log_option, channel_option: names of the compiler's options.
      extra_rates: names of further rates of the profile that become features.
    """

    name: str
    features: tuple[Feature, ...]
    pmu_features: tuple[Feature, ...]
    rate_features: tuple[Feature, ...]
    mask: str | None
    decision: str
    decisions: int
    idle_decision: int
    default_decision: str | None
    default_feature: str
    reward: str
    optimization_level: str
    corpus_stage: str
    remark_pass: str
    remark_decision: str
    remark_subject: str
    score_in_log: bool
    keeps_blocks: bool
    mode_option: str
    model_option: str
    log_option: str
    channel_option: str
    extra_rates: tuple[str, ...] = ()

    def with_rates(self, rates: Sequence[str]) -> "Problem":
        """The problem with features of any `rates` of the profile behind its others."""
        return dataclasses.replace(self, extra_rates=tuple(rates))

    def all_features(self, with_pmu: bool) -> tuple[Feature, ...]:
        """The features that the compiler has with or without PMU data, in its order."""
        if not with_pmu:
            return self.features
        extra = tuple(
            dataclasses.replace(feature, name=feature.name.format(rate.replace("-", "_")))
            for rate in self.extra_rates
            for feature in self.rate_features
        )
        return self.features + self.pmu_features + extra

    def inputs(self, with_pmu: bool) -> tuple[Feature, ...]:
        """The features of `all_features` that networks take."""
        return tuple(feature for feature in self.all_features(with_pmu) if feature.scored)

    def unprofiled_inputs(self, rows: int) -> dict[str, npt.NDArray[Any]]:
        """The PMU features as the compiler has them when it is given no profile.

        Returns:
          By name, [rows] or [rows, columns], in the feature's dtype.
        """
        return {
            feature.name: np.full((rows, *feature.shape[1:]), feature.unprofiled, feature.dtype)
            for feature in self.all_features(True)[len(self.features) :]
        }

    def development_options(
        self, *, model: Path | None = None, log: Path | None = None, profile: Path | None = None
    ) -> list[str]:
        """Options of `opt` and `llc` for development mode.

        Args:
          model: directory of the policy; without one the compiler's own policy decides.
          log: where to write the training log; needed when there is no model.
          profile: PMU profile manifest.
        """
        options = [f"{self.mode_option}=development", _DECISION_FEATURES]
        if model is not None:
            options.append(f"{self.model_option}={model}")
        if log is not None:
            options.append(f"{self.log_option}={log}")
        return options + self._profile_options(profile)

    def release_options(self, *, profile: Path | None = None) -> list[str]:
        """Options of `opt` and `llc` for the policy that is compiled into them."""
        return [f"{self.mode_option}=release", *self._profile_options(profile)]

    def interactive_options(self, channel: Path, *, profile: Path | None = None) -> list[str]:
        """Options of `opt` and `llc` for a host that answers on the pipes `channel`.in and .out."""
        options = self.release_options(profile=profile)
        return [*options, _DECISION_FEATURES, f"{self.channel_option}={channel}"]

    def _profile_options(self, profile: Path | None) -> list[str]:
        if profile is None:
            return []
        options = [f"-pmu-profile={profile}"]
        if self.extra_rates:
            options.append(f"-pmu-extra-features={','.join(self.extra_rates)}")
        return options


def for_clang(options: Iterable[str]) -> list[str]:
    """The same options as arguments of `clang` or `clang -cc1`."""
    return [word for option in options for word in ("-mllvm", option)]


def decision_lines(decisions: Mapping[str, int]) -> str:
    """A file of -mlgo-decisions: a line for each decision, by key (docs/reference/features.md)."""
    return "".join(f"{key} {decision}\n" for key, decision in decisions.items())


# Upstream's features that networks do not take: sizes of the module, by which trees recognise
# modules; features that repeat the linkages; and features by which trees hardly split
# (docs/results/size-features.md).
_NO_INPUTS = frozenset(
    {
        *("node_count", "edge_count", "callsite_height"),
        *("is_callee_avail_external", "is_caller_avail_external", "threshold"),
        *("load_relative_intrinsic", "cold_cc_penalty", "indirect_call_penalty", "switch_penalty"),
        *("jump_table_penalty", "case_cluster_penalty", "switch_default_dest_penalty"),
    }
)


def _inline(*names: str) -> tuple[Feature, ...]:
    return tuple(
        Feature(name, "int64", (1,), signed=True, scored=name not in _NO_INPUTS) for name in names
    )


def _pmu_inline(name: str) -> Feature:
    return Feature(name, "int64", (1,), may_be_missing=True)


def _logged(feature: Feature) -> Feature:
    return dataclasses.replace(feature, scored=False)


def _pmu_ppm(name: str) -> Feature:
    # Less than 16 in a million instructions does not matter: at 200 cycles each, that is 0.003
    # cycles per instruction. Our own rates are at most a million; others may be larger.
    return Feature(name, "int64", (1,), unit_scale=1 / 16, largest=1e6, may_be_missing=True)


def _count(name: str) -> Feature:
    return Feature(name, "int64", (1, EVICTION_COLUMNS))


def _share(name: str) -> Feature:
    # Normalised by the largest column; small shares differ by orders of magnitude (block
    # frequencies, spill weights), so that 1/4096 is told apart from 0.
    return Feature(name, "float32", (1, EVICTION_COLUMNS), unit_scale=4096.0, largest=1.0)


def _weight(name: str) -> Feature:
    # A share, too. A live range that cannot be spilled has 2.
    return Feature(name, "float32", (1, EVICTION_COLUMNS), unit_scale=4096.0, largest=2.0)


def _compared(name: str) -> Feature:
    # Logarithms of ratios to the candidate's value, and differences of small numbers.
    return Feature(name, "float32", (1, EVICTION_COLUMNS), unit_scale=16.0, signed=True)


def _flag(name: str) -> Feature:
    return Feature(name, "float32", (1, EVICTION_COLUMNS), largest=1.0)


def _pmu_share(name: str) -> Feature:
    return Feature(name, "float32", (1, EVICTION_COLUMNS), unit_scale=16384.0, may_be_missing=True)


def _pmu_log2(name: str) -> Feature:
    return Feature(name, "float32", (1, EVICTION_COLUMNS), unit_scale=16.0, may_be_missing=True)


PROBLEMS: dict[str, Problem] = {
    problem.name: problem
    for problem in (
        Problem(
            name="inline-size",
            features=_inline(
                "sroa_savings",
                "sroa_losses",
                "load_elimination",
                "call_penalty",
                "call_argument_setup",
                "load_relative_intrinsic",
                "lowered_call_arg_setup",
                "indirect_call_penalty",
                "jump_table_penalty",
                "case_cluster_penalty",
                "switch_default_dest_penalty",
                "switch_penalty",
                "unsimplified_common_instructions",
                "num_loops",
                "dead_blocks",
                "simplified_instructions",
                "constant_args",
                "constant_offset_ptr_args",
                "callsite_cost",
                "cold_cc_penalty",
                "last_call_to_static_bonus",
                "is_multiple_blocks",
                "nested_inlines",
                "nested_inline_cost_estimate",
                "threshold",
                "callee_basic_block_count",
                "callsite_height",
                "node_count",
                "nr_ctant_params",
                "cost_estimate",
                "edge_count",
                "caller_users",
                "caller_conditionally_executed_blocks",
                "caller_basic_block_count",
                "callee_conditionally_executed_blocks",
                "callee_users",
                "is_callee_avail_external",
                "is_caller_avail_external",
                "inlining_default",
                "callee_instructions",
                "caller_instructions",
                "callee_linkage",
                "callee_is_comdat",
                "callee_uses",
                "callee_body_dies",
                "callee_is_mangled",
                "callee_calls",
                "callee_loads",
                "callee_stores",
                "callee_float_instructions",
                "callee_allocas",
                "caller_calls",
                "caller_linkage",
                "caller_is_comdat",
                "caller_calls_of_callee",
                "call_arguments",
                "call_result_uses",
                "call_is_tail",
                "values_across_call",
            ),
            pmu_features=(
                _pmu_inline("pmu_callsite_executions_log2"),
                _pmu_inline("pmu_callsite_share_bp"),
                _pmu_inline("pmu_callee_instructions_log2"),
                _logged(_pmu_inline("pmu_caller_instructions_log2")),
                _pmu_inline("pmu_callee_instructions_per_entry"),
                _pmu_ppm("pmu_callee_llc_misses_ppm"),
                _pmu_ppm("pmu_callee_l1_misses_ppm"),
                _logged(_pmu_inline("pmu_callee_load_latency")),
                _pmu_ppm("pmu_callee_mispredicts_ppm"),
                _pmu_ppm("pmu_callee_icache_misses_ppm"),
                _pmu_ppm("pmu_caller_icache_misses_ppm"),
                _pmu_inline("pmu_callsite_llc_misses_log2"),
                _pmu_inline("pmu_callsite_mispredicts_log2"),
                _logged(_pmu_ppm("pmu_callsite_icache_misses_ppm")),
                _logged(_pmu_ppm("pmu_callsite_indirect_mispredicts_ppm")),
                _pmu_inline("pmu_callee_hot_lines"),
                _pmu_inline("pmu_caller_hot_lines"),
                dataclasses.replace(_pmu_inline("pmu_coverage"), unprofiled=0),
            ),
            rate_features=(_pmu_ppm("pmu_callsite_{}"), _pmu_ppm("pmu_callee_{}")),
            mask=None,
            decision="inlining_decision",
            decisions=2,
            idle_decision=0,
            default_decision="inlining_default",
            default_feature="inlining_default",
            reward="text bytes",
            optimization_level="-Oz",
            corpus_stage=FRONTEND,
            remark_pass="inline-ml",
            remark_decision="ShouldInline",
            remark_subject="Callee",
            score_in_log=False,
            keeps_blocks=False,
            mode_option="-enable-ml-inliner",
            model_option="-ml-inliner-model-under-training",
            log_option="-training-log",
            channel_option="-inliner-interactive-channel-base",
        ),
        Problem(
            name="regalloc-evict",
            features=(
                _count("mask"),
                _count("is_free"),
                _share("nr_urgent"),
                _share("nr_broken_hints"),
                _count("is_hint"),
                _count("is_local"),
                _share("nr_rematerializable"),
                _share("nr_defs_and_uses"),
                _share("weighed_reads_by_max"),
                _share("weighed_writes_by_max"),
                _share("weighed_read_writes_by_max"),
                _share("weighed_indvars_by_max"),
                _share("hint_weights_by_max"),
                _share("start_bb_freq_by_max"),
                _share("end_bb_freq_by_max"),
                _share("hottest_bb_freq_by_max"),
                _share("liverange_size"),
                _weight("use_def_density"),
                _count("max_stage"),
                _count("min_stage"),
                Feature("progress", "float32", (1,), unit_scale=256.0),
                _flag("default_decision"),
                _compared("weight_vs_candidate"),
                _compared("broken_hints_vs_candidate"),
                _compared("reads_vs_candidate"),
                _compared("writes_vs_candidate"),
                _compared("hottest_block_vs_candidate"),
                _flag("first_use_of_callee_saved"),
                _flag("reassignable"),
                _flag("alternative_is_split"),
                _flag("alternative_is_spill"),
                _compared("alternative_cost"),
                _compared("spill_cost"),
                _compared("hottest_block"),
                _compared("coldest_block"),
                Feature("callee_saved_in_use", "float32", (1, EVICTION_COLUMNS)),
            ),
            pmu_features=(
                _pmu_share("pmu_address_llc_miss_probability"),
                _pmu_share("pmu_def_llc_miss_probability"),
                _pmu_share("pmu_shadowed_read_llc_miss_probability"),
                _pmu_share("pmu_mispredict_rate"),
                _pmu_log2("pmu_address_llc_misses"),
                _pmu_log2("pmu_def_llc_misses"),
                _pmu_log2("pmu_shadowed_read_llc_misses"),
                _pmu_log2("pmu_mispredicts"),
                _pmu_share("pmu_address_l1_miss_probability"),
                _pmu_log2("pmu_def_load_latency"),
                _pmu_share("pmu_memory_port_pressure"),
                _pmu_share("pmu_frontend_pressure"),
                _pmu_log2("pmu_reads"),
                _pmu_log2("pmu_writes"),
                _pmu_log2("pmu_calls_crossed"),
                _pmu_share("pmu_coverage"),
                _pmu_log2("pmu_alternative_executions"),
                _pmu_log2("pmu_entries"),
            ),
            rate_features=(_pmu_share("pmu_{}"),),
            mask="mask",
            decision="index_to_evict",
            decisions=EVICTION_COLUMNS,
            idle_decision=EVICTION_COLUMNS - 1,
            default_decision=None,
            default_feature="default_decision",
            reward="RegAllocScore",
            optimization_level="-O2",
            corpus_stage=OPTIMIZED,
            remark_pass="regalloc-ml",
            remark_decision="Decision",
            remark_subject="Register",
            score_in_log=True,
            keeps_blocks=True,
            mode_option="-regalloc-enable-advisor",
            model_option="-regalloc-model",
            log_option="-regalloc-training-log",
            channel_option="-regalloc-evict-interactive-channel-base",
        ),
    )
}
