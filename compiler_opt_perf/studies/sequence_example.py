# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles one module as a worker of ml-compiler-opt does, for `studies.throughput`.

What `compiler_opt/rl/inlining/inlining_runner.py` and `log_reader.py` of google/ml-compiler-opt do
for a module with a policy: clang in development mode with a log, llvm-size on the object, and the
log as a TensorFlow SequenceExample, one value after the other, with a reward for each decision.
"""

import json
import subprocess
import sys
import time


def main() -> None:
    """Takes command and files from standard input, as JSON; prints sizes and seconds."""
    # Here, because the time that it takes is part of the result.
    import tensorflow as tf

    start_s = time.process_time()
    from pathlib import Path

    from compiler_opt_perf.train.log import read_log

    given = json.load(sys.stdin)
    subprocess.run(given["command"], check=True)
    size = subprocess.run([given["size"], given["object"]], check=True, capture_output=True)
    text = int(size.stdout.split(b"\n")[1].split()[0])
    log = read_log(Path(given["log"]))
    example = tf.train.SequenceExample()
    for name in log.record.names or ():
        values = example.feature_lists.feature_list[name]
        for value in log.observations[name]:
            feature = values.feature.add()
            kind = feature.int64_list if log.record[name].base.kind == "i" else feature.float_list
            kind.value.extend(value.reshape(-1).tolist())
    for _ in log.starts:
        rewards = example.feature_lists.feature_list["reward"]
        rewards.feature.add().float_list.value.append(float(text))
    written = len(example.SerializeToString())
    print(json.dumps({"text": text, "bytes": written, "start_s": start_s}))


if __name__ == "__main__":
    main()
