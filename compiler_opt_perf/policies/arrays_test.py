# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("limit", [100, 1000, 5000])
def test_a_full_disk_is_one_kind_of_error(limit: int, tmp_path: Path) -> None:
    # So small files stand for a full disk.
    code = f"""
import resource
from pathlib import Path
import numpy as np
from compiler_opt_perf.policies.arrays import write_arrays

resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
try:
    write_arrays(Path({str(tmp_path / "x.npz")!r}), mean=np.zeros(500), best=np.zeros(500))
except OSError as error:
    print(error.strerror)
"""
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    # Nor does numpy show another one when it is done with its archive.
    assert (completed.stdout, completed.stderr) == ("File too large\n", "")
