# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A training rewarded by a learned cost model, which reads the profile of the recorded run."""

import json
from pathlib import Path
from typing import Any

import pytest

from compiler_opt_perf.blocks.model import load
from compiler_opt_perf.cli.main import run
from compiler_opt_perf.corpus.corpus import Corpus
from compiler_opt_perf.cost.evaluator import EVALUATORS, REPLAY_FLAGS, Context
from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import BUILD, REPO_ROOT
from compiler_opt_perf.trace.qemu import record
from compiler_opt_perf.train.errors import TrainingError

pytestmark = pytest.mark.compiler

CPU = "icelake-server"
MODEL = REPO_ROOT / "models" / f"cost-{CPU}-pmu"
MODULES, LIVE = 4, 20


def _source(number: int) -> str:
    """A loop with more live values than there are registers, over memory that is not at hand."""
    values = range(LIVE)
    updates = " ".join(
        f"v{i} += v{(i + number + 1) % LIVE} * p[(v{i} & mask) + {i}];" for i in values
    )
    return f"""
long kernel{number}(const long *p, long mask, long n) {{
  long {", ".join(f"v{i} = p[{i}]" for i in values)};
  while (n-- > 0) {{ {updates} }}
  return {" ^ ".join(f"v{i}" for i in values)};
}}
"""


@pytest.fixture(scope="module")
def recorded(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with corpus, trace and profile of a program."""
    folder = tmp_path_factory.mktemp("recorded")
    commands = []
    for number in range(MODULES):
        file = folder / f"kernel{number}.c"
        file.write_text(_source(number))
        arguments = ["clang", "-g", "-c", file.name, "-o", f"{number}.o"]
        commands.append({"directory": str(folder), "file": file.name, "arguments": arguments})
    database = folder / "compile_commands.json"
    database.write_text(json.dumps(commands))
    words = ["corpus", "extract", "--problem=regalloc-evict", f"--output={folder / 'corpus'}"]
    assert run([*words, f"program={database}"]) == 0
    modules = Corpus.load(folder / "corpus" / "train").modules
    main = folder / "main.c"
    names = [module.name.rpartition("/")[2] for module in modules]
    declarations = "".join(f"long {name}(const long *, long, long);" for name in names)
    calls = " ^ ".join(f"{name}(p, (1 << 16) - 1, 300)" for name in names)
    main.write_text(
        f"{declarations} static long p[(1 << 16) + 64]; volatile long sink;\n"
        "int main(void) { for (long i = 0; i < (1 << 16) + 64; ++i) p[i] = i * 2654435761;\n"
        f"  sink = {calls}; return 0; }}\n"
    )
    objects: list[Path] = []
    for module in modules:
        objects.append(folder / f"{module.name.replace('/', '-')}.o")
        run_command(module.compile_command(toolchain.clang, objects[-1], REPLAY_FLAGS))
    binary = folder / "program"
    link: list[str | Path] = [
        stock_tool("clang"),
        "-g",
        "-fuse-ld=lld",
        "-Wl,--build-id",
        main,
        *objects,
    ]
    run_command([*link, "-o", binary])
    record(binary, [], folder / "run.bbtrace")
    collect(binary, [], folder / "run.pmu.json")
    return folder


def test_a_learned_model_rewards_a_training(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        *("train", "policy", "--problem=regalloc-evict", f"--corpus={recorded / 'corpus/train'}"),
        *(f"--trace={recorded / 'run.bbtrace'}", f"--profile={recorded / 'run.pmu.json'}"),
        *(f"--toolchain={BUILD / 'toolchain/mock'}", "--iterations=1"),
        *("--setting=evolution-strategies.pairs=1", "--setting=workers=1"),
        *("--evaluator=granite-pmu", f"--cpu={CPU}"),
    ]
    assert run([*words, f"--output={tmp_path / 'none'}"]) == 2
    assert "give the folder of such a model, too, as --cost-model=" in capsys.readouterr().err
    model = f"--cost-model={MODEL}"
    assert run([*words, model, f"--output={tmp_path / 't'}"]) in (0, 4)
    assert "granite-pmu cycles" in capsys.readouterr().out

    inputs = json.loads((tmp_path / "t" / "inputs.json").read_text())["evaluator"]
    assert inputs["name"] == "granite-pmu" and inputs["cpu"] is None and inputs["learned"]
    costs = [
        json.loads(path.read_text())["result"]["costs"]["parts"]
        for path in (tmp_path / "t" / "default").rglob("*.json")
    ]
    named = {name: cycles for parts in costs for name, cycles in parts.items()}
    # 300 turns of each loop, in which 20 loads wait for what was computed: some miss.
    kernels = [cycles for name, cycles in named.items() if name.startswith("kernel")]
    assert len(kernels) == MODULES - 1
    assert 300 * LIVE < min(kernels) <= max(kernels) < 300 * LIVE * 100

    # Another model is another training.
    other = f"--cost-model={REPO_ROOT / f'models/cost-{CPU}'}"
    rest = [word for word in words if "granite-pmu" not in word]
    assert run([*rest, "--evaluator=granite", other, f"--output={tmp_path / 't'}"]) == 1
    assert "a training with another evaluator" in capsys.readouterr().err
    assert load(MODEL).digest != load(REPO_ROOT / "models" / f"cost-{CPU}").digest


def test_an_evaluator_has_what_was_given(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: list[Any] = []

    def kept(*arguments: Any) -> None:
        given.extend(arguments)
        raise TrainingError("that is enough")

    monkeypatch.setattr("compiler_opt_perf.train.train.train", kept)
    words = ["train", "policy", "--problem=regalloc-evict", f"--corpus={recorded / 'corpus/train'}"]
    words += [f"--trace={recorded / 'run.bbtrace'}", f"--profile={recorded / 'run.pmu.json'}"]
    words += [f"--toolchain={BUILD / 'toolchain/mock'}", f"--output={tmp_path / 't'}"]
    assert run([*words, "--evaluator=mca-pmu", f"--cpu={CPU}"]) == 1
    (evaluator,) = (one for one in given if one is EVALUATORS["mca-pmu"])
    (context,) = (one for one in given if isinstance(one, Context))
    objects = sorted(recorded.glob("program-*.o"))
    cost = evaluator.cost(objects[:1], context)
    assert cost.total > 0 and cost.report["functions"]


def test_a_training_needs_a_corpus_or_programs(
    tmp_path: Path, toolchain: Toolchain, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "policy", "--problem=inline-size", f"--output={tmp_path / 't'}"]
    words.append(f"--toolchain={toolchain.directory}")
    assert run(words) == 2
    assert "--corpus: name one, or a recipe with [programs]" in capsys.readouterr().err
    # Programs would be fetched and built in the folder.
    (tmp_path / "notes.txt").write_text("mine")
    recipe = REPO_ROOT / "models" / "inline-size" / "recipe.toml"
    words = [f"--output={tmp_path}" if "--output" in word else word for word in words]
    assert run([*words, f"--recipe={recipe}"]) == 1
    assert "holds 'notes.txt', which is not part of a training" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
