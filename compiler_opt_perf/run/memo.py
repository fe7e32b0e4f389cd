# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Keeps results of long steps in files, with the inputs that they were made from.

A note is a JSON file with two fields: `inputs`, everything that a result depends on, and `result`.
It is written when the step is done. An interrupted step leaves no note, and deletes an earlier one:
other files of the step may be half old, half new.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from absl import logging

from compiler_opt_perf.run.files import read_input, write_text
from compiler_opt_perf.run.json_text import JsonError, convert, decode

T = TypeVar("T")


class _Note(msgspec.Struct, frozen=True):
    inputs: Any
    result: Any


def memo(
    path: Path, inputs: Any, kind: type[T], make: Callable[[], T], files: Sequence[Path] = ()
) -> T:
    """The result of a step, from its note if the inputs are the same, else by calling `make`.

    Args:
      path: the note.
      inputs: everything that the result depends on, as JSON values; tuples count as lists.
      kind: type of the result, one that msgspec converts from JSON.
      make: the step.
      files: other files that `make` writes; if one is missing, the step is done again.

    Raises:
      FileWriteError: the note cannot be written.
    """
    if all(file.exists() for file in files):
        found = _read(path, inputs, kind)
        if found:
            return found[0]
    path.unlink(missing_ok=True)
    return note(path, inputs, kind, make())


def stamped(path: Path, key: str, make: Callable[[], None], files: Sequence[Path] = ()) -> None:
    """Calls `make` unless it was called before for the same `key`: a `memo` without a result.

    The note holds the key alone, as text. Other programs read some notes of builds.

    Args:
      key: everything that the files depend on, in words or as a digest.
      files: files that `make` writes; if one is missing, it is called again.

    Raises:
      FileWriteError: the note cannot be written.
    """
    done = path.is_file() and read_input(path) == key.encode()
    if done and all(file.exists() for file in files):
        return
    path.unlink(missing_ok=True)
    make()
    write_text(path, key)


def recall(path: Path, inputs: Any, kind: type[T]) -> T | None:
    """The result in the note at `path`; None without a note of these inputs."""
    found = _read(path, inputs, kind)
    return found[0] if found else None


def note(path: Path, inputs: Any, kind: type[T], result: T) -> T:
    """Writes a note, and returns the result as `recall` reads it.

    Raises:
      FileWriteError: the disk is full, or the folder cannot be written.
    """
    built = msgspec.to_builtins(result)
    write_text(path, json.dumps({"inputs": inputs, "result": built}, allow_nan=False) + "\n")
    return convert(built, kind, path)


def numbered(folder: Path, inputs: Any) -> Path:
    """The path of the note of these inputs, in a folder of notes."""
    return folder / f"{hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:16]}.json"


def _read(path: Path, inputs: Any, kind: type[T]) -> tuple[T, ...]:
    """The result as a tuple of one; empty without a note of these inputs. Logs a damaged note."""
    try:
        found = decode(read_input(path), _Note, path)
        if found.inputs != json.loads(json.dumps(inputs, allow_nan=False)):
            return ()
        return (convert(found.result, kind, f"{path}, result"),)
    except FileNotFoundError:
        return ()
    except (OSError, JsonError) as error:
        logging.warning("%s; done again", error)
        return ()
