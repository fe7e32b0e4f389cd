# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A PMU profile in a few lines of text."""

from compiler_opt_perf.pmu.manifest import Manifest


def summarize(manifest: Manifest) -> str:
    """What was profiled, and for each event and rate its total and how much of it was located.

    The rates are those of the whole program, from located counts, as the compiler sees them.
    """
    program, collector = manifest.program, manifest.collector
    caches = ", ".join(f"{name} {cache}" for name, cache in collector.cache_geometry.items())
    lines = [
        f"program    {program.path}, build-id {program.build_id}",
        f"command    {' '.join(collector.command)}",
        f"collector  {collector.tool} ({collector.backend}), caches {caches}",
        "",
        f"{'event':32}{'in the program':>16}{'located':>10}{'elsewhere':>16}",
    ]
    for event in manifest.events:
        lines.append(
            f"{event.name:32}{event.total:16,}{_percent(event.located, event.total):>10}"
            f"{event.outside:16,}"
        )
    lines += ["", f"{'rate':32}{'value':>16}"]
    for rate in manifest.rates:
        numerator = manifest.event(rate.numerator).located
        denominator = manifest.event(rate.denominator).located
        lines.append(f"{rate.name:32}{_percent(numerator, denominator):>16}")
    return "\n".join(lines) + "\n"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.3g}%" if whole else "-"
