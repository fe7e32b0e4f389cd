# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""lit configuration: tests of the patched tools, run by `build/venv/bin/lit lit_tests`.

Every tool is found by its plain name: clang, opt and llc of the model set (`--param toolchain=DIR`,
by default build/toolchain/mock), FileCheck and the rest of the distribution's LLVM.
"""

import sys
from pathlib import Path

import lit.formats
import lit.util

from compiler_opt_perf.toolchain.installation import Toolchain, stock_tool
from compiler_opt_perf.toolchain.layout import BUILD, ToolchainError

# lit_config and config are lit's own.
try:
    directory = lit_config.params.get("toolchain", str(BUILD / "toolchain" / "mock"))  # noqa: F821
    toolchain = Toolchain.load(Path(directory))
    stock_directory = stock_tool("FileCheck").parent
except ToolchainError as error:
    lit_config.fatal(str(error))  # noqa: F821

config.name = "compiler-opt-perf"  # noqa: F821
config.test_format = lit.formats.ShTest(execute_external=False)  # noqa: F821
config.suffixes = [".ll", ".mir", ".c", ".cpp", ".test"]  # noqa: F821
config.excludes = ["Inputs"]  # noqa: F821
config.test_source_root = str(Path(__file__).parent)  # noqa: F821
config.test_exec_root = str(BUILD / "lit_tests")  # noqa: F821
config.available_features.add("x86_64-linux")  # noqa: F821
config.substitutions += [  # noqa: F821
    ("%python", sys.executable),
    ("%litert", str(toolchain.litert_library)),
]
path = [str(toolchain.clang.parent), str(stock_directory), config.environment["PATH"]]  # noqa: F821
config.environment |= {  # noqa: F821
    "PATH": ":".join(path),
    "LLVM_LITERT_LIBRARY": str(toolchain.litert_library),
    # TensorFlow, where a test makes a model, reports to stderr otherwise.
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
}
