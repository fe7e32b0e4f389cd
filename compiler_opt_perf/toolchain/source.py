# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Provides the parts of LLVM's source that the overlay needs, as trees under `build/sources`."""

import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from absl import logging

from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.files import atomic_directory, exclusive
from compiler_opt_perf.run.llvm import LLVM_PREFIX, LLVM_VERSION
from compiler_opt_perf.run.memo import stamped
from compiler_opt_perf.toolchain.debian import (
    installed_source_version,
    installed_version,
    llvm_source_name,
    llvm_tarball,
)
from compiler_opt_perf.toolchain.layout import BUILD, ToolchainError

# The overlay compiles only some files of lib/. The soundness check needs the others, to find all
# files that include a patched header. Upstream's own tests of the advisors are in test/.
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
    "llvm/unittests",
    "clang/include",
    "clang/lib",
    "clang/tools/driver",
    "lld/Common",
    "lld/ELF",
    "lld/include",
    "lld/tools/lld",
    "third-party/unittest",
)
# The tools are linked with polly, which some source trees lack.
LLVM_OPTIONAL_PARTS = ("polly/include", "polly/lib")

# Upstream's tests around the patched passes. They are a tree of their own, for few people run them.
LLVM_TEST_PARTS = (
    "cmake",
    "llvm/lib/Analysis/models",
    "llvm/test/lit.cfg.py",
    "llvm/test/lit.site.cfg.py.in",
    "llvm/test/CodeGen/MIR",
    "llvm/test/CodeGen/X86/lit.local.cfg",
    "llvm/test/CodeGen/X86/GlobalISel",
    "llvm/test/Transforms/Inline",
    "llvm/test/Transforms/LoopUnroll",
    "llvm/test/Transforms/SampleProfile",
    "llvm/test/tools/llvm-profgen",
    "llvm/unittests/Analysis/Inputs",
)


def llvm_version(tree: Path) -> str:
    """The version that an LLVM source tree gives, for example "22.1.8".

    Raises:
      ToolchainError: `tree` is not the root of an LLVM monorepo.
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
        f"{tree}: not an LLVM source tree (cmake/Modules/LLVMVersion.cmake names no version); "
        "LLVM_SRC must name the root of an llvm-project checkout"
    )


def check_llvm_tree(tree: Path, parts: Sequence[str] = LLVM_PARTS) -> None:
    """Checks that `tree` is of the supported LLVM release and has `parts`.

    Versions of one release (22.1.8, 22.1.9) differ by fixes; `check_headers` compares the headers.

    Raises:
      ToolchainError: the tree is of another release or lacks a part.
    """
    version = llvm_version(tree)
    release = LLVM_VERSION.rpartition(".")[0]
    if version.rpartition(".")[0] != release:
        raise ToolchainError(
            f"{tree}: this is LLVM {version}, but the patches and the installed static archives "
            f"are for {LLVM_VERSION}; check out llvmorg-{LLVM_VERSION}, or unset LLVM_SRC to use "
            "the distribution's source package"
        )
    if version != LLVM_VERSION:
        logging.warning("%s: LLVM %s; the patches were tested on %s", tree, version, LLVM_VERSION)
    for part in parts:
        if not (tree / part).exists():
            raise ToolchainError(
                f"{tree}: {part} is missing; LLVM_SRC must name a complete llvm-project checkout"
            )


# Headers that Debian patches: a default for 32-bit ARM, and an enum of distributions. The overlay's
# units use neither.
_DEBIAN_HEADERS = ("clang/Driver/Distro.h", "llvm/TargetParser/ARMTargetParser.def")


def different_headers(tree: Path, installed: Path = LLVM_PREFIX / "include") -> list[str]:
    """The headers that differ between `tree` and the folder `installed`, sorted.

    The overlay's objects are compiled with the tree's headers, the archives with the installed
    ones. Headers that Debian patches without effect on the overlay are left out.
    """
    different = []
    for folder, _, names in os.walk(installed, followlinks=True):
        for name in names:
            header = Path(folder, name).relative_to(installed)
            for project in ("llvm", "clang", "lld", "polly"):
                ours = tree / project / "include" / header
                if ours.is_file() and ours.read_bytes() != (installed / header).read_bytes():
                    different.append(str(header))
    return sorted({*different}.difference(_DEBIAN_HEADERS))


def check_headers(tree: Path, installed: Path = LLVM_PREFIX / "include") -> None:
    """Checks that the source `tree` has the headers of the folder `installed`.

    Raises:
      ToolchainError: a header differs.
    """
    different = different_headers(tree, installed)
    if different:
        raise ToolchainError(
            f"{tree}: {len(different)} headers differ from those in {installed}, which the "
            f"static archives were compiled with ({', '.join(different[:5])}). Install packages "
            "and source of one version (apt-get update && apt-get upgrade), or name a source tree "
            f"of the installed version with LLVM_SRC=<tree>: llvmorg-{installed_version()}"
        )


def llvm_source(user_tree: Path | None = None, build: Path = BUILD) -> Path:
    """The pristine LLVM tree `build/sources/llvm-22.1.8`, which is fetched or copied if needed.

    Args:
      user_tree: a user's own llvm-project checkout, which is copied and never written to. The
        default is the environment's LLVM_SRC, else the distribution's source package.
      build: folder of all outputs.

    Raises:
      ToolchainError: the tree is not LLVM 22.1, its headers differ from the installed ones, or the
        source package is not available.
    """
    return _llvm_tree(f"llvm-{LLVM_VERSION}", LLVM_PARTS, LLVM_OPTIONAL_PARTS, user_tree, build)


def llvm_tests(user_tree: Path | None = None, build: Path = BUILD) -> Path:
    """The tree of upstream's tests, `build/sources/llvm-22.1.8-tests`; see `llvm_source`."""
    return _llvm_tree(f"llvm-{LLVM_VERSION}-tests", LLVM_TEST_PARTS, (), user_tree, build)


def _llvm_tree(
    name: str, parts: Sequence[str], optional: Sequence[str], user_tree: Path | None, build: Path
) -> Path:
    if user_tree is None and os.environ.get("LLVM_SRC"):
        user_tree = Path(os.environ["LLVM_SRC"])
    destination = build / "sources" / name
    wanted = hashlib.sha256(repr(parts).encode()).hexdigest()[:12]
    with exclusive(build / "sources" / ".lock"):
        if user_tree is not None:
            check_llvm_tree(user_tree, parts)
            parts = [*parts, *(part for part in optional if (user_tree / part).exists())]
            origin = f"{user_tree.resolve()} {_fingerprint(user_tree, parts)}"
            make = partial(_copy, user_tree, destination, parts)
        else:
            installed = installed_source_version()
            origin = f"{llvm_source_name()}={installed}"
            make = partial(_unpack, installed, build, destination, parts, optional)
        # Other parts of the same source need a new tree, too.
        note = destination.with_name(destination.name + ".origin")
        stamped(note, f"{origin} {wanted}", make, [destination])
    return destination


def _copy(tree: Path, destination: Path, parts: Sequence[str]) -> None:
    logging.info("Copying the needed parts of %s", tree)
    with atomic_directory(destination) as temporary:
        _copy_parts(tree, temporary, parts)
        for header in different_headers(temporary):
            logging.warning(
                "%s: %s differs from the installed one, which the static archives were "
                "compiled with",
                tree,
                header,
            )


def _unpack(
    version: str, build: Path, destination: Path, parts: Sequence[str], optional: Sequence[str]
) -> None:
    tarball = llvm_tarball(version, build)
    logging.info("Unpacking the needed parts of %s", tarball.name)
    with atomic_directory(destination) as temporary:
        _unpack_parts(tarball, temporary, [*parts, *optional])
        check_llvm_tree(temporary, parts)
        check_headers(temporary)


def _unpack_parts(tarball: Path, destination: Path, parts: Sequence[str]) -> None:
    try:
        run_command(
            ["tar", "--extract", f"--file={tarball}", f"--directory={destination}",
             "--strip-components=1", "--wildcards", "--no-wildcards-match-slash",
             *(f"*/{part}" for part in parts)],
            timeout_s=600,
            # The tarball's blocks are decompressed on all cores.
            env={"XZ_DEFAULTS": "--threads=0"},
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
