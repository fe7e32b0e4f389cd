# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import hashlib
import inspect
import json
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from absl import logging

from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.cli.cost_verbs import LEARNED
from compiler_opt_perf.cli.main import find_command, run
from compiler_opt_perf.cli.options import model_folder
from compiler_opt_perf.cli.verb import Table
from compiler_opt_perf.cli.verbs import COP
from compiler_opt_perf.compare.errors import CompareError
from compiler_opt_perf.corpus.corpus import write_description
from compiler_opt_perf.cost.evaluator import EVALUATORS, Replay
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.json_text import JsonError
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.toolchain.debian import debian_source
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import BUILD
from compiler_opt_perf.train import train as training
from compiler_opt_perf.train.config import DEFAULT_PRESET
from compiler_opt_perf.train.result import TrainingResult

REPO_ROOT = Path(__file__).parents[2]
VERBS = dict(COP.verbs())
# A Python file in the documentation that ends with a function `decide`.
_DECIDE = re.compile(
    r"^```python\n((?:import .*\n\n+)?def decide\(.*\n(?:    .*\n)+)```$", re.MULTILINE
)


@pytest.mark.parametrize("name", VERBS)
def test_help_has_an_example_that_parses(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    verb = VERBS[name]
    assert run([*name.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: cop {name} ") and f"\n  cop {verb.example}\n" in shown
    assert "Exit status: 0 done, 1 failed, 2 wrong command line" in shown
    found, path, rest = find_command(shlex.split(verb.example))
    assert found is verb and path == f"cop {name}"
    given = verb.make_context(path, list(rest)).params
    # Each flag and argument is a parameter of the function, which has no others.
    assert verb.callback is not None
    assert given.keys() - {"json"} == inspect.signature(verb.callback).parameters.keys()
    for parameter in verb.params:
        if not isinstance(parameter, click.Option):
            continue
        assert f"  {parameter.opts[0]}" in shown
        if parameter.required:
            words = [word for word in rest if not word.startswith(f"{parameter.opts[0]}=")]
            assert len(words) < len(rest)
            with pytest.raises(click.MissingParameter) as caught:
                verb.make_context(path, words)
            assert caught.value.param is parameter


def test_the_shown_recipe_is_the_default_one() -> None:
    (recipe,) = (one for one in VERBS["train policy"].params if one.name == "recipe")
    assert recipe.default == DEFAULT_PRESET


@pytest.mark.parametrize("name", [name for name, verb in VERBS.items() if verb.json_version])
def test_no_table_moves_the_cursor(name: str) -> None:
    """Names in it come from files of others."""
    nasty = "a\x1b]0;title\x07\x1b[2J\r\x9b31m\udc80\tb\n\u00e4\n"
    shown = VERBS[name].shown(Table(lambda: nasty, dict), name, as_json=False)
    assert shown == "a\ufffd]0;title\ufffd\ufffd[2J\ufffd\ufffd31m\ufffd\tb\n\u00e4\n"
    assert shown.encode()


def test_messages_do_not_move_the_cursor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Those of errors, and what is logged."""
    assert run(["profile", "show", str(tmp_path / "a\x1b[2J.pmu.json")]) == 1
    shown = capsys.readouterr().err
    assert "a\ufffd[2J.pmu.json: cannot be read" in shown
    assert "\x1b" not in shown
    logging.warning("%s\n%s", "a\x1b[2J", "b")
    (record,) = [one for one in caplog.records if one.args == ("a\x1b[2J", "b")]
    assert logging.get_absl_handler().format(record).endswith(" a\ufffd[2J\nb")


def test_words_after_two_dashes_are_the_programs_own() -> None:
    words = ["--binary=a", "--output=b", "--", "--dry-run", "--help", "--", "x-y"]
    given = VERBS["profile collect"].make_context("collect", words).params
    assert given["arguments"] == ("--dry-run", "--help", "--", "x-y")


def test_a_toolchain_is_a_folder_or_a_name(tmp_path: Path) -> None:
    for text, path in (
        ("mine", BUILD / "toolchain" / "mine"),
        ("./mine", Path("mine")),
        (f"{tmp_path}", tmp_path),
    ):
        context = VERBS["toolchain pack"].make_context("", [f"--toolchain={text}", "--output=o"])
        assert context.params["toolchain"] == path


def test_a_group_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trace", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "trace list" in shown and "cost predict" not in shown
    assert run(["help", "trace", "list"]) == 0
    assert "Usage: cop trace list " in capsys.readouterr().out


def test_show_and_list_mean_the_same_in_all_groups() -> None:
    """`show` tells what one file or folder holds, `list` its entries; there is no other word."""
    summaries = {name: verb.summary for name, verb in VERBS.items()}
    shows = [name for name in summaries if name.endswith(" show")]
    assert shows == ["corpus show", "profile show", "trace show", "train show"]
    assert all(summaries[name].startswith("Show ") for name in shows)
    assert [name for name in summaries if name.endswith(" list")] == ["trace list"]
    assert summaries["trace list"].startswith("List ")
    assert not [name for name in summaries if name.endswith((" stats", " statistics", " info"))]


def test_without_a_verb_the_first_steps_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """On one screen; the commands are parsed by advice_test.py."""
    assert run([]) == 0
    shown = capsys.readouterr().out
    assert "cop profile collect" in shown and "cop --help" in shown
    assert len(shown.splitlines()) <= 14 and max(map(len, shown.splitlines())) <= 100


def test_overview_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n  {name} " in shown for name in VERBS)
    assert len(VERBS) <= 39


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("frobnicate", "no verb 'frobnicate'"),
        ("trian policy --problem=inline-size", "did you mean 'train policy'"),
        ("corpsu extract a=b", "did you mean 'corpus extract'?"),
        ("profile shwo a.pmu.json", "no verb 'profile shwo'; did you mean 'profile show'"),
        ("corpus extract --problem=inline-size --output=x --held-oot=1 a=b", "--held-out"),
        ("corpus", "corpus extract"),
        ("profile show", "Missing argument 'NAME.pmu.json'"),
        ("profile show a.pmu.json --wrong=1", "No such option '--wrong'"),
        ("corpus extract a=b", "--problem"),
        ("corpus extract --problem=cooking --output=x a=b", "is not one of"),
        ("corpus extract --problem=inline-size --output=x nonsense", "expected PROGRAM=compile_c"),
        ("corpus extract --problem=inline-size --output=x --held-out=2 a=b", "above 0 and below 1"),
        ("corpus extract --problem=inline-size --output=x --link-flags=' a=b", "No closing quot"),
        ("corpus show", "Missing argument 'FOLDER'"),
        (
            "train policy --problem=inline-size --corpus=a --output=b --extra-rates=c",
            "with --profile",
        ),
        ("train policy --problem=inline-size --corpus=a --output=b --cpu=c", "are for --evaluator"),
        (
            "train policy --problem=inline-size --corpus=a --output=b --address=auto",
            "--executor=ray, too",
        ),
        (
            "train policy --problem=inline-size --corpus=a --output=b --evaluator=mca "
            "--profile=p=c --profile=q=d",
            "--evaluator replays one program: give its profile alone",
        ),
        (
            "train policy --problem=inline-size --corpus=a --output=b --setting=hidden=[0]",
            "settings: $.hidden[0]: expected `int` >= 1, found 0",
        ),
        (
            "train policy --problem=inline-size --corpus=a --output=b --budget=nan",
            "settings: $.budget_s: expected a number, found nan",
        ),
        (
            "train policy --problem=inline-size --corpus=a --output=b --seed=-1",
            "settings: $.seed: expected `int` >= 0, found -1",
        ),
        ("train policy --problem=inline-size --corpus=a --output=b --setting=pairs", "NAME=VALUE"),
        (
            "train policy --problem=inline-size --corpus=a --output=b --setting=ppo.modules=1",
            "no setting 'ppo.modules' of this recipe, whose stages are evolution-strategies; "
            "did you mean 'evolution-strategies.modules'?\nSee: cop train policy --help\n",
        ),
        (
            "train policy --problem=inline-size --corpus=a --output=b --setting=tempo=1",
            "settings: no setting 'tempo' of this recipe, whose stages are evolution-strategies\n",
        ),
        (
            "train policy --problem=inline-size --corpus=a --output=b --recipe=magic",
            "no recipe 'magic': expected a file that ends with .toml, or one of",
        ),
        ("policy interact --problem=inline-size", "Missing argument '-- CLANG-ARGUMENT...'"),
        (
            "policy interact --problem=inline-size -- -c a.c",
            "expected one of --model=FOLDER and --decide",
        ),
        ("trace show", "Missing argument 'NAME.bbtrace'"),
        (
            "profile collect --binary=a --output=b --level=9 file",
            "No such option '--level'. Did you mean '--help'? Flags of what is run come after --\n",
        ),
        (
            "policy interact --problem=inline-size --model=m -Oz -c a.c",
            "No such option '-O'. Flags of what is run come after --\n",
        ),
        ("profile show p --topp=2", "No such option '--topp'. Did you mean '--top'?\n"),
        ("profile show p --top=many", "'many' is not a valid whole number"),
        ("trace staet a.bbtrace", "no verb 'trace staet'"),
        ("trace cut a.bbtrace --output=b.bbtrace --number=0", "0 is not in the range x>=1"),
        ("trace record --binary=a --output=b.bbtrace --cpu=zen3", "No such option '--cpu'"),
        ("profile collect --trace --binary=a --output=b", "No such option '--trace'"),
        ("profile collect --recording=p --binary=a --output=b x", "unexpected argument 'x'"),
        (
            "profile collect --recording=p --binary=a --output=b.pmu.json --within=f",
            "--within is for runs",
        ),
        (
            "profile collect --binary=a --output=b.pmu.json --timeout=nan",
            "--timeout=nan: expected seconds",
        ),
        ("trace record --binary=a --output=b.bbtrace --timeout=0", "--timeout=0: expected sec"),
        ("cost predict --evaluator=size", "expected object files or a binary"),
        ("cost predict --evaluator=size a=one.o two.o", "two.o: of which candidate?"),
        ("cost predict --evaluator=size a=", "'a=': expected NAME=FILE"),
        ("toolchain build surplus", "Got unexpected extra argument (surplus)"),
        (
            "train policy --problem=inline-size --corpus=a --output=b --ablate=pmu",
            "--ablate: there is no --profile to train without",
        ),
        (
            "compare policy --problem=inline-size --corpus=a --model=b --output=c --repetitions=0",
            "'--repetitions': 0 is not in the range x>=1",
        ),
        (
            "compare policy --problem=inline-size --corpus=a --model=b --output=c "
            "--compile-time=often",
            "is not one of",
        ),
        # Old names.
        ("collect --binary=a --output=b.pmu.json", "did you mean 'profile collect'"),
        ("flags --toolchain=dev", "did you mean 'policy flags'"),
        ("train --problem=inline-size", "expected one of these verbs\n  train policy"),
        ("compare --problem=inline-size", "expected one of these verbs\n  compare policy"),
        ("toolchain build --tolchain=dev", "Did you mean '--toolchain'?"),
        ("toolchain build --toolchain=/opt/mine", "--output installs the tools elsewhere"),
        ("toolchain pack --toolchain=.. --output=a.tar.xz", "Invalid value for '--toolchain'"),
        ("corpus program lua --output=", "'--output': expected a path"),
    ],
)
def test_wrong_usage_is_explained(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line.split()) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "known"),
    [
        ("cost predict a.o", [*EVALUATORS, *LEARNED]),
        (
            "train policy --problem=regalloc-evict --corpus=a --output=b",
            [*(name for name, row in EVALUATORS.items() if isinstance(row, Replay)), *LEARNED],
        ),
    ],
)
# One that is gone, one that never was, and a part of one.
@pytest.mark.parametrize("evaluator", ["profile-count", "cycles", "mca-"])
def test_an_unknown_evaluator_is_answered_by_the_known_ones(
    line: str, known: Sequence[str], evaluator: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*line.split(), f"--evaluator={evaluator}"]) == 2
    shown = capsys.readouterr().err
    assert f"'{evaluator}' is not one of {', '.join(map(repr, known))}." in shown


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("profile show missing.pmu.json", "missing.pmu.json"),
        ("trace show missing.bbtrace", "missing.bbtrace: cannot be read"),
        ("trace record --binary=a --output=b.pmu.json", "must end with .bbtrace"),
        ("trace record --binary=/dev/null --output=b.bbtrace", "no regular file"),
        (
            "compare page missing.json --output=page.html",
            "missing.json: No such file or directory; write it with",
        ),
        ("profile collect --binary=a --output=b.pmu.json --LL=big", "big"),
        (
            "policy interact --problem=inline-size --decide=mine.py -- -c a.c",
            "mine.py: No such file",
        ),
        ("cost predict --trace=t --cpu=znver99 a.o", "known are host, cascadelake, emeraldrapids"),
        (
            "train policy --problem=inline-size --corpus=a --output=b --evaluator=mca "
            "--cpu=znver99",
            "--cpu=znver99: neither a file",
        ),
        (
            "train policy --problem=inline-size --corpus=a --output=b --profile=p=c --profile=d",
            "--profile=d: expected one FILE for all programs, or PROGRAM=FILE for each",
        ),
        ("corpus program doom --output=x", "doom: unknown program; known are "),
    ],
)
def test_failures_are_one_message(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line.split()) == 1
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown


@pytest.mark.compiler
def test_candidates_are_compared_in_one_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By name, several files or a folder each; the first is what the others are compared with."""
    source = tmp_path / "source.cpp"
    for folder, body in (("small", "return a;"), ("large", "return a * b + a / b;")):
        (tmp_path / folder).mkdir()
        for part in ("one", "two"):
            source.write_text(f"long {part}(long a, long b) {{ {body} }}")
            output = tmp_path / folder / f"{part}.o"
            run_command([stock_tool("clang++"), "-O2", "-c", source, "-o", output])
    small, large = tmp_path / "small", tmp_path / "large"
    words = ["cost", "predict", "--evaluator=size", "--json"]
    assert (
        run([*words, f"small={small}", f"large={large / 'one.o'}", f"large={large / 'two.o'}"]) == 0
    )
    found = json.loads(capsys.readouterr().out)["candidates"]
    assert [(one["name"], len(one["files"])) for one in found] == [("small", 2), ("large", 2)]
    assert found[1]["change"] == found[1]["total"] - found[0]["total"] > 0
    # Without names, all files are one candidate.
    assert run([*words, str(small), str(large)]) == 0
    (both,) = json.loads(capsys.readouterr().out)["candidates"]
    assert both["total"] == found[0]["total"] + found[1]["total"]
    (tmp_path / "empty").mkdir()
    assert run([*words, str(tmp_path / "empty")]) == 2
    assert "empty: has no object files" in capsys.readouterr().err


def _fake_toolchain(folder: Path, policy: bytes) -> Path:
    """A folder like a toolchain's, whose compilers fail, with a policy for inlining."""
    for name in ("bin", "lib/clang", "models"):
        (folder / name).mkdir(parents=True)
    for name in ("clang", "opt", "llc"):
        (folder / "bin" / name).write_text("#!/bin/sh\necho compiled >&2; exit 9\n")
        (folder / "bin" / name).chmod(0o755)
    (folder / "models" / "InlinerSizeModel.h").touch()
    description = {"files": {"model.tflite": hashlib.sha256(policy).hexdigest()}}
    (folder / "models" / "InlinerSizeModel.json").write_text(json.dumps(description))
    return folder


def test_compare_tells_at_once_what_it_cannot_compare(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toolchain = _fake_toolchain(tmp_path / "candidate", b"compiled in")
    model, corpus = tmp_path / "policy", tmp_path / "corpus"
    for folder in (model, corpus):
        folder.mkdir()
    (corpus / "m.bc").write_bytes(b"BC\xc0\xde")
    (corpus / "m.cmd").write_bytes(b"-cc1\0-O2")
    words = ["compare", "policy", "--problem=inline-size", f"--corpus={corpus}", f"--model={model}"]
    words += [f"--{name}toolchain={toolchain}" for name in ("", "release-")]
    words += [f"--output={tmp_path / 'c.json'}", "--repetitions=1"]

    def fails(policy: bytes, modules: list[str]) -> str:
        (model / "model.tflite").write_bytes(policy)
        (corpus / "corpus_description.json").write_text(json.dumps({"modules": modules}))
        assert run(words) == 1
        shown = capsys.readouterr().err
        assert "Traceback" not in shown and not (tmp_path / "c.json").exists()
        return shown

    shown = fails(b"given", ["m"])
    assert "holds another policy for inline-size than" in shown and "compiled\n" not in shown
    for content in (b"given", b"compiled in"):
        assert hashlib.sha256(content).hexdigest() in shown
    assert "corpus: has no modules; extract a corpus that has some" in fails(b"compiled in", [])
    assert "compiled\n" in fails(b"compiled in", ["m"])


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("change", "failed", "status", "verdict"),
    [
        (-0.012, (), 0, "-1.20% on the test modules after 3 iterations"),
        (0.0, (), 0, "as good as the default"),
        (0.02, (), 4, "worse than the default: do not ship"),
        (-0.02, ("p/a",), 4, "fails on p/a after 3 iterations"),
    ],
)
def test_a_policy_worse_than_the_default_has_a_status_of_its_own(
    change: float,
    failed: tuple[str, ...],
    status: int,
    verdict: str,
    tmp_path: Path,
    toolchain: Toolchain,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_description(tmp_path / "corpus", [])
    result = TrainingResult(tmp_path, "text bytes", change, failed, -0.01, -0.005, 3)
    monkeypatch.setattr(training, "train", lambda *_: result)
    words = [
        "train",
        "policy",
        "--problem=inline-size",
        f"--corpus={tmp_path / 'corpus'}",
        "--output=x",
    ]
    assert run([*words, f"--toolchain={toolchain.directory}"]) == status
    assert verdict in capsys.readouterr().out
    assert run(["train", "policy", "--help"]) == 0
    assert "4: the published policy is worse than the default" in capsys.readouterr().out


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("problem", "example", "printed"),
    [
        ("inline-size", 0, r"0: inlining_decision=[01]\n1: inlining_decision=[01]\n"),
        ("regalloc-evict", 1, r"0 in \w+: index_to_evict=\d+\n1 in \w+: index_to_evict=\d+\n"),
    ],
)
def test_decision_functions_of_the_documentation_decide(
    problem: str,
    example: int,
    printed: str,
    toolchain: Toolchain,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    examples = _DECIDE.findall((REPO_ROOT / "docs" / "try-a-candidate.md").read_text())
    assert len(examples) == 2
    decide = tmp_path / "decide.py"
    decide.write_text(examples[example])
    lua = debian_source("lua5.4") / "src"
    output = tmp_path / "lvm.o"
    options = [f"--problem={problem}", f"--decide={decide}", f"--toolchain={toolchain.directory}"]
    compile_it = ["-O2", "-w", f"-I{tmp_path}", "-c", str(lua / "lcode.c"), "-o", str(output)]
    (tmp_path / "lua5.4-deb-multiarch.h").touch()
    assert run(["policy", "interact", *options, "--", *compile_it]) == 0
    assert re.match(printed, capsys.readouterr().out)
    assert output.stat().st_size > 0


class _OwnError(Exception):
    """An exception that a module raises and catches itself."""


_OwnError.__module__ = "compiler_opt_perf.policy.interactive"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(30, "Read-only file system", "ro/out"), "error: ro/out: Read-only file system; "),
        (OSError(28, "No space left on device"), "(TMPDIR): no space left on the device; free som"),
        (CompareError("x: is damaged"), "cop: error: x: is damaged"),
        (JsonError("x: not JSON"), "cop: error: x: not JSON"),
        (_OwnError("of a module"), None),
        (KeyError("a bug"), None),
    ],
)
def test_errors_are_messages_and_bugs_show_where_they_are(
    error: Exception,
    message: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr(COP, "invoke", fail)
    if message is None:
        with pytest.raises(type(error)):
            run(["x"])
        return
    assert run(["x"]) == 1
    shown = capsys.readouterr().err
    assert message in shown and "[Errno" not in shown


_SHIPPED = REPO_ROOT / "models"
_NAMES = sorted(one.name for one in _SHIPPED.iterdir() if one.is_dir())


@pytest.mark.parametrize(
    ("line", "flag", "model"),
    [
        ("policy flags --toolchain=dev", "--inline-model", "inline-speed"),
        ("policy flags --toolchain=dev", "--evict-model", "regalloc-evict"),
        ("toolchain build --toolchain=mine", "--inline-model", "inline-size"),
        ("toolchain build --toolchain=mine", "--evict-model", "regalloc-evict"),
        ("compare policy --problem=inline-size --corpus=c --output=o", "--model", "inline-size"),
        ("compare programs lua --output=o", "--model", "inline-size"),
        ("gate record --corpus=c --output=o --problem=inline-size", "--model", "inline-size"),
        ("policy interact --problem=inline-size -- -c a.c", "--model", "inline-size"),
        ("cost predict --trace=t", "--model", "cost-znver3"),
        ("cost eval --data=d", "--model", "cost-znver3"),
    ],
)
def test_where_a_model_is_that_is_not_here(
    line: str,
    flag: str,
    model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    for given, hint in (
        (
            f"models/{model}",
            f"no such folder; did you mean {flag}={model}, the model of this project?",
        ),
        ("mine/policy", f"no such folder; those of this project are {', '.join(_NAMES)}"),
        ("file", "is a file; name the folder that it is in"),
    ):
        words, separator, rest = line.partition(" --")
        words = f"{words} {flag}={given}{separator}{rest}"
        assert run(words.split()) == 1
        assert f"error: {flag}={given}: {hint}\n" in capsys.readouterr().err


@pytest.mark.parametrize("name", _NAMES)
def test_a_shipped_model_is_found_by_name_from_any_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert model_folder(Path(name)) == _SHIPPED / name
    # One of the user's own comes first.
    (tmp_path / name).mkdir()
    assert model_folder(Path(name)) == Path(name)


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("colect --binary=a", ["profile collect"]),
        ("profile covrage a.o", ["profile coverage"]),
        ("profle show a", ["profile show"]),
        ("merge a b", ["profile merge", "trace merge"]),
        ("gate", ["gate record", "gate check"]),
        ("frobnicate", []),
        ("report a.json --output=b", []),
        ("gate frobnicate", []),
        ("--frobnicate", []),
    ],
)
def test_a_mistyped_verb_has_a_short_answer(
    line: str, meant: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """What is meant can be read at once, and how to see all verbs."""
    assert run(line.split()) == 2
    shown = capsys.readouterr().err
    assert all(name in shown for name in meant)
    assert ("did you mean" in shown) == (bool(meant) and line != "gate")
    assert len(shown.splitlines()) <= (12 if line == "gate" else 2)
    group = " gate" if line.startswith("gate") else ""
    assert shown.endswith(f"See: cop{group} --help\n") or "See: cop profile --help" in shown


def test_defaults_are_written_as_they_are_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profile", "collect", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "--backend=[callgrind|perf|auto] simulate" in shown
    assert "[-- ARGUMENT...] those of the program that is run" in shown
    assert "says why not [default: callgrind]" in shown
    assert run(["gate", "record", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--repetitions=INTEGER " in shown and "--timeout=FLOAT " in shown
    assert run(["train", "policy", "--help"]) == 0
    shown = capsys.readouterr().out
    # The settings are lines as they are written.
    assert re.search(r"^ +ppo\.modules=8: that are compiled in an iteration;", shown, re.MULTILINE)


def test_help_is_quick() -> None:
    """What trains or plots is not loaded."""
    script = "from compiler_opt_perf.cli.main import run; import sys; run(['--help']); "
    script += "print({'tensorflow', 'matplotlib', 'scipy', 'ray', 'rich'} & set(sys.modules))"
    shown = run_command([sys.executable, "-c", script]).stdout
    assert shown.splitlines()[-1] == "set()"


@pytest.mark.compiler
def test_a_collection_ends_with_commands_that_work(
    toolchain: Toolchain,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "a program.c").write_text("int main(void) { return 0; }")
    flags = [*PROFILING_FLAGS.split(), "-Wl,--build-id"]
    binary = tmp_path / "a program"
    run_command([stock_tool("clang"), "-O1", *flags, f"{binary}.c", "-o", binary])
    profile = tmp_path / "a program.pmu.json"
    with caplog.at_level("INFO", logger="absl"):
        assert run(["profile", "collect", f"--binary={binary}", f"--output={profile}"]) == 0
    assert "; its standard output is discarded" in caplog.text
    shown = capsys.readouterr().out
    commands = re.findall(r"^(?:next:|     ) [\w ]+: cop (.*)$", shown, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        # The set `dev` is built by users, not by tests.
        words = shlex.split(
            command.replace("--toolchain=dev", f"--toolchain={toolchain.directory}")
        )
        assert run(words) == 0
    configuration = (tmp_path / "a program.cfg").read_text()
    assert "-fprofile-sample-use=" in configuration
    # Whoever meets "unrecognised emulation mode" looks here.
    assert "no other linker will do.\n-fuse-ld=lld\n" in configuration
