# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads JSON that anyone may have written: whatever is wrong with it is one error."""

import json
import re
from typing import Any

# An escape of half a character; alone it is no text that a file could have as its name, say.
_HALF = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}")


class JsonError(ValueError):
    """A text that is not JSON, or that no program can work with.

    Attributes:
      place: ":line:column" where the text is not JSON; else empty.
    """

    def __init__(self, problem: str, place: str = ""):
        super().__init__(problem)
        self.place = place


def parse_json(data: bytes | str) -> Any:
    """The value that `data` (UTF-8) stands for.

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
