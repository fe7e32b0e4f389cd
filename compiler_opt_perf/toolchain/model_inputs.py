# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that a model of release mode takes only inputs that the compiler feeds.

Nothing else checks this: the compiler never writes an input that it does not know, and the model
would decide by what happens to be there. The compiler's features come from macro lists in the
patched sources, the inputs of a SavedModel from the header that TensorFlow generates.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from compiler_opt_perf.toolchain.layout import ToolchainError

# The number of elements of each shape, as the sources write it. PerLiveRangeShape is
# {1, NumberOfInterferences}.
_ELEMENTS = {"{1}": 1, "PerLiveRangeShape": 33}
_TYPES = ("int64_t", "float")


@dataclass(frozen=True)
class ModelTensor:
    """An input or output of a model.

    Attributes:
      type: the C++ type of an element.
      elements: the number of elements.
    """

    type: str
    elements: int

    def __str__(self) -> str:
        return f"{self.type}[{self.elements}]"


@dataclass(frozen=True)
class GeneratedModel:
    """A model as C++ source, which needs nothing else.

    Attributes:
      origin: the policy's folder, for messages.
      inputs: what it takes, by name.
      header: the C++ header.
      description: the policy's model.json.
    """

    origin: Path
    inputs: Mapping[str, ModelTensor]
    header: str
    description: str


@dataclass(frozen=True)
class FeatureList:
    """A macro `#define NAME(M)` with an entry `M(...)` for each feature.

    Attributes:
      file: the macro's file, relative to the LLVM tree.
      macro: the macro's name.
      tensor: each feature's type and size, for a list whose entries do not give them.
      ours: whether the patches add the list; a tree without the part `features` lacks it.
    """

    file: str
    macro: str
    tensor: ModelTensor | None = None
    ours: bool = False


@dataclass(frozen=True)
class ReleaseModel:
    """A place for a model in the compiler.

    Attributes:
      name: base name of the header and the object file, as LLVM's sources include it.
      cpp_class: the class that the header defines.
      generator: upstream's script that writes a mock model, relative to the LLVM tree.
      problem: the problem that its policies are trained for, as in their model.json.
      option: the option of `cop toolchain build` that names the model.
      decision: the name of the model's output, int64.
      feature_lists: the features that the compiler feeds without further options.
      extra_prefixes: prefixes of the features that -pmu-extra-features adds. The rest of a name is
        a rate of the profile, which is known only when the compiler runs.
      extra_tensor: type and size of each such feature.
      may_differ: C++ macro that is true where the model may decide otherwise than the compiler;
        its arguments are the fields of `policy.network.DecisionKind`, and the executions of the
        call as a feature. A header without the macro has the model asked about all decisions.
      settled: beginning of C++ macros that tell where it decides as the compiler does.
      digest: C++ macro for the digest of the model's content, which goes into keys of caches.
    """

    name: str
    cpp_class: str
    generator: str
    problem: str
    option: str
    decision: str
    feature_lists: tuple[FeatureList, ...]
    extra_prefixes: tuple[str, ...]
    extra_tensor: ModelTensor
    may_differ: str = ""
    settled: str = ""
    digest: str = ""

    def is_extra(self, name: str) -> bool:
        """Whether -pmu-extra-features can add a feature of this name."""
        return any(re.fullmatch(rf"{prefix}[a-z0-9_]+", name) for prefix in self.extra_prefixes)


_GENERATORS = "llvm/lib/Analysis/models"
_INLINE_FEATURES = "llvm/include/llvm/Analysis/InlineModelFeatureMaps.h"
_EVICT_FEATURES = "llvm/lib/CodeGen/MLRegAllocEvictAdvisor.cpp"

INLINE_MODEL = ReleaseModel(
    name="InlinerSizeModel",
    cpp_class="llvm::InlinerSizeModel",
    generator=f"{_GENERATORS}/gen-inline-oz-test-model.py",
    problem="inline-size",
    option="--inline-model",
    decision="inlining_decision",
    feature_lists=(
        FeatureList(_INLINE_FEATURES, "INLINE_COST_FEATURE_ITERATOR"),
        FeatureList(_INLINE_FEATURES, "INLINE_FEATURE_ITERATOR"),
        FeatureList(
            "llvm/include/llvm/Analysis/InlineFeatureSet.h",
            "INLINE_DECISION_FEATURES",
            ModelTensor("int64_t", _ELEMENTS["{1}"]),
            ours=True,
        ),
        FeatureList(
            "llvm/include/llvm/Analysis/PMUInlineFeatures.h",
            "PMU_INLINE_FEATURES",
            ModelTensor("int64_t", _ELEMENTS["{1}"]),
            ours=True,
        ),
    ),
    extra_prefixes=("pmu_callsite_", "pmu_callee_"),
    extra_tensor=ModelTensor("int64_t", _ELEMENTS["{1}"]),
    may_differ="LLVM_INLINER_SIZE_MODEL_MAY_DIFFER",
    digest="LLVM_INLINER_SIZE_MODEL_DIGEST",
)
EVICT_MODEL = ReleaseModel(
    name="RegAllocEvictModel",
    cpp_class="llvm::RegAllocEvictModel",
    generator=f"{_GENERATORS}/gen-regalloc-eviction-test-model.py",
    problem="regalloc-evict",
    option="--evict-model",
    decision="index_to_evict",
    feature_lists=(
        FeatureList(_EVICT_FEATURES, "RA_EVICT_FEATURES_LIST"),
        FeatureList(_EVICT_FEATURES, "RA_EVICT_DECISION_FEATURES_LIST", ours=True),
        FeatureList(
            "llvm/lib/CodeGen/PMURegAllocFeatures.h",
            "PMU_EVICT_FEATURES",
            ModelTensor("float", _ELEMENTS["PerLiveRangeShape"]),
            ours=True,
        ),
    ),
    extra_prefixes=("pmu_",),
    extra_tensor=ModelTensor("float", _ELEMENTS["PerLiveRangeShape"]),
    settled="LLVM_REGALLOC_EVICT_MODEL",
    digest="LLVM_REGALLOC_EVICT_MODEL_DIGEST",
)
MODELS = (INLINE_MODEL, EVICT_MODEL)


def fed_features(tree: Path, model: ReleaseModel) -> dict[str, ModelTensor]:
    """The features that the compiler feeds to a model, by name.

    Args:
      tree: the compiler's source tree.
      model: the model.

    Raises:
      ToolchainError: a feature list is missing or cannot be parsed.
    """
    features: dict[str, ModelTensor] = {}
    for feature_list in model.feature_lists:
        if not feature_list.ours or _has_list(tree, feature_list):
            features.update(_read_list(tree, feature_list))
    return features


def digest_macro(digest: str, model: ReleaseModel) -> str:
    """The C++ macro with the first 64 bits of the digest of a model's content.

    Args:
      digest: the digest in hexadecimal, 64 bits or more.
      model: the model, whose field `digest` names the macro.
    """
    return (
        "\n// The digest of the model's content, a part of the keys of caches.\n"
        f"#define {model.digest} UINT64_C(0x{digest[:16]})\n"
    )


def check_inputs(
    inputs: Mapping[str, ModelTensor],
    model: ReleaseModel,
    features: Mapping[str, ModelTensor],
    origin: Path,
) -> None:
    """Checks that the compiler feeds each input of a model.

    The features of -pmu-extra-features are known only when the compiler runs; the compiler then
    reports one that the model takes and the option does not add.

    Args:
      inputs: what the model takes, by name.
      model: the place in the compiler that the model is for.
      features: the features that the compiler feeds to it, by name.
      origin: the model's folder, for messages.

    Raises:
      ToolchainError: an input does not fit.
    """
    for name, tensor in sorted(inputs.items()):
        expected = features.get(name)
        if expected is None and model.is_extra(name):
            expected = model.extra_tensor
        if expected is None:
            raise ToolchainError(
                f"{origin}: decides on the input '{name}', which is no feature that the "
                f"compiler feeds to {model.name}; give {model.option} a policy trained for "
                f"{model.problem}, or add the feature to the compiler (docs/add-a-feature.md). The "
                f"features are: {', '.join(features)}"
            )
        if tensor != expected:
            raise ToolchainError(
                f"{origin}: takes the input '{name}' as {tensor}, but the compiler feeds "
                f"{expected} to {model.name}; give {model.option} a policy trained for "
                f"{model.problem} with this version of the features"
            )


def check_header(
    header: str, model: ReleaseModel, features: Mapping[str, ModelTensor], saved_model: Path
) -> None:
    """Checks that a compiled SavedModel outputs a decision, and its inputs as `check_inputs`.

    A SavedModel may have further inputs, for example a trainer's: TensorFlow drops those on which
    the decision does not depend.

    Args:
      header: text of the header that TensorFlow has generated.
      model: the place in the compiler that the model is for.
      features: the features that the compiler feeds to it, by name.
      saved_model: the model's origin, for messages.

    Raises:
      ToolchainError: an input does not fit, or the output is missing.
    """
    inputs = _accessors(header, "arg_feed")
    count = re.search(r"\bkNumArgs = (\d+);", header)
    if count is None or int(count[1]) != len(inputs):
        raise ToolchainError(
            f"{saved_model}: the inputs cannot be read from the header that TensorFlow has "
            "generated for it; is this the TensorFlow that requirements.txt pins? Run "
            "tools/bootstrap"
        )
    check_inputs(inputs, model, features, saved_model)
    outputs = _accessors(header, "result_fetch")
    decision = outputs.get(model.decision)
    if decision is None or decision.type != "int64_t":
        found = ", ".join(f"{name} {tensor}" for name, tensor in sorted(outputs.items()))
        raise ToolchainError(
            f"{saved_model}: its signature 'action' has no output '{model.decision}' of type "
            f"int64, which {model.name} decides by (it has: {found}); give {model.option} a policy "
            f"trained for {model.problem}"
        )


def _accessors(header: str, kind: str) -> dict[str, ModelTensor]:
    """A generated class's arguments (kind "arg_feed") or results ("result_fetch"), by name."""
    types = re.findall(rf"^  (\w+)\* {kind}_(\w+)_data\(\) {{", header, re.MULTILINE)
    counts = dict(
        re.findall(rf"^  int {kind}_(\w+)_count\(\) const {{\s*return (\d+);", header, re.MULTILINE)
    )
    return {name: ModelTensor(type, int(counts[name])) for type, name in types if name in counts}


def _has_list(tree: Path, feature_list: FeatureList) -> bool:
    path = tree / feature_list.file
    return path.is_file() and f"#define {feature_list.macro}(M)" in path.read_text(encoding="utf-8")


def _read_list(tree: Path, feature_list: FeatureList) -> dict[str, ModelTensor]:
    path = tree / feature_list.file
    place = f"{path}: feature list {feature_list.macro}"
    remedy = "if it has moved or changed, adapt compiler_opt_perf/toolchain/model_inputs.py"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    macro = re.search(rf"^#define {feature_list.macro}\(M\)((?:.*\\\n)*.*)$", text, re.MULTILINE)
    # The features' documentation is removed, for it has commas and brackets.
    body = re.sub(r'"(?:[^"\\]|\\.)*"', "", macro[1]) if macro else ""
    features = {}
    for entry in re.findall(r"\bM\(([^()]*)\)", body):
        words = re.findall(r"\{[^{}]*\}|\w+", entry)
        types = [word for word in words if word in _TYPES]
        shapes = [word for word in words if word in _ELEMENTS]
        names = [word for word in words if word not in (*types, *shapes)]
        tensor = feature_list.tensor
        if len(types) == len(shapes) == 1:
            tensor = ModelTensor(types[0], _ELEMENTS[shapes[0]])
        if len(names) != 1 or tensor is None:
            raise ToolchainError(f"{place}: cannot tell what 'M({entry.strip()})' is; {remedy}")
        features[names[0]] = tensor
    if not features:
        raise ToolchainError(f"{place}: not found; {remedy}")
    return features
