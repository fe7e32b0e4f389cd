# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How TensorFlow is loaded: late, as it takes seconds, and without messages about itself."""

import os
from typing import Any, Final

from compiler_opt_perf.run.extras import require_extra

#: Environment variables for programs that load TensorFlow. They silence messages below errors.
#: Keras is a quarter of TensorFlow's import time; TensorFlow does not import it when it is told to
#: use the legacy one, which is not installed.
TENSORFLOW_ENVIRONMENT: Final = {
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_USE_LEGACY_KERAS": "1",
}


def import_tensorflow() -> Any:
    """The module `tensorflow`, which shows errors only.

    Raises:
      MissingExtraError: it is not installed.
    """
    require_extra("tensorflow")
    environment = TENSORFLOW_ENVIRONMENT | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    for name, value in environment.items():
        os.environ.setdefault(name, value)
    import tensorflow

    tensorflow.get_logger().setLevel("ERROR")
    return tensorflow
