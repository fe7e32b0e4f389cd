# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler_opt_perf.binary.elf import PROFILING_FLAGS, BinaryError
from compiler_opt_perf.binary.symbolize import (
    CallSite,
    Line,
    Symbols,
    decode_discriminator,
    symbolize,
)
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool


def instructions(binary: Path, function: str) -> list[int]:
    """Addresses of a function's instructions."""
    option = f"--disassemble-symbols={function}"
    command = [str(stock_tool("llvm-objdump")), "-d", option, str(binary)]
    listing = run_command(command, timeout_s=60).stdout
    return [int(found, 16) for found in re.findall(r"^ +([0-9a-f]+):\t?\s", listing, re.MULTILINE)]


@pytest.fixture(scope="module")
def symbols(workload: Path) -> Symbols:
    functions = ("outer", "unrolled", "choose", "3:4", "a name:with 3", "main")
    return symbolize(workload, [a for f in functions for a in instructions(workload, f)])


def encode_discriminator(base: int, duplication: int, copy: int) -> int:
    """The inverse, written after DILocation::encodeDiscriminator in llvm/lib/IR."""
    result = shift = 0
    left = base + duplication + copy
    for part in (base, duplication, copy):
        if left == 0:
            break
        left -= part
        if part == 0:
            code, bits = 1, 1
        elif part <= 0x1F:
            code, bits = part << 1, 7
        else:
            code, bits = (((part & 0xFE0) << 1) | (part & 0x1F) | 0x20) << 1, 14
        result |= code << shift
        shift += bits
    return result


def test_discriminators_of_every_width_are_decoded() -> None:
    values = (0, 1, 2, 30, 31, 32, 33, 63, 64, 1000, 4094, 4095)
    for base in values:
        for duplication in values:
            for copy in (0, 1, 7):
                encoded = encode_discriminator(base, duplication, copy)
                assert decode_discriminator(encoded) == (base, duplication or 1)


def test_pseudo_probe_discriminator_is_neither() -> None:
    assert decode_discriminator(0x7 | 12345 << 3) == (0, 1)


@pytest.mark.compiler
def test_parts_of_a_coroutine_are_no_entries_of_it(tmp_path: Path) -> None:
    source = tmp_path / "program.cpp"
    source.write_text(
        """
        namespace std {
        template <class R, class... A> struct coroutine_traits {
          using promise_type = typename R::promise_type;
        };
        template <class P = void> struct coroutine_handle {
          void *Frame;
          static coroutine_handle from_address(void *F) noexcept { return {F}; }
        };
        }
        struct Suspend {
          bool await_ready() noexcept { return false; }
          template <class P> void await_suspend(std::coroutine_handle<P>) noexcept {}
          void await_resume() noexcept {}
        };
        void *Frame;
        struct Task {
          struct promise_type {
            Task get_return_object() {
              Frame = __builtin_coro_promise(this, alignof(promise_type), true);
              return {};
            }
            Suspend initial_suspend() noexcept { return {}; }
            Suspend final_suspend() noexcept { return {}; }
            void return_void() {}
            void unhandled_exception() {}
          };
        };
        volatile int Sink;
        Task counter(int N) {
          for (int I = 0; I < N; ++I) {
            Sink = I;
            co_await Suspend();
          }
        }
        int main(int C, char **V) {
          counter(C);
          __builtin_coro_resume(Frame);
          return 0;
        }
        """
    )
    program = tmp_path / "program"
    options = ["-std=c++20", "-O2", "-fno-inline", *PROFILING_FLAGS.split()]
    run_command([str(stock_tool("clang++")), *options, source, "-o", program], timeout_s=60)
    resume = instructions(program, "_Z7counteri.resume")
    entry = instructions(program, "_Z7counteri")
    assert resume and entry
    found = symbolize(program, resume + entry)
    # The counts of the body are the function's; what resumes it is no call of it.
    assert {location.function for location in found.locations.values()} == {"_Z7counteri"}
    assert found.entries == {entry[0]: "_Z7counteri"}
    assert found.shared == set()


@pytest.mark.compiler
def test_lines_of_an_extracted_part_count_from_its_function(tmp_path: Path) -> None:
    (tmp_path / "program.c").write_text(
        """
        #include <stdlib.h>
        long table[4096];
        static long sum_of(int n) {
          if (n < 0)
            return 0;
          long sum = 0;
          for (int i = 0; i < n; i++)
            sum += table[(i * 7 + sum) & 4095];
          table[n & 4095] = sum;
          return sum;
        }
        int main(int count, char **words) {
          long sum = 0;
          for (int i = 0; i < atoi(words[1]); i++)
            sum += sum_of(i) + sum_of(2 - i);
          return sum & 1;
        }
        """
    )
    flags = ["-O2", *PROFILING_FLAGS.split()]
    for option in (
        "-enable-partial-inlining",
        "-skip-partial-inlining-cost-analysis",
        "-inline-threshold=0",
    ):
        flags += ["-mllvm", option]
    run_command([stock_tool("clang"), *flags, "program.c", "-o", "program"], cwd=tmp_path)
    program = tmp_path / "program"
    part = instructions(program, "sum_of.1.extracted")
    found = symbolize(program, part)
    lines = {found.locations[address].line.offset for address in part if address in found.locations}
    assert lines == {4, 5, 6}
    assert {location.function for location in found.locations.values()} == {"sum_of"}
    assert found.sources["sum_of"].line == 4
    assert found.shared == set() and not found.undescribed & {*part}
    assert not found.entries.keys() & {*part}


@pytest.mark.compiler
def test_inline_stack(symbols: Symbols, line_of: Callable[[str], int]) -> None:
    start = line_of("outer") - 2  # The line with the function's name.
    inlined = {
        location
        for location in symbols.locations.values()
        if location.function == "outer" and location.call_sites
    }
    # The loop's own increment is attributed to the innermost scope, with the outer line.
    assert any(location.line == Line(1, 0) for location in inlined)
    for location in inlined:
        outer, middle = location.call_sites
        assert outer == CallSite(Line(line_of("outer") - start, outer.line.discriminator), "middle")
        assert middle == CallSite(Line(1, 0), "inner")


@pytest.mark.compiler
def test_duplication_factor_of_an_unrolled_loop(
    symbols: Symbols, line_of: Callable[[str], int]
) -> None:
    offset = 3
    factors = {
        location.duplication
        for location in symbols.locations.values()
        if location.function == "unrolled" and location.line == Line(offset, 0)
    }
    assert 8 in factors


@pytest.mark.compiler
def test_discriminators_tell_blocks_of_one_line_apart(symbols: Symbols) -> None:
    places = {
        location.line for location in symbols.locations.values() if location.function == "choose"
    }
    assert {Line(2, 1), Line(2, 2)} <= places


@pytest.mark.compiler
def test_flow_sensitive_discriminators_have_the_same_base(
    symbols: Symbols, build: Callable[..., Path]
) -> None:
    binary = build("-mllvm", "-enable-fs-discriminator")
    functions = ("outer", "unrolled", "choose")
    flow = symbolize(binary, [a for f in functions for a in instructions(binary, f)])

    def places(symbols: Symbols) -> set[tuple[object, ...]]:
        return {location[:3] for location in symbols.locations.values()}

    assert {place for place in places(symbols) if place[0] in functions} == places(flow)
    assert any(location.copy for location in flow.locations.values())
    assert {location.duplication for location in flow.locations.values()} == {1}


@pytest.mark.compiler
def test_entries_are_first_instructions(symbols: Symbols, workload: Path) -> None:
    assert symbols.entries[instructions(workload, "outer")[0]] == "outer"
    assert len(symbols.entries) == 5  # All functions but the one with an impossible name.


@pytest.mark.compiler
def test_name_that_a_text_profile_cannot_hold(symbols: Symbols, workload: Path) -> None:
    functions = {location.function for location in symbols.locations.values()}
    assert "a name:with 3" in functions
    addresses = instructions(workload, "3:4")
    assert addresses
    assert not any(location.function == "3:4" for location in symbols.locations.values())
    assert addresses[0] not in symbols.locations


@pytest.mark.compiler
def test_line_tables_alone_are_refused(build: Callable[..., Path]) -> None:
    binary = build(debug="-gline-tables-only")
    message = r"none of its \d+ instructions.*-fdebug-info-for-profiling"
    with pytest.raises(BinaryError, match=message):
        symbolize(binary, instructions(binary, "outer"))


@pytest.mark.compiler
def test_stripped_binary_is_refused(workload: Path, tmp_path: Path) -> None:
    stripped = tmp_path / "stripped"
    run_command([stock_tool("llvm-strip"), workload, "-o", stripped])
    with pytest.raises(BinaryError, match="none of its 3 instructions has a source location"):
        symbolize(stripped, instructions(workload, "outer")[:3])


def test_missing_binary(tmp_path: Path) -> None:
    with pytest.raises(BinaryError, match="nothing: cannot be read: No such file"):
        symbolize(tmp_path / "nothing", [1, 2])


@pytest.mark.compiler
def test_each_address_is_resolved_once_whatever_the_order(workload: Path) -> None:
    addresses = instructions(workload, "outer")
    once = symbolize(workload, addresses)
    again = symbolize(workload, [*reversed(addresses), *addresses])
    assert again.locations == once.locations
