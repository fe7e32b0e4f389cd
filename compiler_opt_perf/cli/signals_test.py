# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ends running commands as batch systems do; nothing of them is left."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT

pytestmark = pytest.mark.compiler

# Says that it runs, then runs for ever.
_PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
volatile long Sink;
int main(int Argc, char **Argv) {
  fclose(fopen(Argv[1], "w"));
  for (;;)
    ++Sink;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    (folder / "endless.c").write_text(_PROGRAM)
    flags = [*PROFILING_FLAGS.split(), "-fbasic-block-address-map", "-Wl,--build-id"]
    clang = [str(stock_tool("clang")), "-O1", "-fuse-ld=lld", *flags]
    run_command([*clang, folder / "endless.c", "-o", folder / "endless"])
    return folder / "endless"


def _restore_signals() -> None:
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def running(arguments: Sequence[str], scratch: Path) -> Iterator[subprocess.Popen[str]]:
    """`cop` with these arguments and temporary files in `scratch`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "compiler_opt_perf.cli.main", *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TMPDIR": str(scratch)},
        # A test that was started in the background, or by nohup, ignores some signals.
        preexec_fn=_restore_signals,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _send(process: "subprocess.Popen[str]", number: signal.Signals, verb: str) -> None:
    """Ends a running verb; it says so, and nothing else, and its exit status is the signal's."""
    process.send_signal(number)
    _, messages = process.communicate(timeout=60)
    how = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
    assert messages.splitlines()[-1] == f"cop {verb}: {how}; nothing unfinished is left behind"
    assert "Traceback" not in messages
    assert process.returncode == 128 + number


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("kind", [".pmu.json", ".bbtrace"])
def test_nothing_is_left_of_a_run(
    program: Path, tmp_path: Path, number: signal.Signals, kind: str
) -> None:
    scratch, output, ready = (tmp_path / name for name in ("scratch", "output", "ready"))
    scratch.mkdir()
    verb = "profile collect" if kind == ".pmu.json" else "trace record"
    words = [*verb.split(), f"--binary={program}", f"--output={output / 'e'}{kind}"]
    with running([*words, "--", str(ready)], scratch) as process:
        for _ in range(600):
            if ready.exists() or process.poll() is not None:
                break
            time.sleep(0.1)
        assert ready.exists()
        _send(process, number, verb)
    assert list(scratch.iterdir()) == []
    assert list(output.iterdir()) == []


def _wait_for(process: "subprocess.Popen[str]", folder: Path, pattern: str) -> None:
    for _ in range(600):
        if any(folder.glob(pattern)) or process.poll() is not None:
            break
        time.sleep(0.1)
    assert process.poll() is None, process.communicate()[1]
    assert any(folder.glob(pattern))


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compilations of modules that take long."""
    folder = tmp_path_factory.mktemp("commands")
    function = "int f{0}(int *P, int N) {{ for (int I = 0; I < N; ++I) P[I] += {0} / P[N - I]; "
    function += "return P[N] * {0}; }}\n"
    entries = []
    for name in ("a", "b", "c", "d"):
        (folder / f"{name}.c").write_text("".join(map(function.format, range(5000))))
        words = ["clang", "-c", f"{name}.c"]
        entries.append({"directory": str(folder), "file": f"{name}.c", "arguments": words})
    path = folder / "compile_commands.json"
    path.write_text(json.dumps(entries))
    return path


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_of_an_extraction(
    commands: Path, tmp_path: Path, number: signal.Signals
) -> None:
    scratch, output = tmp_path / "scratch", tmp_path / "output"
    scratch.mkdir()
    words = ["corpus", "extract", "--problem=regalloc-evict", f"--output={output / 'c'}"]
    with running([*words, f"p={commands}"], scratch) as process:
        # The folder of the first module: it is being compiled.
        _wait_for(process, output, ".c.*.tmp/*/p")
        _send(process, number, "corpus extract")
    assert list(scratch.iterdir()) == []
    assert list(output.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_of_a_comparison(
    commands: Path, toolchain: Toolchain, tmp_path: Path, number: signal.Signals
) -> None:
    scratch, output, corpus = tmp_path / "scratch", tmp_path / "output", tmp_path / "corpus"
    scratch.mkdir()
    output.mkdir()
    corpus.mkdir()
    source = commands.with_name("a.c")
    clang = [str(stock_tool("clang")), "-O2", "-Xclang", "-disable-llvm-passes", "-emit-llvm"]
    run_command([*clang, "-c", source, "-o", corpus / "a.bc"])
    description = {"modules": ["a"], "global_command_override": ["-O2"]}
    (corpus / "corpus_description.json").write_text(json.dumps(description))
    words = ["compare", "policy", "--problem=regalloc-evict", f"--corpus={corpus}"]
    words += [f"--model={REPO_ROOT / 'lit_tests' / 'Inputs' / 'evict-first'}"]
    words += [f"--output={output / 'c.json'}"]
    words += [f"--toolchain={toolchain.directory}"]
    words += [f"--release-toolchain={toolchain.directory}"]
    with running(words, scratch) as process:
        # In the folder of the workers, the folder of a compilation.
        _wait_for(process, scratch, "*/*/*")
        _send(process, number, "compare policy")
    assert list(scratch.iterdir()) == []
    assert list(output.iterdir()) == []
