# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ways to compile a program that are tried, and the flags of each."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler_opt_perf.policy.compiler_flags import (
    ONE_UNWIND_ENTRY,
    CompilerFlags,
    compiler_flags,
    flags_without_policies,
)
from compiler_opt_perf.toolchain.installation import Toolchain

# Also from functions of which the linker keeps one copy: it drops what only the others call.
_OUTLINER = ("-enable-machine-outliner", "-enable-linkonceodr-outlining", ONE_UNWIND_ENTRY)
# As in builds of the Linux kernel and of Android; the default is 100 instructions.
_FEW_IMPORTS = ("-import-instr-limit=5",)


@dataclass(frozen=True)
class Way:
    """A way to compile a program.

    Attributes:
      name: in tables; the name of its configuration file, too.
      autofdo: the compiler itself uses the PMU profile's executions (-fprofile-sample-use).
      policies: policies decide: by the PMU profile for speed, without one for size.
      counted: the compiler uses counters of an instrumented run (-fprofile-use).
      thinlto: the program is linked by ThinLTO.
      few_imports: ThinLTO copies only the smallest functions into other modules.
      outliner: the machine outliner moves repeated instructions into functions.
      outlined_runs: but not those of blocks that are estimated to run more often in 100 calls of
        their function (docs/results/hot-outlining.md); 0 for no limit.
      small_cold: what the profile knows cold is compiled for size, and outlined.
    """

    name: str
    autofdo: bool = False
    policies: bool = False
    counted: bool = False
    thinlto: bool = False
    few_imports: bool = False
    outliner: bool = False
    outlined_runs: int = 800
    small_cold: bool = False

    def flags(
        self,
        toolchain: Toolchain,
        models: Mapping[str, Path | None],
        profile: Path | None,
        counters: Path | None,
    ) -> CompilerFlags:
        """The flags of compilations and links, without the level of optimisation.

        Args:
          models: by problem, the folder of the policy; for ways with policies.
          profile: manifest of the PMU profile, for ways that use one.
          counters: merged counters of an instrumented run; for ways with counters.

        Raises:
          ToolchainError: a policy is missing.
          PmuError: the profile is damaged.
        """
        if self.policies:
            flags = compiler_flags(toolchain, models, profile, autofdo=self.autofdo)
        elif self.counted:
            flags = CompilerFlags(toolchain, (), profile_words=(f"-fprofile-use={counters}",))
        else:
            flags = flags_without_policies(toolchain, profile if self.autofdo else None)
        if self.thinlto:
            words = (*flags.profile_words, "-flto=thin")
            flags = dataclasses.replace(flags, profile_words=words)
        if self.small_cold:
            flags = flags.with_small_cold_code(profile if self.autofdo else None)
        outliner = (*_OUTLINER, f"-outliner-max-frequency={self.outlined_runs}")
        options = (*_FEW_IMPORTS * self.few_imports, *outliner * self.outliner)
        return dataclasses.replace(flags, options=(*flags.options, *options))


#: What all others are compared with.
PLAIN = Way("plain")
SPEED = (
    PLAIN,
    Way("AutoFDO", autofdo=True),
    Way("policies", policies=True),
    Way("both", autofdo=True, policies=True),
)
PGO = (Way("PGO", counted=True), Way("PGO-ThinLTO", counted=True, thinlto=True))
#: By a way with a profile, the same with small cold code.
SMALL_COLD = {
    way: dataclasses.replace(way, name=f"{way.name}-small-cold", small_cold=True)
    for way in (SPEED[1], *PGO)
}
SIZE = (
    PLAIN,
    Way("inline-size", policies=True),
    Way("outliner", outliner=True),
    Way("inline-size-outliner", policies=True, outliner=True),
)
SIZE_THINLTO = tuple(
    dataclasses.replace(
        way,
        name="ThinLTO" if way is PLAIN else f"{way.name}-ThinLTO",
        thinlto=True,
        few_imports=True,
    )
    for way in SIZE
)


def with_small_cold(ways: Sequence[Way]) -> list[Way]:
    """The ways, and before each the same with small cold code, where there is that.

    So it is taken where time does not tell the two apart.
    """
    found = []
    for way in ways:
        if way in SMALL_COLD:
            found.append(SMALL_COLD[way])
        found.append(way)
    return found
