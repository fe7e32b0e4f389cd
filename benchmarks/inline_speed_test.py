# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`inline-speed` and `policies` on small programs."""

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks import inline_builds, inline_speed, policies
from benchmarks.inline_builds import InlineBuilds
from benchmarks.inline_speed import chosen, study
from benchmarks.programs.workload import Workload
from benchmarks.programs.workloads import COUNTED, HELD_OUT
from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.corpus.program_table import Program
from compiler_opt_perf.policy.compiler_flags import compiler_flags
from compiler_opt_perf.policy.problem import PROBLEMS, for_clang
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT


def _cases(count: int) -> str:
    return "\n".join(
        f"case {n}: x = (x ^ {7 * n + 3}) * {2 * n + 5} + (y >> {n % 7}); y += x & {n + 9}; break;"
        for n in range(count)
    )


# Too large to inline by itself; called all the time in one place, and never in others.
_SOURCE = f"""
#include <stdio.h>
#include <stdlib.h>
static unsigned step(unsigned k, unsigned x, unsigned y) {{
  switch (k % 24) {{
{_cases(24)}
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
# Small enough to be imported by a thin link, and still too large to inline by itself.
_APART = {
    "stir.c": f"""
unsigned stir(unsigned k, unsigned x, unsigned y) {{
  switch (k % 12) {{
{_cases(12)}
  }}
  return x ^ y;
}}
""",
    "main.c": """
#include <stdio.h>
#include <stdlib.h>
unsigned stir(unsigned, unsigned, unsigned);
int main(int argc, char **argv) {
  int n = atoi(argv[1]);
  unsigned sum = 1;
  for (int i = 0; i < n; ++i) sum = stir(i, sum, i);
  printf("%u\\n", sum);
}
""",
}
_MODEL = REPO_ROOT / "models" / "inline-speed"
_RULE = "rule 14 3000 100 45"
_WAYS = ("default", "threshold 1000", _RULE, "shuffled", "cold calls only", "PGO and rule")


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for two programs, which have a run to count and one to judge."""
    tree = tmp_path_factory.mktemp("tree")
    for name, text in {"steps.c": _SOURCE, **_APART}.items():
        (tree / name).write_text(text)
    programs = {
        name: Program(name=name, source_package="none", sources=sources)
        for name, sources in {"steps": ("steps.c",), "apart": tuple(_APART)}.items()
    }

    def workload(program: Program, runs: str, _: Path) -> Workload:
        return Workload(program, tree, (runs,))

    with pytest.MonkeyPatch.context() as patch:
        for name, program in programs.items():
            patch.setitem(COUNTED, name, partial(workload, program, "20000"))
            patch.setitem(HELD_OUT, name, partial(workload, program, "2000000"))
        for module in (inline_speed, policies):
            patch.setattr(module, "PROGRAMS", tuple(programs))
        yield tmp_path_factory.mktemp("study")


def _result(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.compiler
def test_a_profile_tells_which_calls_to_inline(output: Path, toolchain: Toolchain) -> None:
    tables = {table.name: table for table in study(["steps"], output, toolchain, ways=_WAYS)}
    result = _result(output / "steps.json")
    assert set(result["ways"]) == set(_WAYS)
    counted = {name: own["instructions"] for name, own in result["ways"].items()}
    text = {name: own["text"] for name, own in result["ways"].items()}
    # The rule saves calls and returns, in less text than a threshold needs.
    assert counted[_RULE] < 0.97 * counted["default"]
    assert text[_RULE] < text["threshold 1000"]
    assert text["cold calls only"] < text["default"]
    # The counts of other lines tell nothing.
    assert counted["shuffled"] > counted[_RULE]
    assert counted["PGO and rule"] < counted["default"]
    # The held-out input runs 100 times as long, and the calls are as hot.
    judged = result["judged"]
    assert set(judged) == {"default", _RULE, "PGO and rule"}
    assert judged["default"] > 90 * counted["default"]
    assert judged[_RULE] < 0.97 * judged["default"]
    change = 100 * (counted[_RULE] / counted["default"] - 1)
    assert tables["instructions"].rows[0][:2] == ["steps", pytest.approx(change, abs=1e-4)]
    (row,) = tables["instructions-by-way"].rows
    assert row[1] == counted["default"] and pytest.approx(change, abs=1e-4) in row
    assert tables["held-out-by-way"].rows[0][1] == judged["default"]
    # Nothing is done twice.
    objects = list((output / "steps" / "ways").rglob("*.o"))
    noted = {path: path.stat().st_mtime_ns for path in objects}
    study(["steps"], output, toolchain, ways=_WAYS)
    assert _result(output / "steps.json") == result
    assert len(noted) == len(_WAYS)
    assert noted == {path: path.stat().st_mtime_ns for path in objects}


@pytest.mark.compiler
def test_the_rule_decides_in_a_thin_link(output: Path, toolchain: Toolchain) -> None:
    names = ("default", _RULE, "ThinLTO", "ThinLTO and rule", "ThinLTO and PGO")
    study(["apart"], output, toolchain, ways=names, judge=False)
    result = _result(output / "apart.json")
    assert "judged" not in result
    counted = {name: own["instructions"] for name, own in result["ways"].items()}
    # Nothing can be inlined from another module, and what is imported is too large by default.
    assert counted[_RULE] == counted["default"]
    assert counted["ThinLTO and rule"] < 0.97 * counted["ThinLTO"]
    assert counted["ThinLTO and PGO"] < counted["ThinLTO"]

    # The code is that of a link in one process, with the policy that is shipped.
    own = InlineBuilds("apart", output / "apart", toolchain)
    problem = PROBLEMS["inline-size"]
    options = problem.development_options(model=_MODEL, profile=own.profile)
    options += [f"-litert-library={toolchain.litert_library}", *PROFILING_FLAGS.split()[-1:]]
    flags = [*inline_builds.FLAGS, "-flto=thin"]
    modules = [output / f"{number}.thin.o" for number in range(len(_APART))]
    for arguments, module in zip(own.built.units, modules, strict=True):
        run_command(
            [toolchain.clang, *flags, *arguments, *for_clang(options), "-o", module],
            cwd=own.built.directory,
            timeout_s=120,
        )
    native = output / "native"
    link: list[str | Path] = [toolchain.clang, *flags, "-fuse-ld=lld"]
    link += [word for option in options for word in ("-Xlinker", "-mllvm", "-Xlinker", option)]
    link += [*modules, f"-Wl,--lto-obj-path={native}", "-o", output / "in-process"]
    run_command(link, timeout_s=120)
    distributed = own.objects("ThinLTO and rule")
    for number, function in enumerate(("stir", "main")):
        in_process = _code(Path(f"{native}{number + 1}"), function, output)
        assert in_process == _code(distributed[number], function, output)


def _code(path: Path, function: str, folder: Path) -> bytes:
    """The machine code of a function of an object file."""
    section = folder / "section"
    dump = f"--dump-section=.text.{function}={section}"
    run_command([stock_tool("llvm-objcopy"), dump, path, os.devnull])
    return section.read_bytes()


@pytest.mark.long(25)
@pytest.mark.compiler
def test_the_policies_are_timed_as_users_compile(output: Path, toolchain: Toolchain) -> None:
    thin = ("ThinLTO and PGO", "ThinLTO and PGO and price")
    sampled = ("AutoFDO", "AutoFDO and both policies")
    ways = ("registers", "both policies", "both policies, shuffled", *sampled, *thin)
    tables = policies.study(["apart"], output, toolchain, ways=ways, rounds=5)
    found = _result(output / "apart policies.json")
    assert set(found["changes"]) == set(ways) and found["rounds"] == 5
    assert set(found["executed"]) == {"default", *ways}
    by_name = {table.name: table for table in tables}
    assert by_name["time-by-way"].rows[0][2] == 5
    assert by_name["time"].rows[0][1] == tuple(found["changes"]["both policies"])
    added = [column.name for column in by_name["instructions-added"].columns]
    assert "what the profile adds" in added and "the price adds to PGO" not in added
    assert by_name["text"].rows[0][:2] == ["apart", found["text"]["default"]]

    # Both by the flags that `cop policy flags` gives; one alone leaves inlining to the compiler.
    own = InlineBuilds("apart", output / "apart", toolchain)
    models: dict[str, Path | None] = {
        "inline-size": _MODEL,
        "regalloc-evict": REPO_ROOT / "models" / "regalloc-evict",
    }
    for way, autofdo in (("both policies", False), ("AutoFDO and both policies", True)):
        flags = compiler_flags(toolchain, models, own.profile, autofdo=autofdo)
        options = for_clang(one for one in flags.options if one not in inline_builds.FLAGS)
        options += [word for word in flags.profile_words if "sample-use" in word]
        for number, arguments in enumerate(own.built.units):
            target = output / "both.o"
            words: list[str | Path] = [toolchain.clang, *inline_builds.FLAGS, *arguments]
            words += [*options, "-o", target]
            run_command(words, cwd=own.built.directory, timeout_s=120)
            assert target.read_bytes() == own.objects(way)[number].read_bytes()
    assert found["text"]["registers"] < 1.05 * found["text"]["default"]


@pytest.mark.compiler
def test_the_shipped_policy_is_the_rule(output: Path, toolchain: Toolchain) -> None:
    own = InlineBuilds("steps", output / "steps", toolchain)
    (by_rule,) = own.objects(_RULE)
    target = output / "by-model.o"
    options = for_clang(
        PROBLEMS["inline-size"].development_options(model=_MODEL, profile=own.profile)
    )
    run_command(
        [toolchain.clang, *inline_builds.FLAGS, *own.built.units[0], *options, "-o", target],
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
