# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The policies in models/ are whole, fit this compiler, and are what their recipes say."""

import os
from pathlib import Path

import pytest

from compiler_opt_perf.binary.elf import PROFILING_FLAGS, open_elf, read_symbols
from compiler_opt_perf.corpus.program_table import PROGRAMS
from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.policy import export
from compiler_opt_perf.policy.inlining_rule import InliningRule
from compiler_opt_perf.policy.problem import PROBLEMS, for_clang
from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT
from compiler_opt_perf.train.algorithms.labels import LabelSettings
from compiler_opt_perf.train.config import read_config

_MODEL = REPO_ROOT / "models" / "inline-size"

# Of templates, whose functions are in COMDATs.
_TEMPLATES = """
#include <map>
#include <sstream>
#include <string>
#include <vector>
std::string joined(const std::map<std::string, std::vector<std::string>> &rows) {
  std::ostringstream out;
  std::vector<std::string> all;
  for (const auto &[key, values] : rows)
    for (const auto &value : values) {
      all.push_back(key + "=" + value);
      all.insert(all.begin(), value);
    }
  for (const auto &one : all)
    out << one << ';';
  return out.str();
}
"""
_C = "static int f(int x) { return x * 3; }\nint g(int x) { return f(x) + f(x + 1) * f(x * 2); }\n"

# One call is never executed; the value that lives across it takes a callee-saved register.
_RARE_CALL = """
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) void rare(void) { __asm__ volatile(""); }
__attribute__((noinline)) long often(long x, long y) {
  long sum = 0, n = (x & 1) + 1;
  for (long i = 0; i < n; ++i) {
    if (__builtin_expect(i == y, 0)) rare();
    sum += i ^ x;
  }
  return sum;
}
int main(int argc, char **argv) {
  long n = atol(argv[1]), sum = 0;
  for (long i = 0; i < n; ++i) sum += often(i, n);
  printf("%ld\\n", sum);
}
"""


def test_the_policy_is_by_its_recipe() -> None:
    policy = export.load(_MODEL)
    config = read_config(str(_MODEL / "recipe.toml"))
    (stage,), programs = config.stages, config.programs
    assert isinstance(stage, LabelSettings) and programs is not None
    assert set(programs.all) <= PROGRAMS.keys()
    training = policy.description["training"]
    assert training["config"] == config.fixed()
    # What else is installed changes nothing.
    assert list(training["versions"]) == ["numpy", "lightgbm"]
    assert (stage.modules, stage.mask, config.copies) == (0, True, True)
    assert policy.network.problem == PROBLEMS["inline-size"]
    results = policy.description["results"]
    assert list(results["programs"]) == list(programs.test)
    assert results["test_change"] < 0 and not results["test_failed"]


@pytest.mark.compiler
def test_it_changes_templates_and_leaves_c_alone(toolchain: Toolchain, tmp_path: Path) -> None:
    environment = {"LLVM_LITERT_LIBRARY": os.fspath(toolchain.litert_library)}
    options = for_clang(PROBLEMS["inline-size"].development_options(model=_MODEL))
    sizes = {}
    for name, source in (("a.cpp", _TEMPLATES), ("a.c", _C)):
        (tmp_path / name).write_text(source)
        for way, words in (("default", []), ("policy", options)):
            target = tmp_path / f"{name}.{way}.o"
            command = [os.fspath(toolchain.clang), "-Oz", "-c", os.fspath(tmp_path / name), *words]
            run_command([*command, "-o", target], timeout_s=120, env=environment)
            sizes[name, way] = target.read_bytes(), text_bytes(target)
    assert sizes["a.c", "policy"] == sizes["a.c", "default"]
    assert sizes["a.cpp", "policy"][1] < sizes["a.cpp", "default"][1]


@pytest.mark.compiler
def test_a_cold_call_does_not_keep_a_local_in_memory(toolchain: Toolchain, tmp_path: Path) -> None:
    source = Path(__file__).parent / "testdata" / "passed_local.cpp"
    clang = [os.fspath(toolchain.clang), "-O2", *PROFILING_FLAGS.split(), os.fspath(source)]

    def run(*words: str) -> None:
        environment = {"LLVM_LITERT_LIBRARY": os.fspath(toolchain.litert_library)}
        run_command([*clang, *words], cwd=tmp_path, timeout_s=120, env=environment)

    run("-Wl,--build-id", "-lstdc++", "-o", "profiled")
    profile = tmp_path / "a.pmu.json"
    collect(tmp_path / "profiled", ("20",), profile, timeout_s=120)

    def functions(policy: Path | None) -> set[str]:
        problem = PROBLEMS["inline-size"]
        words = (
            []
            if policy is None
            else [*problem.development_options(model=policy), f"-pmu-profile={profile}"]
        )
        run("-c", "-o", "a.o", *for_clang(words))
        with open_elf(tmp_path / "a.o") as file:
            return {symbol.name for symbol in read_symbols(file, ".symtab")}

    # A policy that inlines no cold call shows that there are some.
    pinning = tmp_path / "pinning"
    network, weights = InliningRule(keep_locals=False).network()
    export.publish(export.Policy(network, weights, {}), pinning)
    push_back = "_ZNSt6vectorI4PairSaIS0_EE9push_backERKS0_"
    assert push_back in functions(pinning)
    assert push_back not in functions(None)
    assert push_back not in functions(REPO_ROOT / "models" / "inline-speed")


@pytest.mark.compiler
def test_the_eviction_policy_decides_by_a_profile_only(
    toolchain: Toolchain, tmp_path: Path
) -> None:
    (tmp_path / "calls.c").write_text(_RARE_CALL)
    clang = [os.fspath(toolchain.clang), "-O2", *PROFILING_FLAGS.split(), "calls.c"]
    run_command([*clang, "-Wl,--build-id", "-o", "calls"], cwd=tmp_path, timeout_s=120)
    profile = tmp_path / "calls.pmu.json"
    collect(tmp_path / "calls", ("5000",), profile, timeout_s=120)
    problem, model = PROBLEMS["regalloc-evict"], REPO_ROOT / "models" / "regalloc-evict"

    def compiled(options: list[str]) -> bytes:
        environment = {"LLVM_LITERT_LIBRARY": os.fspath(toolchain.litert_library)}
        words = [*clang, *for_clang(options), "-c", "-o", "a.o"]
        run_command(words, cwd=tmp_path, timeout_s=120, env=environment)
        return (tmp_path / "a.o").read_bytes()

    default = compiled([])
    assert compiled(problem.development_options(model=model)) == default
    assert compiled(problem.development_options(model=model, profile=profile)) != default
