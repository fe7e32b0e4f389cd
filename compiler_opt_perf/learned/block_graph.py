# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One block as a graph of instructions and values.

The graph is that of Sykora et al. (GRANITE, IISWC 2022): nodes are instructions, and the values of
registers, memory and immediates; edges say which instruction follows, reads or writes. A block is
measured many times in a row, so that more is told:

- a value that is read before it is written comes from the execution before ("carried");
- an address that is made of the same values and the same distance names the same memory;
- a store is followed by one to the same line of the cache, or to another one;
- the longest chain of dependences that an execution hands to the next.
"""

from compiler_opt_perf.learned.instructions import (
    CARRY,
    FLAGS,
    MEMORY,
    Access,
    Instruction,
    register_token,
)

#: Kinds of edges; each is followed in both directions.
NEXT, INPUT, OUTPUT, BASE, INDEX, CARRIED_INPUT, CARRIED_ADDRESS, CARRIED_MEMORY = range(8)
#: From a store to the next one, which writes to the same line of the cache or to another one.
SAME_LINE, OTHER_LINE = 8, 9
EDGE_KINDS = 10
#: How the longest chain of dependences enters an instruction.
ROLES = 3
REGISTER, ADDRESS, FORWARDED = range(ROLES)
_LINE = 64
# Beside the latency of the instruction, roughly, by role.
_LOAD_LATENCIES = (0.0, 4.0, 6.0)
# So many executions in a row show which chain grows fastest.
_EXECUTIONS = 6

_Key = tuple[int, int, int, int]


def _line(key: _Key) -> _Key:
    """The line of the cache; registers are taken to point to the beginning of one."""
    base, index, scale, distance = key
    return base, index, scale, distance // _LINE


class BlockGraph:
    """The graph of one block, made instruction by instruction.

    Attributes:
      tokens: of the nodes.
      instructions: their nodes.
      edges: source and target, both nodes, and kind.
    """

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.instructions: list[int] = []
        self.edges: list[tuple[int, int, int]] = []
        # The node of the value of a register, once it is written.
        self._values: dict[int, int] = {}
        # The instructions that wrote flags which nothing has read.
        self._unread: dict[int, int] = {}
        # Reads before that: resource, node, whether for an address, token.
        self._early: list[tuple[int, int, bool, str]] = []
        # A register's value: what it was made of, and a distance from that. To begin with, itself.
        self._symbols: dict[int, tuple[int, int]] = {}
        self._made = 1 << 16
        self._memory: dict[_Key, int] = {}
        self._stored: dict[_Key, int] = {}
        self._loaded: list[tuple[_Key, int, int, int]] = []
        # Stores in order: key, node, registers.
        self._stores: list[tuple[_Key, int, int, int]] = []
        self._latencies: list[float] = []
        # Something comes from the execution before.
        self._is_carried = False

    def add(self, instruction: Instruction, end: int) -> None:
        """The next instruction, which ends at `end`."""
        one = instruction.described
        tokens, edges = self.tokens, self.edges
        node = len(tokens)
        tokens.append(one.opcode)
        if self.instructions:
            edges.append((self.instructions[-1], node, NEXT))
        self.instructions.append(node)
        self._latencies.append(one.latency)
        for resource, token in one.reads:
            self._read(resource, token, node, INPUT)
        for resource, token in one.addresses:
            self._read(resource, token, node, INPUT)
        for token in one.immediates:
            edges.append((len(tokens), node, INPUT))
            tokens.append(token)
        if one.accesses:
            self._access(instruction, node, end)
        for resource, token in one.writes:
            if resource in (CARRY, FLAGS):
                # Most are never read; a node is made when one is.
                self._unread[resource] = node
                continue
            value = self._values[resource] = len(tokens)
            tokens.append(token)
            edges.append((node, value, OUTPUT))
            if resource == instruction.grows:
                root, distance = self._symbols.get(resource, (resource, 0))
                self._symbols[resource] = root, distance + instruction.by
            else:
                self._made += 1
                self._symbols[resource] = self._made, 0

    def _access(self, instruction: Instruction, node: int, end: int) -> None:
        """What an instruction reads of memory, then what it writes there."""
        accesses, tokens, edges = instruction.described.accesses, self.tokens, self.edges
        keys = []
        own = instruction.displacement + (end if instruction.from_next else 0)
        for access in accesses:
            key = self._key(access, own)
            keys.append(key)
            if access.reads:
                value = self._memory.get(key)
                if value is None:
                    value = self._memory[key] = len(tokens)
                    tokens.append(access.token)
                    self._address(access, value)
                    self._loaded.append((key, value, access.base, access.index))
                edges.append((value, node, INPUT))
        for access, key in zip(accesses, keys, strict=True):
            if access.writes:
                value = len(tokens)
                tokens.append(access.token)
                self._address(access, value)
                edges.append((node, value, OUTPUT))
                self._memory[key] = self._stored[key] = value
                self._store((key, value, access.base, access.index))

    def close(self) -> None:
        """The block is executed again and again: what it reads first comes from its end."""
        initial: dict[int, int] = {}
        for resource, node, is_address, token in self._early:
            value = self._value(resource, token)
            if value is not None:
                kind = CARRIED_ADDRESS if is_address else CARRIED_INPUT
                self._is_carried = True
            else:
                value = initial.get(resource)
                if value is None:
                    value = initial[resource] = len(self.tokens)
                    self.tokens.append(token)
                kind = BASE if is_address else INPUT
            self.edges.append((value, node, kind))
        for key, node, *registers in self._loaded:
            found = self._next_time(key, *registers)
            value = None if found is None else self._stored.get(found)
            if value is not None:
                self.edges.append((value, node, CARRIED_MEMORY))
                self._is_carried = True
        if self._stores:
            key, node, *registers = self._stores[0]
            found = self._next_time(key, *registers)
            last = self._stores[-1]
            is_same = found is not None and _line(last[0]) == _line(found)
            self.edges.append((last[1], node, SAME_LINE if is_same else OTHER_LINE))

    def chain(self) -> list[tuple[int, int, float]]:
        """The longest chain that an execution hands to the next: instruction, role, weight."""
        if not self._is_carried:
            return []
        before = self._dependences()
        count = len(before)
        ready = [[0.0] * count]
        came: list[list[tuple[int, int, int] | None]] = [[None] * count]
        for _ in range(_EXECUTIONS):
            now: list[float] = []
            links: list[tuple[int, int, int] | None] = []
            earlier = ready[-1]
            for latency, sources in zip(self._latencies, before, strict=True):
                latest, link = 0.0, None
                for source in sources:
                    number, distance, role = source
                    at = earlier[number] if distance else now[number]
                    at += _LOAD_LATENCIES[role]
                    if at > latest:
                        latest, link = at, source
                now.append(latest + latency)
                links.append(link)
            ready.append(now)
            came.append(links)
        half = ready[_EXECUTIONS // 2]
        growth = [late - early for late, early in zip(ready[-1], half, strict=True)]
        place = growth.index(max(growth))
        execution = _EXECUTIONS
        seen: dict[int, tuple[int, int]] = {}
        path: list[tuple[int, int]] = []
        while execution > 0:
            if place in seen:
                start, first = seen[place]
                weight = 1.0 / (first - execution)
                return [(one, role, weight) for one, role in path[start:]]
            seen[place] = len(path), execution
            link = came[execution][place]
            if link is None:
                return []
            path.append((place, link[2]))
            place, execution = link[0], execution - link[1]
        return []

    def _dependences(self) -> list[list[tuple[int, int, int]]]:
        """What each instruction waits for: instruction, executions before, role."""
        numbers = {node: number for number, node in enumerate(self.instructions)}
        writers: dict[int, int] = {}
        sources: dict[int, list[tuple[int, int, int]]] = {}
        for source, target, kind in self.edges:
            if kind == OUTPUT:
                writers[target] = numbers[source]
        for source, target, kind in self.edges:
            if source not in writers:
                continue
            if kind in (BASE, INDEX, CARRIED_ADDRESS):
                link = writers[source], int(kind == CARRIED_ADDRESS), ADDRESS
            elif kind == CARRIED_MEMORY:
                link = writers[source], 1, FORWARDED
            else:
                continue
            sources.setdefault(target, []).append(link)
        found: list[list[tuple[int, int, int]]] = [[] for _ in numbers]
        for source, target, kind in self.edges:
            if kind not in (INPUT, CARRIED_INPUT):
                continue
            waits = found[numbers[target]]
            if source in writers:
                is_memory = self.tokens[source].startswith(MEMORY)
                role = FORWARDED if is_memory else REGISTER
                waits.append((writers[source], int(kind == CARRIED_INPUT), role))
            if source in sources:
                waits.extend(sources[source])
        return found

    def _store(self, store: tuple[_Key, int, int, int]) -> None:
        if self._stores:
            key, node, *_ = self._stores[-1]
            is_same = _line(key) == _line(store[0])
            self.edges.append((node, store[1], SAME_LINE if is_same else OTHER_LINE))
        self._stores.append(store)

    def _next_time(self, key: _Key, first: int, second: int) -> _Key | None:
        """What the next execution addresses, in terms of the registers of this one."""
        base, index, scale, distance = key
        for root, register, factor in ((base, first, 1), (index, second, scale)):
            last = self._symbols.get(register, (register, 0))
            if root and (root != register or last[0] != root):
                return None
            distance += factor * last[1]
        return base, index, scale, distance

    def _read(self, resource: int, token: str, node: int, kind: int) -> None:
        value = self._value(resource, token)
        if value is None:
            self._early.append((resource, node, kind in (BASE, INDEX), token))
        else:
            self.edges.append((value, node, kind))

    def _value(self, resource: int, token: str) -> int | None:
        """The node of a value that the block has written so far."""
        writer = self._unread.pop(resource, None)
        if writer is not None:
            self._values[resource] = len(self.tokens)
            self.edges.append((writer, len(self.tokens), OUTPUT))
            self.tokens.append(token)
        return self._values.get(resource)

    def _address(self, access: Access, value: int) -> None:
        for register, kind in ((access.base, BASE), (access.index, INDEX)):
            if register:
                self._read(register, register_token(register), value, kind)

    def _key(self, access: Access, own: int) -> _Key:
        distance = own if access.displacement is None else access.displacement
        base = index = 0
        if access.base:
            base, more = self._symbols.get(access.base, (access.base, 0))
            distance += more
        if access.index:
            index, more = self._symbols.get(access.index, (access.index, 0))
            distance += more * access.scale
        return base, index, access.scale, distance
