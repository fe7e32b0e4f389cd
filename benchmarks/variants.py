# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Variants of programs, whose code `rank` compares, in three kinds."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from compiler_opt_perf.policy.interactive import Decide, Observation

# clang's message where a variant has fewer registers than an instruction needs.
TOO_FEW_REGISTERS = "ran out of registers during register allocation"


def _imitated(observation: Observation) -> int:
    """Nearly the default policy: the lightest live range gives way to a heavier one."""
    features = observation.features
    mask = features["mask"].reshape(-1) > 0
    # NaN is infinity divided by infinity, of live ranges that cannot be spilled.
    weight = np.nan_to_num(features["use_def_density"].reshape(-1), nan=np.inf)
    hints = np.nan_to_num(features["nr_broken_hints"].reshape(-1))
    free = features["is_free"].reshape(-1) > 0
    own = len(mask) - 1
    others = np.flatnonzero(mask[:own])
    if not len(others):
        return own
    best = min(others.tolist(), key=lambda i: (not free[i], hints[i], weight[i]))
    return own if mask[own] and not free[best] and weight[best] >= weight[own] else int(best)


def _heaviest(observation: Observation) -> int:
    """The opposite: the heaviest live range gives way."""
    mask = observation.features["mask"].reshape(-1) > 0
    weight = np.nan_to_num(observation.features["use_def_density"].reshape(-1), nan=2.0)
    return int(np.argmax(np.where(mask, weight, -1.0)))


def _largest(observation: Observation) -> int:
    """The longest live range gives way."""
    mask = observation.features["mask"].reshape(-1) > 0
    size = np.nan_to_num(observation.features["liverange_size"].reshape(-1), nan=0.0)
    return int(np.argmax(np.where(mask, size, -1.0)))


def _never(observation: Observation) -> int:
    """No live range gives way unless one has to."""
    mask = observation.features["mask"].reshape(-1) > 0
    return len(mask) - 1 if mask[-1] else _imitated(observation)


RULES: dict[str, Callable[[Observation], int]] = {
    "imitated": _imitated,
    "heaviest": _heaviest,
    "largest": _largest,
    "never": _never,
}


@dataclass(frozen=True)
class Variant:
    """One way to compile a program.

    Attributes:
      options: of LLVM.
      flags: of clang.
      rule: name of the rule that decides evictions; None for the compiler's own policy.
      random: share of decisions that are drawn at random instead, uniformly from the admissible.
      seed: of the draws.
      sampled: the compiler uses the profile of the default variant (AutoFDO).
      policy: name of a folder in `models` whose policy decides about inlining; None for none.
      profiled: that policy reads the profile of the default variant.
    """

    name: str
    options: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    rule: str | None = None
    random: float = 0.0
    seed: int = 1
    sampled: bool = False
    policy: str | None = None
    profiled: bool = False

    def decide(self, module: str) -> Decide:
        """The decision function for one module; its draws do not depend on other modules."""
        assert self.rule is not None
        rule = RULES[self.rule]
        draws = random.Random(f"{self.seed} {module}")

        def decide(observation: Observation) -> int:
            if draws.random() < self.random:
                return int(draws.choice(np.flatnonzero(observation.features["mask"]).tolist()))
            return rule(observation)

        return decide


def _random(share: float, seed: int) -> Variant:
    return Variant(f"random {share:g} ({seed})", rule="imitated", random=share, seed=seed)


def _sampled(name: str, **options: int) -> Variant:
    return replace(_switched(name, **options), sampled=True)


def _switched(name: str, **options: int) -> Variant:
    """A variant by options of LLVM, whose values are numbers."""
    given = (f"-{option.replace('_', '-')}={value}" for option, value in options.items())
    return Variant(name, tuple(given))


DEFAULT = Variant("default")
_REGISTERS = (
    DEFAULT,
    Variant("basic", ("-regalloc=basic",)),
    Variant("spill for size", ("-split-spill-mode=size",)),
    Variant("reversed local", ("-greedy-reverse-local-assignment",)),
    Variant("no region splitting", ("-grow-region-complexity-budget=0",)),
    Variant("first use of saved registers", ("-regalloc-csr-first-time-cost=1000",)),
    Variant("no coalescing", ("-join-liveintervals=0",)),
    Variant("12 registers", ("-stress-regalloc=12",)),
    Variant("10 registers", ("-stress-regalloc=10",)),
    Variant("8 registers", ("-stress-regalloc=8",)),
    Variant("imitated", rule="imitated"),
    Variant("never", rule="never"),
    Variant("largest", rule="largest"),
    Variant("heaviest", rule="heaviest"),
    *(_random(share, 1) for share in (0.05, 0.1, 0.2, 0.5, 1.0)),
)
_INLINING = (
    DEFAULT,
    *(_switched(f"threshold {n}", inline_threshold=n) for n in (0, 25, 75, 125, 500, 1000, 3000)),
    _switched("hint threshold 50", inlinehint_threshold=50),
    _switched("hint threshold 1000", inlinehint_threshold=1000),
    _switched("no call penalty", inline_call_penalty=0),
    _switched("call penalty 100", inline_call_penalty=100),
    Variant("partial", ("-enable-partial-inlining",)),
    _sampled("AutoFDO"),
    # As upstream: a cold call can keep a local of a hot loop in memory.
    _sampled("AutoFDO, pinned", enable_unpin_allocas=0),
    _sampled("AutoFDO, hot 200", hot_callsite_threshold=200),
    _sampled("AutoFDO, hot 10000", hot_callsite_threshold=10_000),
    _sampled("AutoFDO, cold 225", inline_cold_callsite_threshold=225, inlinecold_threshold=225),
    _sampled("AutoFDO, threshold 25", inline_threshold=25),
    _sampled("AutoFDO, threshold 1000", inline_threshold=1000),
    Variant("inline-speed", policy="inline-speed", profiled=True),
    Variant("inline-size", policy="inline-size"),
    Variant("AutoFDO, inline-speed", policy="inline-speed", profiled=True, sampled=True),
)
_BRANCHES = (
    DEFAULT,
    _switched("selects stay", x86_cmov_converter=0),
    Variant("no selects", ("-x86-cmov-converter-force-all",)),
    _switched("selects by little gain", x86_cmov_converter_threshold=0),
    Variant("early selects", ("-x86-early-ifcvt",)),
    Variant("all early selects", ("-x86-early-ifcvt", "-stress-early-ifcvt")),
    Variant("selects stay in IR", ("-disable-cgp-select2branch",)),
    _switched("select optimisation", disable_select_optimize=0),
    _switched("no folding", two_entry_phi_node_folding_threshold=0, phi_node_folding_threshold=0),
    _switched(
        "more folding", two_entry_phi_node_folding_threshold=20, phi_node_folding_threshold=20
    ),
    _switched(
        "no folding of branches", bonus_inst_threshold=0, simplifycfg_branch_fold_threshold=0
    ),
    _switched("more folding of branches", bonus_inst_threshold=8),
    _switched("conditions apart", x86_br_merging_base_cost=-1),
    _switched("conditions together", x86_br_merging_base_cost=20),
    Variant("no sinking", ("-simplifycfg-sink-common=false",)),
    _switched("no hoisting", simplifycfg_hoist_common=0, simplifycfg_hoist_cond_stores=0),
    _switched("no threading", jump_threading_threshold=0),
    _switched("more threading", jump_threading_threshold=30),
    Variant("no tail duplication", ("-disable-tail-duplicate", "-tail-dup-placement=0")),
    _switched("more tail duplication", tail_dup_size=12, tail_dup_placement_threshold=12),
    Variant("no branch folding", ("-disable-branch-fold",)),
    Variant("no placement", ("-disable-block-placement",)),
    Variant(
        "other placement", ("-enable-ext-tsp-block-placement", "-ext-tsp-apply-without-profile")
    ),
    _switched("blocks aligned", align_all_nofallthru_blocks=5),
    Variant("no jump tables", flags=("-fno-jump-tables",)),
)


@dataclass(frozen=True)
class Kind:
    """A kind of variants of a program.

    Attributes:
      variants: the first is the default one.
      replayed: all have the blocks of the default variant, whose recorded run is replayed. Else
        each is recorded by itself.
    """

    variants: tuple[Variant, ...]
    replayed: bool = False


KINDS = {
    "registers": Kind(_REGISTERS, replayed=True),
    "inlining": Kind(_INLINING),
    "branches": Kind(_BRANCHES),
}
