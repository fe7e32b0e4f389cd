# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs, networks and a program that decides, for tests and benchmarks of policies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.policy.encoding import FloatArray, fit_normalisation
from compiler_opt_perf.policy.network import Network
from compiler_opt_perf.policy.problem import Feature, Problem
from compiler_opt_perf.policy.tensorflow_ops import tensorflow_ops
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.tensorflow_environment import import_tensorflow
from compiler_opt_perf.toolchain.model_inputs import MODELS


def random_inputs(problem: Problem, rows: int, seed: int = 0) -> dict[str, npt.NDArray[Any]]:
    """Rows with the peculiarities of real ones: heavy tails, negative costs, NaN, missing data.

    Returns:
      By feature name, [rows] or [rows, columns], in the feature's dtype.
    """
    random = np.random.default_rng(seed)
    inputs: dict[str, npt.NDArray[Any]] = {}
    for feature in problem.inputs(with_pmu=True):
        shape = (rows, *feature.shape[1:])
        if feature.dtype == "int64":
            values = np.rint(random.standard_cauchy(shape) * 20).astype(np.int64)
            if feature.may_be_missing:
                values = np.abs(values)
        else:
            values = random.random(shape, dtype=np.float32) ** 3
            values[random.random(shape) < 0.02] = np.nan
        if feature.may_be_missing:
            values[random.random(shape) < 0.3] = -1
        inputs[feature.name] = values
    inputs[problem.default_feature] = random.integers(0, problem.decisions, rows)
    if problem.mask is not None:
        mask = random.random((rows, problem.decisions)) < 0.4
        mask[np.arange(rows), random.integers(0, problem.decisions, rows)] = True
        inputs[problem.mask] = mask.astype(np.int64)
        default = np.argmax(random.random(mask.shape) * mask, axis=1)
        inputs[problem.default_feature] = np.eye(problem.decisions, dtype=np.float32)[default]
    return inputs


def random_network(problem: Problem, hidden: tuple[int, ...] = (16, 8)) -> Network:
    """A network normalised for `random_inputs`."""
    inputs = random_inputs(problem, rows=200, seed=1)
    return Network(problem, True, hidden, fit_normalisation(inputs, problem, with_pmu=True))


def save_saved_model(folder: Path, network: Network, weights: FloatArray) -> None:
    """Writes the policy as another author would: a SavedModel with the signature `action`.

    TensorFlow names the inputs `action_<feature>`, for which the compiler looks.

    Args:
      weights: float32 [network.size].
    """
    tf = import_tensorflow()
    ops = tensorflow_ops()
    module = tf.Module()
    module.layers = [
        (tf.Variable(matrix), tf.Variable(bias)) for matrix, bias in network.layers(weights)
    ]

    def action(inputs: Any) -> Any:
        scores = network.masked_scores(module.layers, inputs, ops)
        return {network.problem.decision: tf.argmax(scores, axis=-1, output_type=tf.int64)}

    specs = {f.name: tf.TensorSpec(f.shape, f.dtype, f.name) for f in network.features}
    module.action = tf.function(action)
    signatures = {"action": module.action.get_concrete_function(specs)}
    tf.saved_model.save(module, str(folder), signatures=signatures)


def convert_to_tflite(saved_model: Path) -> bytes:
    """Another author's SavedModel with the signature `action` as TFLite's built-in operations."""
    tf = import_tensorflow()
    converter = tf.lite.TFLiteConverter.from_saved_model(str(saved_model), ["action"])
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    return bytes(converter.convert())


# Asks a model of release mode as LLVM's ReleaseModeModelRunner does.
#
#   decide INPUTS DECISIONS TIMES
#
# INPUTS has rows of all features. DECISIONS becomes the decision of each row, int64. Each row is
# decided TIMES times; the output is the time of one decision, the median over the rows.
_PROGRAM = """\
#include "{header}"
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

struct Feature {{ const char *Name; size_t Bytes; }};
static const Feature Features[] = {{ {features} }};

// Callgrind counts what happens in here.
extern "C" __attribute__((noinline)) void decideOnce({cpp_class} &Model) {{ Model.Run(); }}

int main(int, char **Arguments) {{
  static {cpp_class} Model;
  std::ifstream File(Arguments[1], std::ios::binary);
  const std::vector<char> Rows{{std::istreambuf_iterator<char>(File), {{}}}};
  std::ofstream Decisions(Arguments[2], std::ios::binary);
  const int Times = std::atoi(Arguments[3]);
  const int Result = Model.LookupResultIndex("fetch_{decision}");
  std::vector<double> Nanoseconds;
  for (size_t At = 0; At != Rows.size();) {{
    for (const Feature &One : Features) {{
      const int Argument = Model.LookupArgIndex(One.Name);
      if (Argument >= 0)
        std::memcpy(Model.arg_data(Argument), &Rows[At], One.Bytes);
      At += One.Bytes;
    }}
    const auto Start = std::chrono::steady_clock::now();
    for (int Time = 0; Time != Times; ++Time) {{
      decideOnce(Model);
      asm volatile("" ::: "memory");
    }}
    const std::chrono::duration<double, std::nano> Taken = std::chrono::steady_clock::now() - Start;
    Nanoseconds.push_back(Taken.count() / Times);
    Decisions.write(static_cast<const char *>(Model.result_data(Result)), sizeof(int64_t));
  }}
  std::nth_element(Nanoseconds.begin(), Nanoseconds.begin() + Nanoseconds.size() / 2,
                   Nanoseconds.end());
  std::printf("%g\\n", Nanoseconds[Nanoseconds.size() / 2]);
}}
"""


@dataclass(frozen=True)
class Decider:
    """A program around one model of release mode.

    Attributes:
      executable: the program.
      features: what each row holds.
    """

    executable: Path
    features: tuple[Feature, ...]

    @classmethod
    def build(
        cls,
        problem: Problem,
        features: tuple[Feature, ...],
        header: Path,
        objects: Sequence[str | Path] = (),
    ) -> "Decider":
        """Compiles the program beside the model's header.

        Args:
          problem: that the model decides.
          features: those of the rows.
          header: of the model, generated or by TensorFlow.
          objects: further arguments of the compiler.
        """
        (model,) = (model for model in MODELS if model.problem == problem.name)
        sizes = (np.dtype(f.dtype).itemsize * f.shape[-1] for f in features)
        source = header.with_name("decide.cpp")
        source.write_text(
            _PROGRAM.format(
                header=header.name,
                features=", ".join(
                    f'{{"feed_{feature.name}", {size}}}'
                    for feature, size in zip(features, sizes, strict=True)
                ),
                cpp_class=model.cpp_class,
                decision=problem.decision,
            )
        )
        executable = header.with_name("decide")
        clang = stock_tool("clang++")
        words = [clang, "-std=c++17", "-O2", "-DNDEBUG", source, *objects, "-o", executable]
        run_command(words, timeout_s=300)
        return cls(executable, features)

    def decide(
        self,
        inputs: Mapping[str, npt.NDArray[Any]],
        times: int = 1,
        tool: Sequence[str] = (),
    ) -> tuple[npt.NDArray[np.int64], str]:
        """Decides each row `times` times.

        Args:
          inputs: by feature name, [rows] or [rows, columns].
          times: how often.
          tool: words of a command to run the program under.

        Returns:
          The decisions, int64 [rows], and what the program and the tool print.
        """
        rows = [inputs[f.name].astype(f.dtype).reshape(-1, f.shape[-1]) for f in self.features]
        path, output = (self.executable.with_name(name) for name in ("inputs", "decisions"))
        np.concatenate([one.view(np.uint8) for one in rows], axis=1).tofile(path)
        ran = run_command([*tool, self.executable, path, output, str(times)], timeout_s=300)
        return np.fromfile(output, np.int64), ran.stdout + ran.stderr
