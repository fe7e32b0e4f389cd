# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every reader of arrays, with an archive of a few kB that tells of GB."""

import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from compiler_opt_perf.blocks import model as cost_model
from compiler_opt_perf.policy import export
from compiler_opt_perf.run.files import sha256, write_json
from compiler_opt_perf.run.json_text import parse_json
from compiler_opt_perf.train.checkpoint import Checkpoint
from compiler_opt_perf.train.label_files import read_labels

_MODELS = Path(__file__).parents[2] / "models"
_MIB = 1 << 20


def _model(name: str, load: Callable[[Path], object]) -> Callable[[Path], object]:
    def read(weights: Path) -> object:
        """A model whose description has the checksum."""
        folder = weights.with_name(name)
        folder.mkdir()
        for file in (_MODELS / name).iterdir():
            if file.is_file():
                (folder / file.name).write_bytes(file.read_bytes())
        weights = weights.rename(folder / "weights.npz")
        description = parse_json((folder / "model.json").read_bytes())
        description["files"] = {"weights.npz": sha256(weights)}
        write_json(folder / "model.json", description)
        return load(folder)

    return read


@pytest.mark.parametrize(
    "read",
    [
        _model("inline-size", export.load),
        _model("cost-znver3", cost_model.load),
        Checkpoint.load,
        read_labels,
    ],
    ids=["policy", "cost model", "checkpoint", "labels"],
)
def test_no_reader_unpacks_what_is_too_large(
    read: Callable[[Path], object], tmp_path: Path
) -> None:
    path = tmp_path / "weights.npz"
    # All that any of them asks for, or an empty name.
    names = {"weights", "center", "inverse_scale", "version", "record", "best", "module", "keys"}
    names |= {"observations", "logged", "difference", "bytes", "compilations"}
    names |= set(np.load(_MODELS / "cost-znver3" / "weights.npz"))
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({3 << 28},)}}\n".encode()
    header = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(f"{name}.npy", header + bytes(100))
    tracemalloc.start()
    try:
        with pytest.raises(Exception, match=r"\.npz: damaged .*not as many bytes|one number"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 32 * _MIB
    finally:
        tracemalloc.stop()
