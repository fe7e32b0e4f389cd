# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ways in which `inline_speed` and `policies` compile programs."""

from dataclasses import dataclass, replace

from compiler_opt_perf.policy.inlining_rule import InliningRule

SHIPPED = InliningRule()
# Beyond all counts and costs.
_NEVER, _ANY = 31, 1 << 30


@dataclass(frozen=True)
class Way:
    """How a program is compiled.

    Attributes:
      flags: of clang, besides those of all ways.
      rule: decides about inlining; None leaves it to the compiler.
      sampled: the compiler uses the executions of the profile (-fprofile-sample-use).
      counted: the compiler uses counters of the same run (-fprofile-use).
      thin: with ThinLTO; the rule decides before the thin link and after it.
      registers: models/regalloc-evict decides about callee-saved registers, by the PMU profile.
      shuffled: rule and policy read the profile with its counts exchanged between lines.
    """

    flags: tuple[str, ...] = ()
    rule: InliningRule | None = None
    sampled: bool = False
    counted: bool = False
    thin: bool = False
    registers: bool = False
    shuffled: bool = False


def _threshold(cost: int) -> Way:
    return Way(("-mllvm", f"-inline-threshold={cost}"))


def _name(rule: InliningRule) -> str:
    numbers = f"rule {rule.hot} {rule.cost} {rule.work} {rule.cold_cost}"
    return numbers if rule.keep_locals else f"{numbers}, locals pinned"


#: The rules to choose from: the shipped one, and rules that differ in one number.
RULES = {
    _name(rule): rule
    for rule in (
        SHIPPED,
        replace(SHIPPED, keep_locals=False),
        replace(SHIPPED, hot=12),
        replace(SHIPPED, hot=16),
        replace(SHIPPED, cost=1000),
        replace(SHIPPED, work=50),
        replace(SHIPPED, work=200),
        replace(SHIPPED, work=_ANY),
        replace(SHIPPED, cold_cost=225),
    )
}
#: The shipped rule with less of the profile, as controls.
PARTS = {
    "hot calls only": Way(rule=replace(SHIPPED, cold_cost=_ANY)),
    "cold calls only": Way(rule=replace(SHIPPED, hot=_NEVER)),
    "whether it ran": Way(rule=replace(SHIPPED, hot=1)),
    "shuffled": Way(rule=SHIPPED, shuffled=True),
}
CONSTANTS = {f"threshold {cost}": _threshold(cost) for cost in (25, 500, 1000)}
#: The ways of `inline_speed`.
INLINING: dict[str, Way] = {
    "default": Way(),
    **CONSTANTS,
    **{name: Way(rule=rule) for name, rule in RULES.items()},
    **PARTS,
    "AutoFDO": Way(sampled=True),
    "PGO": Way(counted=True),
    "PGO and rule": Way(rule=SHIPPED, counted=True),
    "ThinLTO": Way(thin=True),
    "ThinLTO and rule": Way(rule=SHIPPED, thin=True),
    "ThinLTO and PGO": Way(counted=True, thin=True),
    "ThinLTO and PGO and rule": Way(rule=SHIPPED, counted=True, thin=True),
}


def _priced(price: int) -> tuple[str, ...]:
    return ("-mllvm", f"-regalloc-csr-first-time-cost={price}")


# The constant prices of a callee-saved register that are as good as a policy by instructions,
# without counters and with them.
_PRICE, _LARGE_PRICE = _priced(65536), _priced(262144)
# Stands behind the -O2 of all ways.
_O3 = ("-O3",)
#: Ways of `policies` besides: inlining and callee-saved registers, decided together.
TOGETHER: dict[str, Way] = {
    "price 65536": Way(_PRICE),
    "threshold 500 and price": Way((*_threshold(500).flags, *_PRICE)),
    "registers": Way(registers=True),
    "both policies": Way(rule=SHIPPED, registers=True),
    "both policies, shuffled": Way(rule=SHIPPED, registers=True, shuffled=True),
    "rule 14 3000 100 225 and registers": Way(rule=replace(SHIPPED, cold_cost=225), registers=True),
    "O3": Way(_O3),
    "O3 and both policies": Way(_O3, rule=SHIPPED, registers=True),
    "O3 and both policies, shuffled": Way(_O3, rule=SHIPPED, registers=True, shuffled=True),
    "AutoFDO and registers": Way(sampled=True, registers=True),
    "AutoFDO and rule": Way(rule=SHIPPED, sampled=True),
    "AutoFDO and both policies": Way(rule=SHIPPED, sampled=True, registers=True),
    "AutoFDO and both policies, shuffled": Way(
        rule=SHIPPED, sampled=True, registers=True, shuffled=True
    ),
    "PGO and price": Way(_PRICE, counted=True),
    "PGO and both policies": Way(rule=SHIPPED, counted=True, registers=True),
    "ThinLTO and both policies": Way(rule=SHIPPED, thin=True, registers=True),
    "ThinLTO and PGO and price": Way(_PRICE, counted=True, thin=True),
    "ThinLTO and PGO and price 262144": Way(_LARGE_PRICE, counted=True, thin=True),
    "ThinLTO and PGO and registers": Way(counted=True, thin=True, registers=True),
    "ThinLTO and PGO and registers, shuffled": Way(
        counted=True, thin=True, registers=True, shuffled=True
    ),
    "ThinLTO and PGO and both policies": Way(rule=SHIPPED, counted=True, thin=True, registers=True),
}
_COLD_INLINED = (
    *("-mllvm", "-inline-cold-callsite-threshold=225"),
    *("-mllvm", "-inlinecold-threshold=225"),
)
#: What `pinned` gives clang: what becomes of locals that cold calls take, by the way's ending.
LOCALS: dict[str, tuple[str, ...]] = {
    "": ("-mllvm", "-enable-unpin-allocas=false"),
    " and copies": (),
    " and cold calls": ("-mllvm", "-enable-unpin-allocas=false", *_COLD_INLINED),
}
# Remarks say what was copied.
_REMARKS = ("-fsave-optimization-record", "-foptimization-record-passes=unpin-allocas")
_PROFILED = {
    "AutoFDO": Way(sampled=True),
    "PGO": Way(counted=True),
    "ThinLTO and PGO": Way(counted=True, thin=True),
}
#: Ways of `pinned` besides.
PINNING: dict[str, Way] = {
    f"pinned, {name}{ending}": replace(way, flags=(*flags, *_REMARKS))
    for name, way in _PROFILED.items()
    for ending, flags in LOCALS.items()
    if ending != " and cold calls" or name == "PGO"
}
WAYS = INLINING | TOGETHER | PINNING
