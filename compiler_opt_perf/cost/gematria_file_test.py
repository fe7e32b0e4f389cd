# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gematria's data sets, against Google's implementation of protocol buffers and TensorBoard's of
records."""

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from tensorboard.summary.writer.record_writer import RecordWriter

from compiler_opt_perf.cost.block_file import BlockFileError, Cpu, MeasuredBlocks, Row, read_blocks
from compiler_opt_perf.cost.gematria_file import NO_THROUGHPUT, write_gematria

# Of gematria's messages, what is used: name, number, type, whether repeated.
MESSAGES: dict[str, list[tuple[str, int, Any, bool]]] = {
    "Annotation": [("name", 1, Field.TYPE_STRING, False), ("value", 2, Field.TYPE_DOUBLE, False)],
    "Operand": [
        ("register_name", 1, Field.TYPE_STRING, False),
        ("immediate_value", 2, Field.TYPE_UINT64, False),
    ],
    "Canonical": [
        ("mnemonic", 1, Field.TYPE_STRING, False),
        ("output_operands", 4, "Operand", True),
        ("input_operands", 5, "Operand", True),
        ("annotations", 8, "Annotation", True),
    ],
    "Machine": [
        ("address", 1, Field.TYPE_UINT64, False),
        ("assembly", 2, Field.TYPE_STRING, False),
        ("machine_code", 3, Field.TYPE_BYTES, False),
    ],
    "Block": [
        ("machine_instructions", 1, "Machine", True),
        ("canonicalized_instructions", 2, "Canonical", True),
    ],
    "Throughput": [
        ("source", 1, Field.TYPE_STRING, False),
        ("inverse_throughput_cycles", 2, Field.TYPE_DOUBLE, True),
    ],
    "BlockWithThroughput": [
        ("basic_block", 1, "Block", False),
        ("inverse_throughputs", 2, "Throughput", True),
    ],
}


def message(name: str) -> Any:
    """The class of a message."""
    file = descriptor_pb2.FileDescriptorProto(name="blocks.proto", package="g", syntax="proto3")
    for title, fields in MESSAGES.items():
        of = file.message_type.add(name=title)
        for field, number, kind, repeated in fields:
            label = Field.LABEL_REPEATED if repeated else Field.LABEL_OPTIONAL
            one = of.field.add(name=field, number=number, label=label)
            if isinstance(kind, str):
                one.type, one.type_name = Field.TYPE_MESSAGE, f".g.{kind}"
            else:
                one.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"g.{name}"))


CPU = Cpu("a CPU", "znver3", 25, 1, 1)
# mov rax, [rdi]; jne to the next instruction.
ROWS = [
    Row(code="4801c8", cycles=1.0125, program="lua", address=4096),
    Row(code="0f05", dropped="system call"),
    Row(
        code="488b077500",
        cycles=12.5,
        pmu={"l1_miss": (0.5, None), "l2_miss": (0.0, None), "mispredict": (None, 0.25)},
    ),
]


def write(path: Path, *records: Any) -> Path:
    with path.open("wb") as stream:
        writer = RecordWriter(stream)
        for record in records:
            writer.write(record.SerializeToString())
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    write_gematria(path, MeasuredBlocks(CPU, 0.17, ROWS))
    blocks = read_blocks(path)
    assert blocks.cpu is None
    assert blocks.rows == [
        Row(code="4801c8", cycles=1.0125, address=4096),
        Row(code="488b077500", cycles=12.5, pmu=ROWS[2].pmu),
    ]


def test_others_read_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    write_gematria(path, MeasuredBlocks(CPU, 0.17, ROWS))
    # Framed by length, with a checksum behind it and behind the content.
    content, place, found = path.read_bytes(), 0, []
    while place < len(content):
        length = int.from_bytes(content[place : place + 8], "little")
        found.append(message("BlockWithThroughput").FromString(content[place + 12 :][:length]))
        place += length + 16
    first, second = found
    (throughput,) = second.inverse_throughputs
    assert throughput.source == "cop cost measure-blocks: znver3"
    assert list(throughput.inverse_throughput_cycles) == [12.5]
    assert first.basic_block.machine_instructions[0].address == 4096
    machine = second.basic_block.machine_instructions
    assert [one.machine_code.hex() for one in machine] == ["488b07", "7500"]
    assert [
        {one.name: one.value for one in instruction.annotations}
        for instruction in second.basic_block.canonicalized_instructions
    ] == [{"l1_miss": 0.5, "l2_miss": 0.0}, {"mispredict": 0.25}]
    assert not first.basic_block.canonicalized_instructions


def block(codes: list[str], cycles: list[list[float]]) -> Any:
    found = message("BlockWithThroughput")()
    for number, code in enumerate(codes):
        found.basic_block.machine_instructions.add(
            machine_code=bytes.fromhex(code), assembly="an instruction", address=number * 4
        )
    for number, values in enumerate(cycles):
        found.inverse_throughputs.add(source=f"m{number}", inverse_throughput_cycles=values)
    return found


def test_gematrias_own_are_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    known = block(["488b07", "4883c001"], [[], [3.0, 9.0, 4.0], [100.0]])
    for number, name in enumerate(("MOV", "ADD")):
        one = known.basic_block.canonicalized_instructions.add(mnemonic=name)
        one.input_operands.add(register_name="RAX")
        one.input_operands.add(immediate_value=1)
        one.annotations.add(name="cache-misses", value=17)
        one.annotations.add(name="l1_miss", value=number / 4)
    path = write(tmp_path / "a.tfrecord", known, block(["90"], []))
    with caplog.at_level("WARNING"):
        rows = read_blocks(path).rows
    assert rows == [
        Row(code="488b074883c001", cycles=4.0, pmu={"l1_miss": (0.0, 0.25)}),
        Row(code="90", dropped=NO_THROUGHPUT),
    ]


def test_what_is_damaged_is_named(tmp_path: Path) -> None:
    uneven = block(["90", "90"], [[1.0]])
    uneven.basic_block.canonicalized_instructions.add(mnemonic="NOP")
    for record, why in (
        (uneven, "record 1: 1 canonicalized instructions of 2 with machine code"),
        (block([], [[1.0]]), "record 1: a block without instructions"),
        (block([""], [[1.0]]), "record 1: instruction 0 has no machine code"),
        (block(["90"], [[-1.0]]), "record 1: a throughput of -1.0 cycles"),
    ):
        path = write(tmp_path / "a.tfrecord", block(["90"], [[1.0]]), record)
        with pytest.raises(BlockFileError, match=why):
            read_blocks(path)
    whole = write(tmp_path / "a.tfrecord", block(["90"], [[1.0]])).read_bytes()
    for content, why in (
        (whole[:-1], "byte 0: the record is cut off"),
        (whole[:20] + b"x" + whole[21:], "byte 0: the record differs from its checksum"),
        (whole + bytes(9), f"byte {len(whole)}: the record is cut off"),
    ):
        path.write_bytes(content)
        with pytest.raises(BlockFileError, match=why):
            read_blocks(path)
