# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small corpus for each problem, compiled from C with calls to inline and registers to evict."""

import dataclasses
import json
from pathlib import Path

import pytest

from compiler_opt_perf.corpus.corpus import Corpus
from compiler_opt_perf.corpus.extract import extract_corpus
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.profile.events import Combination
from compiler_opt_perf.profile.index import index_of, write_index
from compiler_opt_perf.profile.manifest import FORMAT, VERSION, FileRecord
from compiler_opt_perf.profile.sample_profile import convert_to_binary, flatten_profile
from compiler_opt_perf.run.llvm import LLVM_PREFIX
from compiler_opt_perf.toolchain.installation import Toolchain

_MODULES = 6
# More values are live in the loop than x86-64 has registers.
_LIVE_VALUES = 22


def _source(number: int) -> str:
    """C code, different for each number."""
    values = range(_LIVE_VALUES)
    declarations = ", ".join(f"v{i} = p[{i}]" for i in values)
    updates = "\n".join(
        f"    v{i} = v{i} * v{(i * 7 + number) % _LIVE_VALUES} + p[n + {i}];" for i in values
    )
    result = " ^ ".join(f"v{i}" for i in values)
    return f"""
static long scale(const long *p, long n) {{ return p[n] * {number + 3} + p[n + 1] / (n + 1); }}
static long pick(const long *p, long n) {{ return n > {number} ? scale(p, n) : scale(p, -n); }}
static long fold(const long *p, long n) {{
  long s = 0;
  for (long i = 0; i < n; i += {number + 1}) s += pick(p, i) - scale(p, i + s);
  return s;
}}
long pressure{number}(const long *p, long n) {{
  long {declarations};
  while (n-- > 0) {{
{updates}
  }}
  return {result};
}}
long entry{number}(const long *p, long n) {{
  return fold(p, n) + fold(p + 1, pick(p, n)) + scale(p, 2) + pick(p, 5);
}}
"""


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> dict[str, Corpus]:
    """By problem's name: a corpus extracted as that problem wants it, five modules each."""
    folder = tmp_path_factory.mktemp("corpora")
    commands = []
    for number in range(_MODULES):
        file = folder / f"module{number}.c"
        file.write_text(_source(number))
        arguments = ["clang", "-g", "-c", file.name, "-o", f"{number}.o"]
        commands.append({"directory": str(folder), "file": file.name, "arguments": arguments})
    database = folder / "compile_commands.json"
    database.write_text(json.dumps(commands))
    result = {}
    for problem in PROBLEMS.values():
        output = folder / problem.name
        extract_corpus(
            {"program": database},
            output,
            clang=LLVM_PREFIX / "bin" / "clang",
            opt_level=problem.optimization_level,
            stage=problem.corpus_stage,
            held_out_share=0.1,
            seed=0,
            workers=1,
        )
        result[problem.name] = Corpus.load(output / "train")
    return result


@pytest.fixture(scope="session")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PMU profile in which every line of the corpus's functions has executions and loads."""
    folder = tmp_path_factory.mktemp("profile")
    functions = ["scale", "pick", "fold"]
    functions += [f"{kind}{number}" for kind in ("pressure", "entry") for number in range(_MODULES)]
    events = []
    files = []
    for name, count in {"executions": 1000, "loads": 500, "llc-load-misses": 50}.items():
        lines = "".join(f" {offset}: {count}\n" for offset in range(_LIVE_VALUES + 5))
        # Those of executions tell calls.
        calls = count if name == "executions" else 0
        text = "".join(f"{function}:{count}:{calls}\n{lines}" for function in functions)
        (folder / f"{name}.txt").write_text(text)
        kind: Combination = "max" if name == "executions" else "sum"
        profiled, flattened = folder / f"{name}.afdo", folder / f"{name}.flat.afdo"
        convert_to_binary(folder / f"{name}.txt", profiled)
        flatten_profile(kind, profiled, flattened)
        files += [profiled, flattened]
        records = {"flattened": dataclasses.asdict(FileRecord.of(flattened))}
        records |= dataclasses.asdict(FileRecord.of(profiled))
        total = count * (_LIVE_VALUES + 5) * len(functions)
        counted = {"unit": name, "period": 1, "precise": True, "total": total, "located": total}
        events.append({"name": name, "kind": kind, **counted, **records})
    rate = {
        "name": "llc-miss-probability",
        "numerator": "llc-load-misses",
        "denominator": "loads",
        "prior_share": 16e-6,
    }
    collector = {"backend": "test", "tool": "", "command": [], "options": [], "cache_geometry": {}}
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "program": {"path": "program", "build_id": "00"},
        "collector": collector,
    }
    path = folder / "program.pmu.json"
    path.write_text(json.dumps({**manifest, "events": events, "rates": [rate]}))
    write_index(path.read_bytes(), files, None, index_of(path))
    return path
