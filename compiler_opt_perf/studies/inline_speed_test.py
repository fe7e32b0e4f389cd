# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The study of inlining for speed on a small program, and the policy in models/."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from compiler_opt_perf.corpus.program_table import Program
from compiler_opt_perf.execution.command import run_command
from compiler_opt_perf.policies import export
from compiler_opt_perf.policies.problem import PROBLEMS, for_clang
from compiler_opt_perf.studies import inline_speed
from compiler_opt_perf.studies.inline_speed import SHIPPED, Study, chosen, study, tables
from compiler_opt_perf.studies.workloads import COUNTED, JUDGED, TIMED, Workload
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT, exclusive

_CASES = "\n".join(
    f"  case {n}: x = (x ^ {7 * n + 3}) * {2 * n + 5} + (y >> {n % 7}); y += x & {n + 9}; break;"
    for n in range(24)
)
# Too large to inline by itself; called all the time in one place, and never in others.
_SOURCE = f"""
#include <stdio.h>
#include <stdlib.h>
static unsigned step(unsigned k, unsigned x, unsigned y) {{
  switch (k % 24) {{
{_CASES}
  }}
  return x ^ y;
}}
static unsigned mix(unsigned n, unsigned m) {{
  for (unsigned i = 0; i < 3; ++i) {{ n = (n ^ m) * 31 + (n >> 5); m = (m + n) * 17 ^ (m << 3); }}
  return n ^ (m >> 7) ^ (n * m) ^ (n / (m | 1));
}}
int main(int argc, char **argv) {{
  int n = atoi(argv[1]);
  unsigned sum = 1;
  for (int i = 0; i < n; ++i) sum = step(i, sum, i);
  if (argc > 2) sum += mix(n, sum);
  if (argc > 3) sum += mix(sum, argc);
  if (argc > 4) sum += mix(argc, n) + step(argc, n, sum) + step(n, sum, argc);
  printf("%u\\n", sum);
}}
"""
_RULE = "rule 14 3000 100 45"
_WAYS = ("default", "threshold 1000", _RULE, "exchanged 1", "cold calls only", "PGO and rule")


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for the study of one program, which has a run to count and one to time."""
    tree = tmp_path_factory.mktemp("tree")
    (tree / "steps.c").write_text(_SOURCE)
    program = Program(name="steps", source_package="none", sources=("steps.c",))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(COUNTED, "steps", lambda _: Workload(program, tree, ("20000",)))
        for runs in (JUDGED, TIMED):
            patch.setitem(runs, "steps", lambda _: Workload(program, tree, ("3000000",)))
        patch.setattr(inline_speed, "PROGRAMS", ("steps",))
        yield tmp_path_factory.mktemp("study")


def test_a_profile_tells_which_calls_to_inline(output: Path, toolchain: Toolchain) -> None:
    results = study(["steps"], output, toolchain, ways=_WAYS)
    ways = results["steps"]["ways"]
    assert set(ways) == set(_WAYS)
    counted = {name: own["instructions"] for name, own in ways.items()}
    text = {name: own["text"] for name, own in ways.items()}
    # Calls and returns are saved that the default leaves, in less text than a threshold needs.
    assert counted[_RULE] < 0.97 * counted["default"]
    assert text[_RULE] < text["threshold 1000"]
    assert text["cold calls only"] < text["default"]
    # With another decision's counts there is nothing to know.
    assert counted["exchanged 1"] > counted[_RULE]
    assert counted["PGO and rule"] < counted["default"]
    # Judged on the other input: it runs 150 times as long, and the calls are as hot.
    judged = results["steps"]["judged"]
    assert set(judged) == {"default", _RULE, "PGO and rule"}
    assert judged["default"] > 100 * counted["default"]
    assert judged[_RULE] < 0.97 * judged["default"]
    # Nothing is done twice.
    objects = list((output / "steps" / "ways").rglob("*.o"))
    noted = {path: path.stat().st_mtime_ns for path in objects}
    assert study(["steps"], output, toolchain, ways=_WAYS) == results
    assert len(noted) == len(_WAYS)
    assert noted == {path: path.stat().st_mtime_ns for path in objects}

    timed = study(["steps"], output, toolchain, ways=("default", _RULE), rounds=5)["steps"]
    assert list(timed["times"]["changes"]) == [_RULE]
    assert timed["ways"] == ways
    table = tables({"steps": timed})
    assert f"| steps | {counted['default']:,} | {text['default']:,} |" in table
    assert "| steps | 0." in table
    assert f"| steps | {timed['judged']['default']:,} |" in table


def test_two_studies_take_turns(output: Path, toolchain: Toolchain) -> None:
    def again() -> object:
        return study(["steps"], output, toolchain, ways=("default",))

    first = again()
    with ThreadPoolExecutor(1) as executor:
        with exclusive(output / "steps.lock"):
            second = executor.submit(again)
            # What is there is not done again, which takes no time.
            assert not wait([second], timeout=2).done
        assert second.result(timeout=60) == first


def test_the_shipped_policy_is_the_rule(output: Path, toolchain: Toolchain) -> None:
    model = REPO_ROOT / "models" / "inline-speed"
    policy = export.load(model)
    network, weights = SHIPPED.network()
    assert policy.weights.tolist() == weights.tolist()
    assert policy.network.hidden == network.hidden
    assert policy.description["rule"] == SHIPPED.as_json()
    own = Study("steps", output / "steps", toolchain)
    (by_rule,) = own.objects(_RULE)
    target = output / "by-model.o"
    options = for_clang(
        PROBLEMS["inline-size"].development_options(model=model, profile=own.profile)
    )
    run_command(
        [toolchain.clang, *inline_speed.FLAGS, *own.built.units[0], *options, "-o", target],
        cwd=own.built.directory,
        env={"LLVM_LITERT_LIBRARY": os.fspath(toolchain.litert_library)},
        timeout_s=120,
    )
    assert target.read_bytes() == by_rule.read_bytes()


def test_a_rule_is_chosen_by_the_other_programs() -> None:
    def row(**rules: int) -> dict[str, dict[str, dict[str, int]]]:
        ways = {
            name.replace("_", " "): {"instructions": n, "text": 100} for name, n in rules.items()
        }
        return {"ways": {"default": {"instructions": 100, "text": 100}, **ways}}

    results = {
        "a": row(rule_14_3000_100_45=90, rule_14_3000_200_45=95),
        "b": row(rule_14_3000_100_45=99, rule_14_3000_200_45=80),
        "c": row(rule_14_3000_100_45=98, rule_14_3000_200_45=99),
    }
    assert chosen(results, "b") == "rule 14 3000 100 45"
    assert chosen(results, "a") == "rule 14 3000 200 45"
    assert chosen({"a": results["a"]}, "a") is None
