# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The configuration of a learned cost model: network, training, and split of the data.

A configuration is a TOML file; files in `presets` are known by name.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from compiler_opt_perf.run.errors import UserError, meant
from compiler_opt_perf.run.files import read_input
from compiler_opt_perf.run.json_text import FieldError, JsonError, convert, parse_toml, shown

_PRESETS = Path(__file__).parent / "presets"

_Width = Annotated[int, Meta(ge=4, le=512)]
_Share = Annotated[float, Meta(ge=0, le=0.5)]


class LearnedError(UserError):
    """A configuration, data or a model cannot be used; the message gives the remedy."""


class Granite(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="granite"
):
    """GRANITE's graph network: messages along the dependences of a block."""

    width: Annotated[_Width, Meta(description="width of a node's state")] = 32
    rounds: Annotated[int, Meta(ge=1, le=32, description="rounds of messages")] = 4
    resources: Annotated[
        int, Meta(ge=1, le=64, description="number of execution resources that instructions use")
    ] = 8


class CostModelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The configuration; `describe` lists its settings."""

    network: Granite
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1, description="seed of all random choices")] = 1
    epochs: Annotated[int, Meta(ge=1, le=10**5, description="passes over the blocks")] = 20
    batch_size: Annotated[int, Meta(ge=1, le=10**5, description="blocks per step")] = 100
    learning_rate: Annotated[
        float, Meta(gt=0, le=1, description="Adam's learning rate, with cosine decay to a fiftieth")
    ] = 0.004
    warm_up: Annotated[
        int,
        Meta(ge=0, le=10**6, description="warm-up steps, at most a tenth of all steps"),
    ] = 200
    clip: Annotated[float, Meta(gt=0, le=1e6, description="largest norm of a gradient")] = 1.0
    least_blocks: Annotated[
        int,
        Meta(
            ge=1,
            le=10**6,
            description="least number of blocks with a token for the vocabulary; opcodes need one",
        ),
    ] = 3
    pmu: Annotated[bool, Meta(description="whether the network reads rates of a PMU profile")] = (
        False
    )
    shuffled_pmu: Annotated[
        bool,
        Meta(description="whether these rates are shuffled among instructions, as a control"),
    ] = False
    test_programs: Annotated[
        tuple[str, ...], Meta(description="programs whose blocks are for the test")
    ] = ()
    validation_programs: Annotated[
        tuple[str, ...], Meta(description="programs whose blocks choose the best epoch")
    ] = ()
    mixed_programs: Annotated[
        tuple[str, ...],
        Meta(description="collections of many programs, which are split block by block"),
    ] = ("bhive", "")
    test_share: Annotated[_Share, Meta(description="share of their blocks for the test")] = 0.1
    validation_share: Annotated[
        _Share, Meta(description="share of their blocks that choose the best epoch")
    ] = 0.05

    def __post_init__(self) -> None:
        both = set(self.test_programs) & set(self.validation_programs)
        if both:
            raise FieldError("test_programs", f"{sorted(both)[0]!r} is in validation_programs, too")

    @property
    def name(self) -> str:
        """The model's name in tables: `granite`, `granite-pmu`..."""
        pmu = ("-shuffled" * self.shuffled_pmu + "-pmu") * self.pmu
        return f"{self.network.__struct_config__.tag}{pmu}"

    def changed(self, changes: Mapping[str, Any]) -> "CostModelConfig":
        """A copy with other settings.

        Args:
          changes: name of a setting, such as "seed" or "network.rounds" -> its JSON value.

        Raises:
          LearnedError: a setting does not exist, or a value is out of range.
        """
        table = msgspec.to_builtins(self)
        for name, value in changes.items():
            inside = table
            *parts, last = name.split(".")
            for part in parts:
                inside = inside.get(part, {})
            if last not in inside or isinstance(inside[last], dict):
                known = [*table, *(f"network.{one}" for one in table["network"])]
                raise LearnedError(f"settings: no setting {name!r}{meant(name, known)}")
            inside[last] = value
        return _config(table, "settings")


def presets() -> dict[str, Path]:
    """Name -> file of each configuration in the package."""
    return {path.stem: path for path in sorted(_PRESETS.glob("*.toml"))}


def read_config(name: str) -> CostModelConfig:
    """Reads a preset or a TOML file. Raises LearnedError."""
    path = presets().get(name, Path(name))
    try:
        table = parse_toml(read_input(path), path)
    except OSError as error:
        raise LearnedError(
            f"{name}: no such file, and no preset; there are {', '.join(presets())}"
        ) from error
    except JsonError as error:
        raise LearnedError(str(error)) from error
    return _config(table, path.name)


def _config(table: Any, source: str) -> CostModelConfig:
    try:
        return convert(table, CostModelConfig, source)
    except JsonError as error:
        raise LearnedError(str(error)) from error


def describe() -> str:
    """Lists presets, and settings with default and meaning, one per line."""
    lines = ["presets:"]
    for name, path in presets().items():
        first = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        lines.append(f"  {name}: {first}")
    lines.append("settings:")
    for kind, prefix in ((CostModelConfig, ""), (Granite, "network.")):
        for field in msgspec.structs.fields(kind):
            metas = [meta for meta in getattr(field.type, "__metadata__", ()) if meta.description]
            if metas:
                default = shown(msgspec.to_builtins(field.default))
                owner = f" of {kind.__struct_config__.tag}" if prefix else ""
                lines.append(f"  {prefix}{field.name}={default}{owner}: {metas[-1].description}")
    return "\n".join(lines)
