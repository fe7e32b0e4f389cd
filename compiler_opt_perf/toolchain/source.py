# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Source trees: the part of LLVM that the overlay needs, and other Debian source packages.

Packages come from the mirror that the system already uses, through an apt configuration of our own
under `build/apt`: the system's is read, never written.
"""

import contextlib
import hashlib
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from absl import logging

from compiler_opt_perf.execution.command import CommandError, run_command
from compiler_opt_perf.execution.files import atomic_directory, write_text
from compiler_opt_perf.execution.llvm import LLVM_MAJOR, LLVM_VERSION
from compiler_opt_perf.toolchain.layout import BUILD, ToolchainError, exclusive

_ARCHIVE = "http://deb.debian.org/debian/"
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

# What is taken of an LLVM tree. The overlay compiles a handful of files; the rest of lib/ is there
# because the soundness check must know every file that includes a patched header, and test/ because
# upstream's own tests run against our tools.
LLVM_PARTS = (
    "cmake",
    "llvm/CMakeLists.txt",
    "llvm/LICENSE.TXT",
    "llvm/cmake",
    "llvm/include",
    "llvm/lib",
    "llvm/tools/llc",
    "llvm/tools/llvm-lto2",
    "llvm/tools/opt",
    "llvm/test/lit.cfg.py",
    "llvm/test/lit.site.cfg.py.in",
    "llvm/test/CodeGen/MLRegAlloc",
    "llvm/test/Transforms/Inline",
    "llvm/unittests/Analysis/Inputs",
    "clang/include",
    "clang/lib",
    "clang/tools/driver",
)
# Compiled against LLVM's headers and linked in, but not part of every source tree.
LLVM_OPTIONAL_PARTS = ("polly/include", "polly/lib")

# Upstream's tests of what the patched passes are close to. They are a tree of their own, for few
# people run them and a change of the parts above makes everyone unpack them again.
LLVM_TEST_PARTS = (
    "cmake",
    "llvm/lib/Analysis/models",
    "llvm/test/lit.cfg.py",
    "llvm/test/lit.site.cfg.py.in",
    "llvm/test/CodeGen/MIR",
    "llvm/test/CodeGen/X86/lit.local.cfg",
    "llvm/test/CodeGen/X86/GlobalISel",
    "llvm/test/Transforms/Inline",
    "llvm/test/Transforms/SampleProfile",
    "llvm/test/tools/llvm-profgen",
    "llvm/unittests/Analysis/Inputs",
)


def llvm_version(tree: Path) -> str:
    """The version an LLVM source tree says it is, for example "19.1.7".

    Raises:
      ToolchainError: `tree` is not the root of an LLVM monorepo of the last years.
    """
    # The version moved to the shared cmake folder with LLVM 19.
    for name in ("cmake/Modules/LLVMVersion.cmake", "llvm/CMakeLists.txt"):
        path = tree / name
        if not path.is_file():
            continue
        found = dict(re.findall(r"set\(LLVM_VERSION_(MAJOR|MINOR|PATCH) (\d+)\)", path.read_text()))
        if len(found) == 3:
            return f"{found['MAJOR']}.{found['MINOR']}.{found['PATCH']}"
    raise ToolchainError(
        f"{tree}: no LLVM source tree (cmake/Modules/LLVMVersion.cmake names no version); "
        "LLVM_SRC must name the root of an llvm-project checkout"
    )


def check_llvm_tree(tree: Path, parts: Sequence[str] = LLVM_PARTS) -> None:
    """Raises ToolchainError unless `tree` is of the supported LLVM version and has `parts`."""
    version = llvm_version(tree)
    if version != LLVM_VERSION:
        raise ToolchainError(
            f"{tree}: this is LLVM {version}, but the patches and the installed static archives "
            f"are for {LLVM_VERSION}; check out llvmorg-{LLVM_VERSION}, or unset LLVM_SRC to use "
            "the distribution's source package"
        )
    for part in parts:
        if not (tree / part).exists():
            raise ToolchainError(
                f"{tree}: {part} is missing; LLVM_SRC must name a complete llvm-project checkout"
            )


def llvm_source(user_tree: Path | None = None, build: Path = BUILD) -> Path:
    """Returns a pristine LLVM tree `build/sources/llvm-19.1.7`, fetching or copying it if needed.

    Args:
      user_tree: a user's own llvm-project checkout, which is copied and never written to; by
        default the environment's LLVM_SRC, and without that the distribution's source package.
      build: folder of all outputs.

    Raises:
      ToolchainError: the tree is not LLVM 19.1.7, or the source package could not be had.
    """
    return _llvm_tree(f"llvm-{LLVM_VERSION}", LLVM_PARTS, LLVM_OPTIONAL_PARTS, user_tree, build)


def llvm_tests(user_tree: Path | None = None, build: Path = BUILD) -> Path:
    """Returns a tree of upstream's tests, `build/sources/llvm-19.1.7-tests`; see `llvm_source`."""
    return _llvm_tree(f"llvm-{LLVM_VERSION}-tests", LLVM_TEST_PARTS, (), user_tree, build)


def _llvm_tree(
    name: str, parts: Sequence[str], optional: Sequence[str], user_tree: Path | None, build: Path
) -> Path:
    if user_tree is None and os.environ.get("LLVM_SRC"):
        user_tree = Path(os.environ["LLVM_SRC"])
    destination = build / "sources" / name
    stamp = destination.with_name(destination.name + ".origin")
    wanted = hashlib.sha256(repr(parts).encode()).hexdigest()[:12]
    with exclusive(build / "sources" / ".lock"):
        if user_tree is not None:
            check_llvm_tree(user_tree, parts)
            parts = [*parts, *(part for part in optional if (user_tree / part).exists())]
            origin = f"{user_tree.resolve()} {_fingerprint(user_tree, parts)}"
        else:
            origin = f"{_source_name()}={_installed_source_version()}"
        # A change of the parts taken is a change of the origin.
        origin += " " + wanted
        if destination.is_dir() and stamp.is_file() and stamp.read_text() == origin:
            return destination
        stamp.unlink(missing_ok=True)
        if user_tree is not None:
            logging.info("Copying the needed parts of %s", user_tree)
            with atomic_directory(destination) as partial:
                _copy_parts(user_tree, partial, parts)
        else:
            folder = _download(_source_name(), _installed_source_version(), build)
            tarball = _only(folder, f"{_source_name()}_*.orig.tar.*")
            logging.info("Unpacking the needed parts of %s", tarball.name)
            with atomic_directory(destination) as partial:
                _unpack_parts(tarball, partial, [*parts, *optional])
                check_llvm_tree(partial, parts)
        write_text(stamp, origin)
    return destination


def debian_source(package: str, build: Path = BUILD) -> Path:
    """Returns the unpacked Debian source package `build/sources/<package>`, fetching it if needed.

    Args:
      package: name of a source package, for example "libzstd".
      build: folder of all outputs.

    Raises:
      ToolchainError: there is no such package, or it could not be downloaded or unpacked.
    """
    destination = build / "sources" / package
    with exclusive(build / "sources" / ".lock"):
        if destination.is_dir():
            return destination
        folder = _download(package, None, build)
        description = _only(folder, "*.dsc")
        with tempfile.TemporaryDirectory(dir=destination.parent, prefix=f".{package}.") as parent:
            unpacked = Path(parent) / package
            try:
                # apt has checked the signature and the checksums already.
                run_command(
                    ["dpkg-source", "--no-check", "-x", description, unpacked], timeout_s=600
                )
            except CommandError as error:
                raise ToolchainError(f"{description}: cannot be unpacked: {error}") from error
            os.replace(unpacked, destination)
    return destination


def _source_name() -> str:
    return f"llvm-toolchain-{LLVM_MAJOR}"


def _installed_source_version() -> str:
    """The source version of the installed archives: headers and archives must be of one build."""
    package = f"llvm-{LLVM_MAJOR}-dev"
    try:
        query = run_command(["dpkg-query", "-W", "-f", "${source:Version}", package], timeout_s=60)
    except CommandError as error:
        raise ToolchainError(f"{package} is not installed; run tools/bootstrap") from error
    return query.stdout.strip()


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise ToolchainError(
            f"{folder}: {len(found)} files match {pattern}, expected 1; remove the folder and "
            "run the command again"
        )
    return found[0]


def _deb_entries() -> list[tuple[str, str]]:
    """(URI, suite) of every Debian archive the system uses, the public mirror if it names none."""
    codename = platform.freedesktop_os_release().get("VERSION_CODENAME", "bookworm")
    suites = (codename, f"{codename}-updates", f"{codename}-security")
    # Who publishes an archive is known after an "apt-get update" only; where the lists have been
    # removed, as in container images, the name of the suite has to do.
    for choice in ("Origin: Debian",), ("--no-release-info",):
        entries: list[tuple[str, str]] = []
        with contextlib.suppress(CommandError):
            targets = run_command(
                ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)",
                 "Created-By: Packages", "Component: main", *choice],
                timeout_s=60,
            )  # fmt: skip
            for line in targets.stdout.splitlines():
                uri, _, suite = line.partition(" ")
                if suite in suites and (uri, suite) not in entries:
                    entries.append((uri, suite))
        if entries:
            return entries
    return [(_ARCHIVE, codename)]


def _apt(build: Path) -> list[str]:
    """apt-get with our own source list and state folders; writes the list if it has changed."""
    root = build / "apt"
    for folder in ("lists/partial", "cache/archives/partial"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    entries = [
        f"deb-src [signed-by={_KEYRING}] {uri} {suite} main" for uri, suite in _deb_entries()
    ]
    sources = root / "sources.list"
    text = "\n".join(entries) + "\n"
    if not sources.is_file() or sources.read_text() != text:
        write_text(sources, text)
    options = {
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": root / "lists",
        "Dir::Cache": root / "cache",
        "Debug::NoLocking": "true",
        "Acquire::Languages": "none",
        "Acquire::Retries": "1",
        "APT::Sandbox::User": "root",
    }
    return ["apt-get", "-q", *(f"-o{name}={value}" for name, value in options.items())]


def _download(package: str, version: str | None, build: Path) -> Path:
    """Downloads a source package; returns the folder that holds its files."""
    wanted = f"{package}={version}" if version else package
    folder = build / "sources" / "archive" / wanted
    if folder.is_dir():
        return folder
    logging.info("Downloading source package %s", wanted)
    start = time.monotonic()
    with atomic_directory(folder) as partial:
        _retry_once(
            [
                [*_apt(build), "update"],
                [*_apt(build), "source", "--download-only", "--only-source", wanted],
            ],
            cwd=partial,
            failure=f"source package {wanted} could not be downloaded with "
            f"{build / 'apt' / 'sources.list'}; check the network and that a mirror named there "
            "has this version (apt-get update && apt-get upgrade brings the installed packages to "
            "the mirror's version), or set LLVM_SRC to an llvm-project checkout",
        )
    logging.info("Downloaded %s in %.0f s", package, time.monotonic() - start)
    return folder


def _retry_once(commands: Sequence[Sequence[str]], *, cwd: Path, failure: str) -> None:
    for attempt in (1, 2):
        try:
            for command in commands:
                run_command(command, cwd=cwd, timeout_s=1800)
            return
        except CommandError as error:
            if attempt == 2:
                raise ToolchainError(f"{failure}\n{error}") from error
            logging.warning("Download failed, trying once more: %s", error.reason)


def _unpack_parts(tarball: Path, destination: Path, parts: Sequence[str]) -> None:
    try:
        run_command(
            ["tar", "--extract", f"--file={tarball}", f"--directory={destination}",
             "--strip-components=1", "--wildcards", "--no-wildcards-match-slash",
             *(f"*/{part}" for part in parts)],
            timeout_s=600,
        )  # fmt: skip
    except CommandError as error:
        raise ToolchainError(
            f"{tarball}: cannot be unpacked (if it is damaged, remove {tarball.parent} and run "
            f"the command again): {error}"
        ) from error


def _copy_parts(tree: Path, destination: Path, parts: Sequence[str]) -> None:
    for part in parts:
        source, target = tree / part, destination / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
        else:
            shutil.copy2(source, target)


def _fingerprint(tree: Path, parts: Sequence[str]) -> str:
    """A digest of names, sizes and times of the parts of `tree` that are copied."""
    digest = hashlib.sha256()
    for part in parts:
        files = sorted((tree / part).rglob("*")) if (tree / part).is_dir() else [tree / part]
        for file in files:
            status = file.lstat()
            digest.update(f"{file} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]
