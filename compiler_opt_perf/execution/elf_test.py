# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from absl import logging
from elftools.elf.sections import NoteSection, SymbolTableSection

from compiler_opt_perf.execution.command import run_command
from compiler_opt_perf.execution.elf import ElfFileError, open_elf
from compiler_opt_perf.execution.llvm import stock_tool


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


def test_an_undamaged_file(program: Path) -> None:
    assert len(look_everywhere(program)) > 50


def flip_in_segments(data: bytes, generator: random.Random) -> bytes:
    return flip(data, generator, 64, 700)


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
        except ElfFileError as error:
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
        with pytest.raises(ElfFileError, match=message), open_elf(tmp_path / name):
            pass


def test_mistakes_of_ours_are_no_damage(program: Path) -> None:
    class OurError(Exception):
        pass

    with pytest.raises(OurError), open_elf(program):
        raise OurError
