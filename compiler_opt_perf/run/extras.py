# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks for packages that are installed on request only: the extras of pyproject.toml."""

import importlib.util

from compiler_opt_perf.run.errors import UserError


class MissingExtraError(UserError):
    """A package of an extra is not installed."""


def require_extra(package: str) -> None:
    """Checks that a package is installed, without importing it.

    Args:
      package: "ray" or "tensorflow"; the extra has the same name.

    Raises:
      MissingExtraError: it is not installed.
    """
    if importlib.util.find_spec(package) is None:
        raise MissingExtraError(
            f"this needs the Python package {package}, which is not installed; run: "
            f"tools/bootstrap --with={package}"
        )
