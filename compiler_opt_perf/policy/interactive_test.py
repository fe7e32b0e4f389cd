# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The host with the patched compiler, and with impostors that die, hang or talk nonsense."""

import contextlib
import json
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from compiler_opt_perf.policy.export import Policy
from compiler_opt_perf.policy.interactive import (
    Decide,
    InteractiveError,
    InteractiveHost,
    Observation,
    load_decisions,
    policy_decisions,
)
from compiler_opt_perf.policy.problem import PROBLEMS, Problem, for_clang
from compiler_opt_perf.policy.testing import random_network
from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.toolchain.installation import Toolchain

INLINE = PROBLEMS["inline-size"]
EVICT = PROBLEMS["regalloc-evict"]
LIVE_VALUES = 22

HEADER = json.dumps(
    {
        "features": [{"name": "a", "type": "int64_t", "shape": [1]}],
        "advice": {"name": INLINE.decision, "type": "int64_t", "shape": [1]},
    }
)
OBSERVATION = '{"observation":0}\\n12345678\\n'


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of temporary files; the host must leave nothing in it."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert not [path for path in folder.iterdir() if path.name.startswith("interactive-")]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """C code with calls to inline, and more live values than x86-64 has registers."""
    values = range(LIVE_VALUES)
    declarations = ", ".join(f"v{i} = p[{i}]" for i in values)
    updates = " ".join(f"v{i} = v{i} * v{(i * 7) % LIVE_VALUES} + p[n + {i}];" for i in values)
    path = tmp_path_factory.mktemp("source") / "source.c"
    path.write_text(
        "static long scale(const long *p, long n) { return p[n] * 3 + p[n + 1] / (n + 1); }\n"
        f"long pressure(const long *p, long n) {{ long {declarations};\n"
        f"while (n-- > 0) {{ {updates} }}\nreturn {' ^ '.join(f'v{i}' for i in values)}; }}\n"
        "long entry(const long *p, long n) { return scale(p, n) + scale(p + n, 7 + n); }\n"
    )
    return path


def _last_column(observation: Observation) -> int:
    return int(np.flatnonzero(observation.features["mask"])[-1])


def _children() -> list[int]:
    """This process's children, by the kernel's list."""
    tasks = Path("/proc/self/task").iterdir()
    return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]


def _impostor(script: str, decide: Decide = lambda _: 0, timeout_s: float = 20) -> None:
    """Runs a shell script in the compiler's place; $0 is the channel."""
    with InteractiveHost(INLINE, decide) as host:
        host.run(["bash", "-c", script, str(host.channel)], timeout_s=timeout_s)


@pytest.mark.compiler
def test_an_inlining_function_decides(toolchain: Toolchain, source: Path, tmp_path: Path) -> None:
    objects = {}
    for answer in (0, 1):
        seen: list[Observation] = []

        def decide(observation: Observation, answer: int = answer) -> int:
            seen.append(observation)  # noqa: B023
            return answer

        with InteractiveHost(INLINE, decide) as host:
            options = for_clang(INLINE.interactive_options(host.channel))
            output = tmp_path / f"{answer}.o"
            host.run([toolchain.clang, "-Oz", "-c", source, "-o", output, *options])
        assert [observation.number for observation in seen] == [0, 1]
        assert list(seen[0].features) == [feature.name for feature in INLINE.features]
        assert seen[0].features["callee_basic_block_count"].tolist() == [1]
        objects[answer] = output.read_bytes()
    assert objects[0] != objects[1]


@pytest.mark.compiler
def test_an_eviction_function_decides_as_the_same_model_in_development_mode(
    toolchain: Toolchain, source: Path, tmp_path: Path, repo_root: Path
) -> None:
    interactive, development = tmp_path / "interactive.o", tmp_path / "development.o"
    functions = set()

    def decide(observation: Observation) -> int:
        functions.add(observation.function)
        assert observation.features["mask"].shape == (1, 33)
        return _last_column(observation)

    command = [str(toolchain.clang), "-O2", "-c", str(source), "-o"]
    with InteractiveHost(EVICT, decide) as host:
        options = for_clang(EVICT.interactive_options(host.channel))
        host.run([*command, interactive, *options])
        # The same host serves another compilation.
        host.run([*command, tmp_path / "again.o", *options])
    model = repo_root / "lit_tests" / "Inputs" / "evict-last"
    run_command(
        [*command, development, *for_clang(EVICT.development_options(model=model))],
        env={"LLVM_LITERT_LIBRARY": str(toolchain.litert_library)},
    )
    assert functions == {"pressure"}
    assert interactive.read_bytes() == development.read_bytes()
    assert (tmp_path / "again.o").read_bytes() == interactive.read_bytes()


@pytest.mark.compiler
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=lambda problem: problem.name)
def test_a_policy_with_pmu_features_decides_without_a_profile(
    problem: Problem, toolchain: Toolchain, source: Path, tmp_path: Path
) -> None:
    network = random_network(problem)
    policy = policy_decisions(Policy(network, network.initial_weights(1), {}))
    seen: list[Observation] = []

    def decide(observation: Observation) -> int:
        seen.append(observation)
        return policy(observation)

    with InteractiveHost(problem, decide) as host:
        options = for_clang(problem.interactive_options(host.channel))
        level = problem.optimization_level
        host.run([toolchain.clang, level, "-c", source, "-o", tmp_path / "a.o", *options])
    assert len(seen) > 1
    assert not {feature.name for feature in problem.pmu_features} & set(seen[0].features)


@pytest.mark.compiler
def test_a_compiler_with_nothing_to_decide_is_no_error(toolchain: Toolchain) -> None:
    with InteractiveHost(EVICT, _last_column) as host:
        options = for_clang(EVICT.interactive_options(host.channel))
        arguments = ["-O2", "-c", "-x", "c", "/dev/null", "-o", "/dev/null"]
        host.run([toolchain.clang, *arguments, *options], timeout_s=60)


@pytest.mark.compiler
def test_the_compilers_own_error_is_told(toolchain: Toolchain, tmp_path: Path) -> None:
    with (
        InteractiveHost(EVICT, _last_column) as host,
        pytest.raises(CommandError, match="no such file or directory: .*missing.c"),
    ):
        options = for_clang(EVICT.interactive_options(host.channel))
        host.run([toolchain.clang, "-c", tmp_path / "missing.c", *options])


@pytest.mark.compiler
def test_what_the_decision_function_raises_passes_and_ends_the_compiler(
    toolchain: Toolchain, source: Path, tmp_path: Path
) -> None:
    def decide(observation: Observation) -> int:
        raise ZeroDivisionError("mine")

    with InteractiveHost(EVICT, decide) as host, pytest.raises(ZeroDivisionError) as caught:
        options = for_clang(EVICT.interactive_options(host.channel))
        host.run([toolchain.clang, "-O2", "-c", source, "-o", tmp_path / "a.o", *options])
    assert "observation 0, function pressure" in caught.value.__notes__[0]
    assert not (tmp_path / "a.o").exists()


def _sleep() -> None:
    time.sleep(600)


def _loop() -> None:
    while True:
        with contextlib.suppress(Exception):
            sum(range(100))


@pytest.mark.compiler
@pytest.mark.parametrize("think", [_sleep, _loop])
def test_a_decision_that_takes_too_long_ends(
    think: Callable[[], None], toolchain: Toolchain, source: Path, tmp_path: Path
) -> None:
    asked: list[int] = []
    # A worker of the tests can have some of its own.
    before = set(_children())
    handler, others = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)

    def decide(observation: Observation) -> int:
        asked.extend(set(_children()) - before)
        think()
        return 0

    with (
        InteractiveHost(EVICT, decide) as host,
        pytest.raises(InteractiveError, match="observation 0, function pressure: .* limit of 2 s"),
    ):
        options = for_clang(EVICT.interactive_options(host.channel))
        output = tmp_path / "a.o"
        host.run([toolchain.clang, "-O2", "-c", source, "-o", output, *options], timeout_s=2)
    assert asked and not set(_children()) - before
    assert not (tmp_path / "a.o").exists()
    # What else waits for this signal, such as the limit of a test, is as it was.
    assert signal.getsignal(signal.SIGALRM) == handler
    assert bool(signal.getitimer(signal.ITIMER_REAL)[0]) == bool(others[0])


def test_outside_the_main_thread_a_slow_decision_is_waited_for() -> None:
    script = f"exec 4<$0.in 3>$0.out; printf '%s\\n{OBSERVATION}' '{HEADER}' >&3; head -c8 <&4"

    def decide(observation: Observation) -> int:
        time.sleep(0.6)
        return 0

    with ThreadPoolExecutor(1) as executor:
        slow = executor.submit(_impostor, script, decide, 0.3)
        with pytest.raises(CommandError, match="killed after its limit"):
            slow.result()


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("answer", "message"),
    [(33, r"decision 33 is not in 0\.\.32"), (-1, "decision -1"), (0, "column 0 is masked out")],
)
def test_a_decision_that_is_not_offered(
    answer: int, message: str, toolchain: Toolchain, source: Path, tmp_path: Path
) -> None:
    with (
        InteractiveHost(EVICT, lambda _: answer) as host,
        pytest.raises(InteractiveError, match=rf"observation \d, function pressure: {message}"),
    ):
        options = for_clang(EVICT.interactive_options(host.channel))
        host.run([toolchain.clang, "-O2", "-c", source, "-o", tmp_path / "a.o", *options])


def test_a_decision_that_is_no_integer() -> None:
    with pytest.raises(TypeError, match="float"):
        _impostor(
            f"exec 4<$0.in 3>$0.out; printf '%s\\n{OBSERVATION}' '{HEADER}' >&3; read -u 4 x",
            lambda _: 0.5,  # type: ignore[arg-type, return-value]
        )


@pytest.mark.compiler
def test_options_of_the_other_problem(toolchain: Toolchain, source: Path, tmp_path: Path) -> None:
    with (
        InteractiveHost(INLINE, lambda _: 0) as host,
        pytest.raises(InteractiveError, match="are the options those of inline-size"),
    ):
        options = for_clang(EVICT.interactive_options(host.channel))
        host.run([toolchain.clang, "-O2", "-c", source, "-o", tmp_path / "a.o", *options])


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("exit 3", "exit status 3"),
        ("kill -SEGV $$", "ended by SIGSEGV"),
        ("exec 4<$0.in; exit 3", "exit status 3"),
        ("exec 4<$0.in 3>$0.out; exit 3", "exit status 3"),
        (f"exec 4<$0.in 3>$0.out; echo '{HEADER}' >&3; kill -SEGV $$", "ended by SIGSEGV"),
        (f"exec 4<$0.in 3>$0.out; echo '{HEADER}' >&3; echo -n '{{' >&3; exit 3", "status 3"),
    ],
)
def test_a_compiler_that_dies(script: str, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        _impostor(script)


@pytest.mark.parametrize(
    "script",
    [
        "sleep 600",
        "exec 4<$0.in; sleep 600",
        "exec 4<$0.in 3>$0.out; sleep 600",
        f"exec 4<$0.in 3>$0.out; echo '{HEADER}' >&3; sleep 600",
        f"exec 4<$0.in 3>$0.out; echo '{HEADER}' >&3; exec 3>&-; sleep 600",
        f"exec 4<$0.in 3>$0.out; echo '{HEADER}' >&3; echo -n '{{' >&3; exec 3>&-; sleep 600",
    ],
)
def test_a_compiler_that_hangs_is_killed(script: str) -> None:
    start = time.monotonic()
    with pytest.raises(CommandError, match="killed after its limit") as caught:
        _impostor(script, timeout_s=0.5)
    assert caught.value.kind == "timeout"
    assert time.monotonic() - start < 300


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("nonsense\\n", "a line of JSON from the compiler:1:1: not JSON: .*b'nonsense'"),
        ("[]\\n", r"from the compiler: \$: expected `object`, found \[\]"),
        ("{}\\n", r"\$\.advice: is missing"),
        (HEADER + "\\n{}\\n", "expected an observation or a context"),
        (HEADER, "truncated line of JSON"),
        (HEADER + '\\n{"observation":0}\\n1234', "truncated observation of 4 instead of 9 bytes"),
        (HEADER + '\\n{"observation":0}\\n123456789', "observation 0 does not end in a newline"),
    ],
)
def test_a_compiler_that_does_not_keep_to_the_protocol(output: str, message: str) -> None:
    with pytest.raises(InteractiveError, match=message):
        _impostor(f"exec 4<$0.in 3>$0.out; printf '{output}' >&3")


def test_a_compiler_may_open_the_pipes_more_than_once_and_print_a_lot() -> None:
    numbers = []
    session = f"exec 4<$0.in 3>$0.out; printf '%s\\n{OBSERVATION}' '{HEADER}' >&3; head -c8 <&4"
    noise = "head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2"

    def decide(observation: Observation) -> int:
        numbers.append(observation.number)
        assert bytes(observation.features["a"]) == b"12345678"
        return 1

    _impostor(f"{session}; exec 3>&- 4<&-; {noise}; {session}", decide)
    assert numbers == [0, 1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        ("def decide(:", "decide.py: line 1: "),
        ("decide = 3", "defines no function decide"),
    ],
)
def test_a_users_file_that_is_none(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "decide.py"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InteractiveError, match=message):
        load_decisions(path)
