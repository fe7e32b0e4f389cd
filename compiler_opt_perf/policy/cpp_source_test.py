# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles generated headers and compares their decisions with those of the network in Python."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

from compiler_opt_perf.policy.callee_saved_rule import CalleeSavedRule
from compiler_opt_perf.policy.cpp_source import cpp_source, release_model
from compiler_opt_perf.policy.encoding import GRID, FloatArray
from compiler_opt_perf.policy.export import ModelError, Policy, load
from compiler_opt_perf.policy.inlining_rule import InliningRule
from compiler_opt_perf.policy.network import DecisionKind, to_grid
from compiler_opt_perf.policy.problem import PROBLEMS, Problem
from compiler_opt_perf.policy.shipped_rules import RULES
from compiler_opt_perf.policy.testing import Decider, random_inputs, random_network
from compiler_opt_perf.toolchain.layout import REPO_ROOT, ToolchainError
from compiler_opt_perf.toolchain.model_inputs import (
    EVICT_MODEL,
    INLINE_MODEL,
    GeneratedModel,
    ModelTensor,
)

_INLINE, _EVICT = PROBLEMS["inline-size"], PROBLEMS["regalloc-evict"]
_MODELS = REPO_ROOT / "models"
_ROWS = 4000


def _random_policy(
    problem: Problem, lead: float = 0.0, hidden: tuple[int, ...] = (16, 8)
) -> Policy:
    network = random_network(problem, hidden)
    weights = network.initial_weights(seed=3)
    return Policy(dataclasses.replace(network, default_lead=lead), weights, {})


def _sparse(policy: Policy) -> Policy:
    """Two of three weights are zero, so that neurons and features are left out."""
    kept = np.random.default_rng(0).random(policy.network.size) < 0.33
    return dataclasses.replace(policy, weights=policy.weights * kept.astype(np.float32))


def _asked(*kinds: DecisionKind) -> Policy:
    policy = _random_policy(_INLINE, 0.5)
    return dataclasses.replace(policy, network=dataclasses.replace(policy.network, asked=kinds))


def _rule(problem: str) -> Policy:
    network, weights = RULES[problem][0].network()
    return Policy(network, weights, {})


def _without_weights(problem: Problem, lead: float) -> Policy:
    policy = _random_policy(problem, lead)
    return dataclasses.replace(policy, weights=np.zeros_like(policy.weights))


_POLICIES = {
    "inline, dense": lambda: _random_policy(_INLINE),
    "inline, with a lead": lambda: _random_policy(_INLINE, 1.0),
    "inline, one layer": lambda: _random_policy(_INLINE, hidden=()),
    "inline, sparse": lambda: _sparse(_random_policy(_INLINE, GRID)),
    "inline, zero": lambda: _without_weights(_INLINE, 0.0),
    "inline, asked": lambda: _asked(DecisionKind(0, 1, 0), DecisionKind(1, 0, 1)),
    "inline, never asked": lambda: _asked(),
    "inline, rule": lambda: _rule("inline-size"),
    "inline, shipped": lambda: load(_MODELS / "inline-size"),
    "evict, dense": lambda: _random_policy(_EVICT),
    "evict, with a lead": lambda: _random_policy(_EVICT, 2.0),
    "evict, one layer": lambda: _random_policy(_EVICT, hidden=()),
    "evict, sparse": lambda: _sparse(_random_policy(_EVICT, GRID)),
    "evict, zero": lambda: _without_weights(_EVICT, 0.0),
    "evict, rule": lambda: _rule("regalloc-evict"),
}


@pytest.mark.compiler
@pytest.mark.parametrize("name", _POLICIES)
def test_generated_code_decides_as_the_network(name: str, tmp_path: Path) -> None:
    policy = _POLICIES[name]()
    problem = policy.network.problem
    header = tmp_path / "Model.h"
    header.write_text(cpp_source(policy))
    inputs = random_inputs(problem, _ROWS, seed=7)
    if problem.mask is None:
        for feature in ("callee_is_comdat", "callee_is_mangled"):
            inputs[feature] = np.abs(inputs[feature]) % 2
    else:
        _pose_questions(inputs)
    expected = policy.decide(inputs)
    decider = Decider.build(problem, policy.network.features, header)
    decisions, _ = decider.decide(inputs)
    np.testing.assert_array_equal(decisions, expected)
    # The inputs tell a network from the default, and from one that always decides the same.
    default = inputs[problem.default_feature]
    default = default if problem.mask is None else np.argmax(default, axis=1)
    assert (expected != default).any() == (name != "inline, never asked")
    assert len(set(expected.tolist())) > 1 or name == "inline, zero"


def _pose_questions(inputs: dict[str, FloatArray]) -> None:
    """Makes half of the rows questions about a callee-saved register, near the rule's numbers."""
    random = np.random.default_rng(1)
    asked = random.random(_ROWS) < 0.5
    inputs["mask"][asked, -1] = 1
    for name, values in (
        ("alternative_is_spill", [1.0]),
        ("alternative_cost", [-30.0, 3.5, 4.0, 4.5, np.nan]),
        ("pmu_alternative_executions", [-1.0, 0.0, 5.0, 12.5, 13.5]),
    ):
        inputs[name][asked, -1] = random.choice(values, asked.sum())


@pytest.mark.compiler
def test_infinite_and_huge_values_are_encoded_as_in_python(tmp_path: Path) -> None:
    for problem, values in (
        (_INLINE, [-(2**63), 2**63 - 1, -1, 0, 1, 2**24 + 1]),
        (_EVICT, [np.inf, np.nan, 3e38, 1e-45, -0.0, 0.0, -1.0, 2.0, 65536.0]),
    ):
        policy = _random_policy(problem)
        inputs = random_inputs(problem, _ROWS)
        random = np.random.default_rng(2)
        for feature in policy.network.scored:
            if feature.name != problem.default_feature and feature.dtype == (
                "int64" if problem is _INLINE else "float32"
            ):
                chosen = random.choice(np.array(values, feature.dtype), inputs[feature.name].shape)
                inputs[feature.name] = chosen
        header = tmp_path / "Model.h"
        header.write_text(cpp_source(policy))
        with np.errstate(over="ignore"):
            expected = policy.decide(inputs)
        decisions, _ = Decider.build(problem, policy.network.features, header).decide(inputs)
        np.testing.assert_array_equal(decisions, expected)
        assert len(set(expected.tolist())) > 1


def test_a_rules_header_reads_what_the_rule_reads() -> None:
    inline = cpp_source(_rule("inline-size"))
    read = re.findall(r"static_cast<float>\((\w+)\[0\]\)[,\n]", inline)
    assert read == [
        *("sroa_savings", "sroa_losses", "cost_estimate", "inlining_default"),
        *("pmu_callsite_executions_log2", "pmu_callee_instructions_per_entry"),
    ]
    assert "Weights1" not in inline
    evict = cpp_source(_rule("regalloc-evict"))
    # Registers keep the compiler's decision: nothing of theirs is read.
    (candidate,) = re.findall(r"scoreCandidate\(int\) const {(.*?)}\n\n", evict, re.DOTALL)
    assert "Values" not in candidate
    assert "pmu_alternative_executions[Column]" in evict


def test_the_digest_is_of_the_content() -> None:
    def digest(policy: Policy) -> str:
        (found,) = re.findall(rf"{INLINE_MODEL.digest} UINT64_C\((\w+)\)", cpp_source(policy))
        return str(found)

    policy = _random_policy(_INLINE)
    other = dataclasses.replace(policy, weights=to_grid(policy.weights + np.float32(GRID)))
    assert digest(policy) == digest(_random_policy(_INLINE)) != digest(other)
    assert digest(_asked()) != digest(_asked(DecisionKind(0, 0, 0)))


def test_the_compiler_is_told_which_decisions_a_policy_is_asked_about() -> None:
    assert INLINE_MODEL.may_differ not in cpp_source(_random_policy(_INLINE))
    names = "inlining_default, callee_is_comdat, callee_is_mangled, executions"
    macro = f"{INLINE_MODEL.may_differ}({names})"
    assert f"#define {macro} \\\n  ((false))\n" in cpp_source(_asked())
    one = "(inlining_default) == 0 && (callee_is_comdat) == 0 && (callee_is_mangled) == "
    told = cpp_source(_asked(DecisionKind(0, 0, 0), DecisionKind(0, 0, 1)))
    assert f"#define {macro} \\\n  ((({one}0) || ({one}1)))\n" in told


def test_an_inlining_rule_differs_only_where_the_compiler_is_told() -> None:
    policy = _rule("inline-size")
    masks = re.search(r"UINT64_C\((\w+)\) : UINT64_C\((\w+)\)", cpp_source(policy))
    assert masks is not None
    inlined, without = (int(mask, 16) for mask in masks.groups())
    inputs = random_inputs(_INLINE, 20 * _ROWS)
    executions = np.random.default_rng(4).integers(-1, 30, 20 * _ROWS)
    inputs["pmu_callsite_executions_log2"] = executions
    inputs["pmu_callee_instructions_per_entry"] %= 200
    default = inputs["inlining_default"]
    may_differ = np.where(default == 1, inlined, without) >> executions + 1 & 1
    differs = policy.decide(inputs) != default
    assert not np.any(differs & (may_differ == 0))
    # The rule's own: calls that never ran, and hot ones.
    hot = range(InliningRule().hot, 30)
    assert {*executions[differs & (default == 1)]} == {0}
    assert {*executions[differs & (default == 0)]} == {*hot}
    assert inlined == 0b10 and not without & (1 << InliningRule().hot + 1) - 1


def test_the_compiler_is_told_where_a_register_policy_decides_as_it_does() -> None:
    policy = _rule("regalloc-evict")
    rule = CalleeSavedRule()
    told = dict(
        re.findall(rf"#define {EVICT_MODEL.settled}_(?!DIGEST)(\w+) (\S+)", cpp_source(policy))
    )
    limit = float(told.pop("COST_LIMIT"))
    assert told == {"EVICTS_AS_DEFAULT": "true", "NEEDS_EXECUTIONS": "true"}
    assert np.log2(rule.price) - 0.05 < limit <= np.log2(rule.price)

    inputs = random_inputs(_EVICT, _ROWS)
    register, idle = 3, _EVICT.idle_decision
    mask = np.zeros((_ROWS, _EVICT.decisions), np.int64)
    mask[:, [register, idle]] = 1
    default = np.zeros((_ROWS, _EVICT.decisions), np.float32)
    default[:, register] = 1
    inputs |= {"mask": mask, "default_decision": default}
    inputs["alternative_is_spill"][:] = 0
    for cost, executions, is_question, may_differ in (
        (limit - 0.1, 1.0, 1.0, True),
        (limit, 1.0, 1.0, False),
        (limit - 0.1, -1.0, 1.0, False),
        (limit - 0.1, 1.0, 0.0, False),
    ):
        inputs["alternative_cost"][:] = cost
        inputs["pmu_alternative_executions"][:] = executions
        inputs["alternative_is_split"][:] = is_question
        assert {*policy.decide(inputs)} == {idle if may_differ else register}
    assert EVICT_MODEL.settled + "_EVICTS" not in cpp_source(_random_policy(_EVICT))


def test_a_policy_for_another_problem_is_refused(tmp_path: Path) -> None:
    model = release_model(_MODELS / "inline-speed", INLINE_MODEL)
    assert isinstance(model, GeneratedModel)
    assert model.inputs["cost_estimate"] == ModelTensor("int64_t", 1)
    assert json.loads(model.description)["problem"] == "inline-size"
    message = (
        "for inline-size, .*--evict-model takes .* regalloc-evict; give it with --inline-model"
    )
    with pytest.raises(ToolchainError, match=message):
        release_model(_MODELS / "inline-speed", EVICT_MODEL)
    # Without a description it is somebody else's SavedModel.
    assert release_model(tmp_path, INLINE_MODEL) == tmp_path
    (tmp_path / "model.json").write_text("{")
    with pytest.raises(ModelError, match="model.json:1:2: not JSON"):
        release_model(tmp_path, INLINE_MODEL)
