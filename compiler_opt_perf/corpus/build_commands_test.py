# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import json
from pathlib import Path
from typing import Any

import pytest

from compiler_opt_perf.corpus.build_commands import read_commands
from compiler_opt_perf.corpus.corpus import FRONTEND, Corpus, CorpusError
from compiler_opt_perf.corpus.extract import extract_corpus
from compiler_opt_perf.run.llvm import stock_tool

# As Bazel 4.2.3 writes an action; tools/bazel/check makes real ones.
_ARGUMENTS = [
    "external/patched_tools/bin/clang",
    *("-no-canonical-prefixes", "-MD", "-MF", "bazel-out/k8/bin/lib/words.d"),
    *("-frandom-seed=bazel-out/k8/bin/lib/words.o", "-iquote", ".", "-Oz"),
    *("-c", "lib/words.c", "-o", "bazel-out/k8/bin/lib/words.o"),
]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with a built target, whose execution root is elsewhere."""
    root = tmp_path / "execroot" / "workspace"
    (root / "bazel-out").mkdir(parents=True)
    (root / "lib").mkdir()
    (root / "lib" / "words.c").write_text('#include "lib/words.h"\nint f(void) { return N; }\n')
    (root / "lib" / "words.h").write_text("#define N 7\n")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "bazel-out").symlink_to(root / "bazel-out")
    return workspace


def _write(path: Path, *actions: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"artifacts": [{"id": 1}], "actions": actions}))
    return path


@pytest.mark.compiler
def test_a_corpus_is_extracted_from_actions_of_bazel(workspace: Path, tmp_path: Path) -> None:
    path = _write(
        workspace / "actions.json",
        {"mnemonic": "CppLink", "arguments": ["clang", "@params"]},
        {"mnemonic": "CppCompile", "arguments": _ARGUMENTS},
    )
    extract_corpus(
        {"p": path},
        tmp_path / "corpus",
        clang=stock_tool("clang"),
        opt_level="-Oz",
        stage=FRONTEND,
        held_out_share=0.0,
        seed=1,
        workers=1,
    )
    (module,) = Corpus.load(tmp_path / "corpus" / "train").modules
    assert module.name == "p/words"
    assert not any(word.endswith(".d") for word in module.command)


def test_damaged_actions_are_refused(workspace: Path, tmp_path: Path) -> None:
    compiled = {"mnemonic": "CppCompile", "arguments": _ARGUMENTS}
    for actions, message in (
        ([{"mnemonic": "CppCompile", "arguments": ["clang", "-c"]}], r"no source after -c"),
        ([{"mnemonic": "CppCompile", "arguments": [1]}], r"\$.actions\[0\]: arguments\[0\]: exp"),
        (
            [{"mnemonic": "CppLink"}],
            r"holds no compilation; \$.actions\[0\]: an action CppLink; write",
        ),
    ):
        with pytest.raises(CorpusError, match=message):
            read_commands(_write(workspace / "actions.json", *actions))
    with pytest.raises(CorpusError, match="bazel-out: not found: write the actions to the works"):
        read_commands(_write(tmp_path / "actions.json", compiled))
