# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that the decision features of four times the calls take at most five times the steps."""

import re
import subprocess
import sys

FEW, MANY = 250, 1000

CALLEES = {
    # Inlined nowhere, everywhere, and everywhere with new blocks.
    "kept": (
        "  %a = call i32 @sink(i32 %x)\n  %b = call i32 @sink(i32 %a)\n"
        "  %c = call i32 @sink(i32 %b)\n  ret i32 %c"
    ),
    "inlined": "  %a = mul i32 %x, 3\n  ret i32 %a",
    "split": (
        "  %c = icmp eq i32 %x, 0\n  br i1 %c, label %t, label %f\n"
        "t:\n  %y = xor i32 %x, 9\n  ret i32 %y\nf:\n  ret i32 7"
    ),
}
OPTIONS = (
    "-passes=scc-oz-module-inliner",
    "-enable-ml-inliner=development",
    "-training-log=/dev/null",
    "-mlgo-decision-features",
    "-mlgo-verify-decision-features",
    "-disable-output",
)


def one_caller(calls: int) -> str:
    """A function with `calls` calls in one block, each of what the last one returned."""
    body = "\n".join(f"  %v{i + 1} = call i32 @callee(i32 %v{i})" for i in range(calls))
    return f"define i32 @caller(i32 %v0) {{\n{body}\n  ret i32 %v{calls}\n}}\n"


def one_argument(calls: int) -> str:
    """The same with the same argument for each call, and all results needed at the end."""
    body = "\n".join(
        f"  %v{i} = call i32 @callee(i32 %x)\n  call void @keep(i32 %k)" for i in range(calls)
    )
    ends = "\n".join(f"  call void @keep(i32 %v{i})" for i in range(calls))
    return f"define i32 @caller(i32 %x, i32 %k) {{\n{body}\n{ends}\n  ret i32 0\n}}\n"


def cases(calls: int) -> str:
    """A switch whose cases return what a call returns, from one block."""
    labels = " ".join(f"i32 {i}, label %b{i}" for i in range(calls))
    blocks = "\n".join(
        f"b{i}:\n  %v{i} = call i32 @callee(i32 {i})\n  br label %out" for i in range(calls)
    )
    values = ", ".join(f"[ %v{i}, %b{i} ]" for i in range(calls))
    return (
        f"define i32 @caller(i32 %x) {{\n  switch i32 %x, label %none [ {labels} ]\n{blocks}\n"
        f"none:\n  br label %out\nout:\n  %r = phi i32 {values}, [ 0, %none ]\n  ret i32 %r\n}}\n"
    )


def steps(opt: str, module: str) -> int:
    """The instructions and uses that the decision features of `module` took a look at."""
    found = subprocess.run(
        [opt, *OPTIONS, "-"], input=module, capture_output=True, text=True, check=True
    )
    match = re.search(r"looked at (\d+) instructions and uses for (\d+) decisions", found.stderr)
    if not match:
        sys.exit(f"no number of steps in {found.stderr!r}")
    return int(match.group(1))


for name, callee in CALLEES.items():
    head = "declare i32 @sink(i32)\ndeclare void @keep(i32)\n"
    head += f"define i32 @callee(i32 %x) {{\n{callee}\n}}\n"
    for make in (one_caller, one_argument, cases):
        few, many = (steps(sys.argv[1], head + make(calls)) for calls in (FEW, MANY))
        print(f"{name}, {make.__name__}: {few} and {many} steps")
        if many > 5 * few:
            sys.exit(f"{name}, {make.__name__}: {few} steps for {FEW} calls, {many} for {MANY}")
