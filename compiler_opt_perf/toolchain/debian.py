# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Downloads Debian's source packages: LLVM's tarball, and other programs.

Packages come from the mirror that the system already uses. apt gets configurations of our own under
`build`; the system's configuration is read, never written.

LLVM's binaries are a security update of Debian 12. Mirrors of the security archive need not have
its source, but the next Debian release has the same tarball. The signed index of the security
archive has the tarball's checksum, which is compared.
"""

import contextlib
import hashlib
import os
import platform
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from absl import logging

from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.files import atomic_directory, exclusive, write_text
from compiler_opt_perf.run.llvm import LLVM_MAJOR
from compiler_opt_perf.toolchain.layout import BUILD, ToolchainError

_ARCHIVE = "http://deb.debian.org/debian/"
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# The Debian release that has the source of the LLVM in Debian 12's security updates.
_NEXT_RELEASE = "trixie"
# The Debian release whose programs are compiled and measured, on any host: figures compare.
_PROGRAMS_RELEASE = "bookworm"


def debian_source(package: str, build: Path = BUILD) -> Path:
    """The unpacked source package `build/sources/<package>`, which is downloaded if needed.

    Args:
      package: name of a source package, for example "libzstd".
      build: folder of all outputs.

    Raises:
      ToolchainError: the package does not exist, or cannot be downloaded or unpacked.
    """
    destination = build / "sources" / package
    with exclusive(build / "sources" / ".lock"):
        if destination.is_dir():
            return destination
        folder = _download(package, build)
        description = _single_file(folder, "*.dsc")
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


def llvm_source_name() -> str:
    """The name of LLVM's source package."""
    return f"llvm-toolchain-{LLVM_MAJOR}"


def installed_source_version() -> str:
    """Debian's source version of the installed LLVM packages, for example "1:22.1.8-1~deb12u1".

    Raises:
      ToolchainError: the packages are not installed.
    """
    package = f"llvm-{LLVM_MAJOR}-dev"
    try:
        query = run_command(["dpkg-query", "-W", "-f", "${source:Version}", package], timeout_s=60)
    except CommandError as error:
        raise ToolchainError(f"{package} is not installed; run tools/bootstrap") from error
    return query.stdout.strip()


def installed_version() -> str:
    """Upstream's version of the installed archives, for example "22.1.8"."""
    return _upstream(installed_source_version())


def llvm_tarball(installed: str, build: Path) -> Path:
    """The unpatched source of LLVM's packages, as a tarball that is downloaded if needed.

    Args:
      installed: Debian's source version of the installed packages.
      build: folder of all outputs.

    Raises:
      ToolchainError: no archive has the source, the download fails, or the checksum differs.
    """
    name = llvm_source_name()
    folder = build / "sources" / "archive" / f"{name}={installed}"
    if folder.is_dir():
        return _single_file(folder, f"{name}_*.orig.tar.*")
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
        sources, checksum_known = _choose_sources(list(_sources(index)), installed)
        if not checksum_known:
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


@dataclass(frozen=True)
class _Source:
    """An entry of an archive's index of source packages.

    Attributes:
      version: Debian's version.
      tarball: file name of the unpatched source.
      sha256: the tarball's checksum, in hexadecimal.
    """

    version: str
    tarball: str
    sha256: str


def _sources(index: str) -> Iterator[_Source]:
    """The entries of an index, which `apt-cache showsrc` prints."""
    for entry in re.split(r"\n\n+", index):
        version = re.search(r"^Version: (\S+)$", entry, re.MULTILINE)
        checksums = re.search(r"^Checksums-Sha256:\n((?: .*\n?)+)", entry, re.MULTILINE)
        tarball = checksums and re.search(
            r"^ ([0-9a-f]{64}) \d+ (\S+\.orig\.tar\.\w+)$", checksums[1], re.MULTILINE
        )
        if version and tarball:
            yield _Source(version[1], tarball[2], tarball[1])


def _choose_sources(sources: Sequence[_Source], installed: str) -> tuple[list[_Source], bool]:
    """The entries to try for LLVM's source, best first, and whether their checksum is known.

    It is known if the index still has the `installed` version. Otherwise the archive has moved on,
    and tarballs of the same release are tried, the same upstream version first.
    """
    own = next((source for source in sources if source.version == installed), None)
    if own is not None:
        same = [source for source in sources if source.sha256 == own.sha256]
        # Other archives first: the mirrors of the security archive may have no sources.
        return sorted(same, key=lambda source: source.version == installed), True
    release = _upstream(installed).rpartition(".")[0]
    near = [s for s in sources if _upstream(s.version).rpartition(".")[0] == release]
    return sorted(near, key=lambda s: _upstream(s.version) != _upstream(installed)), False


def _single_file(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise ToolchainError(
            f"{folder}: {len(found)} files match {pattern}, expected 1; remove the folder and "
            "run the command again"
        )
    return found[0]


def _upstream(version: str) -> str:
    """Upstream's part of a Debian version: "22.1.8" for "1:22.1.8-1~deb12u1"."""
    return version.rpartition(":")[2].partition("-")[0]


def _deb_entries() -> list[tuple[str, str]]:
    """(URI, suite) of each Debian archive that the system uses; by default the public mirror."""
    codename = _codename()
    suites = (codename, f"{codename}-updates", f"{codename}-security")
    # apt knows an archive's publisher only after "apt-get update". Container images lack the
    # lists; there the suite's name tells Debian's archives.
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


def _program_entries() -> list[tuple[str, str]]:
    """(URI, suite) of the archive that has the programs' sources, without security updates.

    So all hosts have the same versions, and mirrors need not have the updates' sources.
    """
    return [(_main_archive(_deb_entries()), _PROGRAMS_RELEASE)]


def _llvm_entries() -> list[tuple[str, str]]:
    """(URI, suite) of the archives that have LLVM's source or its checksums."""
    entries = _deb_entries()
    return [*entries, (_main_archive(entries), _NEXT_RELEASE)]


def _main_archive(entries: Sequence[tuple[str, str]]) -> str:
    """URI of the archive of the system's release, without its updates."""
    codename = _codename()
    return next((uri for uri, suite in entries if suite == codename), _ARCHIVE)


def _codename() -> str:
    return platform.freedesktop_os_release().get("VERSION_CODENAME", "bookworm")


def _apt(root: Path, archives: Sequence[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """Commands for apt-get and apt-cache with a source list and state folders in `root`."""
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
    get, _ = _apt(build / "apt", _program_entries())
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
    """Runs the commands in order, and all again if one fails.

    Raises:
      ToolchainError: with the message `failure`, if one fails again.
    """
    for attempt in (1, 2):
        try:
            for command in commands:
                run_command(command, cwd=cwd, timeout_s=1800)
            return
        except CommandError as error:
            if attempt == 2:
                raise ToolchainError(f"{failure}\n{error}") from error
            logging.warning("Download failed, trying once more: %s", error.reason)
