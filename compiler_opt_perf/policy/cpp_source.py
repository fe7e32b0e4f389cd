# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes a policy as C++ for the compiler's release mode: one header without any library.

The header defines a class with the interface of those that TensorFlow compiles ahead of time, as
far as LLVM's ReleaseModeModelRunner uses it. Every sum is exact (see `network`), so the compiler
may add in any order: the decisions are those of the other modes, bit by bit.

The perceptron is made smaller before it is written. A neuron whose activation is the same for all
inputs becomes a part of the next layer's bias; a neuron or feature that no score depends on is left
out. That turns the networks of rules back into a few sums.
"""

import hashlib
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from compiler_opt_perf.policy.encoding import (
    ACTIVATION_LIMIT,
    BITS_OF_ONE,
    MISSING_MAGNITUDE,
    ROUNDING,
    FloatArray,
)
from compiler_opt_perf.policy.export import DESCRIPTION_FILE, Policy, load
from compiler_opt_perf.policy.network import MASKED_SCORE, Network
from compiler_opt_perf.policy.problem import Feature
from compiler_opt_perf.policy.settled import (
    DoubleArray,
    input_bounds,
    kinds,
    may_differ,
    rectified_bounds,
    settled,
    sum_bounds,
)
from compiler_opt_perf.toolchain.layout import ToolchainError
from compiler_opt_perf.toolchain.model_inputs import (
    MODELS,
    GeneratedModel,
    ModelTensor,
    ReleaseModel,
    digest_macro,
)

_CPP_TYPES = {"int64": "int64_t", "float32": "float"}
# A vector instruction of every x86-64 takes four float32.
_VECTOR = 4
_HEADER = """\
// A policy for {problem}, written by compiler-opt-perf; do not edit.
//
// Weights and activations are multiples of 2^-8 in narrow limits. So every
// product and every sum below is exact in float, and the order of additions
// does not matter.

#ifndef {guard}
#define {guard}

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#ifdef __FAST_MATH__
#error "fast-math leaves out the roundings that decisions depend on"
#endif

namespace {namespace} {{

class {name} {{
public:
  static constexpr int NumInputs = {count};

  int num_args() const {{ return NumInputs; }}

  int LookupArgIndex(const std::string &Name) const {{
    static constexpr std::string_view Names[NumInputs] = {{
{names}
    }};
    for (int I = 0; I != NumInputs; ++I)
      if (Name == Names[I])
        return I;
    return -1;
  }}

  void *arg_data(int Index) {{
    void *const Buffers[NumInputs] = {{
{buffers}
    }};
    return Buffers[Index];
  }}

  int LookupResultIndex(const std::string &Name) const {{
    return Name == "fetch_{decision}" ? 0 : -1;
  }}

  void *result_data(int) {{ return &Decision; }}

{run}
{members}
  int64_t Decision = 0;

  /// What a feature enters as: a signed logarithm to the base 2, piecewise
  /// linear, shifted and scaled. NaN counts as the largest value.
  static float encode(float Value, float UnitScale, float Largest,
                      float NegativeBelow, float MissingBelow, float Factor,
                      float Summand) {{
    const bool IsNegative = Value < NegativeBelow;
    float Magnitude = Value * UnitScale;
    Magnitude = IsNegative ? -Magnitude : Magnitude;
    Magnitude = Magnitude < Largest ? Magnitude : Largest;
    Magnitude = Value < MissingBelow ? {missing} : Magnitude;
    Magnitude = Magnitude > {missing} ? Magnitude : {missing};
    const float Power = Magnitude + 1.0f;
    int32_t Bits;
    std::memcpy(&Bits, &Power, sizeof(Bits));
    float Logarithm =
        static_cast<float>(Bits - {one}) * {mantissa};
    Logarithm = IsNegative ? -Logarithm : Logarithm;
    // The summand holds a number around which floats are 2^-8 apart: adding it
    // rounds to the grid.
    float Rounded = Logarithm * Factor + Summand;
    Rounded = Rounded < {highest} ? Rounded : {highest};
    Rounded = Rounded > {lowest} ? Rounded : {lowest};
    return Rounded - {rounding};
  }}

  /// The activation of a neuron.
  static float rectify(float Sum) {{
    const float Rounded = (Sum > 0.0f ? Sum : 0.0f) + {rounding};
    return (Rounded < {highest} ? Rounded : {highest}) - {rounding};
  }}
}};

}} // namespace {namespace}
"""


@dataclass(frozen=True)
class _Perceptron:
    """A network without the weights and inputs that change no score.

    Attributes:
      inputs: indices of the features that are read, into `Network.scored`.
      layers: (matrix [inputs, outputs], bias [outputs]) a layer; the first takes `inputs`, or
        nothing if all scores are constant.
    """

    inputs: list[int]
    layers: list[tuple[DoubleArray, DoubleArray]]

    @classmethod
    def of(cls, network: Network, weights: FloatArray, idle: float | None) -> "_Perceptron":
        """Makes the perceptron smaller.

        Args:
          network: the network.
          weights: float32 [network.size].
          idle: what marks the idle column, 1 or 0; None where a decision is not among candidates.
        """
        layers = [
            (np.asarray(matrix, np.float64), np.asarray(bias, np.float64))
            for matrix, bias in network.layers(weights)
        ]
        bounds = input_bounds(network, idle, {})
        for number, (matrix, bias) in enumerate(layers):
            low, high = bounds
            constant = low == high
            bias = bias + low[constant] @ matrix[constant]
            matrix = np.where(constant[:, None], 0.0, matrix)
            layers[number] = (matrix, bias)
            bounds = rectified_bounds(sum_bounds(bounds, matrix, bias))
        kept: list[tuple[DoubleArray, DoubleArray]] = []
        needed = np.ones(len(layers[-1][1]), bool)
        for matrix, bias in reversed(layers):
            read = matrix[:, needed].any(axis=1)
            kept.insert(0, (matrix[np.ix_(read, needed)], bias[needed]))
            needed = read
            if not read.any():
                return cls([], kept)
        return cls(np.flatnonzero(needed).tolist(), kept)


def cpp_source(policy: Policy) -> str:
    """The header that release mode includes as `InlinerSizeModel.h` or `RegAllocEvictModel.h`."""
    network = policy.network
    problem = network.problem
    (model,) = (model for model in MODELS if model.problem == problem.name)
    namespace, name = model.cpp_class.split("::")
    guard = f"LLVM_{name.upper()}_H"
    run = (_run_for_one if problem.mask is None else _run_for_candidates)(policy)
    # The compiler does not compute what the class does not take.
    read = [one for one in network.features if re.search(rf"\b{one.name}\[", run)]
    text = _HEADER.format(
        problem=problem.name,
        guard=guard,
        namespace=namespace,
        name=name,
        count=len(read),
        names=_wrapped((f'"feed_{feature.name}"' for feature in read), 8),
        buffers=_wrapped((feature.name for feature in read), 8),
        decision=problem.decision,
        run=run,
        members="".join(
            f"  {_CPP_TYPES[feature.dtype]} {feature.name}[{feature.shape[-1]}] = {{}};\n"
            for feature in read
        ),
        missing=_number(MISSING_MAGNITUDE),
        one=f"0x{BITS_OF_ONE:x}",
        mantissa=_number(2.0**-23),
        rounding=_number(ROUNDING),
        highest=_number(ROUNDING + ACTIVATION_LIMIT),
        lowest=_number(ROUNDING - ACTIVATION_LIMIT),
    )
    text += (may_differ if problem.mask is None else settled)(policy, model)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{text}{digest_macro(digest, model)}\n#endif // {guard}\n"


def release_model(folder: Path, model: ReleaseModel) -> GeneratedModel | Path:
    """What `cop toolchain build` compiles in for a folder: C++, or a SavedModel of others.

    Args:
      folder: of a policy, or a SavedModel.
      model: the place in the compiler that it is for.

    Raises:
      ModelError: a policy cannot be read.
      ToolchainError: the policy is for another problem.
    """
    description = folder / DESCRIPTION_FILE
    if not description.is_file():
        return folder
    policy = load(folder)
    network = policy.network
    if network.problem.name != model.problem:
        options = {other.problem: other.option for other in MODELS}
        raise ToolchainError(
            f"{folder}: a policy for {network.problem.name}, but {model.option} takes one for "
            f"{model.problem}; give it with {options[network.problem.name]}"
        )
    inputs = {
        feature.name: ModelTensor(_CPP_TYPES[feature.dtype], feature.shape[-1])
        for feature in network.features
    }
    return GeneratedModel(folder, inputs, cpp_source(policy), description.read_text())


def _run_for_one(policy: Policy) -> str:
    """`Run` where a decision is not among candidates."""
    network = policy.network
    default = network.problem.default_feature
    lines = ["  void Run() {"]
    if network.asked is not None:
        condition = " ||\n        ".join(kinds(network.asked, "{}[0]")) or "false"
        lines += [
            f"    if (!({condition})) {{",
            f"      Decision = {default}[0];",
            "      return;",
            "    }",
        ]
    body, scores = _forward(network, _Perceptron.of(network, policy.weights, None), "0")
    lead = _number(network.default_lead)
    lines += [
        *body,
        f"    const float Default = static_cast<float>({default}[0]);",
        "    // Among equal scores the first wins.",
        f"    Decision = {scores}[1] + {lead} * Default >",
        f"               {scores}[0] + {lead} * (1.0f - Default);",
        "  }\n",
        "private:",
    ]
    return "\n".join(lines)


def _run_for_candidates(policy: Policy) -> str:
    """`Run` where a decision is among candidates, and the functions that score them."""
    network = policy.network
    problem = network.problem
    columns = problem.decisions
    default = f"{problem.default_feature}[Column]"
    lines = [
        "  void Run() {",
        "    // Among equal scores the first wins.",
        f"    float Best = {_number(MASKED_SCORE)};",
        "    Decision = 0;",
        f"    for (int Column = 0; Column != {columns}; ++Column) {{",
        f"      if ({problem.mask}[Column] <= 0)",
        "        continue;",
        f"      float Score = Column == {problem.idle_decision} ? scoreIdle(Column)",
        "                                  : scoreCandidate(Column);",
        f"      Score += {_number(network.default_lead)} * {default};",
        "      if (Score > Best) {",
        "        Best = Score;",
        "        Decision = Column;",
        "      }",
        "    }",
        "  }\n",
        "private:",
    ]
    for name, idle in (("scoreCandidate", 0.0), ("scoreIdle", 1.0)):
        perceptron = _Perceptron.of(network, policy.weights, idle)
        body, scores = _forward(network, perceptron, "Column")
        argument = "int Column" if perceptron.inputs else "int"
        lines += [
            f"  float {name}({argument}) const {{",
            *body,
            f"    return {scores}[0];",
            "  }\n",
        ]
    return "\n".join(lines)


def _forward(network: Network, perceptron: _Perceptron, column: str) -> tuple[list[str], str]:
    """Statements that compute the scores, and the name of the array that has them."""
    lines: list[str] = []
    activation = "Input"
    if perceptron.inputs:
        lines += _encode(network, perceptron.inputs, column)
    last = len(perceptron.layers)
    for number, (matrix, bias) in enumerate(perceptron.layers, 1):
        inputs, outputs = matrix.shape
        sums = f"Sums{number}"
        # A loop over the outputs becomes vector instructions, but multiplies by zeros, too.
        if outputs < _VECTOR or np.count_nonzero(matrix) * 3 <= matrix.size:
            terms = [_sum(activation, matrix[:, one], bias[one]) for one in range(outputs)]
            lines += [f"    const float {sums}[{outputs}] = {{", _wrapped(terms, 8), "    };"]
        else:
            rows = (f"{{{', '.join(map(_number, row))}}}" for row in matrix)
            lines += [
                f"    static constexpr float Weights{number}[{inputs}][{outputs}] = {{",
                _wrapped(rows, 8),
                "    };",
                f"    float {sums}[{outputs}] = {{",
                _wrapped(map(_number, bias), 8),
                "    };",
                f"    for (int I = 0; I != {inputs}; ++I)",
                f"      for (int O = 0; O != {outputs}; ++O)",
                f"        {sums}[O] += {activation}[I] * Weights{number}[I][O];",
            ]
        if number < last:
            activation = f"Hidden{number}"
            lines += [
                f"    float {activation}[{outputs}];",
                f"    for (int O = 0; O != {outputs}; ++O)",
                f"      {activation}[O] = rectify({sums}[O]);",
            ]
    return lines, sums


def _encode(network: Network, inputs: list[int], column: str) -> list[str]:
    """Statements that compute the array Input."""
    encoding, count = network.encoding, len(inputs)
    ranges = encoding.ranges
    negative = ranges.negative_below
    if negative is None:
        negative = np.full_like(ranges.largest, -np.inf)
    arrays = {
        "UnitScale": ranges.unit_scale,
        "Largest": ranges.largest,
        "NegativeBelow": negative,
        "MissingBelow": ranges.missing_below,
        "Factor": encoding.factor,
        "Summand": encoding.summand,
    }
    values = (_value(network.scored[index], column) for index in inputs)
    lines = [f"    const float Values[{count}] = {{", _wrapped(values, 8), "    };"]
    for name, array in arrays.items():
        numbers = map(_number, array[inputs, 0])
        lines += [
            f"    static constexpr float {name}[{count}] = {{",
            _wrapped(numbers, 8),
            "    };",
        ]
    return [
        *lines,
        f"    float Input[{count}];",
        f"    for (int I = 0; I != {count}; ++I)",
        "      Input[I] = encode(Values[I], UnitScale[I], Largest[I], NegativeBelow[I],",
        "                        MissingBelow[I], Factor[I], Summand[I]);",
    ]


def _value(feature: Feature, column: str) -> str:
    element = f"{feature.name}[{'0' if feature.shape == (1,) else column}]"
    return element if feature.dtype == "float32" else f"static_cast<float>({element})"


def _sum(activation: str, weights: DoubleArray, bias: float) -> str:
    """The sum of one neuron."""
    terms = [] if bias == 0 and any(weights) else [_number(bias)]
    for number, weight in enumerate(weights):
        element = f"{activation}[{number}]"
        if weight == 1:
            terms.append(element)
        elif weight == -1:
            terms.append(f"-{element}")
        elif weight:
            terms.append(f"{_number(weight)} * {element}")
    return " + ".join(terms).replace("+ -", "- ")


def _number(value: float) -> str:
    """A literal of the same float32."""
    if value == -np.inf:
        return "-INFINITY"
    return f"{float(np.float32(value))!r}f"


def _wrapped(items: Iterable[str], indent: int) -> str:
    """A list in lines of up to 80 characters; only long items are broken."""
    width, margin = 80 - indent, " " * indent
    whole = (item if len(item) > width else item.replace(" ", "\0") for item in items)
    lines = textwrap.wrap(", ".join(whole), width, break_long_words=False, break_on_hyphens=False)
    return "\n".join(margin + line for line in lines).replace("\0", " ")
