# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Errors that end a training."""


class TrainingError(Exception):
    """A training that cannot start, or cannot go on in its folder."""
