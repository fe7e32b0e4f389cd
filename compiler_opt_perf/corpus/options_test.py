# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The lists of allowed options against the compiler's own lists of all options."""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from compiler_opt_perf.corpus.command_line import cc1_arguments
from compiler_opt_perf.corpus.options import (
    OptionError,
    allow_lists,
    code_arguments,
    driver_arguments,
    source_arguments,
)
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.toolchain.installation import Toolchain

# What says that an option names a file, a folder, a program, a library, a plugin or a channel.
_NAMES = re.compile(
    r"\b(file|filename|path|pathname|director(y|ie)|folder|dir|program|executable|librar(y|ie)|"
    r"plugin|channel|socket|pipe)s?\b|\bdot (file|graph)|graphviz",
    re.IGNORECASE,
)
# Types of LLVM's options that are no text; "<value>" is one of a list.
_PLAIN = {"", "<value>", "<int>", "<uint>", "<ulong>", "<long>", "<number>", "<N>", "<x>"}
# Options of -cc1 whose description has such a word, but whose value is one of a list, a version, or
# the name of a file that the compiled program writes.
_NO_FILES = {
    *("-fbinutils-version=", "-fveclib=", "-stdlib=", "--stdlib=", "-unwindlib=", "--unwindlib="),
    "-fprofile-instrument-path=",
}
_PATH = "/tmp/elsewhere/x"


class _Option(NamedTuple):
    """An option as the compiler's help has it: its spelling, its type, its description."""

    name: str
    takes: str
    description: str


def _passes(words: Sequence[str]) -> bool:
    """Whether all words stay in the command of a module."""
    try:
        return code_arguments(words) == list(words)
    except OptionError:
        return False


def _llvm_options(help_text: str) -> Iterator[_Option]:
    for line in help_text.splitlines():
        match = re.match(r"  --?([\w.+-]+)(=<[^>]*>)?(?:\.\.\.)?(?:\s+- (.*))?$", line)
        if match:
            yield _Option(match[1], (match[2] or "")[1:], match[3] or "")


def _of_llvm(toolchain: Toolchain) -> dict[str, _Option]:
    clang, opt = toolchain.clang, toolchain.clang.parent / "opt"
    texts = [
        run_command([clang, "-cc1", "-mllvm", "--help-hidden", "-x", "c", "/dev/null"]).stdout,
        run_command([opt, "--help-hidden"]).stdout,
    ]
    return {option.name: option for text in texts for option in _llvm_options(text)}


def _of_cc1() -> dict[str, _Option]:
    """All options of -cc1, hidden ones too: clang's table of options, in libclang-22-dev."""
    table = stock_tool("clang").resolve().parents[1] / "include/clang/Options/Options.inc"
    entry = re.compile(
        r"^OPTION\((\d+)[^/]*, \d+ /\* (\S+) \*/, \w+, (\w+), (.*?)(?=^OPTION\(|^#)", re.M | re.S
    )
    entries = entry.findall(table.read_text())
    # Some may have two dashes as well.
    either = next(prefixes for prefixes, spelling, _, _ in entries if spelling == "-include")
    found = {}
    for prefixes, spelling, kind, rest in entries:
        if "CC1Option" in rest and kind not in ("Group", "Input", "Unknown"):
            strings = " ".join(re.findall(r'"((?:[^"\\]|\\.)*)"', rest))
            for name in (spelling, f"-{spelling}") if prefixes == either else (spelling,):
                found[name] = _Option(name, kind, strings)
    return found


def _with_value(option: _Option, value: str) -> list[list[str]]:
    """The ways to give an option of -cc1 a value."""
    joined, separate = [option.name + value], [option.name, value]
    return {
        "Separate": [separate],
        "JoinedOrSeparate": [joined, separate],
        "JoinedAndSeparate": [[option.name + "x", value]],
    }.get(option.takes, [joined])


def _forms(name: str, value: str) -> list[list[str]]:
    """The ways to give one of LLVM's options a value, or none."""
    forms = []
    for dashes in ("-", "--"):
        forms += [
            ["-mllvm", f"{dashes}{name}={value}"],
            ["-mllvm", f"{dashes}{name}", "-mllvm", value],
        ]
    return forms


@pytest.mark.compiler
def test_no_llvm_option_that_names_something_is_allowed(toolchain: Toolchain) -> None:
    options = _of_llvm(toolchain)
    assert len(options) > 2500
    naming = [
        option
        for option in options.values()
        if option.takes not in _PLAIN or _NAMES.search(f"{option.name} {option.description}")
    ]
    allowed = 0
    for option in options.values():
        for form in _forms(option.name, _PATH):
            assert not _passes(form), form
        plain = [*_forms(option.name, "1"), ["-mllvm", f"-{option.name}"]]
        allowed += any(_passes(form) for form in plain)
        if option in naming:
            assert not any(_passes(form) for form in plain), option
    print(
        f"LLVM: {len(options)} options; {len(naming)} name a file, folder, program or the like, "
        f"all refused; {len(options) - allowed} are refused in all"
    )
    assert len(naming) > 250


@pytest.mark.compiler
def test_no_cc1_option_passes_a_path_on() -> None:
    options = _of_cc1()
    assert len(options) > 1200
    takes_value = [o for o in options.values() if o.takes != "Flag"]
    naming = [o for o in takes_value if _NAMES.search(f"{o.name} {o.description}")]
    allowed = 0
    for option in takes_value:
        for form in _with_value(option, _PATH) + _with_value(option, "@list"):
            assert not _passes(form), form
        if option in naming and option.name not in _NO_FILES:
            assert not any(_passes(form) for form in _with_value(option, "x")), option
    for option in options.values():
        plain = [[option.name]] if option.takes == "Flag" else _with_value(option, "1")
        allowed += any(_passes(form) for form in plain)
    print(
        f"-cc1: {len(options)} options, {len(takes_value)} with a value: none passes a path on; "
        f"{len(naming)} name a file or the like, all refused or left out; "
        f"{len(options) - allowed} are refused or left out in all"
    )
    assert len(naming) > 50


@pytest.mark.compiler
def test_listed_options_are_the_compilers(toolchain: Toolchain) -> None:
    """An option that takes its value otherwise than allow_lists would shift what follows it."""
    kinds = {
        "flags": {"Flag"},
        "joined": {"Joined", "CommaJoined", "JoinedOrSeparate"},
        "separate": {"Separate", "JoinedOrSeparate"},
    }
    options = _of_cc1()
    # The driver's, which commands in objects may hold.
    ours = {"-fembed-bitcode", "-Werror", "-Werror="}
    for use in ("code", "source", "dropped"):
        for kind, names in allow_lists()[use].items():
            for name in names - ours:
                assert name in options and options[name].takes in kinds[kind], (use, kind, name)
    llvm = _of_llvm(toolchain)
    for kind, names in allow_lists()["llvm"].items():
        for name in names:
            # Debian's clang has those of Polly, too; the patched one has the others.
            assert name in llvm, name
            number = re.search(r"<(u?int|u?long|number|N|x)>", llvm[name].takes)
            assert bool(number) == (kind == "numbers"), llvm[name]


@pytest.mark.parametrize(
    "line",
    [
        "-mllvm -print-changed=diff -mllvm -print-changed-diff-path=/any/program",
        "-mllvm --print-changed=diff -mllvm --print-changed-diff-path -mllvm /any/program",
        "-mllvm -print-changed=dot-cfg -mllvm -dot-cfg-dir=/tmp -mllvm -print-changed-dot-path=x",
        "-mllvm -litert-library=/tmp/x.so",
        "-mllvm --litert-library=x.so",
        "-mllvm --info-output-file=/tmp/x",
        "-mllvm -info-output-file=x",
        "-mllvm -ir-dump-directory=/tmp -mllvm -print-after-all",
        "-mllvm -training-log=x",
        "-mllvm -regalloc-training-log=x",
        "-mllvm -inliner-interactive-channel-base=x",
        "-mllvm -ml-inliner-model-under-training=x",
        "-mllvm -load=x.so",
        "-mllvm --load -mllvm x.so",
        "-mllvm -load-pass-plugin=x.so",
        "-mllvm -pass-remarks-output=x",
        "-mllvm -attributor-dump-dep-graph",
        "-mllvm -memprof-export-to-dot",
        "-mllvm -view-block-layout-with-bfi=count",
        "-mllvm -pgo-view-counts=graph",
        "-mllvm -inline-threshold=/etc/passwd",
        "-mllvm -inline-threshold",
        "-mllvm -inline-threshold -O2",
        "-mllvm -enable-machine-outliner -mllvm -print-after-all",
        "-mllvm -pmu-profile=x",
        "-mllvm @list",
        "-mllvm x",
        "-mllvm",
        "-mmlir -x",
        "-fplugin=x.so",
        "-fpass-plugin=x.so",
        "-load x.so",
        "-plugin x",
        "-add-plugin x",
        "-plugin-arg-x y",
        "-fthinlto-index=x",
        "-fprofile-sample-use=x",
        "-fprofile-instrument-use-path=x",
        "-fprofile-instrument-path=/tmp/x",
        "-fbasic-block-sections=list=x",
        "-coverage-notes-file=x.gcno",
        "-coverage-data-file=x.gcda",
        "-fcrash-diagnostics-dir=x",
        "-ast-dump",
        "-emit-pch",
        "-E",
        "-fixit",
        "-analyzer-dump-egraph x",
        "-fcuda-include-gpubinary x",
        "-as-secure-log-file x",
        "-target-cpu /x",
        "-target-cpu @x",
        "-target-cpu",
        "@list",
        "x.c",
        "/etc/passwd",
        "-",
        "--",
        "",
    ],
)
def test_what_is_not_allowed_is_refused_by_name(line: str) -> None:
    words = shlex.split(line) or [line]
    with pytest.raises(OptionError) as caught:
        code_arguments(["-O2", *words])
    named = next((w for w in words if w != "-mllvm" and w in str(caught.value)), words[0])
    assert named in str(caught.value)
    with pytest.raises(OptionError):
        driver_arguments([part for word in words for part in ("-Xclang", word)])


@pytest.mark.parametrize(
    "line",
    [
        "-o x -dependency-file x -MT x -MP -sys-header-deps -header-include-file x",
        "-opt-record-file x -opt-record-passes x -opt-record-format yaml -stats-file=x",
        "-stack-usage-file x -split-dwarf-output x -serialize-diagnostic-file x -ftime-trace=x",
        "-diagnostic-log-file x -include-pch /home/user/x.pch -ftime-trace-granularity=5",
        "-Werror -Werror=unused -pedantic-errors -fembed-bitcode=all",
        "-mllvm -lto-embed-bitcode=post-merge-pre-opt",
    ],
)
def test_further_outputs_are_left_out_everywhere(line: str) -> None:
    words = ["-O2", *line.split(), "-fwrapv"]
    assert code_arguments(words) == source_arguments(words) == ["-O2", "-fwrapv"]


def test_values_go_with_their_options() -> None:
    line = (
        "-fdiagnostics-format sarif -I x -D N=1 -x c++ -Wall -main-file-name a.c -target-cpu znver4"
    )
    assert code_arguments(line.split()) == ["-target-cpu", "znver4"]
    assert source_arguments(line.split()) == line.split()


@pytest.mark.parametrize(
    "words",
    [
        ["-mllvm", "-inline-threshold=5"],
        ["-mllvm", "--inline-threshold=-5"],
        ["-mllvm", "-inline-threshold", "-mllvm", "5"],
        ["-mllvm", "-enable-npm-pgo-inline-deferral=false"],
        ["-mllvm", "--enable-gvn-hoist"],
        ["-mllvm", "-enable-machine-outliner=always"],
        ["-target-feature", "+avx2", "-target-feature", "-sse4a"],
        ["-fsanitize=address,undefined", "-fno-builtin-strlen", "-Os"],
        ["-fdenormal-fp-math=preserve-sign,preserve-sign", "-mrecip=all,!sqrt"],
    ],
)
def test_options_of_the_code_are_kept_as_they_are(words: list[str]) -> None:
    assert code_arguments(words) == source_arguments(words) == words


def test_plugins_are_for_trusted_builds_and_for_sources_only() -> None:
    words = ["-load", "x.so", "-plugin-arg-x", "y", "-O2", "-unheard-of"]
    assert source_arguments(words, trusted=True) == words
    assert code_arguments(words[:5], trusted=True) == ["-O2"]
    with pytest.raises(OptionError, match="-unheard-of is not known to concern the code alone"):
        code_arguments(words, trusted=True)
    with pytest.raises(OptionError, match="-load x.so loads code into the compiler"):
        source_arguments(words)
    shared = ["-fmodules", "-fmodules-cache-path=x", "-fmodules-user-build-path", "x"]
    assert code_arguments(["-O2", *shared]) == ["-O2"]
    assert source_arguments(shared, trusted=True) == shared
    with pytest.raises(OptionError, match="-fmodules writes modules to a folder that builds share"):
        source_arguments(shared)
    with pytest.raises(OptionError, match="-I @x"):
        source_arguments(["-I", "@x"])


def test_no_tool_for_gpus_is_started() -> None:
    """The driver asks a tool, which may be in the current folder, where "native" is a GPU."""
    assert driver_arguments(["-O2", "-march=native"]) == ["-O2", "-march=native"]
    for target in (["--target=amdgcn-amd-amdhsa"], ["-target", "nvptx64-nvidia-cuda"]):
        for option in ("-march=native", "-mcpu=native", "-mtune=native"):
            with pytest.raises(OptionError, match=f"{option} with a target starts a program"):
                driver_arguments(["-O2", option, *target])


# Commands as large projects compile, for the driver: browsers, operating systems, kernels.
_BUILDS = {
    "browser": "-O2 -fno-delete-null-pointer-checks -fno-ident -fno-strict-aliasing "
    "-fstack-protector -funwind-tables -fPIC -pthread -fcolor-diagnostics -fmerge-all-constants "
    "-ffp-contract=off -fcomplete-member-pointers -m64 -msse3 -fdebug-compilation-dir=. "
    "-no-canonical-prefixes -ftrivial-auto-var-init=pattern -fvisibility=hidden -gdwarf-5 -g1 "
    "-gsplit-dwarf -gz=zstd -gembed-source -ggnu-pubnames -fno-unique-section-names "
    "-Xclang -debug-info-kind=constructor "
    "-fsplit-machine-functions -ftemplate-depth=1024 -mllvm -instcombine-lower-dbg-declare=0 "
    "-mllvm -split-threshold-for-reg-with-hint=0 -nostdinc++ -Wall -fno-exceptions -fno-rtti "
    "-fvisibility-inlines-hidden -fsanitize=array-bounds -fsanitize-trap=array-bounds "
    "-fno-math-errno -fdata-sections -ffunction-sections -fno-omit-frame-pointer -D_A=1 -I.",
    "system": "--target=aarch64-unknown-fuchsia -Oz -mcpu=cortex-a53 -fno-common "
    "-fsanitize=shadow-call-stack -ffuchsia-api-level=20 -fzero-call-used-regs=used-gpr "
    "-fcrash-diagnostics-dir=clang-crashreports -ftrivial-auto-var-init=pattern "
    "-fexperimental-relative-c++-abi-vtables "
    "-mbranch-protection=standard -g3 -grecord-gcc-switches -fno-addrsig -fsized-deallocation",
    "kernel": "-O2 -std=gnu11 -mno-sse -mno-mmx -mno-sse2 -mno-3dnow -mno-avx -m64 -mno-80387 "
    "-mstack-alignment=8 -mskip-rax-setup -mtune=generic -mno-red-zone -mcmodel=kernel "
    "-fno-asynchronous-unwind-tables -mretpoline-external-thunk -fcf-protection=branch "
    "-fno-jump-tables -fno-stack-protector -fno-strict-overflow -fstack-check -pg -mfentry "
    "-falign-functions=16 -fpatchable-function-entry=16,16 -mharden-sls=all -fwrapv -nostdinc",
    "sanitized": "-O1 -g -fsanitize=address,undefined -fsanitize-address-use-after-scope "
    "-fsanitize-coverage=trace-pc-guard,trace-cmp -fno-sanitize-recover=all -fopenmp",
    "instrumented": "-O2 -fprofile-generate",
    "fast": "-Ofast -march=x86-64-v4 -fveclib=libmvec -mprefer-vector-width=512 -ffast-math "
    "-funroll-loops -fno-semantic-interposition -mrecip=all -fno-plt -fstack-clash-protection",
    "profiled": "-O2 -g -fdebug-info-for-profiling -funique-internal-linkage-names "
    "-fpseudo-probe-for-profiling -fbasic-block-address-map -fsplit-machine-functions",
}


@pytest.mark.compiler
@pytest.mark.parametrize("name", _BUILDS)
@pytest.mark.parametrize("suffix", ["c", "cpp"])
def test_commands_of_large_projects_pass(name: str, suffix: str, tmp_path: Path) -> None:
    source = tmp_path / f"a.{suffix}"
    source.write_text("int a;\n")
    command = ["clang", "-w", *_BUILDS[name].split(), "-MD", "-MF", "a.d", "-c", str(source)]
    words = cc1_arguments(stock_tool("clang"), command, tmp_path)[1:-1]
    kept = code_arguments(words)
    assert not [word for word in kept if "/" in word]
    assert "-emit-obj" in kept and len(kept) > 20
    assert set(kept) <= set(source_arguments(words))


# What clang's driver adds for a target or an option by itself.
_ADDED_BY_DRIVER = """
--target=aarch64-linux-android24 -moutline
--target=aarch64-linux-gnu -fsanitize=hwaddress
--target=aarch64-linux-gnu -mno-outline
--target=arm64-apple-macos13
--target=x86_64-apple-macos13
--target=arm64-apple-ios16
--target=x86_64-pc-windows-msvc -gcodeview
--target=x86_64-w64-mingw32
--target=arm-linux-gnueabihf -mthumb -mfpu=neon
--target=arm-none-eabi --specs=nano.specs -mcpu=cortex-m4
--target=riscv64-linux-gnu -march=rv64gc -msmall-data-limit=8
--target=mips64el-linux-gnuabi64 -mno-abicalls -mlocal-sdata -mextern-sdata -membedded-data
--target=mips-linux-gnu -mgpopt -G8 -mno-check-zero-division -mcompact-branches=never -mips32r6
--target=hexagon -mhvx -G8
--target=loongarch64-linux-gnu -mannotate-tablejump
--target=wasm32-wasi -fwasm-exceptions
--target=powerpc64le-linux-gnu -mcpu=power9
--target=s390x-linux-gnu -mbackchain
--target=sparc64-linux-gnu
--target=avr -mmcu=atmega328p
--target=bpf -mcpu=v3
--target=x86_64-linux-gnu -masm=intel
-fno-sanitize-address-use-odr-indicator -fsanitize=address -mllvm -align-all-functions=5
--target=wasm32-unknown-emscripten -mllvm -enable-emscripten-sjlj
-fsanitize=kernel-address -mllvm -asan-globals=1 -mllvm -asan-stack=1
-specs=/usr/lib/rpm/redhat/redhat-hardened-cc1
-fno-integrated-as
-flto -fvisibility=hidden -fsanitize=cfi
-flto=thin -fvisibility=hidden -fsanitize=address,cfi-vcall -fsanitize-cfi-cross-dso
-gmodules
"""


@pytest.mark.compiler
@pytest.mark.parametrize("line", _ADDED_BY_DRIVER.strip().splitlines())
def test_commands_for_any_target_pass(line: str, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int a;\n")
    command = ["clang", *line.split(), "-O2", "-c", "a.c"]
    words = cc1_arguments(stock_tool("clang"), command, tmp_path)[1:-1]
    assert code_arguments(words) and source_arguments(words)


def test_a_value_may_be_left_out_where_the_compiler_does_without() -> None:
    assert _passes(["-mllvm", "-enable-machine-outliner"])
    assert _passes(["-mllvm", "-enable-machine-outliner=never", "-O2"])
    for value in ("=/x", "=@x"):
        assert not _passes(["-mllvm", f"-enable-machine-outliner{value}"])
