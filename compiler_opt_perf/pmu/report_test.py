# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from compiler_opt_perf.pmu.manifest import Manifest
from compiler_opt_perf.pmu.report import summarize


def test_summary(profile: Manifest) -> None:
    lines = summarize(profile).splitlines()
    assert profile.program.build_id in lines[0]
    assert "workload measure" in lines[1]
    assert "LL 2097152,16,64" in lines[2]
    loads = next(line for line in lines if line.startswith("loads"))
    assert f"{profile.event('loads').total:,}" in loads
    assert "%" in loads
    for rate in profile.rates:
        assert any(line.startswith(rate.name) and line.endswith("%") for line in lines)
