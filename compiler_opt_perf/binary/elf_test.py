# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from absl import logging
from elftools.elf.sections import NoteSection, SymbolTableSection

from compiler_opt_perf.binary.disassembly import disassemble
from compiler_opt_perf.binary.elf import (
    BinaryError,
    build_id,
    hide_debug_info,
    open_elf,
    require_debug_info,
    require_split_debug_info,
)
from compiler_opt_perf.binary.symbolize import symbolize
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elf")
    source = folder / "program.c"
    source.write_text("int main(void) { return 0; }\n")
    output = folder / "program"
    run_command([stock_tool("clang"), "-g", "-Wl,--build-id", source, "-o", output])
    return output


def look_everywhere(path: Path) -> list[object]:
    """All that the package reads of ELF files."""
    found: list[object] = []
    with open_elf(path) as file:
        for section in file.iter_sections():
            found.append((section.name, section["sh_type"], section["sh_size"]))
            if isinstance(section, NoteSection):
                found += [note["n_desc"] for note in section.iter_notes()]
            if isinstance(section, SymbolTableSection):
                found += [(symbol.name, symbol["st_value"]) for symbol in section.iter_symbols()]
            if section.name.startswith((".text", ".debug_info")):
                found.append(len(section.data()))
        found += [segment["p_vaddr"] for segment in file.iter_segments("PT_LOAD")]
        if file.has_dwarf_info():
            for unit in file.get_dwarf_info(follow_links=False).iter_CUs():
                found.append(unit.get_top_DIE().attributes.get("DW_AT_comp_dir"))
    return found


@pytest.mark.compiler
def test_an_undamaged_file(program: Path) -> None:
    assert len(look_everywhere(program)) > 50


def flip_in_segments(data: bytes, generator: random.Random) -> bytes:
    return flip(data, generator, 64, 700)


@pytest.mark.compiler
@pytest.mark.parametrize(
    "damage",
    [
        # A bit anywhere in the heads of the file, of its segments and of its sections.
        lambda data, generator: flip(data, generator, 0, 64),
        flip_in_segments,
        lambda data, generator: flip(data, generator, int.from_bytes(data[40:48], "little"), None),
        # Eight bytes of all ones, somewhere; the end cut off.
        lambda data, generator: overwrite(data, generator),
        lambda data, generator: data[: generator.randrange(len(data))],
    ],
    ids=["head", "segments", "sections", "numbers", "cut"],
)
def test_damage_is_one_error(
    program: Path, tmp_path: Path, damage: Callable[[bytes, random.Random], bytes]
) -> None:
    seed = 3
    logging.info("seed %d", seed)
    generator = random.Random(seed)
    data, path = program.read_bytes(), tmp_path / "damaged"
    refused = 0
    for _ in range(150):
        path.write_bytes(damage(data, generator))
        try:
            look_everywhere(path)
        except BinaryError as error:
            assert str(error).startswith(str(path))
            refused += 1
    # What a bit of a segment's head says is not contradicted by anything.
    assert refused > 5 or damage is flip_in_segments


def flip(data: bytes, generator: random.Random, start: int, end: int | None) -> bytes:
    damaged = bytearray(data)
    damaged[generator.randrange(start, end or len(data))] ^= 1 << generator.randrange(8)
    return bytes(damaged)


def overwrite(data: bytes, generator: random.Random) -> bytes:
    place = generator.choice(
        [generator.randrange(64), generator.randrange(len(data) - 2500, len(data))]
    )
    return data[:place] + b"\xff" * 8 + data[place + 8 :]


def test_other_files(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("#!/bin/sh\n")
    for name, message in (("script", "not an ELF file"), ("absent", "No such file"), ("", "Is a")):
        with pytest.raises(BinaryError, match=message), open_elf(tmp_path / name):
            pass


@pytest.mark.compiler
def test_mistakes_of_ours_are_no_damage(program: Path) -> None:
    class OurError(Exception):
        pass

    with pytest.raises(OurError), open_elf(program):
        raise OurError


@pytest.mark.compiler
def test_build_id_is_the_one_readelf_shows(workload: Path) -> None:
    notes = run_command([stock_tool("llvm-readelf"), "--notes", workload]).stdout
    assert f"Build ID: {build_id(workload)}" in notes
    assert re.fullmatch("[0-9a-f]{40}", build_id(workload))


@pytest.mark.compiler
def test_build_id_missing(build: Callable[..., Path]) -> None:
    with pytest.raises(BinaryError, match=r"has no build-id.*-Wl,--build-id"):
        build_id(build("-Wl,--build-id=none"))


def test_build_id_of_a_script(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/sh\n")
    with pytest.raises(BinaryError, match=r"run\.sh: not an ELF file"):
        build_id(script)


@pytest.mark.compiler
def test_build_id_of_a_truncated_binary(workload: Path, tmp_path: Path) -> None:
    half = tmp_path / "half"
    half.write_bytes(workload.read_bytes()[:3000])
    with pytest.raises(BinaryError, match="half: not an ELF file"):
        build_id(half)


def test_build_id_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(BinaryError, match="nothing: cannot be read: No such file"):
        build_id(tmp_path / "nothing")


@pytest.mark.compiler
def test_hidden_debug_info_changes_section_names_only(workload: Path, tmp_path: Path) -> None:
    require_debug_info(workload)
    copy = tmp_path / "copy"
    hide_debug_info(workload, copy)
    with pytest.raises(BinaryError, match=r"no debug info.*-fdebug-info-for-profiling"):
        require_debug_info(copy)
    before, after = workload.read_bytes(), copy.read_bytes()
    assert len(before) == len(after)
    changes = {(a, b) for a, b in zip(before, after, strict=True) if a != b}
    assert changes == {(ord("."), ord("_"))}
    assert before.count(b"\0.debug_") == after.count(b"\0_debug_") > 0
    assert build_id(copy) == build_id(workload)
    run_command([copy, "threads"], timeout_s=10)


@pytest.mark.compiler
@pytest.mark.parametrize("linker", ["-fuse-ld=bfd", "-fuse-ld=lld"])
@pytest.mark.parametrize("kind", ["none", "zlib", "zstd"])
def test_compressed_debug_info(
    kind: str, linker: str, build: Callable[..., Path], tmp_path: Path
) -> None:
    """Read, whether split or not: what is missing of it is found."""
    whole = build(f"-gz={kind}", linker)
    require_debug_info(whole)
    require_split_debug_info(whole)
    assert symbolize(whole, disassemble(whole).addresses).locations
    run_command(
        [
            *(stock_tool("clang"), "-O2", "-g", "-gsplit-dwarf", f"-gz={kind}", linker),
            *(Path(__file__).parent / "testdata" / "workload.c", "-o", "split"),
        ],
        cwd=tmp_path,
    )
    require_split_debug_info(tmp_path / "split")
    for part in tmp_path.glob("*.dwo"):
        part.unlink()
    with pytest.raises(BinaryError, match=r"split: 1 files of its split debug info are missing"):
        require_split_debug_info(tmp_path / "split")


@pytest.mark.compiler
def test_debug_info_that_llvm_does_not_read(build: Callable[..., Path], tmp_path: Path) -> None:
    old = tmp_path / "old"
    run_command(["objcopy", "--compress-debug-sections=zlib-gnu", build(), old])
    with pytest.raises(BinaryError, match=r"compressed in the old way .*objcopy --decompress"):
        require_debug_info(old)
