# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests that a user's tree is checked and copied, and that a failed download names a remedy."""

import hashlib
import re
from pathlib import Path

import pytest

from compiler_opt_perf.run.llvm import LLVM_VERSION
from compiler_opt_perf.toolchain.debian import (
    _choose_sources,
    _deb_entries,
    _sources,
    debian_source,
    llvm_tarball,
)
from compiler_opt_perf.toolchain.layout import ToolchainError
from compiler_opt_perf.toolchain.source import (
    LLVM_PARTS,
    check_headers,
    llvm_source,
    llvm_version,
)


def _write_tree(root: Path, version: str) -> Path:
    major, minor, patch = version.split(".")
    for part in LLVM_PARTS:
        if "." in Path(part).name:
            (root / part).parent.mkdir(parents=True, exist_ok=True)
            (root / part).write_text(f"{part}\n")
        else:
            (root / part).mkdir(parents=True, exist_ok=True)
            (root / part / "file").write_text(f"{part}\n")
    (root / "cmake" / "Modules").mkdir()
    (root / "cmake" / "Modules" / "LLVMVersion.cmake").write_text(
        f"set(LLVM_VERSION_MAJOR {major})\n"
        f"set(LLVM_VERSION_MINOR {minor})\n"
        f"set(LLVM_VERSION_PATCH {patch})\n"
    )
    return root


def test_version_is_read_from_the_tree(tmp_path: Path) -> None:
    assert llvm_version(_write_tree(tmp_path, "20.1.0")) == "20.1.0"


def test_a_tree_of_another_version_is_refused(tmp_path: Path) -> None:
    tree = _write_tree(tmp_path / "tree", "18.1.8")
    with pytest.raises(ToolchainError, match="this is LLVM 18.1.8, but .* 22.1.8") as caught:
        llvm_source(tree, tmp_path / "build")
    assert str(tree) in str(caught.value)
    assert not (tmp_path / "build" / "sources" / f"llvm-{LLVM_VERSION}").exists()


def test_a_tree_of_another_version_of_the_release_is_taken_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    llvm_source(_write_tree(tmp_path / "tree", "22.1.99"), tmp_path / "build")
    assert "LLVM 22.1.99; the patches were tested on 22.1.8" in caplog.text


def test_a_folder_that_is_no_llvm_tree_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="not an LLVM source tree"):
        llvm_source(tmp_path / "nowhere", tmp_path / "build")


def test_an_incomplete_tree_is_refused(tmp_path: Path) -> None:
    tree = _write_tree(tmp_path / "tree", LLVM_VERSION)
    (tree / "clang" / "lib" / "file").unlink()
    (tree / "clang" / "lib").rmdir()
    with pytest.raises(ToolchainError, match="clang/lib is missing"):
        llvm_source(tree, tmp_path / "build")


def test_a_users_tree_is_copied_and_copied_again_after_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = _write_tree(tmp_path / "tree", LLVM_VERSION)
    (tree / "mlir").mkdir()
    monkeypatch.setenv("LLVM_SRC", str(tree))
    copy = llvm_source(build=tmp_path / "build")
    assert (copy / "llvm" / "lib" / "file").read_text() == "llvm/lib\n"
    assert not (copy / "mlir").exists()

    marker = copy / "marker"
    marker.touch()
    assert llvm_source(build=tmp_path / "build") == copy
    assert marker.exists(), "an unchanged tree is not copied again"

    (tree / "llvm" / "lib" / "file").write_text("edited\n")
    llvm_source(build=tmp_path / "build")
    assert (copy / "llvm" / "lib" / "file").read_text() == "edited\n"
    assert not marker.exists()


def test_the_systems_mirror_is_used_without_its_lists_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The real apt-get, on a system of our own whose lists have never been fetched.
    (tmp_path / "sources.list").write_text(
        "deb http://mirror.example/debian bookworm main\n"
        "deb http://other.example/things stable main\n"
    )
    (tmp_path / "lists" / "partial").mkdir(parents=True)
    settings = tmp_path / "apt.conf"
    settings.write_text(
        f'Dir::Etc::SourceList "{tmp_path}/sources.list";\nDir::Etc::SourceParts "/dev/null";\n'
        f'Dir::State::Lists "{tmp_path}/lists/";\n'
    )
    monkeypatch.setenv("APT_CONFIG", str(settings))
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: {"VERSION_CODENAME": "bookworm"})
    assert _deb_entries() == [("http://mirror.example/debian/", "bookworm")]


def test_a_failed_download_is_tried_twice_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "calls"
    fake = tmp_path / "bin" / "apt-get"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\necho "$@" >> {log}\necho no route to host >&2\nexit 100\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:/usr/bin:/bin")
    with pytest.raises(ToolchainError, match="nosuchpackage could not be downloaded") as caught:
        debian_source("nosuchpackage", tmp_path / "build")
    assert "no route to host" in str(caught.value)
    calls = log.read_text().splitlines()
    assert sum(call.endswith(" update") for call in calls) == 2
    # The system's own lists and sources are left alone.
    assert all(f"Dir::State::Lists={tmp_path}" in call for call in calls if "update" in call)
    assert not list((tmp_path / "build" / "sources" / "archive").iterdir())


_INDEX = """\
Package: llvm-toolchain-22
Version: {0}
Files:
 0123456789abcdef0123456789abcdef 4 llvm-toolchain-22_{1}.orig.tar.xz
Checksums-Sha256:
 {3} 5 llvm-toolchain-22_{0}.dsc
 {2} 4 llvm-toolchain-22_{1}.orig.tar.xz
Directory: pool/main/l/llvm-toolchain-22

"""
# Checksums of the text "source\n" and of another text.
_SHA256 = hashlib.sha256(b"source\n").hexdigest()
_OTHER = hashlib.sha256(b"other\n").hexdigest()


def _entry(version: str, sha256: str = _SHA256) -> str:
    upstream = version.removeprefix("1:").partition("-")[0]
    return _INDEX.format(version, upstream, sha256, "0" * 64)


def test_another_archives_tarball_is_taken_if_it_is_the_same() -> None:
    installed = "1:22.1.8-1~deb12u1"
    index = "".join(
        [
            _entry("1:22.1.9-1", _OTHER),
            _entry(installed),
            _entry("1:22.1.8-1~deb13u4"),
            _entry("1:22.1.8-0", _OTHER),
        ]
    )
    chosen, checksum_known = _choose_sources(list(_sources(index)), installed)
    assert checksum_known
    assert [source.version for source in chosen] == ["1:22.1.8-1~deb13u4", installed]
    assert chosen[0].tarball == "llvm-toolchain-22_22.1.8.orig.tar.xz"


def test_an_archive_that_has_moved_on_within_the_release_will_do() -> None:
    index = _entry("1:23.1.0-1") + _entry("1:22.1.9-1") + _entry("1:22.1.8-2")
    chosen, checksum_known = _choose_sources(list(_sources(index)), "1:22.1.8-1~deb12u1")
    assert not checksum_known
    assert [source.version for source in chosen] == ["1:22.1.8-2", "1:22.1.9-1"]


def test_headers_are_compared_with_those_installed(tmp_path: Path) -> None:
    for name, text in {
        "tree/llvm/include/llvm/Same.h": "int a;\n",
        "tree/clang/include/clang/Driver/Distro.h": "int upstream;\n",
        "tree/clang/include/clang/Other.h": "int a;\n",
        "real/llvm/Same.h": "int a;\n",
        "real/llvm/Generated.h": "int generated;\n",
        "installed/clang/Driver/Distro.h": "int debian;\n",
        "installed/clang/Other.h": "int a;\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    # As Debian installs them.
    installed = tmp_path / "installed"
    (installed / "llvm").symlink_to(tmp_path / "real" / "llvm")
    check_headers(tmp_path / "tree", installed)
    for header in "llvm/Same.h", "clang/Other.h":
        (installed / header).write_text("long a;\n")
        with pytest.raises(ToolchainError, match=f"headers differ .*{header}.*LLVM_SRC="):
            check_headers(tmp_path / "tree", installed)
        (installed / header).write_text("int a;\n")


def _fake_apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: str, served: str) -> Path:
    """Replaces apt by an archive with this index that serves one version's tarball."""
    log = tmp_path / "calls"
    (tmp_path / "index").write_text(index)
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "apt-cache").write_text(f"#!/bin/sh\ncat {tmp_path}/index\n")
    (tools / "apt-get").write_text(
        f"""#!/bin/sh
echo "$@" >> {log}
case "$*" in
*" update") ;;
*"={served}") echo source > llvm-toolchain-22_22.1.8.orig.tar.xz ;;
*) echo 404 not found >&2; exit 100 ;;
esac
"""
    )
    for tool in tools.iterdir():
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    return log


@pytest.mark.parametrize("served", ["1:22.1.8-1~deb12u1", "1:22.1.8-1~deb13u4"])
def test_llvms_source_comes_from_any_archive_that_has_it(
    served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = "1:22.1.8-1~deb12u1"
    log = _fake_apt(tmp_path, monkeypatch, _entry("1:22.1.8-1~deb13u4") + _entry(installed), served)
    tarball = llvm_tarball(installed, tmp_path / "build")
    assert tarball.read_text() == "source\n"
    sources = (tmp_path / "build" / "apt-llvm" / "sources.list").read_text()
    assert " trixie main\n" in sources
    calls = log.read_text()
    assert f"Dir::State::Lists={tmp_path}/build/apt-llvm" in calls
    assert "--tar-only" in calls
    assert llvm_tarball(installed, tmp_path / "build") == tarball
    assert log.read_text() == calls, "it is downloaded once"


@pytest.mark.parametrize(
    ("sha256", "served", "message"),
    [
        (_OTHER, "1:22.1.8-1~deb12u1", f"sha256 {_SHA256}, but .* names {_OTHER}"),
        (_SHA256, "none", "could not be downloaded.*LLVM_SRC.*22.1.8\n.*404 not found"),
    ],
)
def test_a_tarball_that_is_not_the_one_wanted_is_refused(
    sha256: str, served: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = "1:22.1.8-1~deb12u1"
    _fake_apt(tmp_path, monkeypatch, _entry(installed, sha256), served)
    with pytest.raises(ToolchainError) as caught:
        llvm_tarball(installed, tmp_path / "build")
    assert re.search(message, str(caught.value), re.DOTALL)
    assert not list((tmp_path / "build" / "sources" / "archive").iterdir())
