# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Extraction from small real builds; what it wrote compiles to the builds' own machine code."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from compiler_opt_perf.binary.elf import open_elf
from compiler_opt_perf.corpus.corpus import FRONTEND, OPTIMIZED, STAGES, Corpus, CorpusError, Module
from compiler_opt_perf.corpus.extract import extract_corpus
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.toolchain.installation import Toolchain

pytestmark = pytest.mark.compiler

# Each calls the next, so that a thin link has something to import.
_SOURCES = {
    "main": "int one(int);\nint main(int Argc, char **Argv) {\n"
    "  int Sum = 0;\n  for (int I = 0; I < 10 * Argc; ++I)\n    Sum += one(I);\n"
    "  return Sum & 7;\n}\n",
    "one": "int two(int);\nstatic int square(int X) { return X * X + 1; }\n"
    "int one(int X) { return two(square(X)) + square(two(X)); }\n",
    "two": "int two(int X) { return X % 10 == 3 ? X * 7 : X - 1; }\n",
}
_EMBED = ("-Xclang", "-fembed-bitcode=all")


def _compile(folder: Path, *flags: str, tool: Path | None = None) -> None:
    """Compiles the sources in `folder/sub`, with paths relative to `folder`."""
    (folder / "sub").mkdir(exist_ok=True, parents=True)
    for name, text in _SOURCES.items():
        (folder / "sub" / f"{name}.c").write_text(text)
        words = [
            str(tool or stock_tool("clang")),
            *flags,
            "-c",
            f"sub/{name}.c",
            "-o",
            f"sub/{name}.o",
        ]
        run_command(words, cwd=folder)


def _extract(builds: dict[str, Path], output: Path, stage: str, flags: Sequence[str] = ()) -> None:
    extract_corpus(
        builds,
        output,
        clang=stock_tool("clang"),
        opt_level="-O2",
        stage=stage,
        held_out_share=0.3,
        seed=1,
        workers=1,
        link_flags=flags,
    )


def _modules(output: Path) -> dict[str, Module]:
    corpora = [Corpus.load(output / side) for side in ("train", "held_out")]
    return {module.name: module for corpus in corpora for module in corpus.modules}


def _code(path: Path) -> dict[str, bytes]:
    with open_elf(path) as elf:
        names = [section.name for section in elf.iter_sections()]
        return {
            name: elf.get_section_by_name(name).data()
            for name in names
            if name.startswith(".text") and elf.get_section_by_name(name).data_size
        }


def _compiled(module: Module, clang: Path, folder: Path) -> dict[str, bytes]:
    output = folder / "compiled.o"
    run_command(module.compile_command(clang, output))
    return _code(output)


@pytest.mark.parametrize("stage", STAGES)
def test_objects_with_bitcode(stage: str, toolchain: Toolchain, tmp_path: Path) -> None:
    build, output = tmp_path / "build", tmp_path / "corpus"
    _compile(build, "-O2", *_EMBED)
    (build / "none.o").write_bytes(b"no object")
    _extract({"p": build}, output, stage)
    modules = _modules(output)
    assert sorted(modules) == ["p/sub/main", "p/sub/one", "p/sub/two"]
    for name, module in modules.items():
        assert module.thinlto_index is None
        assert not [word for word in module.command if "/" in word or "embed" in word]
        assert ("-disable-llvm-passes" in module.command) == (stage == OPTIMIZED)
        expected = _code(build / f"{name.removeprefix('p/')}.o")
        assert _compiled(module, toolchain.clang, tmp_path) == expected
    # Its own work is replaced.
    _extract({"p": build}, output, stage)


def test_bitcode_that_the_driver_embeds_is_optimised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    build = tmp_path / "build"
    _compile(build, "-O2", "-fembed-bitcode")
    with pytest.raises(CorpusError, match="no module could be extracted"):
        _extract({"p": build}, tmp_path / "corpus", FRONTEND)
    assert "optimised already; compile with -Xclang -fembed-bitcode=all" in caplog.text
    _extract({"p": build}, tmp_path / "corpus", OPTIMIZED)
    for name, module in _modules(tmp_path / "corpus").items():
        expected = _code(build / f"{name.removeprefix('p/')}.o")
        assert _compiled(module, stock_tool("clang"), tmp_path) == expected


def test_objects_compiled_with_a_profile_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "profile").write_text("one:1:1\n 1: 1\n")
    _compile(tmp_path / "build", "-O2", "-g", *_EMBED, f"-fprofile-sample-use={tmp_path}/profile")
    with pytest.raises(CorpusError, match="no module could be extracted"):
        _extract({"p": tmp_path / "build"}, tmp_path / "corpus", FRONTEND)
    option = f"-fprofile-sample-use={tmp_path}/profile"
    assert f"compiled with {option} names a file that a corpus cannot hold" in caplog.text


@pytest.mark.parametrize("stage", STAGES)
def test_after_a_thin_link(stage: str, toolchain: Toolchain, tmp_path: Path) -> None:
    build, output = tmp_path / "build", tmp_path / "corpus"
    _compile(build, "-O2", "-flto=thin", tool=toolchain.clang)
    run_command([stock_tool("llvm-ar"), "rcs", "sub/two.a", "sub/two.o"], cwd=build)
    inputs = ["sub/main.o", "sub/one.o", "sub/two.a"]
    link = [str(toolchain.clang), "-O2", "-flto=thin", "-fuse-ld=lld", *inputs, "-Wl,--save-temps"]
    run_command([*link, "-Wl,--thinlto-emit-index-files", "-o", "program"], cwd=build)
    _extract({"p": build}, output, stage)
    modules = _modules(output)
    assert len(modules) == 3 and {"p/sub/main", "p/sub/one"} < set(modules)
    for name, module in modules.items():
        assert module.thinlto_index == module.bitcode.with_suffix(".thinlto.bc")
        assert "-fthinlto-index" not in "".join(module.command)
        # What the link made of the module, in the same order.
        native = build / "sub" / f"program.lto.{Path(name).name}.o"
        assert _compiled(module, toolchain.clang, tmp_path) == _code(native)
    assert "two" not in _calls(modules["p/sub/one"], toolchain.clang, tmp_path)
    # Policies decide about what the thin link imported.
    log = tmp_path / "log"
    advisor = ["-mllvm", "-enable-ml-inliner=development", "-mllvm", f"-training-log={log}"]
    run_command(modules["p/sub/one"].compile_command(toolchain.clang, tmp_path / "a.o", advisor))
    assert b'{"observation":0}' in log.read_bytes()


def _calls(module: Module, clang: Path, folder: Path) -> set[str]:
    """Names of undefined symbols."""
    output = folder / "calls.o"
    run_command(module.compile_command(clang, output))
    with open_elf(output) as elf:
        table = elf.get_section_by_name(".symtab")
        return {s.name for s in table.iter_symbols() if s["st_shndx"] == "SHN_UNDEF"}


def test_flags_of_the_thin_link_are_given(tmp_path: Path) -> None:
    build = tmp_path / "build"
    _compile(build, "-O2", "-flto=thin")
    words = [str(stock_tool("clang")), "-flto=thin", "-fuse-ld=lld", "sub/main.o", "sub/one.o"]
    words += ["sub/two.o", "-Wl,--save-temps=import", "-Wl,--thinlto-emit-index-files"]
    run_command([*words, "-o", "program"], cwd=build)
    _extract({"p": build}, tmp_path / "corpus", FRONTEND, ["-mllvm", "-inline-threshold=1"])
    for module in _modules(tmp_path / "corpus").values():
        assert "-mllvm -inline-threshold=1" in " ".join(module.command)
    next(build.rglob("*.thinlto.bc")).unlink()
    with pytest.raises(CorpusError, match="thinlto.bc: not found beside .*3.import.bc"):
        _extract({"p": build}, tmp_path / "corpus", FRONTEND)


def test_objects_of_a_distributed_thin_link(toolchain: Toolchain, tmp_path: Path) -> None:
    build, output = tmp_path / "build", tmp_path / "corpus"
    clang = [str(toolchain.clang), "-O2"]
    _compile(build, "-O2", "-flto=thin", tool=toolchain.clang)
    names = [f"sub/{name}.o" for name in _SOURCES]
    link = [*clang, "-flto=thin", "-fuse-ld=lld", "-Wl,--thinlto-index-only"]
    run_command([*link, *names, "-o", "unused"], cwd=build)
    for name in names:
        index = f"-fthinlto-index={name}.thinlto.bc"
        words = [*clang, "-mllvm", "-lto-embed-bitcode=post-merge-pre-opt", "-x", "ir", name, index]
        run_command([*words, "-c", "-o", f"{name}.native.o"], cwd=build)
    _extract({"p": build}, output, FRONTEND)
    modules = _modules(output)
    assert sorted(modules) == [f"p/sub/{name}.o.native" for name in sorted(_SOURCES)]
    for name, module in modules.items():
        assert module.thinlto_index is not None
        assert not [word for word in module.command if "/" in word or "embed" in word]
        native = build / f"{name.removeprefix('p/')}.o"
        assert _compiled(module, toolchain.clang, tmp_path) == _code(native)
    (build / "sub/one.o.thinlto.bc").unlink()
    with pytest.raises(CorpusError, match=r"one.o.native.o: its command names sub/one.o.thinlto"):
        _extract({"p": build}, output, FRONTEND)


def test_commands_in_objects_are_those_of_strangers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    build = tmp_path / "build"
    _compile(build, "-O2", *_EMBED)
    secret = tmp_path / "secret"
    secret.write_text("of the user")
    for name, option in (
        ("one", f"-load\0{tmp_path}/x.so\0-mllvm\0-info-output-file={tmp_path}/x"),
        ("two", f"-fthinlto-index={secret}"),
    ):
        command = tmp_path / "command"
        command.write_text(f"-cc1\0-triple\0x86_64-pc-linux-gnu\0-emit-obj\0{option}\0")
        words = [str(stock_tool("llvm-objcopy")), f"--update-section=.llvmcmd={command}"]
        run_command([*words, build / "sub" / f"{name}.o"])
    (build / "sub" / "main.o").unlink()
    with pytest.raises(CorpusError, match="is of a ThinLTO build"):
        _extract({"p": build}, tmp_path / "corpus", FRONTEND)
    (build / "sub" / "one.o").rename(tmp_path / "one.o")
    with pytest.raises(CorpusError, match="no module could be extracted"):
        _extract({"p": build}, tmp_path / "corpus", FRONTEND)
    assert f"{secret}: no index of a thin link" in caplog.text
    (tmp_path / "one.o").rename(build / "sub" / "two.o")
    with pytest.raises(CorpusError, match="no module could be extracted"):
        _extract({"p": build}, tmp_path / "corpus", OPTIMIZED)
    assert f"-load {tmp_path}/x.so loads code into the compiler; -mllvm -info-o" in caplog.text
    assert not (tmp_path / "x").exists()


def test_sections_of_any_size_are_not_unpacked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A small object could fill the memory; compilers compress neither section."""
    build = tmp_path / "build"
    _compile(build, "-O2", *_EMBED)
    for name, section in (("main", ".llvmbc"), ("one", ".llvmcmd")):
        path = build / "sub" / f"{name}.o"
        run_command([stock_tool("llvm-objcopy"), f"--compress-sections={section}=zlib", path])
    _extract({"p": build}, tmp_path / "corpus", FRONTEND)
    assert list(_modules(tmp_path / "corpus")) == ["p/sub/two"]
    assert "2 of 3 objects hold no bitcode" in caplog.text


def test_what_is_no_build_is_named(tmp_path: Path) -> None:
    build, thin = tmp_path / "build", tmp_path / "thin"
    build.mkdir()
    with pytest.raises(CorpusError, match="holds no modules of a build; compile with -Xclang -fem"):
        _extract({"p": build}, tmp_path / "corpus", FRONTEND)
    _compile(build, "-O2", *_EMBED)
    _compile(thin, "-O2", "-flto=thin")
    for path in thin.rglob("*.o"):
        path.with_name(path.name + ".3.import.bc").write_bytes(path.read_bytes())
        path.with_name(path.name + ".thinlto.bc").write_bytes(b"")
    with pytest.raises(CorpusError, match="is of a ThinLTO build and p/sub/.* is not"):
        _extract({"p": build, "q": thin}, tmp_path / "corpus", FRONTEND)
    merge = [str(stock_tool("ld.lld")), "-r", "sub/one.o", "sub/two.o", "-o", "merged.o"]
    run_command(merge, cwd=build)
    with pytest.raises(CorpusError, match=r"merged.o: .llvmcmd does not hold the command of one"):
        _extract({"p": build}, tmp_path / "corpus", FRONTEND)
    assert not os.path.exists(tmp_path / "corpus")
