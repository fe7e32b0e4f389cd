# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of all readers: their sound inputs, the files to damage, and how to run them."""

import json
import sys
from pathlib import Path

from compiler_opt_perf.binary.address_map import read_address_map
from compiler_opt_perf.binary.disassembly import disassemble
from compiler_opt_perf.blocks.block_code import distinct, find_blocks, request
from compiler_opt_perf.blocks.block_file import read_blocks
from compiler_opt_perf.blocks.model import load as load_cost_model
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
from compiler_opt_perf.trace.windows import Windows
from compiler_opt_perf.train.checkpoint import Checkpoint
from compiler_opt_perf.train.config import read_config
from compiler_opt_perf.train.label_files import labelled_rows, logged_rows, read_labels
from compiler_opt_perf.train.log import read_log
from compiler_opt_perf.train.measure import read_default
from tests.fuzz import inputs, training_inputs
from tests.fuzz.compiler_targets import COMPILER_TARGETS
from tests.fuzz.runners import RESUMED_S, RefusedError, call, cop, resumed, tool
from tests.fuzz.target import PROFILE, TRACE, WINDOWS, Target

_CORPUS = {
    "corpus/*/corpus_description.json": "json",
    "corpus/train/**/*.cmd": "text",
    "corpus/train/**/*.bc": "bytes",
}
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
# A process, because it has workers of its own.
_EXTRACT = (
    f"{sys.executable} -m compiler_opt_perf.cli.main corpus extract --problem=inline-size "
    "--output=out/corpus"
)


def _profile_target(name: str, line: str, number: int) -> Target:
    return Target(name, inputs.profile, PROFILE, cop(line), number, inputs.seal_profile)


def _trace_target(name: str, line: str) -> Target:
    return Target(name, inputs.trace, TRACE, cop(line))


def _measured_defaults() -> list[object]:
    """Reads a training's measurements of the default policy."""
    found = []
    for sound in sorted(Path("sound/default").rglob("*.json")):
        log = Path("training", *sound.parts[1:]).with_suffix(".log")
        default = read_default(log, json.loads(sound.read_bytes())["inputs"])
        if default is None:
            raise RefusedError(f"{log}: is measured again")
        found += [default, read_log(log)]
    return found


def _labelled() -> object:
    """Reads the training rows in a file of labels."""
    labels = read_labels(Path("labels.npz"))
    if not len(labels.keys):
        return labels
    problem = PROBLEMS["inline-size"]
    return [
        rows(problem, [labels], with_pmu=with_pmu)
        for rows in (labelled_rows, logged_rows)
        for with_pmu in (False, True)
    ]


def _judged() -> object:
    """Runs the gate with a candidate that equals the sound baseline; returns its reports."""
    baseline = read_baseline(Path("baseline.json"))
    result = check(baseline, sample(text=1500), read_limits(Path("limits.toml")))
    return check_tables.describe(result), check_tables.junit(result), check_tables.markdown(result)


def _blocks_to_measure() -> object:
    """The requests to measure the blocks of binaries, object files and lists."""
    paths = [Path(name) for name in ("program", "program.o", "some.csv")]
    return [request(block.code) for block in distinct(find_blocks({"p": paths}))]


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
        WINDOWS,
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
        call(lambda: [(m.name, m.bitcode()) for m in find_modules("p", Path("build"))]),
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
        training_inputs.cost_model,
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
        training_inputs.checkpoint,
        {"checkpoint.npz": "arrays"},
        call(lambda: Checkpoint.load(Path("checkpoint.npz"))),
        60,
    ),
    Target(
        "recipes of cop train policy",
        training_inputs.recipes,
        {"recipe.toml": "text"},
        call(lambda: read_config("recipe.toml")),
        100,
    ),
    Target(
        "labels",
        training_inputs.labelled,
        {"labels.npz": "arrays"},
        call(_labelled),
        80,
    ),
    Target(
        "cop train show",
        training_inputs.imitation,
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
        training_inputs.training,
        _TRAINING,
        resumed(training_inputs.TRAIN),
        40,
        limit_s=RESUMED_S,
    ),
    Target(
        "default's measurements",
        training_inputs.training,
        {"training/default/**/*.log": "bytes", "training/default/**/*.json": "json"},
        call(_measured_defaults),
        100,
    ),
    Target(
        "policies",
        training_inputs.policy,
        {"model.json": "json", "weights.npz": "arrays"},
        call(lambda: load(Path())),
        80,
        training_inputs.seal_policy,
    ),
    Target(
        "comparisons",
        training_inputs.comparison,
        {"one.json": "json"},
        call(lambda: describe(read_comparison(Path("one.json")))),
        100,
    ),
    Target(
        "cop compare page",
        training_inputs.comparison,
        {"one.json": "json", "linked.json": "json", "training/curve.jsonl": "json lines"},
        cop("compare page linked.json one.json --training=training --output=out/page.html"),
        60,
    ),
    Target(
        "baselines of the gate",
        training_inputs.gate,
        {"baseline.json": "json"},
        call(_judged),
        100,
    ),
    Target(
        "limits of the gate",
        training_inputs.gate,
        {"limits.toml": "text"},
        call(_judged),
        80,
    ),
    Target(
        "history of the gate",
        training_inputs.gate,
        {"gate.jsonl": "json lines"},
        call(lambda: history.describe(history.events(Path("gate.jsonl")))),
        60,
    ),
    *COMPILER_TARGETS,
)
