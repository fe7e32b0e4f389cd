# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a reader on an input, and checks that it uses or refuses the input cleanly."""

import contextlib
import hashlib
import io
import os
import shlex
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from compiler_opt_perf.cli.main import run as run_cop
from compiler_opt_perf.cli.train_verbs import EXIT_WORSE
from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.toolchain.installation import Toolchain

#: Time limit in seconds of a reader's run, and of the processes that it starts.
LIMIT_S = 30.0
MEMORY_MIB = 8192
#: Time limit in seconds of a resumed training, which imports TensorFlow.
RESUMED_S = 200.0
# Exit statuses of `cop` and of LLVM's tools for a refused input.
_COP_REFUSED = (1, 2)
_TOOL_REFUSED = 1
# The folder for readers' output.
_OUTPUT = "out"


class RefusedError(Exception):
    """The reader refused the input; the text is its message."""


class FailedError(Exception):
    """The reader failed.

    Attributes:
      how: "crash", "hang", "traceback", "mute" (it refused the input without a message), or
        "altered" (it used the input, and gave another result than a damage may cause).
      message: what the reader printed.
    """

    def __init__(self, how: str, message: str):
        super().__init__(how, message)
        self.how = how
        self.message = message


# Runs a reader in a folder; returns its result. Raises RefusedError and FailedError.
Runner = Callable[[Path, Toolchain], bytes]


def cop(line: str) -> Runner:
    """A runner of a verb of cop, in this process."""

    def run(folder: Path, toolchain: Toolchain) -> bytes:
        words = [word.format(toolchain=toolchain.directory) for word in shlex.split(line)]
        with _captured() as (output, messages):
            status = run_cop(words)
        said = messages.getvalue()
        if status == 0:
            return output.getvalue() + _written(folder)
        errors = [text for text in said.splitlines() if text.startswith(b"cop ")]
        text = said.decode(errors="replace")
        if status not in _COP_REFUSED:
            raise FailedError("traceback", f"exit status {status}: {text}")
        if len(errors) != 1:
            raise FailedError("mute", f"expected one line with the error: {text!r}")
        raise RefusedError(text)

    return run


def call(read: Callable[[], object]) -> Runner:
    """A runner of a function, in this process; an exception of the package is a refusal."""

    def run(folder: Path, toolchain: Toolchain) -> bytes:
        del toolchain
        with _captured() as (output, _):
            try:
                found = read()
            except Exception as error:
                if not type(error).__module__.startswith("compiler_opt_perf."):
                    raise
                if not str(error).strip():
                    raise FailedError(
                        "mute", f"{type(error).__name__} without a message"
                    ) from error
                raise RefusedError(str(error)) from error
        return repr(found).encode(errors="replace") + output.getvalue() + _written(folder)

    return run


def tool(line: str) -> Runner:
    """A runner of a tool of LLVM, as a process."""

    def run(folder: Path, toolchain: Toolchain) -> bytes:
        return _tool(line, folder, toolchain)

    return run


def resumed(line: str) -> Runner:
    """A runner that resumes a finished training: it must fail, or publish the same again."""

    def run(folder: Path, toolchain: Toolchain) -> bytes:
        published = folder / "training"
        before = _published(folder / "sound")
        try:
            _tool(f"{line} --toolchain={toolchain.directory}", folder, toolchain, RESUMED_S)
        except FailedError as error:
            if not isinstance(error.__cause__, CommandError):
                raise
            if error.__cause__.returncode != EXIT_WORSE:
                raise
        if _published(published) != before:
            raise FailedError("altered", "the training published something else")
        return b"as before"

    return run


def _published(training: Path) -> dict[str, bytes]:
    """Name -> content of each file that a training publishes."""
    paths = [training / "training.json", training / "curve.jsonl"]
    paths += sorted(path for path in (training / "policy").rglob("*") if path.is_file())
    return {str(path.relative_to(training)): path.read_bytes() for path in paths}


def hosted(line: str, answers: str) -> Runner:
    """A runner of a tool of LLVM in interactive mode; the host answers from a file."""

    def run(folder: Path, toolchain: Toolchain) -> bytes:
        with _answering(folder / "channel", folder / answers):
            return _tool(line, folder, toolchain)

    return run


def _tool(line: str, folder: Path, toolchain: Toolchain, limit_s: float | None = None) -> bytes:
    words = shlex.split(line)
    words[0] = str(toolchain.directory / "bin" / words[0])
    environment = {"LLVM_LITERT_LIBRARY": str(toolchain.litert_library)}
    try:
        done = run_command(
            words, cwd=folder, env=environment, memory_mib=MEMORY_MIB, timeout_s=limit_s or LIMIT_S
        )
    except CommandError as error:
        if error.kind == "timeout":
            raise FailedError("hang", str(error)) from error
        if "Traceback (most recent call last)" in error.stderr:
            raise FailedError("traceback", str(error)) from error
        if error.returncode != _TOOL_REFUSED or "PLEASE submit a bug report" in error.stderr:
            raise FailedError("crash", str(error)) from error
        if not error.stderr.strip():
            raise FailedError("mute", str(error)) from error
        raise RefusedError(error.stderr) from error
    # Printers of passes write to standard error.
    return (done.stdout + done.stderr).encode(errors="replace") + _written(folder)


@contextlib.contextmanager
def _answering(channel: Path, answers: Path) -> Iterator[None]:
    """A host of interactive mode that writes all answers at once, and closes its pipe."""
    incoming, outgoing = Path(f"{channel}.in"), Path(f"{channel}.out")
    for path in (incoming, outgoing):
        os.mkfifo(path)

    sound = answers.is_file() and answers.stat().st_size < 1 << 20
    content = answers.read_bytes() if sound else b""

    def write() -> None:
        with contextlib.suppress(OSError), incoming.open("wb", buffering=0) as stream:
            stream.write(content)

    def read() -> None:
        with outgoing.open("rb") as stream:
            while stream.read(1 << 16):
                pass

    threads = [threading.Thread(target=work, daemon=True) for work in (write, read)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        # Opens the ends that the compiler did not open, so that the threads end.
        ends = [os.open(path, os.O_RDWR | os.O_NONBLOCK) for path in (incoming, outgoing)]
        threads[0].join(LIMIT_S)
        os.close(ends[1])
        threads[1].join(LIMIT_S)
        os.close(ends[0])


@contextlib.contextmanager
def _captured() -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    """Captures standard output and error as bytes, encoded as for a terminal."""
    output, messages = io.BytesIO(), io.BytesIO()
    streams = (
        io.TextIOWrapper(output, encoding="utf-8", errors="strict", write_through=True),
        io.TextIOWrapper(messages, encoding="utf-8", errors="backslashreplace", write_through=True),
    )
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        yield output, messages
        for stream in streams:
            stream.flush()
    # A wrapper would close its buffer, which is read later.
    for stream in streams:
        stream.detach()


def _written(folder: Path) -> bytes:
    """A digest of all files that a reader wrote."""
    digest = hashlib.sha256()
    for path in sorted((folder / _OUTPUT).rglob("*")):
        if path.is_file():
            digest.update(str(path.relative_to(folder)).encode(errors="replace"))
            digest.update(path.read_bytes())
    return digest.digest()
