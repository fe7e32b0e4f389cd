# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains a learned cost model on measured blocks (blocks.model).

The loss of a block is |p - t| / t + |log(p / t)|, of predicted p and measured t: the first is what
models are judged by, and alone rewards those that predict too little.

  inputs.json      data, configuration and first weights that the folder is claimed by
  checkpoint.npz   weights, Adam's moments and the curve after some steps
  curve.jsonl      a point an epoch; events... is the same for TensorBoard
  model            the published model

What is published depends on data, configuration, the model that it begins as, and versions alone,
interrupted or not.
"""

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from absl import logging

from compiler_opt_perf.blocks.config import CostModelConfig, LearnedError
from compiler_opt_perf.blocks.data import (
    PURPOSES,
    TEST,
    TRAINING,
    VALIDATION,
    DataFile,
    Samples,
    cpus_of,
    samples,
)
from compiler_opt_perf.blocks.graphs import GraphBuilder, Graphs, Vocabulary
from compiler_opt_perf.blocks.model import DESCRIPTION_FILE, CostModel, load, publish
from compiler_opt_perf.blocks.networks import (
    Weights,
    cycles,
    initial_weights,
    inputs_of,
    joined,
    layout,
    named,
    specs,
    transferred,
)
from compiler_opt_perf.blocks.runtime import predictions, start_tensorflow
from compiler_opt_perf.policy.arrays import read_arrays, require_vector
from compiler_opt_perf.run.curve import write_curve
from compiler_opt_perf.run.files import sha256
from compiler_opt_perf.run.json_text import decode
from compiler_opt_perf.run.progress import Progress
from compiler_opt_perf.run.seeds import derive_seed
from compiler_opt_perf.train.adam import BETA1, BETA2, EPSILON
from compiler_opt_perf.train.checkpoint import damage, write_state
from compiler_opt_perf.train.folder import TrainingFolder

_LAST_RATE = 0.02
# At most such a part of the steps goes by until the rate is as high as it is set.
_WARM_UP_PART = 10
# Batches of one length are cut from so many at a time.
_BUCKETS = 20
_VECTORS = ("weights", "first", "second", "best")


@dataclass(frozen=True)
class _State:
    """The state of a training, from which it goes on exactly where it stopped.

    Attributes:
      weights, first, second: float32 [size] each: the weights and Adam's moments.
      best: the weights with the least error on validation blocks.
      step: steps done.
      loss: sum of the losses of this epoch's steps.
      curve: a point for each epoch done.
      elapsed: seconds.
    """

    weights: npt.NDArray[np.float32]
    first: npt.NDArray[np.float32]
    second: npt.NDArray[np.float32]
    best: npt.NDArray[np.float32]
    step: int
    loss: float
    curve: tuple[dict[str, float], ...]
    elapsed: float


class _Kept(msgspec.Struct, frozen=True):
    step: int
    loss: float
    curve: tuple[dict[str, float], ...]
    elapsed: float


def train(
    files: Sequence[DataFile],
    config: CostModelConfig,
    output: Path,
    *,
    warm_start: Path | None = None,
    label: str | None = None,
    checkpoint_s: float = 60.0,
) -> CostModel:
    """Trains a model in a folder, or goes on there; publishes it and returns it.

    Args:
      warm_start: folder of a model, of these CPUs or others, that the training begins as; its
        vocabulary stays.
      label: with one, progress is shown.
      checkpoint_s: seconds between checkpoints.

    Raises:
      LearnedError: there are no blocks for a purpose, or the model to begin as is damaged or has
        another network.
      TrainingError: the folder holds another training, or something else.
      CheckpointError: damaged checkpoint.
      FileWriteError: the folder cannot be written.
    """
    started = None if warm_start is None else load(warm_start)
    inputs = {
        "config": msgspec.to_builtins(config),
        "data": [{"sha256": one.digest, "blocks": len(one.rows)} for one in files],
        "warm_start": None if warm_start is None else sha256(warm_start / DESCRIPTION_FILE),
    }
    # As it is read back: with lists, no tuples.
    inputs = msgspec.json.decode(msgspec.json.encode(inputs))
    with TrainingFolder.held(output) as folder:
        folder.require_inputs(inputs)
        every = samples(files, config)
        for purpose in PURPOSES:
            if not len(every.of_purpose(purpose)):
                raise LearnedError(
                    f"no blocks for {purpose}; of these programs, name others in "
                    f"{purpose}_programs or mixed_programs: "
                    f"{', '.join(sorted(set(every.programs)))}"
                )
        chosen = every.of_purpose(TRAINING)
        codes = [every.codes[block] for block in chosen]
        vocabulary = Vocabulary.from_blocks(codes, config.least_blocks)
        cpus = cpus_of(files)
        vocabulary, first = _first(config, vocabulary, cpus, started)
        folder.claim(inputs)
        training = _Training(config, vocabulary, cpus, every, first, folder, checkpoint_s)
        weights, curve = training.run(label)
        model = CostModel(config, vocabulary, cpus, named(training.shapes, weights), {})
        unknown = training.unknown
        description = {
            "data": inputs["data"],
            "warm_start": inputs["warm_start"],
            "blocks": {purpose: len(every.of_purpose(purpose)) for purpose in PURPOSES},
            "unknown_opcodes": unknown,
            "epochs": len(curve),
            "best_epoch": 1 + int(np.argmin([point["validation_error"] for point in curve])),
            "results": training.results(weights),
        }
        model = dataclasses.replace(model, description=description)
        publish(model, folder.model)
        return load(folder.model)


def _first(
    config: CostModelConfig, vocabulary: Vocabulary, cpus: Sequence[str], start: CostModel | None
) -> tuple[Vocabulary, Weights]:
    """The vocabulary, with that of the model to begin as, and first weights.

    A CPU that this model does not know begins as the first one that it does.
    """
    if start is not None:
        if start.config.network != config.network:
            raise LearnedError(
                f"the model to begin as is {start.config.network}, not {config.network}; give its "
                "values by --setting, or begin as another one"
            )
        vocabulary = Vocabulary(sorted({*vocabulary.tokens, *start.vocabulary.tokens}))
    shapes = layout(config, len(vocabulary), len(cpus))
    fresh = initial_weights(shapes, derive_seed(config.seed, "weights"))
    if start is None:
        return vocabulary, fresh
    known = start.vocabulary.numbers
    tokens = {0: 0, **{vocabulary.number(token): number for token, number in known.items()}}
    of = [start.cpus.index(cpu) if cpu in start.cpus else 0 for cpu in cpus]
    return vocabulary, transferred(config, start.weights, tokens, of, fresh)


class _Training:
    def __init__(
        self,
        config: CostModelConfig,
        vocabulary: Vocabulary,
        cpus: Sequence[str],
        every: Samples,
        first: Weights,
        folder: TrainingFolder,
        checkpoint_s: float,
    ):
        self._config = config
        self._cpus = cpus
        self._first = first
        self._folder = folder
        self._checkpoint_s = checkpoint_s
        self.shapes = layout(config, len(vocabulary), len(cpus))
        builder = GraphBuilder(vocabulary)
        problems = [builder.problem(code) for code in every.codes]
        self.unknown = sum(map(bool, problems))
        if self.unknown:
            logging.info("%d blocks with opcodes that no training block has", self.unknown)
        self._samples = every
        self._known = np.array([not problem for problem in problems])
        self._graphs: Graphs = builder.graphs(every.codes, every.pmu)
        self._tf = start_tensorflow()
        self._step = self._step_function()

    def run(self, label: str | None) -> tuple[npt.NDArray[np.float32], list[dict[str, float]]]:
        """The best weights, and the curve."""
        config = self._config
        steps = -(-len(self._blocks(TRAINING)) // config.batch_size)
        total = steps * config.epochs
        state = self._start()
        begin = saved = time.monotonic() - state.elapsed
        saved += state.elapsed
        with Progress(label, total) as progress:
            progress.advance(state.step)
            while state.step < total:
                epoch, first = divmod(state.step, steps)
                batches = self._batches(epoch)
                for number in range(first, steps):
                    state = self._stepped(state, batches[number], total)
                    progress.advance()
                    now = time.monotonic()
                    if number + 1 == steps:
                        state = self._judged(state, epoch + 1, steps, now - begin)
                    if number + 1 == steps or now - saved > self._checkpoint_s:
                        state = dataclasses.replace(state, elapsed=now - begin)
                        self._save(state)
                        saved = now
        write_curve(self._folder.curve, state.curve)
        return state.best, list(state.curve)

    def results(self, weights: npt.NDArray[np.float32]) -> dict[str, Any]:
        """Mean and median error on the blocks left out, by collection."""
        found: dict[str, Any] = {}
        blocks = self._blocks(TEST)
        errors = self._errors(weights, blocks)
        programs = np.array(self._samples.programs)[blocks]
        for name in sorted(set(programs)):
            of = errors[programs == name]
            found[str(name)] = {
                "blocks": len(of),
                "mean_error": round(float(of.mean()), 6),
                "median_error": round(float(np.median(of)), 6),
            }
        found["all"] = {
            "blocks": len(errors),
            "mean_error": round(float(errors.mean()), 6),
            "median_error": round(float(np.median(errors)), 6),
        }
        return found

    def _blocks(self, purpose: str) -> npt.NDArray[np.int64]:
        blocks = self._samples.of_purpose(purpose)
        known: npt.NDArray[np.int64] = blocks[self._known[blocks]]
        return known

    def _errors(
        self, weights: npt.NDArray[np.float32], blocks: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """|p / t - 1| of blocks."""
        all_cpus = predictions(
            self._config, named(self.shapes, weights), len(self._cpus), self._graphs, blocks
        )
        predicted = all_cpus[np.arange(len(blocks)), self._samples.cpus[blocks]]
        measured = self._samples.cycles[blocks].astype(np.float64)
        errors: npt.NDArray[np.float64] = np.abs(predicted / measured - 1)
        return errors

    def _start(self) -> _State:
        path = self._folder.checkpoint
        size = sum(int(np.prod(shape)) for shape in self.shapes.values())
        if path.exists():
            with damage(path):
                arrays = read_arrays(path, [*_VECTORS, "record"])
                for name in _VECTORS:
                    require_vector(name, arrays[name], "float32", size)
                record = decode(arrays["record"].tobytes(), _Kept, path)
            logging.info("going on after step %d", record.step)
            weights, first, second, best = (arrays[name] for name in _VECTORS)
            rest = (record.step, record.loss, record.curve, record.elapsed)
            return _State(weights, first, second, best, *rest)
        logging.info("seed %d; %d weights", self._config.seed, size)
        weights = joined(self.shapes, self._first)
        zeros = np.zeros(size, np.float32)
        return _State(weights, zeros, zeros, weights, 0, 0.0, (), 0.0)

    def _save(self, state: _State) -> None:
        record = {name: getattr(state, name) for name in _Kept.__struct_fields__}
        vectors = {name: getattr(state, name) for name in _VECTORS}
        write_state(self._folder.checkpoint, record, vectors)

    def _batches(self, epoch: int) -> list[npt.NDArray[np.int64]]:
        """The blocks of each step of an epoch; the blocks of a batch have about the same length."""
        random = np.random.default_rng(derive_seed(self._config.seed, "epoch", epoch))
        blocks = random.permutation(self._blocks(TRAINING))
        size = self._config.batch_size
        batches = []
        for start in range(0, len(blocks), size * _BUCKETS):
            part = blocks[start : start + size * _BUCKETS]
            part = part[np.argsort(self._graphs.lengths[part], kind="stable")]
            batches += [part[first : first + size] for first in range(0, len(part), size)]
        return [batches[number] for number in random.permutation(len(batches))]

    def _stepped(self, state: _State, blocks: npt.NDArray[np.int64], total: int) -> _State:
        config, number = self._config, state.step + 1
        decay = 0.5 * (1 + np.cos(np.pi * state.step / total))
        rate = config.learning_rate * (_LAST_RATE + (1 - _LAST_RATE) * decay)
        rate *= min(1.0, number / max(min(config.warm_up, total // _WARM_UP_PART), 1))
        # Adam's bias correction: its moments begin at zero.
        rate *= np.sqrt(1 - BETA2**number) / (1 - BETA1**number)
        weights, first, second, loss = self._step(
            state.weights,
            state.first,
            state.second,
            inputs_of(self._graphs.take(blocks), config),
            self._samples.cycles[blocks],
            self._samples.cpus[blocks],
            np.float32(rate),
        )
        loss = float(loss)
        if not np.isfinite(loss):
            raise LearnedError(f"step {number}: the loss is {loss}; try a lower learning_rate")
        return dataclasses.replace(
            state,
            weights=weights.numpy(),
            first=first.numpy(),
            second=second.numpy(),
            step=number,
            loss=state.loss + loss,
        )

    def _judged(self, state: _State, epoch: int, steps: int, elapsed: float) -> _State:
        errors = self._errors(state.weights, self._blocks(VALIDATION))
        point = {
            "generation": float(epoch),
            "elapsed_s": round(elapsed, 1),
            "loss": state.loss / steps,
            "validation_error": float(errors.mean()),
            "validation_median_error": float(np.median(errors)),
        }
        logging.info(
            "epoch %d: loss %.4f, validation error %.2f%%, median %.2f%%",
            *(epoch, point["loss"], 100 * errors.mean(), 100 * np.median(errors)),
        )
        before = [one["validation_error"] for one in state.curve]
        best = state.weights if not before or errors.mean() < min(before) else state.best
        curve = (*state.curve, point)
        write_curve(self._folder.curve, curve)
        return dataclasses.replace(state, best=best, loss=0.0, curve=curve)

    def _step_function(self) -> Any:
        tf, config, cpus = self._tf, self._config, len(self._cpus)
        flat, ints = tf.TensorSpec([None], tf.float32), tf.TensorSpec([None], tf.int32)
        rate = tf.TensorSpec([], tf.float32)

        @tf.function(  # type: ignore[untyped-decorator]
            input_signature=[flat, flat, flat, specs(config, tf), flat, ints, rate]
        )
        def step(w: Any, m: Any, v: Any, inputs: Any, target: Any, of: Any, rate: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(w)
                every = cycles(config, named(self.shapes, w, tf), inputs, cpus, tf)
                predicted = tf.gather(every, of, batch_dims=1)
                relative = tf.abs(predicted - target) / target
                loss = tf.reduce_mean(relative + tf.abs(tf.math.log(predicted / target)))
            gradient = tape.gradient(loss, w)
            gradient = tf.clip_by_norm(gradient, config.clip)
            m = BETA1 * m + (1 - BETA1) * gradient
            v = BETA2 * v + (1 - BETA2) * gradient * gradient
            return w - rate * m / (tf.sqrt(v) + EPSILON), m, v, loss

        return step
