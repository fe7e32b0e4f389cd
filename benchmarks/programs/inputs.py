# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Generated inputs of programs: the same seed gives the same bytes."""

import random
from pathlib import Path

from compiler_opt_perf.run.files import write_json, write_text


def write_document(path: Path, records: int, seed: int) -> None:
    """JSON, and so YAML: records of numbers, texts and lists."""
    generator = random.Random(seed)
    words = ["".join(generator.choices("abcdefghij ", k=12)).strip() for _ in range(200)]
    rows = [
        {
            "number": generator.randrange(10**6),
            "share": generator.random(),
            "name": generator.choice(words),
            "tags": generator.choices(words, k=generator.randrange(6)),
            "inner": {
                "flag": generator.random() < 0.5,
                "text": " ".join(generator.sample(words, 4)),
            },
        }
        for _ in range(records)
    ]
    write_json(path, rows)


def write_map(path: Path, features: int, seed: int) -> None:
    """JSON of another make: polygons of a map, in lists of lists of numbers, and escaped texts."""
    generator = random.Random(seed)

    def ring() -> list[list[float]]:
        points = [
            [round(generator.uniform(-180, 180), 6), round(generator.uniform(-90, 90), 6)]
            for _ in range(generator.randrange(4, 40))
        ]
        return [*points, points[0]]

    def feature(number: int) -> dict[str, object]:
        rings = [ring() for _ in range(generator.randrange(1, 3))]
        letters = generator.choices('abc \t"\\/äß€', k=generator.randrange(80))
        properties = {"id": f"way/{number}", "note": "".join(letters), "height": None}
        geometry = {"type": "Polygon", "coordinates": rings}
        return {"type": "Feature", "geometry": geometry, "properties": properties}

    found = [feature(number) for number in range(features)]
    write_json(path, {"type": "FeatureCollection", "features": found})


def write_manifest(path: Path, services: int, seed: int) -> None:
    """YAML in blocks, as people write it: comments, anchors, texts of several lines."""
    generator = random.Random(seed)
    lines = ["# Services, and how they are run.", "defaults: &defaults", "  restart: on-failure"]
    lines += ["  limits: {memory: 512M, processors: 0.5}", "services:"]
    for number in range(services):
        port = generator.randrange(1024, 65536)
        lines += [f"  - name: service-{number}", "    run: *defaults", f"    image: 'name:{port}'"]
        lines += [f"    # {generator.randrange(10**9)} is not a port", "    ports:"]
        lines += [f'      - "{port + more}:80"' for more in range(generator.randrange(1, 4))]
        lines += ["    environment:"]
        for key in range(generator.randrange(2, 8)):
            lines.append(f"      KEY_{key}: value {generator.random():.6f} of {key}")
        lines += ["    script: |"]
        for _ in range(generator.randrange(1, 6)):
            lines.append("      echo " + "x" * generator.randrange(60) + f" > /tmp/{number}")
        lines += ["    about: >-", "      A service that is", "      described in lines."]
    write_text(path, "\n".join(lines) + "\n")


def write_records(path: Path, count: int, size: int, seed: int) -> None:
    """Text in the form of Berkeley DB's dumps: keys of 12 bytes, values of `size`."""
    generator = random.Random(seed)
    with path.open("w") as stream:
        stream.write("VERSION=3\nformat=bytevalue\ntype=btree\nmapsize=268435456\nHEADER=END\n")
        for _ in range(count):
            key, value = generator.randbytes(12).hex(), generator.randbytes(size).hex()
            stream.write(f" {key}\n {value}\n")
        stream.write("DATA=END\n")


def write_formula(path: Path, seed: int) -> None:
    """A formula in DIMACS: clauses of three literals, as many as make a solver's work long."""
    generator = random.Random(seed)
    variables, clauses = 200, 852
    with path.open("w") as stream:
        stream.write(f"p cnf {variables} {clauses}\n")
        for _ in range(clauses):
            chosen = generator.sample(range(1, variables + 1), 3)
            literals = (generator.choice((-1, 1)) * one for one in chosen)
            stream.write(" ".join(map(str, literals)) + " 0\n")


def write_coloring(path: Path, vertices: int, edges: int, seed: int) -> None:
    """A formula in DIMACS of another make: may a random graph have three colors?"""
    generator = random.Random(seed)
    colors = range(3)

    def variable(vertex: int, color: int) -> int:
        return len(colors) * vertex + color + 1

    pairs: set[tuple[int, int]] = set()
    while len(pairs) < edges:
        one, other = sorted(generator.sample(range(vertices), 2))
        pairs.add((one, other))
    clauses = [[variable(vertex, color) for color in colors] for vertex in range(vertices)]
    clauses += [
        [-variable(one, color), -variable(other, color)]
        for one, other in sorted(pairs)
        for color in colors
    ]
    with path.open("w") as stream:
        stream.write(f"p cnf {len(colors) * vertices} {len(clauses)}\n")
        stream.writelines(" ".join(map(str, clause)) + " 0\n" for clause in clauses)


def write_program(path: Path, functions: int, seed: int) -> None:
    """C without headers: functions of expressions, loops and branches that call each other."""
    generator = random.Random(seed)
    lines = ["struct pair { int first, second; long sum; };", "static int table[256];"]

    def expression(depth: int) -> str:
        if depth == 0:
            names = ("a", "b", "i", "p.first", "p.second", "table[a & 255]")
            return generator.choice((*names, str(generator.randrange(1000))))
        operator = generator.choice(("+", "-", "*", "&", "|", "^", "<", "==", "&&"))
        return f"({expression(depth - 1)} {operator} {expression(depth - 1)})"

    for number in range(functions):
        lines += [f"static int f{number}(int a, int b)", "{", "  struct pair p = { a, b, 0 };"]
        lines += ["  int i;", f"  for (i = 0; i < {generator.randrange(2, 9)}; ++i) {{"]
        for _ in range(generator.randrange(1, 6)):
            lines.append(f"    if ({expression(2)}) p.first += {expression(3)};")
            lines.append(f"    else p.second = {expression(2)};")
        lines += ["    switch (a & 3) {", f"    case 0: p.sum += {expression(3)}; break;"]
        lines += [f"    case 1: table[b & 255] = {expression(2)}; break;", "    default: break;"]
        lines += ["    }", "  }"]
        if number:
            called = generator.randrange(number)
            lines.append(f"  if (a > {called}) p.first += f{called}(b, p.second);")
        lines += [f"  return p.first ^ p.second ^ (int)p.sum ^ {expression(1)};", "}"]
    calls = " + ".join(f"f{number}(argc, {number})" for number in range(0, functions, 50))
    lines.append(f"int main(int argc, char **argv) {{ return {calls}; }}")
    write_text(path, "\n".join(lines) + "\n")


_SCHEMA = """\
create table account (id int primary key, branch int, balance int, name text, day date)
insert into account select i, i % 97, i * 7919 % 10007, md5(i::text), date '2020-01-01' + i % 900 \
from generate_series(0, 4999) i
create index account_branch on account (branch, balance)
create table history (account int references account, delta int, note text)
create index history_account on history (account)
analyze
"""
_STATEMENTS = (
    "select name, balance from account where id = {account}",
    "update account set balance = balance + {delta} where id = {account}",
    "insert into history values ({account}, {delta}, '{word}')",
    "select day, sum(balance) from account where branch = {branch} group by day order by 2, 1",
    "select a.name, h.delta from account a join history h on h.account = a.id "
    "where a.branch < {branch} order by h.delta desc, a.id limit 5",
    "select upper(name), position('{word}' in name) from account where name like '{branch}%'",
    "select json_agg(t) from (select note, delta from history where delta > {delta} limit 9) t",
    "select to_char(day, 'YYYY-MM'), rank() over (order by balance) from account "
    "where branch = {branch} and not exists (select from history where account = id)",
    "delete from history where account = {account} and delta < {delta}",
    "select count(*) from account where name ~ '[{branch}]+a' and branch < 9",
)


def write_statements(path: Path, count: int, seed: int) -> None:
    """Statements of a bank for one connection of PostgreSQL's, undone at the end; one a line."""
    generator = random.Random(seed)
    lines = ["begin", *_SCHEMA.splitlines()]
    for _ in range(count):
        lines.append(
            generator.choice(_STATEMENTS).format(
                account=generator.randrange(5000),
                branch=generator.randrange(97),
                delta=generator.randrange(-500, 500),
                word=f"{generator.randrange(4096):x}",
            )
        )
    path.write_text("\n".join([*lines, "rollback"]) + "\n")
