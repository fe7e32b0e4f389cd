# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs of learned cost models."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from compiler_opt_perf.cli.options import (
    define_path,
    define_settings,
    model_folder,
    required_model_folder,
    settings_of,
)
from compiler_opt_perf.cli.verb import Table, UsageError, Verb

if TYPE_CHECKING:
    from compiler_opt_perf.blocks.model import CostModel

#: Evaluators that are learned models, by network and whether they take PMU inputs.
LEARNED = ("granite", "granite-pmu")
_HEXADECIMAL = frozenset("0123456789abcdefABCDEF")


def _define_data(values: flags.FlagValues) -> None:
    flags.DEFINE_multi_string(
        "data",
        None,
        "file of measured blocks (cop cost measure-blocks); once for each",
        required=True,
        flag_values=values,
    )


# cop cost train


def _define_train(values: flags.FlagValues) -> None:
    from compiler_opt_perf.blocks.config import describe

    _define_data(values)
    flags.DEFINE_string(
        "model",
        None,
        "what is trained: a preset or a TOML file",
        required=True,
        flag_values=values,
    )
    define_path(values, "output", "folder for checkpoint, curve and the model")
    define_path(
        values,
        "warm_start",
        "folder of a model, of another CPU perhaps, that the training begins as: few blocks are "
        "enough then",
        required=False,
    )
    flags.DEFINE_integer("seed", None, "of every random choice", flag_values=values)
    flags.DEFINE_integer("epochs", None, "passes over the blocks", flag_values=values)
    define_settings(values, "preset", "network.width=16", describe())


def _train(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.blocks.config import LearnedError, read_config
    from compiler_opt_perf.blocks.data import read_data
    from compiler_opt_perf.train.cost_model import train

    changes = settings_of(values, seed=values.seed, epochs=values.epochs)
    try:
        config = read_config(values.model).changed(changes)
    except LearnedError as error:
        raise UsageError(str(error)) from None
    files = read_data([Path(path) for path in values.data])
    output = Path(values.output)
    model = train(
        files,
        config,
        output,
        warm_start=model_folder(values, "warm_start"),
        label=f"training {config.name}",
    )
    result = model.description["results"]["all"]
    print(
        f"{output / 'model'}: mean error {result['mean_error']:.2%}, median "
        f"{result['median_error']:.2%} on {result['blocks']:,} blocks left out, of "
        f"{', '.join(model.cpus)}; {model.description['unknown_opcodes']:,} blocks with opcodes "
        "that no training block has"
    )


# cop cost eval


def _define_eval(values: flags.FlagValues) -> None:
    define_path(values, "model", "folder of a learned cost model")
    _define_data(values)
    flags.DEFINE_enum(
        "blocks",
        "test",
        ["test", "validation", "training", "all"],
        "which of them, by the model's own division; test: those that it was never shown",
        flag_values=values,
    )
    define_path(
        values, "plot", "SVG file to write: predicted against measured cycles", required=False
    )


def _eval(values: Any, arguments: list[str]) -> Table:
    from dataclasses import asdict

    from compiler_opt_perf.blocks.data import read_data
    from compiler_opt_perf.blocks.judge import evaluate
    from compiler_opt_perf.blocks.model import load

    model = load(required_model_folder(values, "model"))
    files = read_data([Path(path) for path in values.data])
    found = evaluate(model, files, None if values.blocks == "all" else values.blocks)
    if values.plot:
        from compiler_opt_perf.pages.predictions import write_plot

        write_plot(Path(values.plot), f"{found.model} on {found.cpu}", found.points)
    return Table(
        found.text,
        lambda: {
            "model": found.model,
            "cpu": found.cpu,
            "blocks": {name: asdict(one) for name, one in found.figures.items()},
            "refused": dict(found.refused),
        },
    )


# cop cost predict --model


def model_of(values: Any, flag: str = "model") -> tuple["CostModel", str]:
    """The learned model that is asked for, and LLVM's name of the CPU.

    Args:
      flag: names its folder.

    Raises:
      UsageError: there is none, or `--evaluator` names another kind.
      LearnedError: the model is damaged, or does not know the CPU.
    """
    from compiler_opt_perf.blocks.cpu_files import HOST, host_cpu, llvm_name
    from compiler_opt_perf.blocks.model import load

    folder = model_folder(values, flag)
    if folder is None:
        raise UsageError(
            f"--evaluator={values.evaluator}: give the folder of such a model, too, as "
            f"--{flag.replace('_', '-')}=models/cost-znver3"
        )
    model = load(folder)
    if values.evaluator not in (None, model.config.name):
        raise UsageError(
            f"--evaluator={values.evaluator}: {folder} is a {model.config.name}; give "
            f"--evaluator={model.config.name} or leave it out"
        )
    cpu = values.cpu or HOST
    if cpu == HOST:
        cpu = host_cpu()
    elif Path(cpu).suffix == ".json":
        cpu = llvm_name(Path(cpu))
    model.require_cpu(cpu)
    return model, cpu


def predict_blocks(model: "CostModel", cpu: str, arguments: list[str]) -> Table:
    """Cycles of blocks by a learned model."""
    from compiler_opt_perf.blocks.block_file import read_blocks
    from compiler_opt_perf.blocks.data import known_of
    from compiler_opt_perf.blocks.model import counted
    from compiler_opt_perf.run.pool import Pool

    if not arguments:
        raise UsageError(
            "expected blocks in hexadecimal digits, or files of measured blocks; or --trace and "
            "object files"
        )
    codes: list[str] = []
    pmu: list[Any] = []
    for word in arguments:
        if Path(word).exists():
            rows = read_blocks(Path(word)).rows
            codes += [row.code for row in rows]
            pmu += [known_of(row, Path(word)) for row in rows]
        elif set(word) <= _HEXADECIMAL and len(word) % 2 == 0:
            codes.append(word.lower())
            pmu.append(None)
        else:
            raise UsageError(f"{word!r}: no such file, and no block in hexadecimal digits")
    with Pool() as pool:
        predicted, problems = model.predict(list(map(bytes.fromhex, codes)), cpu, pmu, pool)

    def text() -> str:
        rows = [
            f"{'-' if number in problems else format(cycles, '.2f'):>10}  {code}"
            for number, (code, cycles) in enumerate(zip(codes, predicted, strict=True))
        ]
        refused = [f"{count:,} blocks refused: {why}" for why, count in counted(problems).items()]
        head = f"{model.config.name}: cycles of an execution on {cpu}, of many in a row"
        return "\n".join([head, *rows, *refused]) + "\n"

    return Table(
        text,
        lambda: {
            "model": model.config.name,
            "cpu": cpu,
            "blocks": [
                {"code": code, "cycles": None if number in problems else round(float(cycles), 4)}
                for number, (code, cycles) in enumerate(zip(codes, predicted, strict=True))
            ],
            "refused": counted(problems),
        },
    )


VERBS: tuple[Verb, ...] = (
    Verb(
        "cost train",
        "Train a model of what basic blocks take, on measured ones; goes on where it was "
        "interrupted.",
        "cost train --data=lua.blocks --model=granite --output=build/granite",
        _define_train,
        _train,
    ),
    Verb(
        "cost eval",
        "Judge a learned cost model by measured blocks.",
        "cost eval --model=models/cost-znver3 --data=lua.blocks",
        _define_eval,
        _eval,
        json_version=1,
    ),
)
