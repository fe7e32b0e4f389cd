# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ends a training."""


class TrainingError(Exception):
    """A training that cannot start, or cannot go on in its folder."""
