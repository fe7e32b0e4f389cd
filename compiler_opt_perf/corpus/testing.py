# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes compilations of a real program for tests."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from compiler_opt_perf.corpus.program_table import PROGRAMS
from compiler_opt_perf.corpus.programs import program_tree


def lua_compile_commands(folder: Path, names: Sequence[str], flags: Sequence[str] = ()) -> Path:
    """Writes `folder/compile_commands.json` for modules of Lua, as a CMake build would write it.

    Args:
      names: names of source files without folder and suffix, for example "lvm".
      flags: compiler flags, placed before Lua's own.
    """
    program = PROGRAMS["lua"]
    tree = program_tree(program)
    for name, text in program.generated:
        (folder / name).write_text(text)
    commands = []
    for name in names:
        source = f"src/{name}.c"
        words = ["clang", *flags, *program.flags, f"-I{folder}", "-MD", "-MF", f"{folder}/{name}.d"]
        words += ["-c", source, "-o", f"{folder}/{name}.o"]
        commands.append({"directory": str(tree), "file": source, "command": shlex.join(words)})
    path = folder / "compile_commands.json"
    path.write_text(json.dumps(commands))
    return path
