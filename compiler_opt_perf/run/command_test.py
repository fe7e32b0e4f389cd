# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import pickle
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compiler_opt_perf.run.command import CommandError, run_command, start_command


def _running(marker: str) -> bool:
    listing = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return any(line.strip() == f"sleep {marker}" for line in listing.stdout.splitlines())


def _wait_until_gone(marker: str) -> bool:
    deadline = time.monotonic() + 60
    while _running(marker) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not _running(marker)


def test_output_and_time_are_returned(tmp_path: Path) -> None:
    done = run_command(["sh", "-c", "pwd; echo $COLOUR >&2"], cwd=tmp_path, env={"COLOUR": "blue"})
    assert done.stdout == f"{tmp_path}\n"
    assert done.stderr == "blue\n"
    assert (done.status, done.timed_out) == (0, False)


def test_usage_is_that_of_the_command_alone() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    for words, least, most in (
        ([sys.executable, "-S", "-c", busy], 0.3, 1.0),
        (["sleep", "0.3"], 0.0, 0.1),
    ):
        done = run_command(words)
        assert least <= done.processor_seconds < most
        assert done.seconds >= 0.3
        assert done.peak_mib > 1


def test_a_command_without_our_environment() -> None:
    with start_command(["env"], env={"COLOUR": "blue"}, inherit_env=False) as command:
        assert command.finish().stdout == "COLOUR=blue\n"


def test_further_limits_hold() -> None:
    with (
        start_command(["sh", "-c", "ulimit -f"], limits=["--fsize=5120"]) as command,
    ):
        assert command.finish().stdout == "10\n"


def test_output_can_be_shown_as_it_comes(capfd: pytest.CaptureFixture[str]) -> None:
    done = run_command(["sh", "-c", "echo out; echo err >&2"], show_output=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert sorted(capfd.readouterr().err.split()) == ["err", "out"]


def test_missing_program() -> None:
    with pytest.raises(CommandError, match="no-such-compiler: no such program") as caught:
        run_command(["no-such-compiler", "-c"])
    assert caught.value.kind == "missing"


def test_what_cannot_be_started(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for words, cwd, reason in (
        (["true"], tmp_path / "gone", "gone: No such file or directory"),
        (["true"], file, "file: Not a directory"),
        (["true", "x" * 1_000_000], tmp_path, "Argument list too long"),
    ):
        with pytest.raises(CommandError, match=f"true: cannot be started in .*{reason}") as caught:
            run_command(words, cwd=cwd)
        assert caught.value.kind == "missing"


def test_failure_shows_diagnostics_and_how_to_reproduce(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as caught:
        run_command(["sh", "-c", "echo 'bad input' >&2; exit 7"], cwd=tmp_path)
    assert caught.value.kind == "failed"
    assert caught.value.returncode == 7
    text = str(caught.value)
    assert "exit status 7" in text and "bad input" in text
    assert f"cd {tmp_path} && sh -c 'echo '" in text


def test_crash_names_the_signal() -> None:
    with pytest.raises(CommandError, match="ended by signal 36 after"):
        run_command(["sh", "-c", "kill -36 $$"])
    with pytest.raises(CommandError, match="ended by SIGSEGV") as caught:
        run_command(["sh", "-c", "kill -SEGV $$"])
    assert caught.value.kind == "crashed"


def test_time_limit_kills_the_whole_process_group() -> None:
    marker = "61.40917"
    with pytest.raises(CommandError, match="killed after its limit of 0.3 s") as caught:
        run_command(["sh", "-c", f"sleep {marker} & wait"], timeout_s=0.3)
    assert caught.value.kind == "timeout"
    assert _wait_until_gone(marker)


def test_memory_limit() -> None:
    hungry = "b = bytearray(600 << 20)"
    with pytest.raises(CommandError, match="MemoryError"):
        run_command([sys.executable, "-c", hungry], memory_mib=300)


@pytest.mark.parametrize(
    ("words", "memory_mib"),
    [
        ([sys.executable, "-c", "b = bytearray(600 << 20)"], 300),
        # Too large to be started: the kernel kills it, and nothing is said.
        (["true"], 1),
        (["sh", "-c", "echo 'LLVM ERROR: out of memory' >&2; kill -ABRT $$"], 500),
        (["sh", "-c", "echo 'terminate called ... std::bad_alloc' >&2; exit 1"], 500),
    ],
)
def test_the_limit_of_memory_is_named_as_the_cause(words: list[str], memory_mib: int) -> None:
    message = rf"needs more memory than its limit of {memory_mib} MiB \(memory_mib\)"
    with pytest.raises(CommandError, match=message) as caught:
        run_command(words, memory_mib=memory_mib)
    assert caught.value.is_out_of_memory
    assert pickle.loads(pickle.dumps(caught.value)).is_out_of_memory


@pytest.mark.parametrize(
    ("script", "memory_mib"),
    [
        ("echo 'Stack dump: #0 f' >&2; kill -SEGV $$", 500),
        ("kill -SEGV $$", None),
        ("echo 'LLVM ERROR: out of memory' >&2; exit 1", None),
        ("echo 'error: expected ;' >&2; exit 1", 500),
    ],
)
def test_other_failures_are_not_blamed_on_it(script: str, memory_mib: int | None) -> None:
    with pytest.raises(CommandError) as caught:
        run_command(["sh", "-c", script], memory_mib=memory_mib)
    assert "memory_mib" not in caught.value.reason and not caught.value.is_out_of_memory


def test_command_dies_with_its_parent() -> None:
    marker = "62.51783"
    script = (
        f"from compiler_opt_perf.run.command import run_command;run_command(['sleep', '{marker}'])"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], cwd=Path(__file__).parents[2])
    try:
        deadline = time.monotonic() + 60
        while not _running(marker) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert _running(marker)
    finally:
        parent.kill()
        parent.wait()
    assert _wait_until_gone(marker)


def test_a_smaller_limit_of_this_process_holds() -> None:
    script = "from compiler_opt_perf.run.command import run_command as run; "
    script += "print(run(['sh', '-c', 'ulimit -v'], memory_mib=16384).stdout)"
    for limit, expected in ((4 << 30, 4 << 20), (32 << 30, 16 << 20)):
        words = ["prlimit", f"--as={limit}", sys.executable, "-c", script]
        assert int(run_command(words).stdout) == expected
