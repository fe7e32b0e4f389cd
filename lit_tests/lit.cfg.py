# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""lit configuration: tests of the patched tools, run by `build/venv/bin/lit lit_tests`.

Every tool is found by its plain name: opt, llc and clang in the folder `--param tools=DIR`, by
default build/toolchain/mock/bin; FileCheck and the rest are the distribution's. The folder may be
that of a full build, `<build folder>/bin`; tests that need clang are left out if it has none. What
tests write goes beside it, or to `--param work=DIR`.
"""

import sys
from pathlib import Path

import lit.formats
import lit.util

from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.toolchain.installation import litert_library
from compiler_opt_perf.toolchain.layout import BUILD, ToolchainError

# lit_config and config are lit's own.
try:
    tools = Path(lit_config.params.get("tools", BUILD / "toolchain/mock/bin")).absolute()  # noqa: F821
    for tool in ("opt", "llc"):
        if not (tools / tool).is_file():
            raise ToolchainError(
                f"{tools / tool}: no such program; run cop toolchain build --toolchain=mock, "
                "or give the folder of patched tools with --param tools=DIR"
            )
    litert = litert_library()
    stock_directory = stock_tool("FileCheck").parent
except ToolchainError as error:
    lit_config.fatal(str(error))  # noqa: F821

config.name = "compiler-opt-perf"  # noqa: F821
config.test_format = lit.formats.ShTest(execute_external=False)  # noqa: F821
config.suffixes = [".ll", ".mir", ".c", ".cpp", ".test"]  # noqa: F821
config.excludes = ["Inputs"]  # noqa: F821
config.test_source_root = str(Path(__file__).parent)  # noqa: F821
config.test_exec_root = lit_config.params.get("work", str(tools.parent / "lit_tests"))  # noqa: F821
config.available_features.add("x86_64-linux")  # noqa: F821
if (tools / "clang").is_file():
    config.available_features.add("clang")  # noqa: F821
# Programs of the tests import the package that the tests belong to. (lit's own diff changes the
# variable for the rest of a test.)
python = f"env PYTHONPATH={Path(__file__).parent.parent} {sys.executable}"
config.substitutions += [  # noqa: F821
    ("%seal", f"{python} {Path(__file__).parent / 'Inputs' / 'seal.py'}"),
    ("%python", python),
    ("%litert", str(litert)),
]
path = [str(tools), str(stock_directory), config.environment["PATH"]]  # noqa: F821
config.environment |= {  # noqa: F821
    "PATH": ":".join(path),
    "LLVM_LITERT_LIBRARY": str(litert),
    # TensorFlow, where a test makes a model, reports to stderr otherwise, and imports all of Keras.
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_USE_LEGACY_KERAS": "1",
    "CUDA_VISIBLE_DEVICES": "",
}
