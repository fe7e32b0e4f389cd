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

from compiler_opt_perf.policy.network import GRID, MAX_DEFAULT_LEAD, MAX_LAYER_INPUTS
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import read_input
from compiler_opt_perf.run.json_text import FieldError, JsonError, convert, parse_toml, shown
from compiler_opt_perf.train.recipe import Programs, TreeSettings

#: Settings by which a continued training may differ from the one that it continues; so may the
#: iterations of the last stage.
FREE_SETTINGS = ("budget_s", "compilations", "workers")
# Of CMA-ES; with fewer it has no direction to go.
_LEAST_POPULATION = 4
_PRESETS = Path(__file__).parent / "presets"
#: What is trained by unless another one is named.
DEFAULT_PRESET = "evolution-strategies"

_Width = Annotated[int, Meta(ge=1, le=MAX_LAYER_INPUTS)]
_Count = Annotated[int, Meta(ge=1, le=10**9)]
_Share = Annotated[float, Meta(ge=0, le=0.9)]
_Rate = Annotated[float, Meta(ge=0, le=10)]


class ConfigError(UserError):
    """An unknown setting, or a value outside its range."""


class _Stage(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="algorithm"
):
    iterations: Annotated[
        int, Meta(ge=0, le=10**6, description="of the stage; the policy is validated after each")
    ] = 1

    @property
    def algorithm(self) -> str:
        """The name in configurations."""
        return str(self.__struct_config__.tag)


class Cloning(_Stage, frozen=True, kw_only=True, tag="cloning"):
    """Imitates the compiler's own decisions (training.behavioural_cloning)."""

    tries: Annotated[
        int, Meta(ge=1, le=100, description="imitations; validation chooses among them")
    ] = 3
    steps: Annotated[int, Meta(ge=0, le=10**7, description="gradient steps of an imitation")] = 1000
    batch_size: Annotated[_Count, Meta(description="decisions in a gradient step")] = 512
    learning_rate: Annotated[_Rate, Meta(description="Adam's")] = 0.02
    label_smoothing: Annotated[
        float, Meta(ge=0, le=0.99, description="probability that is spread over all decisions")
    ] = 0.1


class EvolutionStrategies(_Stage, frozen=True, kw_only=True, tag="evolution-strategies"):
    """Steps along the fitness of perturbed weights (training.evolution_strategies)."""

    pairs: Annotated[
        int, Meta(ge=1, le=10**4, description="antithetic pairs of candidates in an iteration")
    ] = 8
    sigma: Annotated[
        float, Meta(ge=1e-4, le=1, description="standard deviation of the perturbations")
    ] = 0.03
    learning_rate: Annotated[float, Meta(ge=0, le=1, description="Adam's")] = 0.01
    modules: Annotated[
        _Count, Meta(description="on which the candidates of an iteration are compared")
    ] = 8


class CmaEs(_Stage, frozen=True, kw_only=True, tag="cma-es"):
    """Adapts a normal distribution of a few weights (training.cma_es)."""

    parameters: Annotated[
        typing.Literal["biases", "last-layer", "all"], Meta(description="which weights it changes")
    ] = "last-layer"
    population: Annotated[
        int, Meta(ge=0, le=10**4, description="candidates in an iteration; 0: by their number")
    ] = 0
    sigma: Annotated[
        float, Meta(ge=1e-4, le=1, description="standard deviation, to begin with")
    ] = 0.03
    modules: Annotated[
        _Count, Meta(description="on which the candidates of an iteration are compared")
    ] = 8

    def __post_init__(self) -> None:
        if 0 < self.population < _LEAST_POPULATION:
            raise FieldError(
                "population", f"{self.population}: expected 0, or {_LEAST_POPULATION} and more"
            )


class Ppo(_Stage, frozen=True, kw_only=True, tag="ppo"):
    """Steps along the policy gradient of sampled decisions (training.ppo)."""

    modules: Annotated[_Count, Meta(description="that are compiled in an iteration")] = 8
    rollouts: Annotated[
        int, Meta(ge=1, le=1000, description="compilations of each with sampled decisions")
    ] = 3
    temperature: Annotated[
        float, Meta(gt=0, le=100, description="of the scores that decisions are sampled from")
    ] = 0.1
    clip_epsilon: Annotated[float, Meta(ge=0, le=1, description="of the probability ratio")] = 0.2
    entropy_coefficient: Annotated[_Rate, Meta(description="of the bonus for exploring")] = 0.003
    epochs: Annotated[int, Meta(ge=1, le=1000, description="over the decisions")] = 4
    batch_size: Annotated[_Count, Meta(description="decisions in a gradient step")] = 256
    learning_rate: Annotated[_Rate, Meta(description="Adam's, of policy and value")] = 0.01


class BestOfSeveral(_Stage, frozen=True, kw_only=True, tag="best-of-several"):
    """Imitates the best of several policies, part by part (training.best_of_several)."""

    modules: Annotated[_Count, Meta(description="that are compiled in an iteration")] = 8
    thresholds: Annotated[
        tuple[Annotated[int, Meta(ge=-(10**6), le=10**6)], ...],
        Meta(
            max_length=32,
            description="policies: inline what the compiler estimates to cost less than this "
            "(where a problem has an estimate)",
        ),
    ] = (-25, 15, 50)
    explored: Annotated[
        int, Meta(ge=0, le=1000, description="policies: decisions sampled from the student")
    ] = 2
    temperature: Annotated[
        float, Meta(gt=0, le=100, description="of the scores that decisions are sampled from")
    ] = 0.1
    steps: Annotated[int, Meta(ge=0, le=10**7, description="gradient steps an iteration")] = 300
    batch_size: Annotated[_Count, Meta(description="decisions in a gradient step")] = 256
    learning_rate: Annotated[_Rate, Meta(description="Adam's")] = 0.005


class Labels(_Stage, frozen=True, kw_only=True, tag="labels"):
    """Imitates labels of single decisions, weighed by cost (training.cost_sensitive)."""

    modules: Annotated[_Count, Meta(description="that are labelled in an iteration")] = 8
    sites: Annotated[_Count, Meta(description="decisions of a module that are labelled")] = 24
    trees: TreeSettings = TreeSettings(
        ensembles=3,
        trees=200,
        leaves=15,
        leaf_rows=20,
        learning_rate=0.05,
        largest=10.0,
        least_share=0.1,
    )
    steps: Annotated[int, Meta(ge=0, le=10**7, description="gradient steps of the network")] = 2000
    batch_size: Annotated[_Count, Meta(description="decisions in a gradient step")] = 512
    learning_rate: Annotated[_Rate, Meta(description="Adam's")] = 0.01


Stage = Cloning | EvolutionStrategies | CmaEs | Ppo | BestOfSeveral | Labels


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The configuration; `describe` lists it.

    Attributes:
      stages: each begins with the best policy so far.
      programs: purposes by program; without, the modules' are drawn.
    """

    stages: Annotated[tuple[Stage, ...], Meta(min_length=1, max_length=100)]
    programs: Programs | None = None
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
    default_lead: Annotated[
        float | None,
        Meta(
            description="of the compiler's own decision in the scores, a multiple of 2**-8 up to "
            f"{MAX_DEFAULT_LEAD:g}; 0.25, or that of --warm-start. With one, a policy begins as "
            "the compiler decides; with 0, the first stage must be cloning"
        ),
    ] = None
    validation_share: Annotated[
        _Share, Meta(description="of the modules, at least one, by which policies are chosen")
    ] = 0.2
    test_share: Annotated[
        _Share,
        Meta(description="of the modules, at least one, on which the result is measured, once"),
    ] = 0.2
    max_decisions: Annotated[
        _Count,
        Meta(description="modules with more decisions take part in a share of the iterations"),
    ] = 1000
    rows: Annotated[
        _Count,
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
        lead = self.default_lead
        if lead is not None and not (0 <= lead <= MAX_DEFAULT_LEAD and lead % GRID == 0):
            raise FieldError(
                "default_lead", f"{lead}: expected a multiple of 2**-8 from 0 to {MAX_DEFAULT_LEAD}"
            )
        if lead == 0 and not isinstance(self.stages[0], Cloning):
            raise FieldError("default_lead", "0: expected cloning as the first stage")

    @property
    def iterations(self) -> int:
        """Of all stages."""
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
                named = {stage.algorithm for stage in self.stages}
                raise ConfigError(
                    f"{source}: no setting {path!r}; there are\n{describe()}\n"
                    f"and the stages here are {', '.join(sorted(named))}"
                )
            for one in targets:
                one[name] = value
        return _config(table, source)

    def as_json(self) -> dict[str, Any]:
        """The values by name, as JSON has them."""
        values: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return values

    def fixed(self) -> dict[str, Any]:
        """What a training that is continued must have again, as JSON has it."""
        values = {k: v for k, v in self.as_json().items() if k not in FREE_SETTINGS}
        values["stages"][-1].pop("iterations")
        return values


def presets() -> dict[str, Path]:
    """The files of the package's configurations, by name."""
    return {path.stem: path for path in sorted(_PRESETS.glob("*.toml"))}


def read_config(name: str) -> Config:
    """Reads a configuration.

    Args:
      name: of a preset, or a path that ends with .toml.

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
