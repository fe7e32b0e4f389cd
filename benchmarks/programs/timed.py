# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Interpreted work of many kinds for a CPython that is measured; the argument seeds it."""

import re
import sys
from collections.abc import Iterator


class Node:
    __slots__ = ("key", "left", "right")

    def __init__(self, key: int):
        self.key = key
        self.left: Node | None = None
        self.right: Node | None = None


class Tree:
    def __init__(self) -> None:
        self.root: Node | None = None
        self.size = 0

    def insert(self, key: int) -> bool:
        node, parent = self.root, None
        while node is not None:
            parent = node
            if key == node.key:
                return False
            node = node.left if key < node.key else node.right
        new = Node(key)
        if parent is None:
            self.root = new
        elif key < parent.key:
            parent.left = new
        else:
            parent.right = new
        self.size += 1
        return True


def numbers(seed: int, count: int) -> Iterator[int]:
    state = seed * 2654435761 % 2**32
    for _ in range(count):
        state = (state * 1103515245 + 12345) % 2**31
        yield state >> 3


def queens(n: int, row: int = 0, columns: int = 0, left: int = 0, right: int = 0) -> int:
    if row == n:
        return 1
    found, free = 0, ~(columns | left | right) & ((1 << n) - 1)
    while free:
        bit = free & -free
        free ^= bit
        found += queens(n, row + 1, columns | bit, (left | bit) << 1, (right | bit) >> 1)
    return found


def words(seed: int, count: int) -> list[str]:
    return [
        "".join(chr(97 + (n >> s) % 26) for s in range(0, 12 + n % 12, 3))
        for n in numbers(seed, count)
    ]


def nbody(steps: int) -> float:
    bodies = [[i * 1.5, i * 0.5 - 1, 0.1 * i, 0.0, 0.01 * i, 0.0, 1.0 + i] for i in range(5)]
    for _ in range(steps):
        for i, a in enumerate(bodies):
            for b in bodies[i + 1 :]:
                dx, dy, dz = a[0] - b[0], a[1] - b[1], a[2] - b[2]
                f = 0.001 / (dx * dx + dy * dy + dz * dz + 0.01) ** 1.5
                a[3] -= dx * b[6] * f
                a[4] -= dy * b[6] * f
                a[5] -= dz * b[6] * f
                b[3] += dx * a[6] * f
                b[4] += dy * a[6] * f
                b[5] += dz * a[6] * f
        for a in bodies:
            a[0] += 0.001 * a[3]
            a[1] += 0.001 * a[4]
            a[2] += 0.001 * a[5]
    return sum(a[0] for a in bodies)


def main(seed: int) -> None:
    tree = Tree()
    print(sum(tree.insert(n) for n in numbers(seed, 6000)), tree.size)
    print(queens(7))
    text = words(seed, 9000)
    counts: dict[str, int] = {}
    for word in text:
        counts[word[:3]] = counts.get(word[:3], 0) + 1
    print(sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:3])
    joined = " ".join(text)
    print(
        len(re.findall(r"\b[a-m]\w*([aeiou])\w\b", joined)),
        len(re.sub(r"([aeiou])\1?", "<\\1>", joined)),
    )
    print(f"{nbody(500):.6f}")
    table = [[(i * j + seed) % 7 for j in range(40)] for i in range(40)]
    print(
        sum(
            sum(x * y for x, y in zip(r, c, strict=True))
            for r in table
            for c in zip(*table, strict=True)
        )
    )
    out = []
    for i, word in enumerate(text[:4000]):
        out.append(f"{i:05d}:{word!r:>20}|{i / 7:.3f}".upper().replace("A", "-"))
    print(hash(tuple(len(o) for o in out)) & 0xFFFF, len("".join(out).split("-")))
    try:
        for n in numbers(seed, 3000):
            try:
                [][n]
            except IndexError as error:
                last = str(error)
        print(last)
    finally:
        print(len(set(text) & set(words(seed + 1, 2000))))


if __name__ == "__main__":
    for one in range(4):
        main(int(sys.argv[1]) * 10 + one)
