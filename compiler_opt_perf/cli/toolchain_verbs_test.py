# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from compiler_opt_perf.cli.main import run
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import LLVM_MAJOR, LLVM_PREFIX
from compiler_opt_perf.toolchain import build as building
from compiler_opt_perf.toolchain.installation import Toolchain

SOURCE = """
#include <stdarg.h>
#include <stdio.h>
int main(void) { return printf("packed\\n") != 7; }
"""
# Nothing of the environment that tests run in.
ELSEWHERE: list[str | Path] = ["env", "-i", "PATH=/usr/bin:/bin"]


def _set(folder: Path, **tools: Path) -> Path:
    """A set of these tools; of the others that a set must have there are scripts."""
    for name in ("bin", f"lib/clang/{LLVM_MAJOR}", "models"):
        (folder / name).mkdir(parents=True)
    for name in ("clang", "opt", "llc"):
        (folder / "bin" / name).write_text("#!/bin/sh\necho a script\n")
        (folder / "bin" / name).chmod(0o755)
    for name, path in tools.items():
        (folder / "bin" / name).unlink(missing_ok=True)
        (folder / "bin" / name).symlink_to(path)
    # A link to what is not packed as such.
    headers = LLVM_PREFIX / "lib" / "clang" / LLVM_MAJOR / "include"
    (folder / "lib/clang" / LLVM_MAJOR / "include").symlink_to(headers)
    return folder


@pytest.mark.long(15)
@pytest.mark.compiler
def test_a_packed_set_runs_elsewhere(toolchain: Toolchain, tmp_path: Path) -> None:
    """It compiles by a policy and links, without the set, and says how."""
    real = {name: toolchain.directory / "bin" / name for name in ("clang", "ld.lld")}
    folder = _set(tmp_path / "set", **real)
    (folder / "bin" / "lld").symlink_to("ld.lld")
    shutil.copytree(toolchain.directory / "models", folder / "models", dirs_exist_ok=True)
    archive = tmp_path / "policies.tar.xz"
    assert (
        run(["toolchain", "pack", f"--toolchain={folder}", f"--output={archive}", "--level=0"]) == 0
    )
    shutil.rmtree(folder)
    (tmp_path / "elsewhere").mkdir()
    run_command(["xz", "--decompress", "--threads=0", archive])
    with tarfile.open(archive.with_suffix("")) as tar:
        members = tar.getmembers()
    run_command(["tar", "-C", tmp_path / "elsewhere", "-xf", archive.with_suffix("")])
    assert {member.name.split("/")[0] for member in members} == {"policies"}
    assert {(member.uid, member.uname, member.mtime) for member in members} == {(0, "", 0)}
    assert [(member.name, member.linkname) for member in members if member.issym()] == [
        ("policies/bin/lld", "ld.lld")
    ]
    packed = tmp_path / "elsewhere" / "policies"
    for name, path in real.items():
        assert (packed / "bin" / name).stat().st_size < 0.9 * path.stat().st_size
    clang: list[str | Path] = [*ELSEWHERE, packed / "bin" / "clang"]
    resources = run_command([*clang, "-print-resource-dir"]).stdout.strip()
    assert Path(resources) == packed / "lib" / "clang" / LLVM_MAJOR
    source, program = tmp_path / "a.c", tmp_path / "a"
    source.write_text(SOURCE)
    compile_it: list[str | Path] = [
        *clang,
        "-O2",
        "-mllvm",
        "-regalloc-enable-advisor=release",
        "-fuse-ld=lld",
    ]
    jobs = run_command([*compile_it, "-###", source, "-o", program]).stderr
    assert f'"{packed}/bin/ld.lld"' in jobs
    run_command([*compile_it, source, "-o", program])
    assert run_command([program]).stdout == "packed\n"
    readme = (packed / "README.md").read_text()
    assert "Policies for inline-size and regalloc-evict are compiled in" in readme
    assert "-mllvm -regalloc-enable-advisor=release" in readme and "libstdc++.so.6" in readme


@pytest.mark.compiler
def test_tools_of_the_distribution_bring_their_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archiver = {"llvm-ar": LLVM_PREFIX / "bin" / "llvm-ar"}
    built = Toolchain.load(_set(tmp_path / "set", **archiver))
    monkeypatch.setattr(building, "build", lambda *_: built)
    output = tmp_path / "installed"
    assert run(["toolchain", "build", "--toolchain=dev", f"--output={output}"]) == 0
    shutil.rmtree(built.directory)
    (library,) = (output / "lib").glob("libLLVM*")
    loaded = run_command([*ELSEWHERE, "ldd", output / "bin" / "llvm-ar"]).stdout
    assert os.path.realpath(library) in loaded.replace("/bin/../", "/")
    run_command([*ELSEWHERE, output / "bin" / "llvm-ar", "--version"])
    readme = (output / "README.md").read_text()
    assert "No policy is compiled in" in readme and "libLLVM" not in readme


@pytest.mark.compiler
def test_an_output_folder_that_is_not_ours_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built: list[str] = []

    def build(name: str, *_: object) -> Toolchain:
        built.append(name)
        return Toolchain.load(tmp_path / "set")

    _set(tmp_path / "set")
    monkeypatch.setattr(building, "build", build)
    output = tmp_path / "output"
    output.mkdir()
    (output / "mine").write_text("text")
    words = ["toolchain", "build", "--toolchain=dev", f"--output={output}"]
    assert run(words) == 1
    assert "holds files that this command did not write" in capsys.readouterr().err
    assert not built and (output / "mine").read_text() == "text"
    (output / "mine").unlink()
    # An empty one is filled, and one of ours replaced.
    for _ in range(2):
        assert run(words) == 0
        assert (output / "bin" / "opt").read_text() == "#!/bin/sh\necho a script\n"
        (output / "left over").touch()
    assert run(words) == 0 and not (output / "left over").exists()


def test_the_archive_has_a_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = _set(tmp_path / "set")
    for name in ("set.zip", ".tar.xz"):
        words = ["toolchain", "pack", f"--toolchain={folder}", f"--output={tmp_path / name}"]
        assert run(words) == 1
        assert f"{name}: expected NAME.tar.xz" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"set"}
