# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What makes a module worse is found, and the folder that is written shows it by itself."""

import re
import shutil
from pathlib import Path

import pytest

from compiler_opt_perf.cli.main import run
from compiler_opt_perf.compare.testing import corpus_of, failing_toolchain, write_program
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT

pytestmark = pytest.mark.compiler

MODELS = REPO_ROOT / "lit_tests" / "Inputs"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> Path:
    """A program with a baseline."""
    folder = tmp_path_factory.mktemp("gate")
    corpus = corpus_of(write_program(folder / "p"), toolchain, "p")
    words = ["gate", "record", "--workers=1"]
    words += [f"--corpus={corpus / side}" for side in ("train", "held_out")]
    words += [f"--model={MODELS / 'inline-default'}", f"--toolchain={toolchain.directory}"]
    words += ["--problem=inline-size", "--compile-time=none", "--repetitions=2"]
    assert run([*words, f"--output={folder / 'baseline.json'}"]) == 0
    return folder


def _bisect(
    folder: Path, output: Path, capsys: pytest.CaptureFixture[str], *flags: str
) -> list[str]:
    """What is said."""
    capsys.readouterr()
    words = ["gate", "bisect", str(folder / "baseline.json"), f"--output={output}"]
    assert run([*words, *flags]) == 0
    return capsys.readouterr().out.splitlines()


def _reproduced(output: Path) -> list[str]:
    """What the folder shows; it is all that is needed, wherever it is."""
    moved = output.rename(output.with_name("moved"))
    return run_command(["sh", moved / "reproduce.sh"], cwd=Path("/")).stdout.splitlines()


def test_the_decisions_that_make_a_module_worse_are_found(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, model = tmp_path / "worse", f"--model={MODELS / 'inline-one-block'}"
    said = _bisect(folder, output, capsys, model, "--module=p/add")
    values = re.fullmatch(r"p/add: text (\d+) -> (\d+)\.", said[0])
    assert values is not None
    before, after = map(int, values.groups())
    assert said[1] == f"  the candidate's policy alone: {after}, worse"
    found = re.fullmatch(
        r"These (\d+) decisions of the candidate, with all others as in the baseline, make it "
        r"(\d+); none of them can be left out \(\d+ compilations\)\.",
        said[2],
    )
    assert found is not None
    number, value = map(int, found.groups())
    # The limit is 128 bytes.
    assert before + 128 < value <= after and 1 < number < 12
    decisions = [line for line in said if line.startswith("  1 -> 0 step_all_add ")]
    assert len(decisions) == number
    readme = (output / "README.md").read_text()
    assert all(line.strip() in readme for line in decisions)
    assert _reproduced(output) == [
        f"baseline: {before} bytes of text",
        f"candidate: {value} bytes of text",
    ]
    words = ["gate", "bisect", str(folder / "baseline.json"), f"--output={output}", model]
    for module, message in (
        ("p/main", "text is 117, 117 in the baseline: no worse than the 128 that the limits"),
        ("p/none", "the baseline and its corpora have no such one"),
    ):
        assert run([*words, f"--module={module}"]) in (1, 2)
        assert message in capsys.readouterr().err


def test_the_input_that_makes_a_module_worse_is_found(
    folder: Path, toolchain: Toolchain, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = f'*add.bc*) exec "{toolchain.clang}" "$@" -mllvm -regalloc=fast ;;'
    other = failing_toolchain(tmp_path / "other", toolchain, cases)
    model = shutil.copytree(MODELS / "inline-default", tmp_path / "model")
    (model / "README").write_text("The same policy.\n")
    output, flags = tmp_path / "worse", [f"--toolchain={other}", f"--model={model}"]
    said = _bisect(folder, output, capsys, "--module=p/add", *flags)
    before, after = re.findall(r"\d+", said[0])
    assert said[1:3] == [
        f"  the candidate's compiler alone: {after}, worse",
        f"  the candidate's policy alone: {before}, no worse",
    ]
    # The compiler that is not the same everywhere knows the module by its name.
    script = (output / "reproduce.sh").read_text().replace("module.bc", "add.bc")
    (output / "reproduce.sh").write_text(script)
    (output / "module.bc").rename(output / "add.bc")
    assert _reproduced(output) == [
        f"baseline: {before} bytes of text",
        f"candidate: {after} bytes of text",
    ]


@pytest.mark.parametrize("name", ["secret", "below/secret", "etc"])
def test_a_model_with_links_is_refused(
    name: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What they name would be copied to where a folder for others is written."""
    model = shutil.copytree(MODELS / "inline-default", tmp_path / "model")
    (model / name).parent.mkdir(exist_ok=True)
    (model / name).symlink_to("/etc" if name == "etc" else "/etc/passwd")
    output = tmp_path / "worse"
    words = ["gate", "bisect", str(folder / "baseline.json"), f"--output={output}"]
    assert run([*words, f"--model={model}", "--module=p/add"]) == 1
    assert f"{model / name}: is a symbolic link; put a copy" in capsys.readouterr().err
    assert not output.exists()


def test_a_model_that_crashes_the_compiler_is_found(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, model = tmp_path / "worse", f"--model={MODELS / 'inline-crash'}"
    said = _bisect(folder, output, capsys, model, "--module=p/mix", "--metric=failures")
    assert said[:2] == ["p/mix: failures 0 -> 1.", "  the candidate's policy alone: 1, worse"]
    assert "Worse by this alone: policy." in (output / "README.md").read_text()
    shown = _reproduced(output)
    assert shown[0] == "baseline: compiles"
    assert shown[1].startswith("candidate: fails with exit status 1")


def test_the_first_of_several_compilers_that_is_worse_is_found(
    folder: Path, toolchain: Toolchain, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = f'*add.bc*) exec "{toolchain.clang}" "$@" -mllvm -regalloc=fast ;;'
    compilers = [
        failing_toolchain(tmp_path / str(n), toolchain, cases if n > 2 else "none) ;;")
        for n in range(6)
    ]
    output = tmp_path / "worse"
    several = f"--toolchains={','.join(map(str, compilers))}"
    said = _bisect(folder, output, capsys, "--module=p/add", several)
    assert re.fullmatch(
        rf"p/add: text \d+ by {compilers[2]}, \d+ by {compilers[3]}: the first that makes it worse "
        r"\(4 compilations\)\.",
        said[0],
    )
    assert (
        f'"${{CLANG_CANDIDATE:={compilers[3]}/bin/clang}}"' in (output / "reproduce.sh").read_text()
    )
    words = ["gate", "bisect", str(folder / "baseline.json"), f"--output={output}"]
    words.append("--module=p/add")
    for chosen, message in (
        (compilers[3:], "text is worse: begin with an older one"),
        (compilers[:2], "no worse than the 128 that the limits allow a module"),
        (compilers[:1], "--toolchains: expected two or more, the oldest first"),
    ):
        assert run([*words, f"--toolchains={','.join(map(str, chosen))}"]) in (1, 2)
        assert message in capsys.readouterr().err


def test_a_compiler_that_was_built_anew_in_its_place_cannot_be_put_in(
    folder: Path, toolchain: Toolchain, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    text = (folder / "baseline.json").read_text()
    (tmp_path / "baseline.json").write_text(text.replace(str(toolchain.directory), str(gone)))
    failing_toolchain(gone, toolchain, "*add.bc*) exit 1 ;;")
    words = ["gate", "bisect", str(tmp_path / "baseline.json"), "--module=p/add"]
    words += ["--metric=failures", f"--output={tmp_path / 'worse'}"]
    assert run(words) == 1
    assert "is not the compiler that the baseline was recorded with any more; keep that else" in (
        capsys.readouterr().err
    )
