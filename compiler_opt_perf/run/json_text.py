# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads untrusted JSON and TOML; every defect raises the same kind of error.

Readers of files call `decode` with a type that describes the file, mostly a `msgspec.Struct` or a
frozen dataclass. Unknown fields are ignored. Integers are converted to floats, and nothing else is
converted. msgspec checks the types; this module adds the file, the keys of tables and the value
found to its messages.
"""

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import read_input

T = TypeVar("T")

#: A count.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
#: A finite number.
Finite = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
#: A text without NUL, as arguments of programs and names of files must be.
CText = Annotated[str, msgspec.Meta(pattern="^[^\0]*$")]
#: The path of a file.
FileName = Annotated[str, msgspec.Meta(pattern="^[^\0]+$")]
#: A size, a time or a score: none is as large as 2**64.
Measure = Annotated[float, msgspec.Meta(ge=0, lt=2.0**64)]

# An escaped surrogate; without its other half it cannot be encoded, as a file's name for example.
_HALF = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}")
_SHOWN = 40
# A step of a place: a field, an index, or the key of a table.
_STEP = re.compile(r'\.(?P<field>\w+)|\[(?P<index>\d+)\]|\[(?P<key>"(?:[^"\\]|\\.)*")\]')
# What msgspec writes for any key.
_SOME_KEY = "[...]"


class JsonError(UserError, ValueError):
    """A text is not JSON or TOML, or has other content than expected.

    Attributes:
      place: ":line:column" of a syntax error; else empty.
    """

    def __init__(self, problem: str, place: str = ""):
        super().__init__(problem)
        self.place = place


class FieldError(ValueError):
    """A type's `__post_init__` found a wrong field; `decode` adds the place of the type."""

    def __init__(self, field: str, problem: str):
        super().__init__(problem)
        self.field = field


def parse_json(data: bytes | str) -> Any:
    """Parses `data` (UTF-8).

    Raises:
      JsonError: it is not JSON, nested too deep, or holds a number too long for any use or half a
        character (a surrogate without its other half).
    """
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
        value = json.loads(text)
        if _HALF.search(text):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except json.JSONDecodeError as error:
        raise JsonError(error.msg, f":{error.lineno}:{error.colno}") from error
    except UnicodeDecodeError as error:
        raise JsonError(f"byte {error.start} is not UTF-8") from error
    except UnicodeEncodeError as error:
        raise JsonError("a string holds half a character (a lone surrogate)") from error
    except RecursionError as error:
        raise JsonError("nested too deep") from error
    except ValueError as error:
        # Python refuses to convert numbers of thousands of digits.
        raise JsonError("a number has too many digits") from error
    return value


def parse_toml(data: bytes, path: Path | str) -> dict[str, Any]:
    """Parses TOML (UTF-8). Raises JsonError that names `path`."""
    try:
        return tomllib.loads(data.decode("utf-8"))
    # Numbers of thousands of digits are a plain ValueError.
    except (ValueError, RecursionError) as error:
        raise JsonError(f"{path}: not TOML: {error}") from error


def decode(
    data: bytes | str, kind: type[T], path: Path | str, form: tuple[str, int] | None = None
) -> T:
    """Decodes `data` (UTF-8) as a value of the type `kind`.

    Args:
      path: the file, for messages.
      form: expected values of the fields `format` and `version`. They are checked first, since
        other versions may have other fields.

    Raises:
      JsonError: it is not JSON (see `parse_json`), not of that format, or not of that type. The
        message has the path and the place, `run.pmu.json: $.events[3].name: ...`.
    """
    try:
        value = parse_json(data)
    except JsonError as error:
        truncated = " (truncated?)" if error.place else ""
        raise JsonError(f"{path}{error.place}: not JSON: {error}{truncated}") from error
    if form is not None:
        _require_form(value, form, path)
    return convert(value, kind, path)


def read_form(
    path: Path, kind: type[T], form: tuple[str, int], failure: type[Exception], remedy: str
) -> T:
    """Reads a file of a format, as `decode`.

    Args:
      failure: the exception class for a file that cannot be read or decoded.
      remedy: the end of its message, which says how to make such a file.
    """
    try:
        return decode(read_input(path), kind, path, form)
    except OSError as error:
        raise failure(f"{path}: {error.strerror}; {remedy}") from error
    except JsonError as error:
        raise failure(f"{error}; {remedy}") from error


def convert(value: Any, kind: type[T], path: Path | str) -> T:
    """A value of `parse_json` as the type `kind`. Raises JsonError, as `decode`."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `")
        place = _with_keys(value, kind, place.rstrip("`") or "$")
        missing = re.fullmatch("Object missing required field `(.*)`", problem)
        if isinstance(error.__cause__, FieldError):
            place += f".{error.__cause__.field}"
        elif missing:
            place, problem = f"{place}.{missing[1]}", "is missing"
        else:
            problem = problem[:1].lower() + problem[1:].partition(", got")[0]
            problem += f", found {shown(_at(value, place))}"
        raise JsonError(f"{path}: {place}: {problem}") from error


def shown(value: Any) -> str:
    """A value as a message shows it: the beginning of its JSON."""
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _require_form(value: Any, form: tuple[str, int], path: Path | str) -> None:
    """Raises JsonError unless `format` and `version` are as expected."""
    if not isinstance(value, dict):
        raise JsonError(f"{path}: $: expected `object`, found {shown(value)}")
    hints = ("this is another kind of file", "another version of this program wrote it")
    for name, expected, hint in zip(("format", "version"), form, hints, strict=True):
        if name not in value:
            raise JsonError(f"{path}: $.{name}: is missing")
        # True would be 1.
        if type(value[name]) is not type(expected) or value[name] != expected:
            found = shown(value[name])
            raise JsonError(
                f"{path}: $.{name}: expected {json.dumps(expected)}, found {found}: {hint}"
            )


def _at(value: Any, place: str) -> Any:
    """The part of a value at a place."""
    for step in _STEP.finditer(place):
        if step["index"] is not None:
            value = value[int(step["index"])]
        else:
            value = value[step["field"] or json.loads(step["key"])]
    return value


def _with_keys(value: Any, kind: Any, place: str) -> str:
    """The place with the keys of tables that msgspec leaves out. Deletes the other keys."""
    while _SOME_KEY in place:
        before, _, after = place.partition(_SOME_KEY)
        table = _at(value, before)
        for key, item in list(table.items()):
            table.clear()
            table[key] = item
            try:
                msgspec.convert(value, kind)
            except msgspec.ValidationError:
                place = f"{before}[{json.dumps(key)}]{after}"
                break
        else:
            break
    return place
