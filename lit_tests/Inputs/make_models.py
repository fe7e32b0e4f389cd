# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the development-mode models beside this file: `python make_models.py`.

Each is a directory as `-ml-inliner-model-under-training` and `-regalloc-model` take it, with
`model.tflite` and `output_spec.json`. They are committed because TensorFlow takes long to import.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

Policy = Callable[..., tf.Tensor]


def make(name: str, decision: str, policy: Policy, **inputs: tf.TensorSpec) -> None:
    """Writes the model `name`, whose single output `decision` is int64 [1]."""
    directory = Path(__file__).parent / name
    directory.mkdir(exist_ok=True)
    function = tf.function(lambda **tensors: {decision: tf.reshape(policy(**tensors), [1])})
    with tempfile.TemporaryDirectory() as saved_model:
        module = tf.Module()
        module.action = function
        signature = function.get_concrete_function(**inputs)
        tf.saved_model.save(module, saved_model, signatures={"action": signature})
        converter = tf.lite.TFLiteConverter.from_saved_model(saved_model)
        (directory / "model.tflite").write_bytes(converter.convert())
    tensor = {"name": "StatefulPartitionedCall", "port": 0, "type": "int64_t", "shape": [1]}
    spec = [{"logging_name": decision, "tensor_spec": tensor}]
    (directory / "output_spec.json").write_text(json.dumps(spec) + "\n")


def main() -> None:
    def inlining(name: str, policy: Policy, **inputs: tf.TensorSpec) -> None:
        make(name, "inlining_decision", policy, **inputs)

    def eviction(name: str, policy: Policy, **inputs: tf.TensorSpec) -> None:
        mask = tf.TensorSpec([1, 33], tf.int64, "mask")
        make(name, "index_to_evict", policy, mask=mask, **inputs)

    blocks = tf.TensorSpec([1], tf.int64, "callee_basic_block_count")
    # Inlines callees of one basic block.
    inlining(
        "inline-one-block",
        lambda callee_basic_block_count: tf.cast(callee_basic_block_count < 2, tf.int64),
        callee_basic_block_count=blocks,
    )
    # Inlines what the default policy would.
    inlining(
        "inline-default",
        lambda inlining_default: tf.cast(inlining_default > 0, tf.int64),
        inlining_default=tf.TensorSpec([1], tf.int64, "inlining_default"),
    )
    # Inlines what the default policy would, and ends the compiler by SIGFPE where a callee has more
    # than four blocks: LiteRT divides the smallest int64 by -1.
    inlining(
        "inline-crash",
        lambda inlining_default, callee_basic_block_count: (
            tf.cast(inlining_default > 0, tf.int64)
            + tf.where(callee_basic_block_count > 4, tf.int64.min, -1)
            % -tf.minimum(callee_basic_block_count, 1)
        ),
        inlining_default=tf.TensorSpec([1], tf.int64, "inlining_default"),
        callee_basic_block_count=blocks,
    )
    inlining(
        "inline-unknown-feature",
        lambda callee_basic_block_count, phase_of_the_moon: (
            callee_basic_block_count + phase_of_the_moon
        ),
        callee_basic_block_count=blocks,
        phase_of_the_moon=tf.TensorSpec([1], tf.int64, "phase_of_the_moon"),
    )
    inlining(
        "inline-wrong-shape",
        lambda callee_basic_block_count: tf.reduce_sum(callee_basic_block_count),
        callee_basic_block_count=tf.TensorSpec([2], tf.int64, "callee_basic_block_count"),
    )
    inlining(
        "inline-wrong-type",
        lambda callee_basic_block_count: tf.cast(callee_basic_block_count < 2.0, tf.int64),
        callee_basic_block_count=tf.TensorSpec([1], tf.float32, "callee_basic_block_count"),
    )
    # Evicts from the first register that it may evict from, and never keeps the candidate waiting
    # if there is one.
    eviction(
        "evict-first", lambda mask: tf.argmax(tf.cast(mask[0], tf.int32), output_type=tf.int64)
    )
    # Keeps the candidate waiting where it may, else evicts from the last register that it may.
    eviction(
        "evict-last",
        lambda mask: tf.argmax(tf.cast(mask[0], tf.int32) * tf.range(33), output_type=tf.int64),
    )
    # Evicts what the default policy would; the mask has no part in it.
    eviction(
        "evict-default",
        lambda mask, default_decision: tf.argmax(
            default_decision[0] + 0.0 * tf.cast(mask[0], tf.float32), output_type=tf.int64
        ),
        default_decision=tf.TensorSpec([1, 33], tf.float32, "default_decision"),
    )
    # Spills instead of using a callee-saved register first; else as the one before.
    eviction(
        "evict-saved",
        lambda mask, default_decision, alternative_is_spill: tf.argmax(
            default_decision[0]
            + 2.0 * alternative_is_spill[0] * tf.cast(tf.range(33) == 32, tf.float32)
            + 0.0 * tf.cast(mask[0], tf.float32),
            output_type=tf.int64,
        ),
        default_decision=tf.TensorSpec([1, 33], tf.float32, "default_decision"),
        alternative_is_spill=tf.TensorSpec([1, 33], tf.float32, "alternative_is_spill"),
    )
    # Chooses a position that does not exist.
    eviction("evict-nowhere", lambda mask: mask[:, 0] + 40)
    eviction(
        "evict-unknown-feature",
        lambda mask, phase_of_the_moon: mask[:, 0] + phase_of_the_moon[:, 0],
        phase_of_the_moon=tf.TensorSpec([1, 33], tf.int64, "phase_of_the_moon"),
    )


if __name__ == "__main__":
    main()
