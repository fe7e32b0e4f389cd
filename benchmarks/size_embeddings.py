# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Do LLVM's IR2Vec embeddings tell more of inlining for size than the features do?

Single decisions of the recipe's programs are labelled as `make train-inline` labels them, counted
where the linker folds identical functions. Each decision gets the embeddings of caller and callee
as they are when it is taken. Trees that learn from all programs but one then decide in that one.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from absl import logging

from benchmarks.common import BenchmarkError
from benchmarks.results import Cell, Table
from benchmarks.shuffled import exchanged
from benchmarks.size_labels import (
    PROBLEM,
    SEEDS,
    programs_of,
    saved_unseen,
    training_labels,
    training_modules,
    tree_chooser,
)
from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.run.llvm import LLVM_VERSION
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import BUILD
from compiler_opt_perf.train.compilation import Compiler, scratch
from compiler_opt_perf.train.cost_sensitive import Inputs
from compiler_opt_perf.train.label_files import Labels, labelled_rows
from compiler_opt_perf.train.log import read_log

_VOCABULARY = BUILD / f"llvm-{LLVM_VERSION}/llvm/lib/Analysis/models/seedEmbeddingVocab75D.json"
_EMBEDDINGS = ("callee_embedding", "caller_embedding")
# Trees read whole numbers.
_SCALE = 1e4
#: Shares of the other programs' labels of which trees learn; the last is all.
_SHARES = (0.25, 0.5, 1.0)
#: What trees read: the features, those with embeddings, and with embeddings of another decision of
#: the same program.
READ = ("features", "features and embeddings", "features and exchanged embeddings")


def study(folder: Path, toolchain: Toolchain) -> list[Table]:
    """Labels decisions, unless that is done, and judges trees on programs that they never saw.

    Raises:
      CommandError: a compilation failed.
      BenchmarkError: the training failed, or the compiler took other decisions than for it.
    """
    labels = training_labels(folder, toolchain)
    inputs, advantage, groups = labelled_rows(PROBLEM, labels)
    with Pool() as pool:
        modules = training_modules(folder)
        compiler = Compiler.of(toolchain, PROBLEM)
        tasks = [(compiler, modules[one.module], one) for one in labels]
        outcomes = pool.map(_embedded, tasks, label="embeddings of modules")
        embeddings = np.concatenate([one.get() for one in outcomes])
    return tables(programs_of(labels), all_inputs(inputs, embeddings, groups), advantage, groups)


def _embedded(task: tuple[Compiler, Module, Labels]) -> npt.NDArray[np.float32]:
    """The embeddings of callee and caller of each label, [labels, 150]. In a worker."""
    compiler, module, labels = task
    with scratch() as folder:
        log = folder / "module.log"
        options = [
            *PROBLEM.development_options(log=log),
            "-mlgo-decision-keys",
            f"-ml-inliner-ir2vec-vocab-file={_VOCABULARY}",
            f"-ir2vec-vocab-path={_VOCABULARY}",
        ]
        compiler.compile(module, folder / "module.o", options)
        found = read_log(log)
        places = {key: row for row, key in enumerate(found.keys)}
        missing = [key for key in labels.keys if key not in places]
        if missing:
            raise BenchmarkError(f"{module.name}: no decision {missing[0]}, which has a label")
        rows = found.observations[[places[key] for key in labels.keys]]
        return np.concatenate([rows[name] for name in _EMBEDDINGS], axis=1)


def all_inputs(
    features: Inputs, embeddings: npt.NDArray[np.float32], groups: npt.NDArray[np.int64]
) -> dict[str, Inputs]:
    """What trees `READ`."""
    values = np.round(embeddings * _SCALE).astype(np.int64)
    both = {**features, **{f"embedding_{number}": one for number, one in enumerate(values.T)}}
    return dict(
        zip(READ, [features, both, exchanged(both, list(features), groups, SEEDS[0])], strict=True)
    )


def tables(
    programs: Sequence[str],
    inputs: Mapping[str, Inputs],
    advantage: npt.NDArray[np.float64],
    groups: npt.NDArray[np.int64],
) -> list[Table]:
    """What trees keep of what single decisions could save, in programs that they never saw.

    Args:
      programs: by the number of their group.
      inputs: by what trees `READ`.
      advantage: [rows], bytes that deciding otherwise saves.
    """
    could = [advantage[(groups == one) & (advantage > 0)].sum() for one in range(len(programs))]
    curve: list[list[Cell]] = []
    whole = []
    for name, own in inputs.items():
        row: list[Cell] = [name]
        saved = [saved_unseen(tree_chooser, own, advantage, groups, share) for share in _SHARES]
        whole.append(saved[-1])
        for one in saved:
            shares = 100 * one.sum(axis=1) / sum(could)
            row += [round(float(end), 4) for end in (shares.mean(), shares.min(), shares.max())]
        curve.append(row)
        logging.info("%s", row)
    columns = {"trees read": "text"}
    for share in _SHARES:
        columns |= {f"{share:.0%} of the labels": "percent:1"}
        columns |= {f"{share:.0%}, {end}": "percent:1" for end in ("least", "most")}
    rows: list[list[Cell]] = [
        [
            name,
            int((groups == number).sum()),
            round(float(could[number])),
            *(round(float(own[:, number].mean())) for own in whole),
        ]
        for number, name in enumerate(programs)
    ]
    caption = (
        "What trees keep of all bytes that single decisions could save, in programs that they "
        "never saw, by what they read and of how many labels they learnt: mean, least and most of "
        f"{len(SEEDS)} seeds."
    )
    bytes_caption = (
        "Bytes that single decisions could save in each program, and what trees save that learnt "
        "from all labels of the others; the mean of the seeds. Identical functions count once."
    )
    head = {"program": "text", "labels": "integer", "could save": "bytes"}
    return [
        Table.of("curve", caption, columns, curve),
        Table.of("programs", bytes_caption, head | dict.fromkeys(inputs, "bytes"), rows),
    ]
