# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the models beside this file that take PMU features: `python make_pmu_models.py`."""

import tensorflow as tf
from make_models import make


def main() -> None:
    # Inlines callees that are known to miss the last-level cache in less than 5% of their
    # instructions.
    misses = tf.TensorSpec([1], tf.int64, "pmu_callee_llc_misses_ppm")
    make(
        "inline-pmu",
        "inlining_decision",
        lambda pmu_callee_llc_misses_ppm: tf.cast(
            (pmu_callee_llc_misses_ppm >= 0) & (pmu_callee_llc_misses_ppm < 50000), tf.int64
        ),
        pmu_callee_llc_misses_ppm=misses,
    )

    # Inlines callees that are known to take less than two cycles an instruction.
    cycles = tf.TensorSpec([1], tf.int64, "pmu_callee_cycles_per_instruction")
    make(
        "inline-extra",
        "inlining_decision",
        lambda pmu_callee_cycles_per_instruction: tf.cast(
            (pmu_callee_cycles_per_instruction >= 0)
            & (pmu_callee_cycles_per_instruction < 2_000_000),
            tf.int64,
        ),
        pmu_callee_cycles_per_instruction=cycles,
    )

    # Evicts the live range, of those it may, that the profile knows best.
    def best_known(mask: tf.Tensor, pmu_coverage: tf.Tensor) -> tf.Tensor:
        return tf.argmax(tf.cast(mask[0], tf.float32) * (2.0 + pmu_coverage[0]))

    make(
        "evict-pmu",
        "index_to_evict",
        best_known,
        mask=tf.TensorSpec([1, 33], tf.int64, "mask"),
        pmu_coverage=tf.TensorSpec([1, 33], tf.float32, "pmu_coverage"),
    )

    # Evicts the live range of those it may that misses the TLB most, in a profile that counts that.
    def worst_rate(mask: tf.Tensor, pmu_tlb_miss_rate: tf.Tensor) -> tf.Tensor:
        return tf.argmax(tf.cast(mask[0], tf.float32) * (2.0 + pmu_tlb_miss_rate[0]))

    make(
        "evict-extra",
        "index_to_evict",
        worst_rate,
        mask=tf.TensorSpec([1, 33], tf.int64, "mask"),
        pmu_tlb_miss_rate=tf.TensorSpec([1, 33], tf.float32, "pmu_tlb_miss_rate"),
    )


if __name__ == "__main__":
    main()
