# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Source trees: the part of LLVM that the overlay needs, and other Debian source packages.

Packages come from the mirror that the system already uses, through apt configurations of our own
under `build`: the system's is read, never written.

LLVM's binaries are a security update of Debian 12, whose source the mirrors of the security archive
need not have. The very same tarball is in the next Debian release: the checksum in the index of the
security archive, which is signed, says that it is the same.
"""

import contextlib
import hashlib
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from absl import logging

from compiler_opt_perf.execution.command import CommandError, run_command
from compiler_opt_perf.execution.files import atomic_directory, write_text
from compiler_opt_perf.execution.llvm import LLVM_MAJOR, LLVM_PREFIX, LLVM_VERSION
from compiler_opt_perf.toolchain.layout import BUILD, ToolchainError, exclusive

_ARCHIVE = "http://deb.debian.org/debian/"
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# The Debian release whose archive holds the source of the LLVM that this one's updates bring.
_NEXT_RELEASE = "trixie"

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
    """The version an LLVM source tree says it is, for example "22.1.8".

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
    """Raises ToolchainError unless `tree` is of the supported LLVM release and has `parts`.

    Versions of one release (22.1.8, 22.1.9) differ in fixes; what they may not differ in, the
    headers, is compared with those installed by `check_headers`.
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


# Headers in which Debian's patches differ from the release: its default for 32-bit ARM, and an enum
# of distributions. What the overlay compiles uses neither.
_DEBIAN_HEADERS = ("clang/Driver/Distro.h", "llvm/TargetParser/ARMTargetParser.def")


def different_headers(tree: Path, installed: Path = LLVM_PREFIX / "include") -> list[str]:
    """Headers that `tree` and the folder `installed` both have and that differ.

    What is compiled from the tree is linked with archives that were compiled from the others. Those
    that are known to differ on Debian, without effect, are left out.
    """
    different = []
    for folder, _, names in os.walk(installed, followlinks=True):
        for name in names:
            header = Path(folder, name).relative_to(installed)
            for project in ("llvm", "clang", "polly"):
                ours = tree / project / "include" / header
                if ours.is_file() and ours.read_bytes() != (installed / header).read_bytes():
                    different.append(str(header))
    return sorted({*different}.difference(_DEBIAN_HEADERS))


def check_headers(tree: Path, installed: Path = LLVM_PREFIX / "include") -> None:
    """Raises ToolchainError if the source `tree` is not that of the headers in `installed`."""
    different = different_headers(tree, installed)
    if different:
        raise ToolchainError(
            f"{tree}: {len(different)} headers differ from those in {installed}, which the "
            f"static archives were compiled with ({', '.join(different[:5])}). Install packages "
            "and source of one version (apt-get update && apt-get upgrade), or name a source tree "
            f"of the installed version with LLVM_SRC=<tree>: llvmorg-{_installed_version()}"
        )


def llvm_source(user_tree: Path | None = None, build: Path = BUILD) -> Path:
    """Returns a pristine LLVM tree `build/sources/llvm-22.1.8`, fetching or copying it if needed.

    Args:
      user_tree: a user's own llvm-project checkout, which is copied and never written to; by
        default the environment's LLVM_SRC, and without that the distribution's source package.
      build: folder of all outputs.

    Raises:
      ToolchainError: the tree is not LLVM 22.1, or its headers are not those of the installed
        archives, or the source package could not be had.
    """
    return _llvm_tree(f"llvm-{LLVM_VERSION}", LLVM_PARTS, LLVM_OPTIONAL_PARTS, user_tree, build)


def llvm_tests(user_tree: Path | None = None, build: Path = BUILD) -> Path:
    """Returns a tree of upstream's tests, `build/sources/llvm-22.1.8-tests`; see `llvm_source`."""
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
            installed = _installed_source_version()
            origin = f"{_source_name()}={installed}"
        # A change of the parts taken is a change of the origin.
        origin += " " + wanted
        if destination.is_dir() and stamp.is_file() and stamp.read_text() == origin:
            return destination
        stamp.unlink(missing_ok=True)
        if user_tree is not None:
            logging.info("Copying the needed parts of %s", user_tree)
            with atomic_directory(destination) as partial:
                _copy_parts(user_tree, partial, parts)
                for header in different_headers(partial):
                    logging.warning(
                        "%s: %s differs from the installed one, which the static archives were "
                        "compiled with",
                        user_tree,
                        header,
                    )
        else:
            tarball = _llvm_tarball(installed, build)
            logging.info("Unpacking the needed parts of %s", tarball.name)
            with atomic_directory(destination) as partial:
                _unpack_parts(tarball, partial, [*parts, *optional])
                check_llvm_tree(partial, parts)
                check_headers(partial)
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
        folder = _download(package, build)
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


def _installed_version() -> str:
    return _upstream(_installed_source_version())


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise ToolchainError(
            f"{folder}: {len(found)} files match {pattern}, expected 1; remove the folder and "
            "run the command again"
        )
    return found[0]


def _upstream(version: str) -> str:
    """Upstream's version in one of Debian's, for example "22.1.8" of "1:22.1.8-1~deb12u1"."""
    return version.rpartition(":")[2].partition("-")[0]


@dataclass(frozen=True)
class _Source:
    """An entry of an archive's index of source packages: a version and its unpatched tarball."""

    version: str
    tarball: str
    sha256: str


def _sources(index: str) -> Iterator[_Source]:
    """The entries in what `apt-cache showsrc` prints."""
    for entry in re.split(r"\n\n+", index):
        version = re.search(r"^Version: (\S+)$", entry, re.MULTILINE)
        checksums = re.search(r"^Checksums-Sha256:\n((?: .*\n?)+)", entry, re.MULTILINE)
        tarball = checksums and re.search(
            r"^ ([0-9a-f]{64}) \d+ (\S+\.orig\.tar\.\w+)$", checksums[1], re.MULTILINE
        )
        if version and tarball:
            yield _Source(version[1], tarball[2], tarball[1])


def _choose_sources(sources: Sequence[_Source], installed: str) -> tuple[list[_Source], bool]:
    """The entries to try for LLVM's source, the best first, and whether the checksum vouches.

    It does if the index still has an entry for the `installed` version. Otherwise the archive has
    moved on: a tarball of the same release is taken, the nearest version first.
    """
    own = next((source for source in sources if source.version == installed), None)
    if own is not None:
        same = [source for source in sources if source.sha256 == own.sha256]
        # Other archives first: the mirrors of the security archive may have no sources.
        return sorted(same, key=lambda source: source.version == installed), True
    release = _upstream(installed).rpartition(".")[0]
    near = [s for s in sources if _upstream(s.version).rpartition(".")[0] == release]
    return sorted(near, key=lambda s: _upstream(s.version) != _upstream(installed)), False


def _llvm_tarball(installed: str, build: Path) -> Path:
    """The unpatched source of the `installed` version of LLVM's packages, fetched if needed.

    Raises:
      ToolchainError: there is none, or it cannot be downloaded, or is not what the index names.
    """
    name = _source_name()
    folder = build / "sources" / "archive" / f"{name}={installed}"
    if folder.is_dir():
        return _only(folder, f"{name}_*.orig.tar.*")
    get, cache = _apt(build / "apt-llvm", _llvm_entries())
    remedy = (
        f"{build / 'apt-llvm' / 'sources.list'} names what was asked; check the network, or set "
        f"LLVM_SRC to an llvm-project checkout of {_upstream(installed)}"
    )
    start = time.monotonic()
    with atomic_directory(folder) as partial:
        _retry_once(
            [[*get, "update"]],
            cwd=partial,
            failure=f"the index of source packages could not be downloaded; {remedy}",
        )
        try:
            index = run_command([*cache, "showsrc", "--only-source", name], timeout_s=300).stdout
        except CommandError as error:
            raise ToolchainError(f"no archive has the source of {name}; {remedy}") from error
        sources, vouched = _choose_sources(list(_sources(index)), installed)
        if not vouched:
            logging.warning(
                "The archive's index no longer has %s %s: taking a source of the same release if "
                "its headers are those installed (apt-get update && apt-get upgrade brings the "
                "packages to the archive's version)",
                name,
                installed,
            )
        failure: CommandError | None = None
        for source in sources:
            logging.info("Downloading %s of %s=%s", source.tarball, name, source.version)
            try:
                run_command(
                    [*get, "source", "--download-only", "--tar-only", "--only-source",
                     f"{name}={source.version}"],
                    cwd=partial,
                    timeout_s=1800,
                )  # fmt: skip
            except CommandError as error:
                failure = error
                continue
            tarball = partial / source.tarball
            with open(tarball, "rb") as stream:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
            if found != source.sha256:
                raise ToolchainError(
                    f"{source.tarball}: sha256 {found}, but the archive's index names "
                    f"{source.sha256}; {remedy}"
                )
            break
        else:
            raise ToolchainError(
                f"the source of {name} {installed} could not be downloaded; {remedy}\n"
                f"{failure or 'no archive has a version of this release'}"
            )
    logging.info("Downloaded %s in %.0f s", source.tarball, time.monotonic() - start)
    return folder / source.tarball


def _deb_entries() -> list[tuple[str, str]]:
    """(URI, suite) of every Debian archive the system uses, the public mirror if it names none."""
    codename = _codename()
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


def _llvm_entries() -> list[tuple[str, str]]:
    """(URI, suite) of the archives that have LLVM's source or the checksums of it."""
    entries = _deb_entries()
    codename = _codename()
    main = [uri for uri, suite in entries if suite == codename] or [_ARCHIVE]
    return [*entries, (main[0], _NEXT_RELEASE)]


def _codename() -> str:
    return platform.freedesktop_os_release().get("VERSION_CODENAME", "bookworm")


def _apt(root: Path, archives: Sequence[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """apt-get and apt-cache with our own source list and state folders in `root`.

    The list is written if it has changed.
    """
    for folder in ("lists/partial", "cache/archives/partial"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    entries = [f"deb-src [signed-by={_KEYRING}] {uri} {suite} main" for uri, suite in archives]
    sources = root / "sources.list"
    text = "\n".join(entries) + "\n"
    if not sources.is_file() or sources.read_text() != text:
        write_text(sources, text)
    settings = {
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": root / "lists",
        "Dir::Cache": root / "cache",
        "Debug::NoLocking": "true",
        "Acquire::Languages": "none",
        "Acquire::Retries": "1",
        "APT::Sandbox::User": "root",
    }
    options = [f"-o{name}={value}" for name, value in settings.items()]
    return ["apt-get", "-q", *options], ["apt-cache", "-q", *options]


def _download(package: str, build: Path) -> Path:
    """Downloads a source package; returns the folder that holds its files."""
    folder = build / "sources" / "archive" / package
    if folder.is_dir():
        return folder
    logging.info("Downloading source package %s", package)
    start = time.monotonic()
    get, _ = _apt(build / "apt", _deb_entries())
    with atomic_directory(folder) as partial:
        _retry_once(
            [
                [*get, "update"],
                [*get, "source", "--download-only", "--only-source", package],
            ],
            cwd=partial,
            failure=f"source package {package} could not be downloaded with "
            f"{build / 'apt' / 'sources.list'}; check the network and that a mirror named there "
            "has it",
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
