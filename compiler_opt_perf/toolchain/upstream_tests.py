# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs upstream's own lit tests of its ML advisors, unmodified, on the patched tools.

As a program: `tools/upstream-lit`, on the model set "mock".
"""

import json
import re
import shlex
import shutil
import sys
from pathlib import Path

from compiler_opt_perf.execution.command import CommandError, run_command
from compiler_opt_perf.execution.files import atomic_directory, write_text
from compiler_opt_perf.toolchain.aot import venv_program
from compiler_opt_perf.toolchain.build import MOCK_SET
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import (
    BUILD,
    LLVM_MAJOR,
    LLVM_PREFIX,
    ToolchainError,
    exclusive,
)
from compiler_opt_perf.toolchain.source import llvm_source

SUITES = (
    "Transforms/Inline/ML",
    "Transforms/Inline/inlining-advisor-default.ll",
    "CodeGen/MLRegAlloc",
)
UNSUPPORTED = (
    # The three of advisors (REQUIRES: !have_tf_aot, !have_tflite) check the errors that a compiler
    # with neither models nor development mode gives when asked for them; ours has both.
    "LLVM :: CodeGen/MLRegAlloc/default-eviction-advisor.ll",
    "LLVM :: CodeGen/MLRegAlloc/default-priority-advisor.ll",
    "LLVM :: Transforms/Inline/inlining-advisor-default.ll",
    # Checks that without development mode (REQUIRES: !have_tflite) no size is estimated;
    # size-estimator-development.ll, which passes, checks the estimate.
    "LLVM :: Transforms/Inline/ML/size-estimator-default.ll",
)

_TRIPLE = "x86_64-pc-linux-gnu"


def run_upstream_tests(toolchain: Toolchain, source: Path, output: Path) -> str:
    """Runs `SUITES` and checks that every test passes, but for `UNSUPPORTED`.

    Args:
      toolchain: tools with upstream's mock models.
      source: pristine LLVM tree.
      output: folder for results, replaced.

    Returns:
      A line with the counts.

    Raises:
      ToolchainError: naming the tests that fail or are not run.
    """
    with atomic_directory(output) as partial:
        (partial / "test").mkdir()
        _link_tools(toolchain, partial / "bin")
        # saved-model-to-tflite.py imports TF-Agents and does not use it.
        shim = partial / "modules" / "tf_agents" / "policies"
        shim.mkdir(parents=True)
        for module in ("../__init__.py", "__init__.py", "greedy_policy.py"):
            (shim / module).touch()
        # A wrapper, since lit's own diff forgets the PYTHONPATH of the commands after it.
        python = partial / "python"
        python.write_text(
            f"#!/bin/sh\nPYTHONPATH={shlex.quote(str(output / 'modules'))} "
            f'exec {shlex.quote(sys.executable)} "$@"\n'
        )
        python.chmod(0o755)
    template = (source / "llvm/test/lit.site.cfg.py.in").read_text()
    write_text(
        output / "test" / "lit.site.cfg.py", _site_config(template, source, output, toolchain)
    )
    # lit is started on our configuration and finds the tests in the source tree.
    results = output / "results.json"
    try:
        run_command(
            [venv_program("lit"), "--quiet", f"--output={results}",
             *(output / "test" / suite for suite in SUITES)],
            timeout_s=3600,
            env={"LIT_USE_INTERNAL_SHELL": "1"},
        )  # fmt: skip
    except CommandError as error:
        if not results.is_file():
            raise ToolchainError(f"lit does not run: {error}") from error
    tests = {test["name"]: test for test in json.loads(results.read_text())["tests"]}
    return _judge(tests, results)


def _judge(tests: dict[str, dict[str, str]], results: Path) -> str:
    passed = [name for name, test in tests.items() if test["code"] == "PASS"]
    unsupported = [name for name, test in tests.items() if test["code"] == "UNSUPPORTED"]
    failed = sorted(tests.keys() - {*passed, *unsupported})
    summary = f"{len(passed)} pass, {len(unsupported)} unsupported, {len(failed)} fail"
    if failed:
        outputs = "\n".join(f"{name}: {tests[name]['output'][-2000:]}" for name in failed)
        raise ToolchainError(f"upstream's lit tests: {summary} ({results}):\n{outputs}")
    if sorted(unsupported) != sorted(UNSUPPORTED) or not passed:
        raise ToolchainError(
            f"upstream's lit tests: {summary}; expected {len(UNSUPPORTED)} unsupported by design: "
            f"{', '.join(UNSUPPORTED)}; have {', '.join(sorted(unsupported))} ({results})"
        )
    return summary


def _link_tools(toolchain: Toolchain, folder: Path) -> None:
    folder.mkdir()
    ours = {tool.name: tool for tool in (toolchain.clang, toolchain.opt, toolchain.llc)}
    stock = {tool.name: tool for tool in (LLVM_PREFIX / "bin").iterdir()}
    for name, tool in {**stock, **ours}.items():
        (folder / name).symlink_to(tool)


def _site_config(template: str, source: Path, output: Path, toolchain: Toolchain) -> str:
    """Upstream's site configuration with its CMake variables filled in."""
    values = {
        "LIT_SITE_CFG_IN_HEADER": "import os\npath = str",
        "LLVM_HOST_TRIPLE": _TRIPLE,
        "LLVM_TARGET_TRIPLE": _TRIPLE,
        "LLVM_SOURCE_DIR": source / "llvm",
        "LLVM_BINARY_DIR": output,
        "LLVM_TOOLS_DIR": output / "bin",
        "LLVM_LIBS_DIR": LLVM_PREFIX / "lib",
        "SHLIBDIR": LLVM_PREFIX / "lib",
        "SHLIBEXT": ".so",
        "LLVM_PLUGIN_EXT": ".so",
        "Python3_EXECUTABLE": sys.executable,
        "TARGETS_TO_BUILD": "X86",
        "LLVM_NATIVE_ARCH": "X86",
        "GOLD_EXECUTABLE": shutil.which("ld") or "ld",
        "HOST_OS": "Linux",
        "HOST_ARCH": "x86_64",
        "HOST_CC": LLVM_PREFIX / "bin" / "clang",
        "HOST_CXX": LLVM_PREFIX / "bin" / "clang++",
        "LLVM_ENABLE_THREADS": 1,
        "LLVM_VERSION_MAJOR": LLVM_MAJOR,
        "LLVM_VERSION_MINOR": 1,
        "LLVM_HAVE_TF_AOT": 1,
        "LLVM_HAVE_TFLITE": 1,
        "LLVM_INLINER_MODEL_AUTOGENERATED": 1,
        "LLVM_RAEVICT_MODEL_AUTOGENERATED": 1,
    }

    def fill(match: re.Match[str]) -> str:
        quoted = match.string[match.start() - 1 : match.start()] in ("'", '"')
        return str(values.get(match[1], "" if quoted else 0))

    environment = {
        "LLVM_LITERT_LIBRARY": toolchain.litert_library,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
    }
    lines = [f"config.environment[{name!r}] = {str(v)!r}\n" for name, v in environment.items()]
    # Before upstream's own definition of it, which is the interpreter that runs lit.
    lines.append(f"config.substitutions.insert(0, ('%python', {str(output / 'python')!r}))\n")
    return re.sub(r"@(\w+)@", fill, template) + "\n" + "".join(lines)


def main() -> None:
    try:
        toolchain = Toolchain.load(BUILD / "toolchain" / MOCK_SET)
        output = BUILD / "upstream-lit"
        with exclusive(BUILD / "upstream-lit.lock"):
            print(run_upstream_tests(toolchain, llvm_source(), output))
    except ToolchainError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
