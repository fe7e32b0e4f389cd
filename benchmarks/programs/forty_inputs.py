# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Generated inputs of the tables' programs: by name, what writes a file of some size."""

import math
import random
import wave
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from benchmarks.programs.inputs import (
    write_coloring,
    write_document,
    write_map,
    write_program,
    write_statements,
)

_LETTERS = "etaoinshrdlucmfwypvbgkjqxz"
_WORDS = 6000
_LINE = 60
_TILE = 512
_SAMPLES = 240_000
_DNA = "ACGT"
_AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"


def words(seed: int) -> list[str]:
    """Made words, the common ones first and short."""
    generator = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < _WORDS:
        length = 1 + min(int(generator.expovariate(0.25)), 2 + len(found) // 40)
        letters = (_LETTERS[min(int(generator.expovariate(0.15)), 25)] for _ in range(length))
        found["".join(letters)] = None
    return list(found)


def _prose(size: int, seed: int) -> Iterator[str]:
    """Paragraphs of `size` bytes in all; as in a language, some words are frequent."""
    generator, known, left = random.Random(seed), words(seed), size
    while left > 0:
        sentences = []
        for _ in range(generator.randrange(2, 9)):
            length = generator.randrange(4, 20)
            chosen = [known[int(_WORDS ** generator.random()) - 1] for _ in range(length)]
            sentences.append(" ".join(chosen).capitalize() + generator.choice("....?!"))
        paragraph = " ".join(sentences)
        left -= len(paragraph) + 2
        yield paragraph


def _text(path: Path, size: int, seed: int) -> None:
    """Prose in lines."""
    lines = []
    for paragraph in _prose(size, seed):
        line = ""
        for word in paragraph.split():
            if len(line) + len(word) > _LINE:
                lines.append(line)
                line = ""
            line += f" {word}" if line else word
        lines += [line, ""]
    path.write_text("\n".join(lines))


def _markdown(path: Path, size: int, seed: int) -> None:
    """Prose with headings, lists, emphasis, links and code."""
    generator = random.Random(seed)

    def marked(paragraph: str) -> str:
        kind = generator.randrange(6)
        if kind == 0:
            return f"{'#' * generator.randrange(1, 4)} {paragraph[:40]}"
        if kind == 1:
            return "\n".join(f"* {sentence}" for sentence in paragraph.split(". "))
        if kind == 2:
            return "\n".join(f"    {part}" for part in paragraph.split(". "))
        marks = [("**", "**"), ("*", "*"), ("`", "`"), ("[", "](http://a.example/b)"), ("", "")]
        parts = []
        for word in paragraph.split():
            before, after = generator.choices(marks, (1, 1, 1, 1, 30))[0]
            parts.append(before + word + after)
        return " ".join(parts)

    path.write_text("\n\n".join(marked(one) for one in _prose(size, seed)) + "\n")


def _html(path: Path, size: int, seed: int) -> None:
    """A page of paragraphs, lists, tables and headings."""
    generator = random.Random(seed)
    forms = ["<p>{}</p>", "<ul><li>{}</li><li>b</li></ul>", '<div class="a"><b>{}</b></div>']
    forms += ["<table><tr><td>{}</td><td>&amp;</td></tr></table>", "<h2><i>{}</i></h2>"]
    body = "\n".join(generator.choice(forms).format(one) for one in _prose(size, seed))
    head = '<head><meta charset="utf-8"><title>A page</title></head>'
    path.write_text(f'<!DOCTYPE html>\n<html lang="en">{head}<body>\n{body}\n</body></html>\n')


def _xml(path: Path, size: int, seed: int) -> None:
    """Elements in elements, with attributes and a few entities."""
    generator = random.Random(seed)
    lines = ["<?xml version='1.0'?>", "<document>"]
    for number, one in enumerate(_prose(size, seed)):
        inner = " &amp; ".join(f"<i>{part}</i>" for part in one.split(". "))
        lines.append(f'<p id="{number}" level="{generator.randrange(9)}">{inner}</p>')
    path.write_text("\n".join([*lines, "</document>"]) + "\n")


def _tile(seed: int) -> list[list[tuple[int, int, int]]]:
    """Rows of a coloured square: smooth parts, edges and a little noise."""
    generator = random.Random(seed)
    centers = [(generator.random() * _TILE, generator.random() * _TILE) for _ in range(12)]

    def pixel(x: int, y: int) -> tuple[int, int, int]:
        near = min((x - a) ** 2 + (y - b) ** 2 for a, b in centers) ** 0.5
        red = int(near * 3 + generator.randrange(8)) & 255
        return red, (x ^ y) // 2 & 255, int(127 + 120 * math.sin(x / 9))

    return [[pixel(x, y) for x in range(_TILE)] for y in range(_TILE)]


def _image(path: Path, times: int, seed: int) -> None:
    """A square of `times` by `times` tiles, as a portable pixmap."""
    rows = [bytes(value for pixel in row for value in pixel) * times for row in _tile(seed)]
    width = _TILE * times
    path.write_bytes(f"P6\n{width} {width}\n255\n".encode() + b"".join(rows) * times)


def _drawing(path: Path, times: int, seed: int) -> None:
    """The same in black and white, as a portable bitmap."""
    rows = []
    for row in _tile(seed):
        bits = "".join("1" if red > 150 and blue < 200 else "0" for red, _, blue in row)
        rows.append(int(bits, 2).to_bytes(_TILE // 8, "big") * times)
    width = _TILE * times
    path.write_bytes(f"P4\n{width} {width}\n".encode() + b"".join(rows) * times)


def _samples(times: int, seed: int) -> bytes:
    """Mono sound of 16 bits, `times` as long as a part of it: tones that fade, and noise."""
    generator, tones = random.Random(seed), [(1.0, 0.0)]
    samples = bytearray()
    for at in range(_SAMPLES):
        if at % 6000 == 0:
            tones = [(generator.uniform(80, 3000), generator.random()) for _ in range(4)]
        fade = math.exp(-(at % 6000) / 3000)
        value = sum(math.sin(at * pitch / 7000 + phase) for pitch, phase in tones)
        sample = int(5000 * fade * value + generator.gauss(0, 60))
        samples += sample.to_bytes(2, "little", signed=True)
    return bytes(samples) * times


def _raw_sound(path: Path, times: int, seed: int) -> None:
    path.write_bytes(_samples(times, seed))


def _sound(path: Path, times: int, seed: int) -> None:
    """The same in a WAV file."""
    with wave.open(str(path), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(44100)
        sound.writeframes(_samples(times, seed))


def _fasta(path: Path, sequences: Iterable[str]) -> None:
    with path.open("w") as stream:
        for number, sequence in enumerate(sequences):
            lines = [sequence[at : at + _LINE] for at in range(0, len(sequence), _LINE)]
            stream.write(f">s{number}\n" + "\n".join(lines) + "\n")


def _genome(path: Path, size: int, seed: int) -> None:
    """A sequence of bases in which parts occur again, changed."""
    generator = random.Random(seed)
    bases = "".join(generator.choices(_DNA, k=size // 2))
    while len(bases) < size:
        at = generator.randrange(len(bases))
        bases += _mutated(bases[at : at + 500], _DNA, 0.05, generator)
    _fasta(path, [bases[:size]])


def _proteins(path: Path, count: int, seed: int) -> None:
    """Sequences of one family, each a changed copy of an earlier one."""
    generator = random.Random(seed)
    family = ["".join(generator.choices(_AMINO_ACIDS, k=220))]
    while len(family) < count:
        family.append(_mutated(generator.choice(family), _AMINO_ACIDS, 0.15, generator))
    _fasta(path, family)


def _mutated(sequence: str, letters: str, share: float, generator: random.Random) -> str:
    parts = []
    for letter in sequence:
        if generator.random() > share:
            parts.append(letter)
        else:
            parts.append("".join(generator.choices(letters, k=generator.randrange(3))))
    return "".join(parts)


def _graph(path: Path, vertices: int, seed: int) -> None:
    """A dense random graph in DIMACS."""
    generator = random.Random(seed)
    pairs = [(one, other) for one in range(vertices) for other in range(one)]
    edges = [pair for pair in pairs if generator.random() < 0.6]
    lines = [f"e {one + 1} {other + 1}" for one, other in edges]
    path.write_text("\n".join([f"p edge {vertices} {len(edges)}", *lines]) + "\n")


def _points(path: Path, count: int, seed: int) -> None:
    """Points in four dimensions, as Qhull reads them."""
    generator = random.Random(seed)
    rows = (" ".join(f"{generator.gauss(0, 1):.6f}" for _ in range(4)) for _ in range(count))
    path.write_text("\n".join(["4", str(count), *rows]) + "\n")


def _pairs(path: Path, count: int, seed: int) -> None:
    """Keys and values, a pair a line, separated by a tabulator."""
    generator = random.Random(seed)
    path.write_text(
        "".join(
            f"{generator.randbytes(8).hex()}\t{generator.randbytes(12).hex()}\n"
            for _ in range(count)
        )
    )


def _labelled(path: Path, size: int, seed: int) -> None:
    """Sentences with a label each, as fastText reads them."""
    generator = random.Random(seed)
    lines = (f"__label__{generator.randrange(4)} {one}" for one in _prose(size, seed))
    path.write_text("\n".join(lines) + "\n")


def _keywords(path: Path, count: int, seed: int) -> None:
    """Different words, one a line."""
    generator = random.Random(seed)
    path.write_text("\n".join(sorted(generator.sample(words(seed), count))) + "\n")


def _grammar(path: Path, levels: int, _: int) -> None:
    """A grammar of yacc's: expressions with so many levels of operators."""
    names = [f"OP{level}" for level in range(levels)]
    lines = [f"%token NAME NUMBER {' '.join(names)}", "%%", "start: | start e0 ';' ;"]
    for level, name in enumerate(names):
        deeper = f"e{level + 1}"
        lines.append(f"e{level}: {deeper} | e{level} {name} {deeper} | {name} {deeper} ;")
    lines += [f"e{levels}: NAME | NUMBER | '(' e0 ')' ;", "%%"]
    path.write_text("\n".join(lines) + "\n")


def _macros(path: Path, count: int, seed: int) -> None:
    """C that is mostly calls of macros, which call each other."""
    generator = random.Random(seed)
    lines = ["#define M0(a, b) ((a) + (b))"]
    for number in range(1, 200):
        inner = generator.randrange(max(0, number - 6), number)
        lines.append(f"#define M{number}(a, b) (M{inner}(a, b) ? (b) : x ## a)")
    for number in range(count):
        lines.append(f"int v{number} = M{generator.randrange(12, 40)}(k{number}, {number});")
    path.write_text("\n".join(lines) + "\n")


def _assembly(path: Path, count: int, seed: int) -> None:
    """Instructions of x86-64, as NASM reads them, with a label after each ten."""
    generator = random.Random(seed)
    registers = ["rax", "rbx", "rcx", "rdx", "rsi", "rdi", *(f"r{n}" for n in range(8, 16))]
    lines = ["section .text"]
    for number in range(count):
        one, other = generator.choices(registers, k=2)
        operation = generator.choice(("mov", "add", "xor", "cmp", "sub", "and"))
        offset = generator.randrange(4096)
        operand = generator.choice((other, f"[{other} + {offset}]", str(offset), f"[{other}*8]"))
        if number % 10 == 0:
            lines += [f"l{number}:", f"  jne l{generator.randrange(number + 1) // 10 * 10}"]
        lines.append(f"  {operation} {one}, {operand}")
    path.write_text("\n".join(lines) + "\n")


def _dictionary(path: Path, count: int, seed: int) -> None:
    """A dictionary of hunspell's, and beside it (.aff) the rules of its endings."""
    chosen = words(seed)[-count:]
    path.write_text(f"{len(chosen)}\n" + "".join(f"{word}/S\n" for word in chosen))
    path.with_suffix(".aff").write_text(
        f"SET UTF-8\nTRY {_LETTERS}\nSFX S Y 2\nSFX S 0 s [^s]\nSFX S 0 es s\n"
    )


def _fortran(path: Path, count: int, seed: int) -> None:
    """So many subroutines of loops and conditions, in fixed form."""
    generator, lines = random.Random(seed), []
    for number in range(count):
        lines += [f"      subroutine s{number}(a, n)", "      integer i, n", "      real a(n), x"]
        lines += ["      x = 0.0", "      do 10 i = 1, n"]
        for _ in range(generator.randrange(2, 9)):
            value = generator.random()
            lines.append(
                f"        if (a(i) .gt. {value:.4f}) x = x + sqrt(abs(a(i))) * {value:.3f}"
            )
        lines += ["   10 continue", "      a(1) = x", "      return", "      end"]
    path.write_text("\n".join(lines) + "\n")


def _right_to_left(path: Path, size: int, seed: int) -> None:
    """Prose whose words are Latin or Hebrew."""
    generator = random.Random(seed)
    hebrew = {ord(letter): 0x5D0 + at for at, letter in enumerate(_LETTERS)}
    lines = []
    for paragraph in _prose(size, seed):
        parts = [w.translate(hebrew) if generator.random() < 0.5 else w for w in paragraph.split()]
        lines.append(" ".join(parts))
    path.write_text("\n".join(lines) + "\n")


def _coloring(path: Path, vertices: int, seed: int) -> None:
    write_coloring(path, vertices, int(vertices * 2.3), seed)


#: By name, a function of the file to write, its size (of what, the function says) and a seed.
MAKERS: dict[str, Callable[[Path, int, int], None]] = {
    "assembly": _assembly,
    "coloring": _coloring,
    "dictionary": _dictionary,
    "document": write_document,
    "drawing": _drawing,
    "fortran": _fortran,
    "genome": _genome,
    "grammar": _grammar,
    "graph": _graph,
    "html": _html,
    "image": _image,
    "keywords": _keywords,
    "labelled": _labelled,
    "macros": _macros,
    "map": write_map,
    "markdown": _markdown,
    "pairs": _pairs,
    "points": _points,
    "program": write_program,
    "proteins": _proteins,
    "raw-sound": _raw_sound,
    "right-to-left": _right_to_left,
    "sound": _sound,
    "statements": write_statements,
    "text": _text,
    "xml": _xml,
}
