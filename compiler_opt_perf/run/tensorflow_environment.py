# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Environment variables for programs that load TensorFlow."""

from typing import Final

#: Silences messages below errors. Keras is a quarter of TensorFlow's import time; TensorFlow does
#: not import it when it is told to use the legacy one, which is not installed.
TENSORFLOW_ENVIRONMENT: Final = {
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_USE_LEGACY_KERAS": "1",
}
