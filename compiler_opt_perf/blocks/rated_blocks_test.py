# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which pointers of a block can be chosen, and what is then known of its instructions."""

import pytest
from iced_x86 import Register

from compiler_opt_perf.blocks.block_code import Block
from compiler_opt_perf.blocks.chosen_pointers import sources_of
from compiler_opt_perf.blocks.rated_blocks import (
    NO_SOURCE,
    NO_STORE,
    TOO_FEW_COPIES,
    Rates,
    at_rates,
    rated,
)

RAX, RDI, RSI = Register.RAX, Register.RDI, Register.RSI


def described(code: str) -> list[tuple[int, int | None, bool, int, int, int, list[int]]]:
    return [
        (s.register, s.parent, s.delay, s.offset, s.first, s.lines, sorted(s.misses))
        for s in sources_of(bytes.fromhex(code))
    ]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        # mov rax, [rdi]; mov rcx, [rdi + 8]: one line, loaded by the first.
        ("488b07488b4f08", [(RDI, None, False, 0, 0, 1, [0])]),
        # mov rax, [rdi - 8]; mov rcx, [rdi + 64]: three lines from the first to the last.
        ("488b47f8488b4f40", [(RDI, None, False, 0, -1, 3, [0, 1])]),
        # mov rax, [rdi + 60]: across two lines.
        ("488b473c", [(RDI, None, False, 0, 0, 2, [0])]),
        # mov rax, [rdi + 8]; mov rcx, [rax + 24]: the second waits for the first.
        ("488b4708488b4818", [(RDI, None, False, 0, 0, 1, [0]), (RDI, 0, False, 8, 0, 1, [1])]),
        # mov rbx, rdi; mov rax, [rbx]: a copy of the pointer.
        ("4889fb488b03", [(RDI, None, False, 0, 0, 1, [1])]),
        # mov rdi, [rdi + 8]: a linked list.
        ("488b7f08", [(RDI, 0, True, 8, 0, 1, [0])]),
        # mov rax, [rdi + 8]; mov rdi, rax; mov rsi, [rsi]: two, one of them a list.
        (
            "488b47084889c7488b36",
            [(RDI, 0, True, 8, 0, 1, [0]), (RSI, 1, True, 0, 0, 1, [2])],
        ),
        # add rdi, 8; mov rax, [rdi]: the address is computed.
        ("4883c708488b07", []),
        # mov rax, [rdi]; add rdi, 8: only behind the load, for the next copy, which has its own.
        ("488b074883c708", [(RDI, None, False, 0, 0, 1, [0])]),
        # mov [rdi], rax; mov rcx, [rdi]: stored before it is loaded.
        ("488907488b0f", []),
        # mov rax, [rdi + rsi]; mov rcx, [rsp + 8]; mov rax, [rip]
        ("488b0437488b4c2408488b0500000000", []),
        # mov [rsp], rdi; mov rax, [rdi]: memory may hand the pointer on.
        ("48893c24488b07", []),
        # mov [rdi + 8], rax; mov rcx, [rdi]; mov rdi, [rdi + 8]: overwrites the link.
        ("48894708488b0f", []),
        # mov rax, [rdi]; mov [rdi], rcx; mov rdx, [rax]: so that of rax is not that of the copy.
        ("488b0748890f488b10", [(RDI, None, False, 0, 0, 1, [0])]),
        # lodsq; and as often as rcx says
        ("48ad", [(RSI, None, False, 0, 0, 1, [0])]),
        ("f348ad", []),
        # cmp rdi, rax; mov rax, [rdi]
        ("4839c7488b07", [(RDI, None, False, 0, 0, 1, [1])]),
    ],
)
def test_sources(code: str, expected: list[object]) -> None:
    assert described(code) == expected


def test_the_rates_are_those_of_the_copies() -> None:
    # mov rax, [rdi + 8]; mov [rsp], rax; mov rcx, [rax + 24]; mov rdx, [rdi]
    block = Block(bytes.fromhex("488b470848890424488b4818488b17"), "p", "f", 7, 3)
    one = rated(block, Rates("l3", 0.1, 0.3), 5)
    # mov rdi, [rip]; cmp byte [rip], 0; jne
    added = "488b3d00000000" + "803d0000000000" + "7500"
    assert one.code.hex() == added + block.code.hex()
    assert (one.program, one.function, one.address, one.occurrences) == ("p", "f", 7, 3)
    # The pointer in rax is stored, so that it is none of those chosen.
    level, copies, cold, jumps, seed = map(int, one.request.split(" / ")[1].split()[:5])
    assert (level, seed, one.request.split()[-2:]) == (2, 5, ["9:14", "-1:0:0:3:7:7:0:1"])
    assert copies == 74 and cold == round(0.1 * 74) and jumps == round(2 * 0.3 * 74)
    rate = cold / copies
    misses = (0.0, 0.0, None, rate, None, 0.0, 0.0)
    assert dict(one.pmu) == {
        "l1_miss": misses,
        "l2_miss": misses,
        "l3_miss": (0.0, 0.0, None, 0.0, None, 0.0, 0.0),
        "mispredict": (None, None, jumps / (2 * copies), *[None] * 4),
        "failed_forward": (0.0, 0.0, None, 0.0, None, 0.0, 0.0),
    }


@pytest.mark.parametrize(
    ("code", "store", "places", "fails"),
    [
        # mov rax, [rdi]; mov rcx, [rdi + 8]: mov byte [rdi + 16], 0; or a byte that one reads.
        ("488b07488b4f08", "c6871000000000", {(2, 7): [4], (2, 15): [5]}, True),
        # mov rax, [r12 - 8]: the load does not reach the line's end.
        ("498b4424f8", "41c68424c0ffffff00", {(4, -1): [4]}, True),
        # movups xmm0, [rdi]; mov eax, [rdi + 12]; mov cl, [rdi + 15]: one byte is forwarded.
        ("0f10078b470c8a4f0f", "c6871000000000", {(2, 15): [4, 5]}, True),
        # mov rax, [rdi]; mov [rdi], ecx; mov rdx, [rdi]: what the block stores is its own affair.
        ("488b07890f488b17", "c6870800000000", {(2, 7): [4]}, True),
        # mov eax, [rdi]: what is there is a part of a pointer.
        ("8b07", "c6870400000014", {(2, 3): [4]}, True),
        # mov al, [rdi]
        ("8a07", "", {}, False),
        # mov rax, [rdi + 8]; mov rcx, [rax + 24]: the block loads the second pointer itself.
        ("488b4708488b4818", "c6870000000000", {(2, 15): [4]}, True),
    ],
)
def test_a_store_before_the_block_makes_loads_fail(
    code: str, store: str, places: dict[tuple[int, int], list[int]], fails: bool
) -> None:
    block = Block(bytes.fromhex(code))
    found = {}
    for seed in range(1, 9):
        one = rated(block, Rates("l2", 0, 0, 0.5), seed)
        if not fails:
            assert (one.refused, one.code) == (NO_STORE, block.code)
            continue
        # mov r, [rip]; the store; cmp byte [rip], 0; jne
        pointer, rest = one.code[:7], one.code[7:].hex()
        assert pointer[1] == 0x8B
        assert rest == store + "803d0000000000" + "7500" + block.code.hex()
        failing, place, displacement = map(int, one.request.split(" + ")[1].split(":"))
        shares = dict(one.pmu)["failed_forward"]
        copies = int(one.request.split(" / ")[1].split()[1])
        assert set(shares) <= {None, 0.0, failing / copies} and failing == round(0.5 * copies)
        found[place - len(pointer), displacement] = [n for n, share in enumerate(shares) if share]
        # What fails is told by the share alone, not by the code.
        none = rated(block, Rates("l2", 0, 0, 0), seed)
        assert none.code == one.code and not any(dict(none.pmu)["failed_forward"])
    assert found == places


def test_a_store_to_the_stack_fails_in_all_copies_or_in_none() -> None:
    # mov rax, [rsp]; add rax, rbx: behind mov byte [rsp + 8], 0; cmp byte [rip], 0; jne.
    block = Block(bytes.fromhex("488b04244801d8"))
    for rate, share in ((0.0, 0.0), (0.1, 0.0), (0.5, 1.0), (1.0, 1.0)):
        one = rated(block, Rates("l2", 0, 0, rate), 1)
        assert one.code.hex() == "c684240800000000" + "803d00000000007500" + block.code.hex()
        assert dict(one.pmu)["failed_forward"] == (None, 0.0, None, share, None)
        copies = one.request.split(" / ")[1].split()[1]
        assert one.request.endswith(f" + {copies if share else 0}:3:7")
    assert len(list(at_rates([block], [0], [0], 1, [0, 0.1, 0.5, 1]))) == 2
    # push rax; mov [rsp + 4], ecx, which the next copy loads; lea rcx, [rsp]; mov rax, [rcx].
    for more in ("50", "894c2404", "488d0c24488b01"):
        code = block.code + bytes.fromhex(more)
        assert rated(Block(code), Rates("l2", 0, 0, 1), 1).refused == NO_STORE


def test_operands_of_the_instruction_pointer_move_with_what_is_added() -> None:
    # mov rax, [rdi]; mov rcx, [rip + 0x40]
    one = rated(Block(bytes.fromhex("488b07488b0d40000000")), Rates("memory", 1, 0), 1)
    assert one.request.split()[1] == f"{16 + 6}:{16 + 10}:{0x40 + 10 & -8}"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("4801c8", NO_SOURCE),
        ("0f05", "system call"),
        ("488b07" + "90" * 500, "too long"),
        # Loads of eight lines, of three registers.
        ("488b07488b87c0010000488b1e488b9ec0010000498b08498b88c0010000", TOO_FEW_COPIES),
    ],
)
def test_what_cannot_be_measured_at_rates_is_refused_once(code: str, reason: str) -> None:
    block = Block(bytes.fromhex(code), "p")
    (one,) = at_rates([block], [0, 0.5, 1], [0], 1)
    assert (one.refused, one.code, one.request) == (reason, block.code, "")


def test_each_rate_once_and_drawn_by_the_seed() -> None:
    blocks = [Block(bytes.fromhex(code)) for code in ("488b07", "488b06", "488b01", "488b00")]
    found = list(at_rates(blocks, [0, 0.001, 1], [0, 0.1, 0.4], 1))
    # A thousandth of a hundred copies is none.
    shares = [max(v or 0 for v in dict(one.pmu)["l1_miss"]) for one in found]
    assert set(shares) == {0.0, 1.0} and 8 <= len(found) <= 12
    assert len({(one.code, one.pmu) for one in found}) == len(found)
    assert list(at_rates(blocks, [0, 0.001, 1], [0, 0.1, 0.4], 1)) == found
    other = list(at_rates(blocks, [0, 0.001, 1], [0, 0.1, 0.4], 2))
    assert [one.request for one in other] != [one.request for one in found]
