# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the commands of the guides, in order, each guide in a temporary folder of its own.

Every code block is fenced and names its language. Blocks of `sh` are run, and of blocks of
`console`, which show output as well, the lines after `$`. What a block needs besides is in a
comment right before it, `<!-- test: ... -->`, an instruction a line:

    not run: REASON          it is not run; its calls of cop still go through cop's flag parser
    replace `A` by `B`       run it with B in place of A: other programs, smaller values
    before `COMMAND`         run the command first, for what a reader would have
    status N                 the block's last command may end with N instead of 0
    file NAME                the block is no command; write it to that file before all commands run

The folder holds what a reader of README.md has (`build/`, with a folder of a toolchain under each
name that the guides use), a profile and policies in `build/demo`, and the files of `docs/testdata`.
"""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_string
from pathlib import Path

import pytest

from compiler_opt_perf.cli.main import find_command
from compiler_opt_perf.cli.verb import Group
from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import LLVM_VERSION, stock_tool
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import BUILD, PATCHES, REPO_ROOT
from compiler_opt_perf.train.config import read_config

pytestmark = pytest.mark.long(110)

_PAGES = sorted([*REPO_ROOT.glob("*.md"), *(REPO_ROOT / "docs").rglob("*.md")])
# The change log and the results quote commands of earlier commits.
_CURRENT = [p for p in _PAGES if p.stem != "CHANGELOG" and p.parent.name != "results"]
_LANGUAGES = ("console", "cpp", "diff", "ini", "json", "python", "sh", "text", "toml")
_FENCE = re.compile(r"( *)```(\w*)$")
_COMMENT = re.compile(r"<!-- test:\s(.*?)\s*-->", re.DOTALL)
_INSTRUCTION = re.compile(
    r"(?P<not_run>not run: .{10,})|replace `(?P<old>[^`]+)` by `(?P<new>[^`]*)`"
    r"|before `(?P<before>[^`]+)`|status (?P<status>\d+)|file (?P<file>\S+)"
)
# A call of cop, up to what ends a command of the shell.
_CALL = re.compile(r"(?:^|[\s(/])cop ((?:'[^']*'|[^`|;&)\n\\<>#']|\\\n|(?<=\$)\()+)", re.MULTILINE)
_TOOLCHAINS = ("dev", "release", "mine", "candidate")
_POLICIES = {"inline-size": "inline-one-block", "regalloc-evict": "evict-last"}
_TESTDATA = REPO_ROOT / "docs" / "testdata"


@dataclass(frozen=True)
class _Block:
    """A code block of a page.

    Attributes:
      place: page and line.
      language: of the fence; empty when it names none.
      text: the block as it stands, without the indentation of its fence.
      instructions: of the comment before it, in order.
    """

    place: str
    language: str
    text: str
    instructions: tuple[re.Match[str], ...]

    def values(self, kind: str) -> list[str]:
        """What the instructions say of `kind`, a group of `_INSTRUCTION`."""
        return [one[kind] for one in self.instructions if one[kind] is not None]

    @property
    def commands(self) -> str:
        """What to give to the shell: without shown output, with replacements made."""
        text = self.text
        if self.language == "console":
            text = "\n".join(re.findall(r"^\$ ((?:.*\\\n)*.*)$", text, re.MULTILINE))
        for one in self.instructions:
            if one["old"] is not None:
                assert one["old"] in text, f"{self.place}: nothing to replace: {one['old']}"
                text = text.replace(one["old"], one["new"])
        return text


def _blocks(page: Path) -> Iterator[_Block]:
    lines = page.read_text(encoding="utf-8").splitlines()
    number, before = 0, 0
    while number < len(lines):
        fence = _FENCE.match(lines[number])
        if fence is None:
            number += 1
            continue
        end = lines.index(f"{fence[1]}```", number + 1)
        place = f"{page.relative_to(REPO_ROOT)}:{number + 1}"
        text = "\n".join(line.removeprefix(fence[1]) for line in lines[number + 1 : end])
        # The last thing before the block, if it is a comment for this test.
        prose = "\n".join(lines[before:number]).rstrip()
        start = prose.rfind("<!--")
        comment = _COMMENT.fullmatch(prose[start:]) if start >= 0 else None
        instructions = []
        for line in comment[1].splitlines() if comment else ():
            instruction = _INSTRUCTION.fullmatch(line.strip())
            assert instruction, f"{place}: cannot tell what {line.strip()!r} asks of the test"
            instructions.append(instruction)
        yield _Block(place, fence[2], text, tuple(instructions))
        number = before = end + 1


_BLOCKS = {page: tuple(_blocks(page)) for page in _PAGES}


def _is_run(block: _Block) -> bool:
    return block.language in ("sh", "console") and not block.values("not_run")


_GUIDES = [page for page in _PAGES if any(map(_is_run, _BLOCKS[page]))]


def _prose(page: Path) -> str:
    """The page without its code blocks, so without commands that are run, but with line ends."""
    return re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def _check_call(words: list[str], place: str) -> None:
    """Fails when cop has no such verb, or the verb no such flag; a group alone may be named."""
    command, name, rest = find_command(words)
    if isinstance(command, Group):
        assert rest in ([], ["--help"]), f"{place}: {name} has no verb {rest[0]}"
        return
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    for word in rest[: rest.index("--")] if "--" in rest else rest:
        if word.startswith("--") and word != "--help":
            assert word.partition("=")[0] in known, f"{place}: {name} has no flag {word}"


def _ids(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(REPO_ROOT).with_suffix("")) for page in pages]


@pytest.mark.parametrize("page", _PAGES, ids=_ids(_PAGES))
def test_every_code_block_names_its_language(page: Path) -> None:
    for block in _BLOCKS[page]:
        assert block.language in _LANGUAGES, f"{block.place}: expected one of {_LANGUAGES}"
    lines = _prose(page).splitlines()
    indented = [
        line
        for before, line in zip(["", *lines], lines, strict=False)
        if line.startswith("    ") and line.strip() and not before.strip()
    ]
    assert not indented, "indented code: fence it, so that it says what it is"


def test_recipes_of_the_guides_are_read(tmp_path: Path) -> None:
    recipes = [block for own in _BLOCKS.values() for block in own if block.language == "toml"]
    assert recipes
    for block in recipes:
        (tmp_path / "recipe.toml").write_text(block.text)
        assert read_config(str(tmp_path / "recipe.toml")).stages, block.place


@pytest.mark.parametrize("page", _PAGES, ids=_ids(_PAGES))
def test_comments_for_the_test_stand_before_blocks(page: Path) -> None:
    used = sum(bool(block.instructions) for block in _BLOCKS[page])
    assert page.read_text().count("<!-- test:") == used


@pytest.mark.parametrize("page", _CURRENT, ids=_ids(_CURRENT))
def test_verbs_and_flags_exist(page: Path) -> None:
    for block in _BLOCKS[page]:
        if block.language in ("sh", "console"):
            for call in _CALL.findall(block.commands):
                words = shlex.split(call.replace("\\\n", " "))
                _check_call(words, block.place)
                if "--help" not in words:
                    verb, name, rest = find_command(words)
                    verb.make_context(name, rest)
    for code in re.findall(r"`([^`\n]+(?:\n[^`\n]+)?)`", _prose(page)):
        words = code.split()
        is_call = words[0] == "cop" and len(words) > 1 and words[1].isalpha() and words[1].islower()
        if is_call:
            _check_call(words[1:], f"{page.name}: {code}")


@pytest.mark.parametrize("page", _PAGES, ids=_ids(_PAGES))
def test_files_links_and_targets_exist(page: Path) -> None:
    prose = _prose(page)
    targets = re.findall(r"^([a-z-]+):", (REPO_ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"`make ([a-z-]+)", prose):
        assert target in targets, f"make {target}"
    folders = "compiler_opt_perf|docs|lit_tests|llvm_patches|models|tools"
    for path in re.findall(rf"`((?:{folders})/[\w./-]+)", prose):
        assert (REPO_ROOT / path).exists(), path
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        name, _, anchor = link.partition("#")
        if not name.startswith("https:"):
            target_page = (page.parent / name) if name else page
            assert target_page.exists(), link
            if anchor:
                titles = re.findall(r"^#+ (.*)$", target_page.read_text(), re.MULTILINE)
                anchors = [re.sub(r"[^\w -]", "", t.lower()).replace(" ", "-") for t in titles]
                assert anchor in anchors, link


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What readers have made before: a profile, of another program, and policies."""
    folder = tmp_path_factory.mktemp("demo")
    source, binary = _TESTDATA / "program.c", folder / "zstd"
    options = ["-O2", "-g", "-fdebug-info-for-profiling", "-Wl,--build-id"]
    run_command([stock_tool("clang"), *options, source, "-o", binary], timeout_s=60)
    collect(binary, [], folder / "zstd.pmu.json")
    for problem, model in _POLICIES.items():
        (folder / problem).mkdir()
        (folder / problem / "policy").symlink_to(REPO_ROOT / "lit_tests" / "Inputs" / model)
    return folder


@pytest.mark.compiler
def test_diffs_of_the_guides_apply(tmp_path: Path) -> None:
    diffs = [block for page in _PAGES for block in _BLOCKS[page] if block.language == "diff"]
    for number, block in enumerate(diffs):
        folder = tmp_path / str(number)
        names = re.findall(r"^--- a/(.+)$", block.text, re.MULTILINE)
        for name in names:
            tree = BUILD / f"llvm-{LLVM_VERSION}" if name.startswith("llvm/") else REPO_ROOT
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(tree / name, folder / name)
        (folder / "diff").write_text(block.text + "\n")
        run_command(["git", "apply", "diff"], cwd=folder, timeout_s=60)
    assert len(diffs) == 2


def test_the_guide_to_porting_lists_the_series() -> None:
    rows = re.findall(
        r"^\| `(\w[\w-]*/\d+)` \| (.+?) \|",
        (REPO_ROOT / "docs" / "port-to-another-llvm.md").read_text(),
        re.MULTILINE,
    )
    series = (PATCHES / "series").read_text().split()
    messages = [message_from_string((PATCHES / name).read_text()) for name in series]
    subjects = [re.sub(r"^\[PATCH\] |\n", "", message["subject"]) for message in messages]
    names = [re.sub(r"(/\d+)-.*", r"\1", name) for name in series]
    assert rows == list(zip(names, subjects, strict=True))


def _prepare(folder: Path, toolchain: Toolchain, demo: Path) -> None:
    shutil.copytree(_TESTDATA, folder)
    (folder / "build" / "toolchain").mkdir(parents=True)
    (folder / "build" / "venv").symlink_to(BUILD / "venv")
    (folder / "models").symlink_to(REPO_ROOT / "models")
    for name in _TOOLCHAINS:
        (folder / "build" / "toolchain" / name).symlink_to(toolchain.directory)
    shutil.copytree(demo, folder / "build" / "demo", symlinks=True)


def _script(blocks: tuple[_Block, ...]) -> str:
    """One script of all blocks, so that later ones see variables; `place` says where it is."""
    lines = ["set -eu"]
    for block in blocks:
        if not _is_run(block):
            continue
        lines.append(f"echo {block.place} > place")
        lines += block.values("before")
        lines.append(block.commands)
        # Of a list with ||, a failing part does not end the shell.
        for status in block.values("status"):
            lines[-1] += f" || [ $? -eq {status} ]"
    return "\n".join(lines) + "\n"


@pytest.mark.compiler
@pytest.mark.parametrize("page", _GUIDES, ids=_ids(_GUIDES))
def test_commands_of_the_guide_run(
    page: Path, toolchain: Toolchain, demo: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    _prepare(folder, toolchain, demo)
    for block in _BLOCKS[page]:
        for name in block.values("file"):
            (folder / name).write_text(block.text + "\n")
    path = f"{BUILD / 'venv' / 'bin'}:{toolchain.clang.parent}:/usr/bin:/bin"
    done = subprocess.run(
        ["/bin/bash", "-c", _script(_BLOCKS[page])],
        cwd=folder,
        env={"PATH": path, "PYTHONPATH": str(REPO_ROOT), "HOME": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
    )
    if done.returncode:
        place = (folder / "place").read_text().strip()
        pytest.fail(f"{place}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
