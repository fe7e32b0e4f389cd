# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How programs are started that load TensorFlow."""

from typing import Final

#: Without messages below errors. TensorFlow looks for Keras as it starts, and so imports all of it,
#: which takes a quarter of the time; the older one is not there.
TENSORFLOW_ENVIRONMENT: Final = {
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_USE_LEGACY_KERAS": "1",
}
