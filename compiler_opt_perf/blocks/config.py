# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The configuration of a learned cost model: its network, how it is trained, what is left out.

A configuration is a TOML file; those in `presets` have names.
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
    """A configuration, data or a model that cannot be used; the message says what to do."""


class Granite(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="granite"
):
    """GRANITE's network: messages along the dependences of a block."""

    width: Annotated[_Width, Meta(description="of nodes")] = 32
    rounds: Annotated[int, Meta(ge=1, le=32, description="of messages")] = 4
    resources: Annotated[int, Meta(ge=1, le=64, description="that instructions claim")] = 8


class CostModelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The configuration; `describe` lists it."""

    network: Granite
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1, description="of every random choice")] = 1
    epochs: Annotated[int, Meta(ge=1, le=10**5, description="passes over the blocks")] = 20
    batch_size: Annotated[int, Meta(ge=1, le=10**5, description="blocks in a step")] = 100
    learning_rate: Annotated[
        float, Meta(gt=0, le=1, description="Adam's, decaying to a fiftieth (cosine)")
    ] = 0.004
    warm_up: Annotated[
        int,
        Meta(ge=0, le=10**6, description="steps in which the rate grows to that, a tenth at most"),
    ] = 200
    clip: Annotated[float, Meta(gt=0, le=1e6, description="largest norm of a gradient")] = 1.0
    least_blocks: Annotated[
        int, Meta(ge=1, le=10**6, description="that a token is in; all opcodes are known")
    ] = 3
    pmu: Annotated[bool, Meta(description="whether the network reads what a PMU profile tells")] = (
        False
    )
    shuffled_pmu: Annotated[
        bool,
        Meta(description="whether instructions exchange that at random: what it is worth"),
    ] = False
    test_programs: Annotated[
        tuple[str, ...], Meta(description="whose blocks are left out, to judge by")
    ] = ()
    validation_programs: Annotated[
        tuple[str, ...], Meta(description="whose blocks choose among the epochs")
    ] = ()
    mixed_programs: Annotated[
        tuple[str, ...],
        Meta(description="collections of many applications: their blocks are drawn one by one"),
    ] = ("bhive", "")
    test_share: Annotated[_Share, Meta(description="of those")] = 0.1
    validation_share: Annotated[_Share, Meta(description="of those")] = 0.05

    def __post_init__(self) -> None:
        both = set(self.test_programs) & set(self.validation_programs)
        if both:
            raise FieldError("test_programs", f"{sorted(both)[0]!r} is for validation, too")

    @property
    def name(self) -> str:
        """What the model is called in tables: `granite`, `granite-pmu`..."""
        pmu = ("-shuffled" * self.shuffled_pmu + "-pmu") * self.pmu
        return f"{self.network.__struct_config__.tag}{pmu}"

    def changed(self, changes: Mapping[str, Any]) -> "CostModelConfig":
        """A copy with other values, as JSON has them; `network.rounds` is one of the network.

        Raises:
          LearnedError: no such setting, or a value out of its range.
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
    """The package's configurations by name."""
    return {path.stem: path for path in sorted(_PRESETS.glob("*.toml"))}


def read_config(name: str) -> CostModelConfig:
    """A preset, or a TOML file. Raises LearnedError."""
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
    """One line for each preset, and for each setting with its default and meaning."""
    lines = ["presets:"]
    for name, path in presets().items():
        first = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        lines.append(f"  {name}: {first}")
    lines.append("settings:")
    for kind, prefix in ((CostModelConfig, ""), (Granite, "network.")):
        for field in msgspec.structs.fields(kind):
            metas = [one for one in getattr(field.type, "__metadata__", ()) if one.description]
            if metas:
                default = shown(msgspec.to_builtins(field.default))
                of = f" of {kind.__struct_config__.tag}" if prefix else ""
                lines.append(f"  {prefix}{field.name}={default}{of}: {metas[-1].description}")
    return "\n".join(lines)
