# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The configuration of a training: its stages, one after another, and what all of them share.

A configuration is a TOML file; those in `presets` have names. Single values are changed by path:
`hidden` is a setting of the training, `ppo.modules` one of every stage of that algorithm.
"""

import math
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from compiler_opt_perf.policy.encoding import GRID
from compiler_opt_perf.policy.network import MAX_DEFAULT_LEAD, MAX_LAYER_INPUTS
from compiler_opt_perf.policy.problem import Problem
from compiler_opt_perf.run.errors import UserError, meant
from compiler_opt_perf.run.files import read_input
from compiler_opt_perf.run.json_text import FieldError, JsonError, convert, parse_toml, shown
from compiler_opt_perf.train.algorithm import Algorithm, Count, StageSettings
from compiler_opt_perf.train.algorithms.bc_max import BcMax, BcMaxStage
from compiler_opt_perf.train.algorithms.cloning import Cloning, CloningStage
from compiler_opt_perf.train.algorithms.cma_es import CmaEs, CmaEsStage
from compiler_opt_perf.train.algorithms.evolution_strategies import (
    EvolutionStrategies,
    EvolutionStrategiesStage,
)
from compiler_opt_perf.train.algorithms.labels import LabelSettings, LabelStage
from compiler_opt_perf.train.algorithms.ppo import Ppo, PpoStage
from compiler_opt_perf.train.rewards import Way

#: Settings by which a continued training may differ from the one that it continues; so may the
#: iterations of the last stage.
FREE_SETTINGS = ("budget_s", "compilations", "workers")
_PRESETS = Path(__file__).parent / "presets"
#: What is trained by unless another one is named.
DEFAULT_PRESET = "evolution-strategies"

_Width = Annotated[int, Meta(ge=1, le=MAX_LAYER_INPUTS)]
_Growth = Annotated[float, Meta(ge=0, le=1)]
_Share = Annotated[float, Meta(ge=0, le=0.9)]
_Names = Annotated[tuple[str, ...], Meta(min_length=1)]


class ConfigError(UserError):
    """An unknown setting, or a value outside its range."""


class Programs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The split by program, so that nothing of a test program was seen.

    Attributes:
      training: policies learn from their modules.
      validation: the policy is chosen by them.
      test: the published policy is measured on them, once.
    """

    training: _Names
    validation: _Names
    test: _Names

    @property
    def all(self) -> tuple[str, ...]:
        """All names."""
        return tuple(name for names in self.by_purpose.values() for name in names)

    @property
    def by_purpose(self) -> dict[str, tuple[str, ...]]:
        """The names by the field that has them."""
        return {"training": self.training, "validation": self.validation, "test": self.test}

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for purpose, names in self.by_purpose.items():
            for name in names:
                if name in seen:
                    raise FieldError(purpose, f"{name} is named twice")
                seen.add(name)


class RunSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a program of the corpus is linked and run, to be recorded with each candidate.

    Files are named from the present folder.

    Attributes:
      arguments: the program's.
      stdin: file that it reads; nothing if empty.
      inputs: files that it finds in the folder that it runs in, by their names.
      objects: object files and archives besides the modules of the corpus.
      link: options of the link, such as -lm.
      timeout_s: limit of each simulation of the run, in seconds.
    """

    arguments: tuple[str, ...] = ()
    stdin: str = ""
    inputs: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    timeout_s: Annotated[float, Meta(ge=0.1, le=86400)] = 60.0


Stage = Cloning | EvolutionStrategies | CmaEs | Ppo | BcMax | LabelSettings
#: The algorithm that has these settings.
ALGORITHMS: dict[type[StageSettings], type[Algorithm[Any]]] = {
    Cloning: CloningStage,
    EvolutionStrategies: EvolutionStrategiesStage,
    CmaEs: CmaEsStage,
    Ppo: PpoStage,
    BcMax: BcMaxStage,
    LabelSettings: LabelStage,
}


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The configuration; `describe` lists it.

    Attributes:
      stages: each begins with the best policy so far.
      programs: purposes by program; without, the modules' are drawn.
      runs: by program; with these, an evaluator is told by a recorded run of each candidate.
    """

    stages: Annotated[tuple[Stage, ...], Meta(min_length=1, max_length=100)]
    programs: Programs | None = None
    runs: dict[str, RunSettings] = msgspec.field(default_factory=dict)
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1, description="of every random choice")] = 1
    budget_s: Annotated[
        float,
        Meta(
            ge=0,
            le=10**9,
            description="no iteration begins that would end after so many seconds; 0: no limit",
        ),
    ] = 0.0
    compilations: Annotated[
        int,
        Meta(
            ge=0,
            le=10**9,
            description="no iteration begins that would end after so many of them; 0: no limit",
        ),
    ] = 0
    workers: Annotated[
        int, Meta(ge=0, le=1024, description="processes that compile; 0: one a core")
    ] = 0
    timeout_s: Annotated[
        float, Meta(ge=0.1, le=86400, description="limit of one compilation, in seconds")
    ] = 60.0
    memory_mib: Annotated[
        int, Meta(ge=64, le=2**24, description="limit of its address space, in MiB")
    ] = 4096
    hidden: Annotated[
        tuple[_Width, ...] | None,
        Meta(description="widths of the hidden layers; [16, 8], or those of --warm-start"),
    ] = None
    margin: Annotated[
        float | None,
        Meta(
            description="that the score of another decision must have above the compiler's own, a "
            f"multiple of 2**-8 up to {MAX_DEFAULT_LEAD:g}; 0.25, or that of --warm-start. With "
            "one, a policy begins as the compiler decides; with 0, the first stage must be cloning"
        ),
    ] = None
    copies: Annotated[
        bool,
        Meta(
            description="of a function that several objects of a program have, the linker keeps "
            "one: each copy counts as a part, programs are compared one by one, and the result is "
            "measured by linking the test programs; for inline-size, with [programs]"
        ),
    ] = False
    folding: Annotated[
        bool,
        Meta(
            description="with copies: functions whose code is the same, which the linker folds by "
            "--icf=safe, count as copies of one; validation and test programs are linked so"
        ),
    ] = False
    largest_growth: Annotated[
        _Growth | None,
        Meta(
            description="with copies: validation programs are linked, with and without folding, "
            "and a policy by which one grows by a larger share counts as much as that one",
        ),
    ] = None
    options: Annotated[
        tuple[str, ...],
        Meta(
            description="further options of LLVM in each compilation, as its users give them: "
            '["-enable-machine-outliner"]'
        ),
    ] = ()
    validation_share: Annotated[
        _Share, Meta(description="of the modules, at least one, by which policies are chosen")
    ] = 0.2
    test_share: Annotated[
        _Share,
        Meta(description="of the modules, at least one, on which the result is measured, once"),
    ] = 0.2
    max_decisions: Annotated[
        Count,
        Meta(description="modules with more decisions take part in a share of the iterations"),
    ] = 1000
    rows: Annotated[
        Count,
        Meta(description="logged decisions that inputs are scaled by and cloning learns, at most"),
    ] = 50_000

    def __post_init__(self) -> None:
        if self.validation_share + self.test_share > 0.9:
            raise FieldError(
                "validation_share",
                f"{self.validation_share} and test_share of {self.test_share}: expected a sum of "
                "at most 0.9, since some modules are needed to train on",
            )
        if self.hidden is not None and not 1 <= len(self.hidden) <= 8:
            raise FieldError("hidden", f"{len(self.hidden)} layers: expected 1 to 8")
        margin = self.margin
        if margin is not None and not (0 <= margin <= MAX_DEFAULT_LEAD and margin % GRID == 0):
            raise FieldError(
                "margin", f"{margin}: expected a multiple of 2**-8 from 0 to {MAX_DEFAULT_LEAD}"
            )
        if margin == 0 and not isinstance(self.stages[0], Cloning):
            raise FieldError("margin", "0: expected cloning as the first stage")
        if self.copies and self.programs is None:
            raise FieldError("copies", "true: expected [programs], whose linked text is measured")
        if self.folding and not self.copies:
            raise FieldError("folding", "true: expected copies = true, which it adds to")
        if self.largest_growth is not None and not self.copies:
            growth = f"{self.largest_growth:g}"
            raise FieldError(
                "largest_growth", f"{growth}: expected copies = true, by which it links"
            )

    @property
    def links_validation(self) -> bool:
        """Whether policies are chosen by linked programs, not by modules."""
        return self.folding or self.largest_growth is not None

    @property
    def iterations(self) -> int:
        """The number of iterations in all stages."""
        return sum(stage.iterations for stage in self.stages)

    def changed(self, changes: Mapping[str, Any], source: str = "settings") -> "Config":
        """A copy with other values, by path, as JSON has them.

        `iterations` is that of the last stage.

        Raises:
          ConfigError: no such setting, or a value out of its range; names it.
        """
        table = self.as_json()
        stages: list[dict[str, Any]] = table["stages"]
        for path, value in changes.items():
            owner, dot, name = path.rpartition(".")
            if path == "iterations":
                targets, name = stages[-1:], path
            elif dot:
                targets = [stage for stage in stages if stage["algorithm"] == owner]
            else:
                targets = [table]
            if not targets or any(name not in one for one in targets):
                named = sorted({stage["algorithm"] for stage in stages})
                own = [f"{one['algorithm']}.{name}" for one in stages for name in one]
                hint = meant(path, [*table, *dict.fromkeys(own)])
                raise ConfigError(
                    f"{source}: no setting {path!r} of this recipe, whose stages are "
                    f"{', '.join(named)}{hint}"
                )
            for one in targets:
                one[name] = value
        return _config(table, source)

    def as_json(self) -> dict[str, Any]:
        """The values by name, as JSON has them."""
        values: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return values

    def fixed(self) -> dict[str, Any]:
        """The settings that a continued training must have again, as JSON values."""
        values = {k: v for k, v in self.as_json().items() if k not in FREE_SETTINGS}
        values["stages"][-1].pop("iterations")
        return values


def presets() -> dict[str, Path]:
    """The files of the package's configurations, by name."""
    return {path.stem: path for path in sorted(_PRESETS.glob("*.toml"))}


def read_config(name: str) -> Config:
    """Reads a configuration.

    Args:
      name: the name of a preset, or a path that ends with .toml.

    Raises:
      ConfigError: missing, not TOML, or a value is unknown or out of its range; names file and
        place.
    """
    path = Path(name) if name.endswith(".toml") else presets().get(name)
    if path is None:
        raise ConfigError(
            f"no recipe {name!r}: expected a file that ends with .toml, or one of "
            f"{', '.join(presets())}"
        )
    try:
        return _config(parse_toml(read_input(path), path), str(path))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except JsonError as error:
        raise ConfigError(str(error)) from error


def _config(table: Any, source: str) -> Config:
    try:
        _require_finite(table, "$")
        return convert(table, Config, source)
    except JsonError as error:
        raise ConfigError(str(error).removeprefix("$")) from error
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error


def _require_finite(value: Any, place: str) -> None:
    """TOML has infinities and NaN, and dates, which JSON has not. Raises ConfigError."""
    if isinstance(value, dict):
        for name, one in value.items():
            _require_finite(one, f"{place}.{name}")
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            _require_finite(one, f"{place}[{number}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{place}: expected a number, found {value}")
    elif value is not None and not isinstance(value, bool | int | float | str):
        raise ConfigError(f"{place}: expected a text or a number, found {value}")


def describe() -> str:
    """One line for each preset, and for each setting with default, range and meaning."""
    lines = ["recipes:"]
    for name, path in presets().items():
        first = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        lines.append(f"  {name}: {first}")
    lines += ["settings of a training:", *_described(Config, "")]
    for kind in typing.get_args(Stage):
        summary = str(kind.__doc__).partition(" (")[0]
        lines.append(f"of stages: {kind.__struct_config__.tag}: {summary}")
        lines += _described(kind, f"{kind.__struct_config__.tag}.")
    return "\n".join(lines)


def _described(kind: type[msgspec.Struct], prefix: str) -> list[str]:
    lines = []
    for field in msgspec.structs.fields(kind):
        metas = [one for one in getattr(field.type, "__metadata__", ()) if isinstance(one, Meta)]
        meaning = next((one.description for one in reversed(metas) if one.description), None)
        if meaning is None or field.default is msgspec.NODEFAULT:
            continue
        low = next((one.ge if one.ge is not None else one.gt for one in metas), None)
        high = next((one.le for one in metas), None)
        ends = f"; from {low:g} to {high:g}" if low is not None and high is not None else ""
        default = "" if field.default is None else f"={shown(field.default)}"
        lines.append(f"  {prefix}{field.name}{default}: {meaning}{ends}")
    return lines


def require_stages(config: Config, problem: Problem, with_pmu: bool, way: Way | None) -> None:
    """Refuses settings that cannot train for a problem. Raises ConfigError.

    Args:
      way: how a run tells the reward, if one does.
    """
    if config.runs and way is None:
        raise ConfigError("runs: are recorded for --evaluator, such as mca-pmu; give it, too")
    if config.copies and (problem.reward != "text bytes" or way or with_pmu):
        raise ConfigError("copies: are counted for inline-size, without --evaluator and --profile")
    for number, stage in enumerate(config.stages):
        place = f"stage {number + 1}, {stage.algorithm}"
        single = isinstance(stage, LabelSettings)
        if single and (problem.keeps_blocks or problem.mask):
            raise ConfigError(
                f"{place}: labels of single decisions are for inline-size; take another recipe"
            )
        single = single and way == "record"
        if isinstance(stage, Ppo | BcMax | LabelSettings) and way and not single:
            raise ConfigError(
                f"{place}: learns from what functions cost by {problem.reward}, not by an "
                "evaluator; take another recipe, or leave --evaluator away"
            )
