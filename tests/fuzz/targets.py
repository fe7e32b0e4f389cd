# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The readers: their inputs, which files of these are damaged, and how a reader is run.

Of more than 400 lines, for it is the one list of all readers.
"""

import contextlib
import hashlib
import io
import json
import os
import shlex
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from compiler_opt_perf.binary.address_map import read_address_map
from compiler_opt_perf.binary.disassembly import disassemble
from compiler_opt_perf.blocks.block_code import distinct, find_blocks, request
from compiler_opt_perf.blocks.block_file import read_blocks
from compiler_opt_perf.blocks.model import load as load_cost_model
from compiler_opt_perf.cli.main import run as run_cop
from compiler_opt_perf.cli.train_verbs import EXIT_WORSE
from compiler_opt_perf.compare import check_tables, history
from compiler_opt_perf.compare.baseline import read_baseline
from compiler_opt_perf.compare.check import check
from compiler_opt_perf.compare.comparison import read_comparison
from compiler_opt_perf.compare.comparison_tables import describe
from compiler_opt_perf.compare.limits import read_limits
from compiler_opt_perf.compare.testing import sample
from compiler_opt_perf.corpus.build_output import find_modules
from compiler_opt_perf.corpus.corpus import Corpus
from compiler_opt_perf.cost.correction import read_correction
from compiler_opt_perf.policy.export import load
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.profile.callgrind_dump import read_dump
from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.trace.windows import Windows
from compiler_opt_perf.train.checkpoint import Checkpoint
from compiler_opt_perf.train.config import read_config
from compiler_opt_perf.train.label_files import labelled_rows, logged_rows, read_labels
from compiler_opt_perf.train.log import read_log
from compiler_opt_perf.train.measure import read_default
from tests.fuzz import inputs
from tests.fuzz.mutations import REPLACEMENTS

#: Time limit of a reader's run, and of the processes that it starts.
LIMIT_S = 30.0
MEMORY_MIB = 8192
# One that imports TensorFlow.
_RESUMED_S = 200.0
# Exit statuses of `cop`, and that of LLVM's tools, for an input that is refused.
_COP_REFUSED = (1, 2)
_TOOL_REFUSED = 1
# Where readers write to.
_OUTPUT = "out"


class RefusedError(Exception):
    """The reader ended with its status for a wrong input; the text is its message."""


class FailedError(Exception):
    """The reader did what no reader may do.

    Attributes:
      how: "crash", "hang", "traceback", "mute" (it ended without a message) or "altered" (it took
        the input and found something else than in the sound one, which no damage may cause).
    """

    def __init__(self, how: str, message: str):
        super().__init__(how, message)
        self.how = how
        self.message = message


# Runs a reader in a folder; returns what it found. Raises RefusedError and FailedError.
Run = Callable[[Path, Toolchain], bytes]


@dataclass(frozen=True)
class Target:
    """One reader.

    Attributes:
      name: of the row in the table.
      make: makes the sound inputs.
      damaged: patterns of the files that are damaged, and in which way (mutations.DAMAGES).
      run: the reader.
      inputs: how many damaged inputs a full run gives it.
      seal: corrects the checksums after the damage, so that it gets to the reader.
      replacements: what may be in the place of a file.
      limit_s: time limit of a run.
    """

    name: str
    make: inputs.Make
    damaged: Mapping[str, str]
    run: Run
    inputs: int = 60
    seal: Callable[[Path], None] = field(default=lambda folder: None)
    replacements: Sequence[str] = REPLACEMENTS
    limit_s: float = LIMIT_S


def cop(line: str) -> Run:
    """Runs a verb of cop in this process."""

    def run(folder: Path, toolchain: Toolchain) -> bytes:
        words = [word.format(toolchain=toolchain.directory) for word in shlex.split(line)]
        with _captured() as (output, messages):
            status = run_cop(words)
        said = messages.getvalue()
        if status == 0:
            return output.getvalue() + _written(folder)
        errors = [one for one in said.splitlines() if one.startswith(b"cop ")]
        text = said.decode(errors="replace")
        if status not in _COP_REFUSED:
            raise FailedError("traceback", f"exit status {status}: {text}")
        if len(errors) != 1:
            raise FailedError("mute", f"expected one line with the error: {text!r}")
        raise RefusedError(text)

    return run


def call(read: Callable[[], object]) -> Run:
    """A function of the package, in this process; what it raises of the package's is a refusal."""

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


def tool(line: str) -> Run:
    """One of LLVM's tools, as a process."""

    def run(folder: Path, toolchain: Toolchain) -> bytes:
        return _tool(line, folder, toolchain)

    return run


def resumed(line: str) -> Run:
    """Goes on with a training that had ended: an error, or what was published before."""

    def run(folder: Path, toolchain: Toolchain) -> bytes:
        published = folder / "training"
        before = _published(folder / "sound")
        try:
            _tool(f"{line} --toolchain={toolchain.directory}", folder, toolchain, _RESUMED_S)
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
    """What a training publishes, by name."""
    paths = [training / "training.json", training / "curve.jsonl"]
    paths += sorted(path for path in (training / "policy").rglob("*") if path.is_file())
    return {str(path.relative_to(training)): path.read_bytes() for path in paths}


def _measured_defaults() -> list[object]:
    """What a training reads of its measurements of the default policy."""
    found = []
    for sound in sorted(Path("sound/default").rglob("*.json")):
        log = Path("training", *sound.parts[1:]).with_suffix(".log")
        one = read_default(log, json.loads(sound.read_bytes())["inputs"])
        if one is None:
            raise RefusedError(f"{log}: is measured again")
        found += [one, read_log(log)]
    return found


def _labelled() -> object:
    """What is learnt from of a file of labels."""
    labels = read_labels(Path("labels.npz"))
    if not len(labels.keys):
        return labels
    problem = PROBLEMS["inline-size"]
    return labelled_rows(problem, [labels]), logged_rows(problem, [labels])


def _judged() -> object:
    """What the gate says of a candidate that is as the sound baseline was."""
    baseline = read_baseline(Path("baseline.json"))
    result = check(baseline, sample(text=1500), read_limits(Path("limits.toml")))
    return check_tables.describe(result), check_tables.junit(result), check_tables.markdown(result)


def _blocks_to_measure() -> object:
    """The blocks of binaries, objects and lists, as the program that runs them wants them."""
    paths = [Path(name) for name in ("program", "program.o", "some.csv")]
    return [request(block.code) for block in distinct(find_blocks({"p": paths}))]


def hosted(line: str, answers: str) -> Run:
    """One of LLVM's tools in interactive mode, whose host answers what a file holds."""

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
    """A host that writes all its answers at once, and then leaves."""
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
        # Those whose other end the compiler did not open still wait for it.
        ends = [os.open(path, os.O_RDWR | os.O_NONBLOCK) for path in (incoming, outgoing)]
        threads[0].join(LIMIT_S)
        os.close(ends[1])
        threads[1].join(LIMIT_S)
        os.close(ends[0])


@contextlib.contextmanager
def _captured() -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    """Standard output and error as bytes, encoded as those of a terminal are."""
    output, messages = io.BytesIO(), io.BytesIO()
    streams = (
        io.TextIOWrapper(output, encoding="utf-8", errors="strict", write_through=True),
        io.TextIOWrapper(messages, encoding="utf-8", errors="backslashreplace", write_through=True),
    )
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        yield output, messages
        for stream in streams:
            stream.flush()
    # The buffers are read after the wrappers are gone, which would close them.
    for stream in streams:
        stream.detach()


def _written(folder: Path) -> bytes:
    """A digest of all that a reader wrote."""
    digest = hashlib.sha256()
    for path in sorted((folder / _OUTPUT).rglob("*")):
        if path.is_file():
            digest.update(str(path.relative_to(folder)).encode(errors="replace"))
            digest.update(path.read_bytes())
    return digest.digest()


_PROFILE = {
    "one.pmu.json": "json",
    "one.functions": "bytes",
    "one.index": "bytes",
    "one.sources.json": "json",
    "one.*.afdo": "bytes",
}
_TRACE = {"run.bbtrace": "trace"}
_WINDOWS = {"run.bbwindows": "trace"}
_CORPUS = {
    "corpus/*/corpus_description.json": "json",
    "corpus/train/**/*.cmd": "text",
    "corpus/train/**/*.bc": "bytes",
}
_MODEL = {"output_spec.json": "json", "model.tflite": "bytes"}
_TRAINING = {
    "training/checkpoint.npz": "arrays",
    "training/curve.jsonl": "json lines",
    "training/inputs.json": "json",
    "training/training.json": "json",
    "training/default/**/*.log": "bytes",
    "training/default/**/*.json": "json",
    "training/policy/model.json": "json",
    "training/policy/[!m]*": "bytes",
}


def _in(folder: str, files: Mapping[str, str]) -> dict[str, str]:
    return {f"{folder}/{name}": kind for name, kind in files.items()}


def _profile_target(name: str, line: str, number: int) -> Target:
    return Target(name, inputs.profile, _PROFILE, cop(line), number, inputs.seal_profile)


def _trace_target(name: str, line: str) -> Target:
    return Target(name, inputs.trace, _TRACE, cop(line))


# As a process, for it has workers of its own.
_EXTRACT = (
    f"{sys.executable} -m compiler_opt_perf.cli.main corpus extract --problem=inline-size "
    "--output=out/corpus"
)
# LLVM's tools read pipes and devices that their arguments name; these have no end.
_NO_PIPES = tuple(kind for kind in REPLACEMENTS if kind not in ("pipe", "endless"))
_COMPILE_PROFILE = "opt -passes=print<pmu-profile> -pmu-profile=one.pmu.json program.ll"
_COST = "llvm-trace-cost -trace={trace} -o out/cost.json"
_CYCLES = "-cpu=cpu.json -pmu-profile=one.pmu.json"

TARGETS: tuple[Target, ...] = (
    _profile_target("cop profile show", "profile show one.pmu.json", 120),
    _profile_target("cop profile check", "profile check one.pmu.json --binary=program", 80),
    _profile_target("cop profile diff", "profile diff both.pmu.json one.pmu.json", 60),
    _profile_target(
        "cop profile merge", "profile merge one.pmu.json both.pmu.json --output=out/m.pmu.json", 60
    ),
    _profile_target(
        "cop profile coverage", "profile coverage program.o --profile=one.pmu.json", 60
    ),
    _trace_target("cop trace list", "trace list run.bbtrace"),
    _trace_target("cop trace show", "trace show run.bbtrace --binary=program"),
    _trace_target("cop trace merge", "trace merge run.bbtrace run.bbtrace --output=out/m.bbtrace"),
    _trace_target("cop trace cut", "trace cut run.bbtrace --first=5 --output=out/c.bbtrace"),
    _trace_target("cop trace windows", "trace windows run.bbtrace --output=out/w.bbwindows"),
    _trace_target("cop trace overlap", "trace overlap run.bbtrace run.bbtrace"),
    Target(
        "windows of a trace",
        inputs.trace,
        _WINDOWS,
        call(lambda: Windows.load(Path("run.bbwindows"))),
        120,
    ),
    Target(
        "cop profile collect --recording",
        inputs.recordings,
        {"script.txt": "text"},
        cop("profile collect --recording=script.txt --binary=program --output=out/p.pmu.json"),
        80,
    ),
    Target(
        "cop trace record --recording",
        inputs.recordings,
        {"script.txt": "text"},
        cop("trace record --recording=script.txt --binary=program --output=out/t.bbtrace"),
    ),
    Target(
        "cop profile collect --recording, binary",
        inputs.perf_data,
        {"perf.data": "bytes"},
        cop("profile collect --recording=perf.data --binary=program --output=out/p.pmu.json"),
        200,
    ),
    Target(
        "callgrind's output",
        inputs.recordings,
        {"callgrind.out": "text"},
        call(lambda: read_dump(Path("callgrind.out"), Path("hidden"))),
        120,
    ),
    Target("cop corpus show", inputs.corpus, _CORPUS, cop("corpus show corpus/train"), 80),
    Target(
        "corpus of a ThinLTO build",
        inputs.corpus,
        {"corpus/held_out/corpus_description.json": "json", "corpus/held_out/**/*.bc": "bytes"},
        call(lambda: Corpus.load(Path("corpus/held_out"))),
        80,
    ),
    Target(
        "objects with bitcode",
        inputs.corpus,
        {"build/*.o": "bytes"},
        call(lambda: [(one.name, one.bitcode()) for one in find_modules("p", Path("build"))]),
        100,
    ),
    Target(
        "cop corpus extract, objects",
        inputs.corpus,
        {"build/*.o": "bytes"},
        tool(f"{_EXTRACT} p=build"),
        30,
    ),
    Target(
        "cop corpus extract, commands",
        inputs.corpus,
        {"build/compile_commands.json": "json"},
        tool(f"{_EXTRACT} p=build/compile_commands.json"),
        50,
    ),
    Target(
        "cop cost predict, objects",
        inputs.trace,
        {"program.o": "bytes"},
        cop("cost predict --evaluator=size program.o"),
        80,
    ),
    Target(
        "cop cost predict, scores",
        inputs.scores,
        {"module.opt.yaml": "text"},
        cop("cost predict --evaluator=regalloc-score module.o"),
    ),
    Target(
        "machine code",
        inputs.trace,
        {"program": "bytes"},
        call(lambda: (disassemble(Path("program")), read_address_map(Path("program")))),
        150,
    ),
    Target(
        "measured blocks",
        inputs.blocks,
        {"some.blocks": "json lines"},
        call(lambda: read_blocks(Path("some.blocks"))),
        100,
    ),
    Target(
        "measured blocks, BHive's",
        inputs.blocks,
        {"some.csv": "text"},
        call(lambda: read_blocks(Path("some.csv"))),
        80,
    ),
    Target(
        "cost correction",
        inputs.correction,
        {"correction.json": "json"},
        call(lambda: read_correction(Path("correction.json"))),
        40,
    ),
    Target(
        "cost model",
        inputs.cost_model,
        {"model/model.json": "json", "model/weights.npz": "bytes"},
        call(lambda: load_cost_model(Path("model")).predict([], "znver3")),
        60,
    ),
    Target(
        "blocks to measure",
        inputs.blocks,
        {"program": "bytes", "program.o": "bytes", "some.csv": "text"},
        call(_blocks_to_measure),
        120,
    ),
    Target(
        "training logs",
        inputs.models,
        {"inline.log": "json lines"},
        call(lambda: read_log(Path("inline.log"))),
        80,
    ),
    Target(
        "checkpoints",
        inputs.checkpoint,
        {"checkpoint.npz": "arrays"},
        call(lambda: Checkpoint.load(Path("checkpoint.npz"))),
        60,
    ),
    Target(
        "recipes of cop train policy",
        inputs.recipes,
        {"recipe.toml": "text"},
        call(lambda: read_config("recipe.toml")),
        100,
    ),
    Target(
        "labels",
        inputs.labelled,
        {"labels.npz": "arrays"},
        call(_labelled),
        80,
    ),
    Target(
        "cop train show",
        inputs.imitation,
        {
            "training/*.json": "json",
            "training/curve.jsonl": "json lines",
            "training/labels/0/p/a.npz": "arrays",
        },
        cop("train show training --html=out/page.html"),
        80,
    ),
    Target(
        "cop train policy, ended",
        inputs.training,
        _TRAINING,
        resumed(inputs.TRAIN),
        40,
        limit_s=_RESUMED_S,
    ),
    Target(
        "default's measurements",
        inputs.training,
        {"training/default/**/*.log": "bytes", "training/default/**/*.json": "json"},
        call(_measured_defaults),
        100,
    ),
    Target(
        "policies",
        inputs.policy,
        {"model.json": "json", "weights.npz": "arrays"},
        call(lambda: load(Path())),
        80,
        inputs.seal_policy,
    ),
    Target(
        "comparisons",
        inputs.comparison,
        {"one.json": "json"},
        call(lambda: describe(read_comparison(Path("one.json")))),
        100,
    ),
    Target(
        "cop compare page",
        inputs.comparison,
        {"one.json": "json", "linked.json": "json", "training/curve.jsonl": "json lines"},
        cop("compare page linked.json one.json --training=training --output=out/page.html"),
        60,
    ),
    Target(
        "baselines of the gate",
        inputs.gate,
        {"baseline.json": "json"},
        call(_judged),
        100,
    ),
    Target(
        "limits of the gate",
        inputs.gate,
        {"limits.toml": "text"},
        call(_judged),
        80,
    ),
    Target(
        "history of the gate",
        inputs.gate,
        {"gate.jsonl": "json lines"},
        call(lambda: history.describe(history.events(Path("gate.jsonl")))),
        60,
    ),
    Target(
        "opt: profile",
        inputs.compiler_profile,
        _PROFILE,
        tool(f"{_COMPILE_PROFILE} -disable-output"),
        200,
        inputs.seal_profile,
    ),
    Target(
        "opt: model",
        inputs.models,
        _in("inline-one-block", _MODEL),
        tool(
            f"opt {' '.join(inputs.INLINE)} calls.ll -S -o out/calls.ll "
            "-ml-inliner-model-under-training=inline-one-block"
        ),
        80,
    ),
    Target(
        "llc: model",
        inputs.models,
        _in("evict-first", _MODEL),
        tool(f"llc {' '.join(inputs.EVICT)} pressure.ll -o out/p.s -regalloc-model=evict-first"),
        80,
    ),
    Target(
        "opt: decisions",
        inputs.models,
        {"inline.txt": "text"},
        tool(
            f"opt {' '.join(inputs.INLINE)} calls.ll -S -o out/calls.ll -mlgo-decisions=inline.txt"
        ),
        replacements=_NO_PIPES,
    ),
    Target(
        "llc: decisions",
        inputs.models,
        {"evict.txt": "text"},
        tool(f"llc {' '.join(inputs.EVICT)} pressure.ll -o out/p.s -mlgo-decisions=evict.txt"),
        replacements=_NO_PIPES,
    ),
    Target(
        "opt: interactive",
        inputs.models,
        {"inline.answers": "bytes"},
        hosted(
            "opt -passes=scc-oz-module-inliner -enable-ml-inliner=release calls.ll -S "
            "-o out/calls.ll -inliner-interactive-channel-base=channel",
            "inline.answers",
        ),
    ),
    Target(
        "llc: interactive",
        inputs.models,
        {"evict.answers": "bytes"},
        hosted(
            "llc -O2 -mtriple=x86_64-linux-gnu -regalloc-enable-advisor=release pressure.ll "
            "-o out/p.s -regalloc-evict-interactive-channel-base=channel",
            "evict.answers",
        ),
    ),
    Target(
        "llvm-trace-cost: trace",
        inputs.trace,
        _TRACE,
        tool(f"{_COST.format(trace='run.bbtrace')} -model=count program"),
        120,
        replacements=_NO_PIPES,
    ),
    Target(
        "llvm-trace-cost: windows",
        inputs.trace,
        _WINDOWS,
        tool(f"{_COST.format(trace='run.bbwindows')} -model=mca -cpu=cpu.json program.o"),
        120,
        replacements=_NO_PIPES,
    ),
    Target(
        "llvm-trace-cost: code",
        inputs.trace,
        {"program.o": "bytes", "program": "bytes"},
        tool(
            f"{_COST.format(trace='run.bbwindows')} -model=mca -cpu=cpu.json -traced=program "
            "program.o"
        ),
        100,
        replacements=_NO_PIPES,
    ),
    Target(
        "llvm-trace-cost: CPU, profile",
        inputs.trace,
        {"cpu.json": "json"} | _PROFILE,
        tool(f"{_COST.format(trace='run.bbwindows')} {_CYCLES} program.o"),
        120,
        inputs.seal_profile,
        replacements=_NO_PIPES,
    ),
)
