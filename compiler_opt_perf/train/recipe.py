# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How a policy is trained on labels: the programs and every setting, in one commented TOML file."""

from pathlib import Path
from typing import Annotated

import msgspec

from compiler_opt_perf.policy.network import GRID, MAX_DEFAULT_LEAD, MAX_LAYER_INPUTS
from compiler_opt_perf.run.files import read_input
from compiler_opt_perf.run.json_text import FieldError, JsonError, convert, parse_toml
from compiler_opt_perf.train.errors import TrainingError

_Whole = Annotated[int, msgspec.Meta(ge=1, le=10**9)]
_Width = Annotated[int, msgspec.Meta(ge=1, le=MAX_LAYER_INPUTS)]
_Lead = Annotated[float, msgspec.Meta(ge=0, le=MAX_DEFAULT_LEAD, multiple_of=GRID)]
_Positive = Annotated[float, msgspec.Meta(gt=0, le=10**9)]
_Names = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


class Programs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The split by program, so that nothing of a test program was seen.

    Attributes:
      training: their decisions are labelled.
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


class LabelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is labelled.

    Attributes:
      rounds: the first labels decisions around the compiler's own, each further one around those of
        the policy that the round before led to.
      sites: decisions of a module that a round labels, at most, drawn at random.
    """

    rounds: _Whole
    sites: _Whole


class TreeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How boosted trees are fitted to labels (training.cost_sensitive).

    Attributes:
      ensembles: so many sets of trees, each with a seed of its own, vote.
      trees: in a set.
      leaves: of a tree.
      leaf_rows: labels in a leaf, at least.
      learning_rate: share of each tree that counts.
      largest: bytes. Of a difference above this, a gain weighs no more and a loss by its logarithm:
        a few labels shall not decide alone, and a large loss is still no small one.
      least_share: kinds of decisions (`cost_sensitive.strata`) of which trees that have not seen a
        program keep less than this share of what could be saved are left to the compiler.
    """

    ensembles: Annotated[int, msgspec.Meta(ge=1, le=100)]
    trees: _Whole
    leaves: Annotated[int, msgspec.Meta(ge=2, le=1024)]
    leaf_rows: _Whole
    learning_rate: _Positive
    largest: _Positive
    least_share: Annotated[float, msgspec.Meta(ge=-1, le=1)]


class NetworkSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a network is fitted to what the trees say.

    Attributes:
      hidden: widths of the hidden layers.
      default_lead: of the compiler's own decision, while fitting.
      leads: of the candidates; the more, the surer a policy must be to decide otherwise.
      steps, batch_size: gradient steps, and rows a step.
      learning_rate: Adam's, decaying to a tenth (cosine).
    """

    hidden: Annotated[tuple[_Width, ...], msgspec.Meta(min_length=1, max_length=8)]
    default_lead: _Lead
    leads: Annotated[tuple[_Lead, ...], msgspec.Meta(min_length=1)]
    steps: _Whole
    batch_size: _Whole
    learning_rate: _Positive


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that a training on labels depends on, but for the compiler.

    Attributes:
      seed: of every random choice.
    """

    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    programs: Programs
    labels: LabelSettings
    trees: TreeSettings
    network: NetworkSettings


def read_recipe(path: Path) -> Recipe:
    """Reads a recipe.

    Raises:
      TrainingError: it is missing, not TOML, or a value is unknown or out of its range; names file
        and place.
    """
    try:
        return convert(parse_toml(read_input(path), path), Recipe, path)
    except OSError as error:
        raise TrainingError(f"{path}: {error.strerror}") from error
    except JsonError as error:
        raise TrainingError(str(error)) from error
