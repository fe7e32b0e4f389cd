# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler_opt_perf.binary.elf import hide_debug_info
from compiler_opt_perf.binary.symbolize import symbolize
from compiler_opt_perf.profile import callgrind
from compiler_opt_perf.profile.callgrind import Cache, CacheGeometry, options, simulate, version
from compiler_opt_perf.profile.callgrind_dump import Dump, event_counts, read_dump, read_dumps
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.workload import Run


@pytest.fixture(scope="module")
def program(workload: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The test program without debug info, in a folder of its own."""
    stripped = tmp_path_factory.mktemp("program") / "workload"
    hide_debug_info(workload, stripped)
    return stripped


@pytest.fixture(scope="module")
def dump_file(
    program: Path, geometry: CacheGeometry, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A small real dump."""
    folder = tmp_path_factory.mktemp("dump")
    return simulate(Run(program, ["threads"], timeout_s=60), folder, geometry)[0]


def stores_in_outer(dump: Dump, workload: Path) -> int:
    """How often outer and what is inlined in it stored: once for each of its iterations."""
    column = dump.columns.index("Dw")
    symbols = symbolize(workload, dump.counts)
    return sum(
        dump.counts[address][column]
        for address, location in symbols.locations.items()
        if location.function == "outer" and len(dump.counts[address]) > column
    )


# Caches


def test_geometry_as_options() -> None:
    geometry = CacheGeometry(ll=Cache.parse("1048576,16,64"))
    assert "--LL=1048576,16,64" in options(geometry)
    assert "--I1=32768,8,64" in options(geometry)
    assert geometry.as_dict()["D1"] == "32768,8,64"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("37486592,11,64", "53248 sets, which must be a power of two"),
        ("1000,1,64", "15.625 sets"),
        ("32768,8,48", "line size must be a power of two"),
        ("32768,8,8", "at least 16 bytes"),
        ("32768,0,64", "must be positive"),
        ("-32768,8,64", "must be positive"),
        ("32K,8,64", "expected size,ways,line such as 32768,8,64"),
        ("32768,8", "expected size,ways,line"),
    ],
)
def test_caches_that_cannot_be_simulated(text: str, message: str) -> None:
    with pytest.raises(PmuError, match=message):
        Cache.parse(text)


# Running


@pytest.mark.compiler
def test_stdin_stdout_folder_and_name_reach_the_program(
    program: Path, geometry: CacheGeometry, tmp_path: Path
) -> None:
    given, folder, scratch = tmp_path / "in", tmp_path / "work", tmp_path / "scratch"
    given.write_text("some input\n")
    folder.mkdir()
    scratch.mkdir()
    printed = tmp_path / "out"
    simulate(
        Run(program, ["copy"], stdin=given, stdout=printed, cwd=folder, timeout_s=60),
        scratch,
        geometry,
    )
    assert printed.read_text() == f"some input\n{folder}\n/workload\n"


@pytest.mark.compiler
def test_failing_program(program: Path, geometry: CacheGeometry, tmp_path: Path) -> None:
    with pytest.raises(PmuError) as caught:
        simulate(Run(program, ["fail", "two words"], timeout_s=60), tmp_path, geometry)
    message = str(caught.value)
    assert "exit status 3 under callgrind, expected 0" in message
    assert "no such level: two words" in message
    assert f"{program} fail 'two words'" in message


@pytest.mark.compiler
def test_expected_status(program: Path, geometry: CacheGeometry, tmp_path: Path) -> None:
    (dump,) = simulate(
        Run(program, ["fail", "x"], timeout_s=60, expected_status=3), tmp_path, geometry
    )
    assert read_dump(dump, program).counts


@pytest.mark.compiler
def test_crashing_program(program: Path, geometry: CacheGeometry, tmp_path: Path) -> None:
    with pytest.raises(PmuError, match="workload: ended by SIGABRT under callgrind"):
        simulate(Run(program, ["crash"], timeout_s=60), tmp_path, geometry)


@pytest.mark.compiler
def test_hanging_program(program: Path, geometry: CacheGeometry, tmp_path: Path) -> None:
    with pytest.raises(PmuError, match="killed after its limit of 1 s under callgrind"):
        simulate(Run(program, ["hang"], timeout_s=1), tmp_path, geometry)


@pytest.mark.compiler
def test_missing_input_or_folder(program: Path, geometry: CacheGeometry, tmp_path: Path) -> None:
    with pytest.raises(PmuError, match="nothing: cannot be opened: No such file"):
        simulate(Run(program, [], stdin=tmp_path / "nothing"), tmp_path, geometry)
    with pytest.raises(PmuError, match="nowhere: cannot be opened: No such file"):
        simulate(Run(program, [], cwd=tmp_path / "nowhere"), tmp_path, geometry)


def test_valgrind_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PmuError, match="valgrind: not found on PATH; install it"):
        version()


@pytest.mark.compiler
def test_known_failures_come_with_a_remedy(
    program: Path, geometry: CacheGeometry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A stand-in for valgrind that gives up as the real one does on AVX-512.
    fake = tmp_path / "bin" / "valgrind"
    fake.parent.mkdir()
    fake.write_text(
        "#!/bin/sh\n"
        "for option; do case $option in --log-file=*) log=${option#*=};; esac; done\n"
        'echo "==1== Unrecognised instruction at address 0x10." > ${log:-/dev/null}\n'
        "[ -z $log ] || kill -ILL $$\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:/usr/bin:/bin")
    with pytest.raises(PmuError, match=r"ended by SIGILL.*x86-64-v3 at most"):
        simulate(Run(program, [], timeout_s=60), tmp_path, geometry)


@pytest.mark.compiler
def test_threads_are_counted_together(dump_file: Path, program: Path, workload: Path) -> None:
    dump = read_dump(dump_file, program)
    assert stores_in_outer(dump, workload) == 2 * 500


@pytest.mark.compiler
def test_forked_processes_are_counted(
    program: Path, workload: Path, geometry: CacheGeometry, tmp_path: Path
) -> None:
    dumps = simulate(Run(program, ["fork"], timeout_s=60), tmp_path, geometry)
    assert len(dumps) == 2
    assert stores_in_outer(read_dump(dumps[0], program), workload) == 100
    # Not what the parent had counted before the fork.
    assert stores_in_outer(read_dump(dumps[1], program), workload) == 100_000
    both = read_dumps(dumps, program)
    assert stores_in_outer(both, workload) == 100_100
    assert both.outside[0] == sum(read_dump(path, program).outside[0] for path in dumps)
    assert sum(both.objects.values()) == both.outside[0]


@pytest.mark.compiler
@pytest.mark.parametrize(
    "flags",
    [("-no-pie",), ("-pie", "-fuse-ld=lld"), ("-no-pie", "-fuse-ld=lld"), ("-static",)],
    ids=" ".join,
)
def test_addresses_are_link_time_addresses(
    flags: tuple[str, ...],
    build: Callable[..., Path],
    geometry: CacheGeometry,
    tmp_path: Path,
) -> None:
    binary = build(*flags)
    stripped = tmp_path / "workload"
    hide_debug_info(binary, stripped)
    dump = read_dumps(
        simulate(Run(stripped, ["threads"], timeout_s=60), tmp_path, geometry), stripped
    )
    assert stores_in_outer(dump, binary) == 2 * 500


# Reading


@pytest.mark.compiler
def test_costs_are_those_callgrind_reports(dump_file: Path, program: Path, tmp_path: Path) -> None:
    dump = read_dump(dump_file, program)
    # Not Ir: the summary that this tool repeats has a dozen more than the costs below it.
    table = run_command(["callgrind_annotate", "--show=Dr,Dw,Bc", "--threshold=100", dump_file])
    line = next(line for line in table.stdout.splitlines() if "PROGRAM TOTALS" in line)
    reported = [int(word.replace(",", "")) for word in line.split() if word[0].isdigit()]
    total = [mine + other for mine, other in zip(dump.totals(), dump.outside, strict=True)]
    columns = [dump.columns.index(name) for name in ("Dr", "Dw", "Bc")]
    assert [total[column] for column in columns] == reported


@pytest.mark.compiler
def test_calls_from_other_objects_have_no_caller(
    dump_file: Path, program: Path, workload: Path
) -> None:
    dump = read_dump(dump_file, program)
    entries = symbolize(workload, dump.counts).entries
    callers: dict[str, int] = {}
    for (caller, callee), count in dump.calls.items():
        if callee in entries and caller is None:
            callers[entries[callee]] = callers.get(entries[callee], 0) + count
    # The C library calls main and the threads' functions.
    assert callers["main"] == 1
    assert callers["thread"] == 2


SMALL = """\
# callgrind format
version: 1
creator: callgrind-3.19.0
cmd: ./p
part: 1

desc: I1 cache: x
positions: instr line
events: Ir Dr
summary: 34 6

ob=(1) /bin/p
fl=(1) p.c
fn=(1) main
0x100 5 4 1
+4 +1 4
calls=3 0x200 0
* * 20 5
jump=4 -4 -1
* *
jcnd=2/4 +16 *
* *
-4 * 1 1
cob=(2) /lib/libc.so
cfn=(2) puts
calls=1 0x40
+8 * 7 2
fn=(3) f
0x200 9 6
+0x10 * 3 0
cob=(1)
cfn=(1)
calls=2 0x100 0
* * 1 1
ob=(2)
0x40 0 16 4

totals: 34 6
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_call_that_was_not_counted_moves_no_position(tmp_path: Path) -> None:
    """Counting may begin in the callee; the next position is relative to the line before."""
    text = SMALL.replace("+8 * 7 2\n", "+8 * 7 2\n+12 * 2\n").replace("totals: 34", "totals: 36")
    counts = read_dump(write(tmp_path / "dump", text), Path("/bin/p")).counts
    assert counts[0x10C] == [2]


def test_positions_names_calls_and_jumps(tmp_path: Path) -> None:
    dump = read_dump(write(tmp_path / "dump", SMALL), Path("/bin/p"))
    assert dump.columns == ("Ir", "Dr")
    assert dump.counts == {0x100: [5, 2], 0x104: [4], 0x200: [6], 0x210: [3, 0]}
    assert dump.outside == [16, 4]
    assert dump.calls == {(0x104, 0x200): 3, (0x210, 0x100): 2}


@pytest.mark.parametrize("line", ["cmd: ./p --x=1 fn=(9)", "fn=(1) N::main", "fi=(7) a=b.h"])
def test_signs_in_names_and_commands(tmp_path: Path, line: str) -> None:
    text = SMALL.replace("fn=(1) main", line)
    dump = read_dump(write(tmp_path / "dump", text), Path("/bin/p"))
    assert dump.calls == {(0x104, 0x200): 3, (0x210, 0x100): 2}


def test_parts_add_up(tmp_path: Path) -> None:
    second = SMALL.split("creator", 1)[1].replace("ob=(1) /bin/p", "ob=(1)")
    dump = read_dump(write(tmp_path / "dump", SMALL + "\ncreator" + second), Path("/bin/p"))
    assert dump.counts[0x100] == [10, 4]
    assert dump.outside == [32, 8]
    assert dump.calls[0x104, 0x200] == 6


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("+4 +1 4\n", "+4 +1 5\n", r"dump:38: .*add up to \[35, 6\].*totals are \[34, 6\]"),
        ("totals: 34 6\n", "", "dump:37: the file ends without 'totals:': it is truncated"),
        ("events: Ir Dr\n", "", "dump:14: not a line of a callgrind dump"),
        ("instr line", "line", r"dump:8: expected positions by instruction.*--dump-instr=yes"),
        ("0x100 5 4 1\n", "0x100 5 4 1 9\n", "dump:15: not a line of a callgrind dump"),
        ("0x100 5 4 1\n", "0x100 5 x\n", "dump:15: not a line"),
        ("0x100 5 4 1\n", "\0\0garbage\n", "dump:15: not a line"),
        ("cob=(1)\n", "cob=(7)\n", r"dump:31: not a line of a callgrind dump: 'cob=\(7\)'"),
        ("calls=3 0x200 0\n", "calls=3\n", "dump:17: not a line"),
        ("totals: 34 6\n", "totals: 34 6 1\n", "dump:38: not a line"),
        ("totals: 34 6\n", "jcnd", "dump:38: not a line of a callgrind dump: 'jcnd'"),
    ],
)
def test_damaged_dump(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in SMALL
    with pytest.raises(PmuError, match=message):
        read_dump(write(tmp_path / "dump", SMALL.replace(old, new, 1)), Path("/bin/p"))


@pytest.mark.parametrize("text", ["", "hello: world\n", "\n\n"])
def test_another_kind_of_file(tmp_path: Path, text: str) -> None:
    with pytest.raises(PmuError, match="not a callgrind dump: it has no line 'events:'"):
        read_dump(write(tmp_path / "dump", text), Path("/bin/p"))


def test_no_such_dump(tmp_path: Path) -> None:
    with pytest.raises(PmuError, match="dump: cannot be read: No such file"):
        read_dump(tmp_path / "dump", Path("/bin/p"))


@pytest.mark.compiler
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.999])
def test_truncated_real_dump(tmp_path: Path, dump_file: Path, program: Path, share: float) -> None:
    text = dump_file.read_text()
    with pytest.raises(PmuError, match=r"dump:\d+: "):
        read_dump(write(tmp_path / "dump", text[: int(len(text) * share)]), program)


@pytest.mark.compiler
def test_real_dump_with_jumps(
    program: Path, dump_file: Path, geometry: CacheGeometry, tmp_path: Path
) -> None:
    path = tmp_path / "dump"
    assert shutil.which("valgrind")
    run_command(
        [
            "valgrind",
            *callgrind.options(geometry),
            "--collect-jumps=yes",
            f"--callgrind-out-file={path}",
            program,
            "threads",
        ],
        timeout_s=60,
    )
    assert "jcnd=" in path.read_text()
    first, second = read_dump(path, program), read_dump(dump_file, program)
    assert {a: c[0] for a, c in first.counts.items()} == {a: c[0] for a, c in second.counts.items()}


def test_dump_without_cache_simulation() -> None:
    with pytest.raises(PmuError, match=r"event loads: callgrind counted Ir, but not Dr.*cache-sim"):
        event_counts(Dump(("Ir",), {1: [1]}, [0], {}))
