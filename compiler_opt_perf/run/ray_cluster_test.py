# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Addresses; train/cluster_test.py works on a cluster."""

import pytest

from compiler_opt_perf.run.ray_cluster import ClusterError, RayExecutor


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "no Ray cluster can be used there: Connection refused; start one with"),
        ("here", "--address=here: expected auto, local or HOST:PORT"),
        ("here:99999", "expected auto, local or HOST:PORT"),
    ],
)
def test_a_cluster_that_is_not_there_is_named(address: str, message: str) -> None:
    with pytest.raises(ClusterError, match=message), RayExecutor(address):
        pass
