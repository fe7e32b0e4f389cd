# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules of few thresholds for inlining for size, found by search, beside trees and the network.

Forward selection finds the rule's guards on labels of single decisions. CMA-ES then moves its
thresholds by the linked text of whole training programs. Programs that neither saw judge it.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from absl import logging

from benchmarks.changes import mean_change, percent_change
from benchmarks.common import BenchmarkError
from benchmarks.results import Cell, Interval, Table
from benchmarks.rule_network import GUARDED, Clause, Guard, Rule, Terms, encoded, value_of
from benchmarks.size_builds import MODEL, purpose
from benchmarks.size_labels import (
    PROBLEM,
    Floats,
    Integers,
    programs_of,
    saved_unseen,
    training_labels,
    tree_chooser,
    tree_settings,
)
from compiler_opt_perf.corpus.corpus import FRONTEND, Module
from compiler_opt_perf.corpus.programs import program_modules
from compiler_opt_perf.policy.export import Policy, publish
from compiler_opt_perf.policy.network import DecisionKind
from compiler_opt_perf.run.files import sha256
from compiler_opt_perf.run.memo import note, recall
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train.compilation import Compiler
from compiler_opt_perf.train.cost_sensitive import KINDS, Inputs, label_weights, strata
from compiler_opt_perf.train.label_files import labelled_rows
from compiler_opt_perf.train.linked import LinkJob, linked_sizes

_SEED = 1
_CLAUSES, _GUARDS = 4, 3
# A guard or clause must add this share of all that could be saved, by the labels' weights.
_LEAST_GAIN = 0.01
# What the searches are called in tables, and whether guards may be of two features.
_GRAMMARS = {"thresholds": False, "thresholds, products and ratios": True}
#: Training programs whose linked text CMA-ES makes smaller. Cap'n Proto has more than all.
TUNED = ("cppunit", "gflags", "glog", "libebml", "zeromq")
#: Programs that judge; the first two chose the shipped policy's margin.
JUDGES = (
    *("minisat", "yaml-cpp", "tinyxml", "jsoncpp", "ninja", "box2d", "taglib"),
    *("double-conversion", "leveldb", "re2", "exiv2"),
)
_POPULATION = 8
# Half a power of two in a feature.
_SIGMA = 0.125
_LIMIT = 4.0


def select(inputs: Inputs, advantage: Floats, *, pairs: bool) -> Rule:
    """The rule that forward selection finds: clause by clause, guard by guard.

    Args:
      advantage: [rows], bytes that deciding otherwise than the compiler saves.
      pairs: whether guards may be of the product or ratio of two features.
    """
    settings = tree_settings()
    signed = np.sign(advantage) * label_weights(advantage, settings.largest)
    least = _LEAST_GAIN * signed[signed > 0].sum()
    columns, kinds = encoded(inputs), strata(inputs)
    left = np.ones(len(advantage), bool)
    clauses: list[Clause] = []
    for _ in range(_CLAUSES):
        grown = [
            _grown(KINDS[kind], columns, signed, left & (kinds == kind), least, pairs=pairs)
            for kind in np.unique(kinds)
        ]
        gain, clause = max(grown, key=lambda one: one[0])
        if clause is None or gain < least:
            break
        clauses.append(clause)
        left &= ~Rule((clause,)).otherwise(inputs)
    return Rule(tuple(clauses))


def _grown(
    kind: DecisionKind,
    columns: npt.NDArray[np.float32],
    signed: Floats,
    rows: npt.NDArray[np.bool_],
    least: float,
    *,
    pairs: bool,
) -> tuple[float, Clause | None]:
    """The best clause of a kind that adds guards one by one, and the weight that it saves."""
    guards: list[Guard] = []
    numbers = np.flatnonzero(rows)
    gain = float(signed[numbers].sum())
    for _ in range(_GUARDS):
        left = columns[:, numbers]
        better, guard = _best_guard(left, signed[numbers], pairs=pairs)
        # The first guard is to find what pays at all.
        if guard is None or better < (gain if not guards else max(gain, 0.0)) + least:
            break
        guards.append(guard)
        gain, numbers = better, numbers[guard.holds(left)]
    return (gain, Clause(kind, tuple(guards))) if guards else (0.0, None)


def _best_guard(
    columns: npt.NDArray[np.float32], signed: Floats, *, pairs: bool
) -> tuple[float, Guard | None]:
    """The guard whose rows weigh most, and their weight."""
    leaf = tree_settings().leaf_rows
    best: tuple[float, Guard | None] = (-np.inf, None)
    if len(signed) < leaf:
        return best
    for terms in _terms(columns, pairs=pairs):
        values = value_of(terms, columns)
        order = np.argsort(values, kind="stable")
        ordered, sums = values[order], np.cumsum(signed[order])
        # Between different values, with enough rows on the side that is kept.
        ends = np.flatnonzero(ordered[1:] > ordered[:-1])
        inside = np.abs(ordered) <= _LIMIT
        low = ends[(ends + 1 >= leaf) & inside[ends]]
        high = ends[(len(values) - ends - 1 >= leaf) & inside[ends + 1]]
        for at_least, places, weights in (
            (False, low, sums[low]),
            (True, high, sums[-1] - sums[high]),
        ):
            if len(places) and weights.max() > best[0]:
                place = places[int(np.argmax(weights))]
                threshold = float(ordered[place + 1] if at_least else ordered[place])
                best = float(weights.max()), Guard(terms, at_least, threshold)
    return best


def _terms(columns: npt.NDArray[np.float32], *, pairs: bool) -> list[Terms]:
    """What guards may compare: features that vary here, and products and ratios of two."""
    varying = [name for name in GUARDED if np.ptp(value_of(((name, 1),), columns)) > 0]
    found: list[Terms] = [((name, 1),) for name in varying]
    if pairs:
        found += [
            ((one, 1), (other, sign))
            for one, other in itertools.combinations(varying, 2)
            for sign in (1, -1)
        ]
    return found


def study(folder: Path, toolchain: Toolchain, generations: int) -> list[Table]:
    """Labels, selects, moves thresholds, and judges; what is done is not done again.

    Args:
      generations: of CMA-ES.

    Raises:
      CommandError: a compilation failed.
      BenchmarkError: the training that labels failed, or its labels teach no rule.
    """
    labels = training_labels(folder, toolchain)
    inputs, advantage, groups = labelled_rows(PROBLEM, labels)
    kept, better = _kept(programs_of(labels), inputs, advantage, groups)
    rule = select(inputs, advantage, pairs=_GRAMMARS[better])
    logging.info("%s", rule)
    if not rule.clauses:
        raise BenchmarkError("the labels teach no rule: no clause saves enough of them")
    with Pool() as pool:
        linker = Linker(folder, toolchain, pool)
        tuned, history = tune(
            rule, lambda rules: linker.changes(TUNED, linker.published(rules)), generations
        )
        logging.info("%s", tuned)
        models = [*linker.published([rule, tuned]), MODEL]
        judged = linker.sizes(JUDGES, [None, *models])
    return [kept, _rules(rule, tuned, inputs, advantage), _history(history), _judged(judged)]


def _kept(
    programs: Sequence[str], inputs: Inputs, advantage: Floats, groups: Integers
) -> tuple[Table, str]:
    """What rules and trees keep on programs that they never saw, and the better grammar."""
    could = advantage[advantage > 0].sum()
    rows: list[list[Cell]] = []
    saved = {}
    for name, pairs in _GRAMMARS.items():
        fit = functools.partial(_rule_chooser, pairs=pairs)
        saved[name] = saved_unseen(fit, inputs, advantage, groups, seeds=(_SEED,)).sum()
        rows.append([f"rule of {name}", *[round(float(100 * saved[name] / could), 4)] * 3])
        logging.info("%s", rows[-1])
    trees = 100 * saved_unseen(tree_chooser, inputs, advantage, groups).sum(axis=1) / could
    ends = (trees.mean(), trees.min(), trees.max())
    rows.append(["trees, three seeds", *(round(float(end), 4) for end in ends)])
    caption = (
        f"What is kept of the {could:,.0f} bytes that {len(advantage):,} single decisions of "
        f"{len(programs)} programs could save, each program by the labels of the others: mean, "
        "least and most of the seeds. A rule is the same for all seeds."
    )
    columns = {"learner": "text"} | dict.fromkeys(("kept", "least", "most"), "percent:1")
    return Table.of("kept", caption, columns, rows), max(saved, key=lambda name: saved[name])


def _rule_chooser(
    inputs: Inputs, advantage: Floats, _: int, *, pairs: bool
) -> Callable[[Inputs], npt.NDArray[np.bool_]]:
    return select(inputs, advantage, pairs=pairs).otherwise


def _rules(rule: Rule, tuned: Rule, inputs: Inputs, advantage: Floats) -> Table:
    rows: list[list[Cell]] = []
    for one, other in zip(rule.clauses, tuned.clauses, strict=True):
        for name, clause in (("selected", one), ("moved", other)):
            own = Rule((clause,)).otherwise(inputs)
            rows.append([str(clause), name, int(own.sum()), round(float(advantage[own].sum()))])
    caption = (
        "The rule's clauses as they were selected, and with the thresholds that CMA-ES found: how "
        "many labelled decisions each takes otherwise than the compiler, and what that saves."
    )
    columns = {"clause": "text", "thresholds": "text", "labels": "integer", "saves": "bytes"}
    return Table.of("rule", caption, columns, rows)


def tune(
    rule: Rule, changes: Callable[[Sequence[Rule]], Sequence[float]], generations: int
) -> tuple[Rule, list[list[float]]]:
    """Moves the thresholds of a rule by CMA-ES.

    Args:
      changes: of linked text by each of some rules, in percent.

    Returns:
      The best rule, and the changes by generation; the first is of the given rule alone.
    """
    from cmaes import CMA

    optimiser = CMA(
        mean=rule.thresholds(),
        sigma=_SIGMA,
        bounds=np.tile([-_LIMIT, _LIMIT], (len(rule.thresholds()), 1)),
        seed=_SEED,
        population_size=_POPULATION,
    )
    history = [list(changes([rule]))]
    best, least = rule, history[0][0]
    for number in range(generations):
        asked = [optimiser.ask() for _ in range(_POPULATION)]
        rules = [rule.with_thresholds(one.tolist()) for one in asked]
        found = list(changes(rules))
        optimiser.tell(list(zip(asked, found, strict=True)))
        history.append(found)
        if min(found) < least:
            least = min(found)
            best = rules[found.index(least)]
        logging.info("generation %d: %+.3f%%, best %+.3f%%", number + 1, min(found), least)
    return best, history


def _history(history: Sequence[Sequence[float]]) -> Table:
    least = list(itertools.accumulate(map(min, history), min))
    rows: list[list[Cell]] = [
        [number, round(float(np.mean(own)), 4), round(min(own), 4), round(best, 4)]
        for number, (own, best) in enumerate(zip(history, least, strict=True))
    ]
    caption = (
        f"Change of the linked text of {', '.join(TUNED)} by generations of {_POPULATION} sets of "
        "thresholds; geometric means. Generation 0 is the rule as it was selected."
    )
    columns = {"generation": "integer"}
    return Table.of(
        "generations",
        caption,
        columns | dict.fromkeys(("mean", "best of it", "best so far"), "percent:+2"),
        rows,
    )


def _judged(sizes: Mapping[str, Sequence[int]]) -> Table:
    """What the rule, the one with moved thresholds, and the network change by program."""
    rows: list[list[Cell]] = []
    changes: dict[str, list[list[float]]] = {}
    for name, (plain, *others) in sizes.items():
        own = [percent_change(one, plain) for one in others]
        rows.append([name, purpose(name), plain, *own])
        changes.setdefault("chose" if purpose(name) == "choice" else "never seen", []).append(own)
    for label, found in changes.items():
        means: list[float | Interval] = [mean_change(one) for one in zip(*found, strict=True)]
        rows.append([f"geometric mean, {label}", "", None, *means])
    columns = {"program": "text", "training": "text", "-Oz": "bytes"}
    return Table.of(
        "programs",
        "Change of text at `-Oz`, linked with identical functions folded, by the rule as it was "
        "selected, with the thresholds that CMA-ES found, and by `models/inline-size`.",
        columns | dict.fromkeys(("rule", "rule, moved", "inline-size"), "percent:+2"),
        rows,
    )


@dataclasses.dataclass
class Linker:
    """Compiles and links programs with policies in a folder; what is done is not done again."""

    folder: Path
    toolchain: Toolchain
    pool: Pool

    def published(self, rules: Sequence[Rule]) -> list[Path]:
        """Folders of the rules' policies."""
        found = []
        for rule in rules:
            network, weights = rule.network()
            name = "_".join(f"{one:g}" for one in rule.thresholds())
            found.append(self.folder / "rules" / name)
            publish(Policy(network, weights, {"rule": str(rule)}), found[-1])
        return found

    def changes(self, programs: Sequence[str], models: Sequence[Path]) -> list[float]:
        """By policy, the mean change of the programs' linked text, in percent."""
        sizes = self.sizes(programs, [None, *models])
        found = []
        for number in range(1, len(models) + 1):
            mean = mean_change([percent_change(own[number], own[0]) for own in sizes.values()])
            found.append(mean[0] if isinstance(mean, tuple) else mean)
        return found

    def sizes(self, programs: Sequence[str], models: Sequence[Path | None]) -> dict[str, list[int]]:
        """By program, the bytes of linked text with each policy; None is the compiler's own."""
        whole = Compiler.of(self.toolchain, PROBLEM)
        compiler = dataclasses.replace(whole, copies=True, folding=True)
        inputs = list(map(sha256, (self.toolchain.clang, self.toolchain.ld_lld)))
        known: dict[tuple[str, Path | None], int | None] = {
            (name, model): recall(self._note(name, model), inputs, int)
            for model in models
            for name in programs
        }
        missing = [pair for pair, size in known.items() if size is None]
        if missing:
            modules = {name: self._modules(name) for name, _ in missing}
            jobs = [
                LinkJob(compiler, modules[name], model, self.toolchain.ld_lld)
                for name, model in missing
            ]
            outcomes = self.pool.map(linked_sizes, jobs, label="programs")
            for pair, outcome in zip(missing, outcomes, strict=True):
                known[pair] = note(self._note(*pair), inputs, int, outcome.get()[0])
        sizes = {pair: size for pair, size in known.items() if size is not None}
        return {name: [sizes[name, model] for model in models] for name in programs}

    def _note(self, name: str, model: Path | None) -> Path:
        # What compiles a policy compiles its file of weights.
        digest = "plain" if model is None else sha256(model / "model.tflite")[:16]
        return self.folder / "linked" / name / f"{digest}.json"

    def _modules(self, name: str) -> tuple[Module, ...]:
        builds, corpora = self.folder / "builds", self.folder / "corpora"
        return program_modules(name, builds, corpora, opt_level="-Oz", stage=FRONTEND)
