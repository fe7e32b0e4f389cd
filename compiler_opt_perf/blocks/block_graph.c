// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Basic blocks as graphs, many at a time, and the messages along their edges (block_graph.py, which
// calls these, says what the graphs are; graph_network.py, what the messages are for).
//
// Blocks are short: what a block has written is looked for from its end, one by one.

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
  NEXT,
  INPUT,
  OUTPUT,
  BASE,
  INDEX,
  CARRIED_INPUT,
  CARRIED_ADDRESS,
  CARRIED_MEMORY,
  SAME_LINE,
  OTHER_LINE
};
enum { REGISTER, ADDRESS, FORWARDED };
// The flags, as resources (instructions.py). Registers are smaller numbers.
enum { CARRY = 1000, FLAGS = 1001, RESOURCES = 1002 };
// So many executions in a row show which chain grows fastest.
enum { EXECUTIONS = 6 };
enum { LINE = 64 };
static const double LOAD_LATENCIES[] = {0.0, 4.0, 6.0};

// Arrays that grow.
typedef struct {
  void *data;
  size_t size, room;
} Array;

static int reserve(Array *array, size_t more, size_t width) {
  if (array->size + more <= array->room)
    return 1;
  size_t room = 2 * (array->size + more) + 64;
  void *data = realloc(array->data, room * width);
  if (!data)
    return 0;
  array->data = data;
  array->room = room;
  return 1;
}

#define ITEMS(type, array) ((type *)(array).data)
// Room for one more item, which the caller writes. NULL when memory runs out.
#define PUSH(type, array)                                                                          \
  (reserve(&(array), 1, sizeof(type)) ? &ITEMS(type, array)[(array).size++] : NULL)

// What an instruction is, apart from its constants: this, then so many pairs, tokens and accesses.
typedef struct {
  int64_t opcode, reads, addresses, immediates, accesses, writes;
} Described;
typedef struct {
  int64_t resource, token;
} Named;
typedef struct {
  int64_t base, base_token, index, index_token, scale, has_distance, distance, token, reads, writes;
} Access;
// An instruction with its constants.
typedef struct {
  int64_t described, displacement, from_next, grows, by;
} Instruction;

typedef struct {
  int32_t source, target, kind;
} Edge;
typedef struct {
  float instruction, role, weight;
} Link;
typedef struct {
  int64_t base, index, scale, distance;
} Key;
typedef struct {
  Key key;
  int32_t node;
  int64_t base, index;
} Stored;
typedef struct {
  int64_t resource, token;
  int32_t node, is_address;
} Early;
// What an instruction waits for: another one, of so many executions before, and how.
typedef struct {
  int32_t number, distance, role;
} Wait;
// A wait that belongs to a node.
typedef struct {
  int32_t node;
  Wait wait;
} Owned;
typedef struct {
  int64_t root, distance;
} Symbol;

typedef struct {
  // Results, of all blocks.
  Array tokens, places, edges, links, counts;
  // The present block's first node, instruction, edge and link.
  size_t node, place, edge, link;
  // The present block. A resource whose mark is another block's has nothing.
  int64_t mark, value_marks[RESOURCES], symbol_marks[RESOURCES], initial_marks[RESOURCES];
  int32_t values[RESOURCES], initial[RESOURCES];
  Symbol symbols[RESOURCES];
  int32_t unread[2];
  int64_t made;
  int is_carried, failed;
  Array is_memory, early, memory, stored, loaded, stores, latencies;
  // Of the search for the longest chain.
  Array numbers, writers, sources, waits, first, ready, came, seen, path;
} Graphs;

Graphs *graphs_new(void) { return calloc(1, sizeof(Graphs)); }

void graphs_delete(Graphs *graphs) {
  if (!graphs)
    return;
  Array *const arrays[] = {
      &graphs->tokens,    &graphs->places,    &graphs->edges,   &graphs->links,   &graphs->counts,
      &graphs->is_memory, &graphs->early,     &graphs->memory,  &graphs->stored,  &graphs->loaded,
      &graphs->stores,    &graphs->latencies, &graphs->numbers, &graphs->writers, &graphs->sources,
      &graphs->waits,     &graphs->first,     &graphs->ready,   &graphs->came,    &graphs->seen,
      &graphs->path};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; ++i)
    free(arrays[i]->data);
  free(graphs);
}

size_t graphs_size(const Graphs *graphs, int part) {
  const Array *const arrays[] = {&graphs->tokens, &graphs->places, &graphs->edges, &graphs->links,
                                 &graphs->counts};
  return arrays[part]->size;
}

const void *graphs_data(const Graphs *graphs, int part) {
  const Array *const arrays[] = {&graphs->tokens, &graphs->places, &graphs->edges, &graphs->links,
                                 &graphs->counts};
  return arrays[part]->data;
}

static int32_t add_node(Graphs *g, int64_t token, int is_memory) {
  int32_t *one = PUSH(int32_t, g->tokens);
  uint8_t *memory = PUSH(uint8_t, g->is_memory);
  if (!one || !memory) {
    g->failed = 1;
    return 0;
  }
  *one = (int32_t)token;
  *memory = (uint8_t)is_memory;
  return (int32_t)(g->tokens.size - g->node - 1);
}

static void add_edge(Graphs *g, int32_t source, int32_t target, int32_t kind) {
  Edge *edge = PUSH(Edge, g->edges);
  if (edge)
    *edge = (Edge){source, target, kind};
  else
    g->failed = 1;
}

// The node of a value that the block has written so far; -1 for none.
static int32_t value_of(Graphs *g, int64_t resource, int64_t token) {
  if (resource >= CARRY && g->unread[resource - CARRY] >= 0) {
    int32_t writer = g->unread[resource - CARRY];
    g->unread[resource - CARRY] = -1;
    int32_t node = add_node(g, token, 0);
    g->values[resource] = node;
    g->value_marks[resource] = g->mark;
    add_edge(g, writer, node, OUTPUT);
  }
  return g->value_marks[resource] == g->mark ? g->values[resource] : -1;
}

static void read_value(Graphs *g, int64_t resource, int64_t token, int32_t node, int32_t kind) {
  int32_t value = value_of(g, resource, token);
  if (value >= 0) {
    add_edge(g, value, node, kind);
    return;
  }
  Early *early = PUSH(Early, g->early);
  if (early)
    *early = (Early){resource, token, node, kind == BASE || kind == INDEX};
  else
    g->failed = 1;
}

// A register's value: what it was made of, and a distance from that. To begin with, itself.
static Symbol symbol_of(const Graphs *g, int64_t resource) {
  return g->symbol_marks[resource] == g->mark ? g->symbols[resource] : (Symbol){resource, 0};
}

// Distances wrap around, as addresses do.
static int64_t added(int64_t distance, int64_t factor, int64_t more) {
  return (int64_t)((uint64_t)distance + (uint64_t)factor * (uint64_t)more);
}

static Key key_of(const Graphs *g, const Access *access, int64_t own) {
  Key key = {0, 0, access->scale, access->has_distance ? access->distance : own};
  if (access->base) {
    Symbol symbol = symbol_of(g, access->base);
    key.base = symbol.root;
    key.distance = added(key.distance, 1, symbol.distance);
  }
  if (access->index) {
    Symbol symbol = symbol_of(g, access->index);
    key.index = symbol.root;
    key.distance = added(key.distance, access->scale, symbol.distance);
  }
  return key;
}

static int same_place(const Key *one, const Key *other) {
  return one->base == other->base && one->index == other->index && one->scale == other->scale;
}

static int64_t line_of(int64_t distance) {
  return distance >= 0 ? distance / LINE : -((LINE - 1 - distance) / LINE);
}

// Registers are taken to point to the beginning of a line.
static int same_line(const Key *one, const Key *other) {
  return same_place(one, other) && line_of(one->distance) == line_of(other->distance);
}

// The last of some memory with a key; NULL if there is none.
static Stored *find(const Array *memory, const Key *key) {
  for (size_t i = memory->size; i-- > 0;) {
    Stored *one = &ITEMS(Stored, *memory)[i];
    if (one->key.distance == key->distance && same_place(&one->key, key))
      return one;
  }
  return NULL;
}

static void keep(Graphs *g, Array *memory, const Key *key, int32_t node, const Access *access) {
  Stored *one = PUSH(Stored, *memory);
  if (one)
    *one = (Stored){*key, node, access->base, access->index};
  else
    g->failed = 1;
}

static void read_address(Graphs *g, const Access *access, int32_t value) {
  if (access->base)
    read_value(g, access->base, access->base_token, value, BASE);
  if (access->index)
    read_value(g, access->index, access->index_token, value, INDEX);
}

// What an instruction reads of memory, then what it writes there.
static void access_memory(Graphs *g, const Access *accesses, int64_t count, int32_t node,
                          int64_t own) {
  for (int64_t i = 0; i < count; ++i) {
    const Access *access = &accesses[i];
    if (!access->reads)
      continue;
    Key key = key_of(g, access, own);
    const Stored *known = find(&g->memory, &key);
    int32_t value = known ? known->node : -1;
    if (!known) {
      value = add_node(g, access->token, 1);
      keep(g, &g->memory, &key, value, access);
      read_address(g, access, value);
      keep(g, &g->loaded, &key, value, access);
    }
    add_edge(g, value, node, INPUT);
  }
  for (int64_t i = 0; i < count; ++i) {
    const Access *access = &accesses[i];
    if (!access->writes)
      continue;
    Key key = key_of(g, access, own);
    int32_t value = add_node(g, access->token, 1);
    read_address(g, access, value);
    add_edge(g, node, value, OUTPUT);
    keep(g, &g->memory, &key, value, access);
    keep(g, &g->stored, &key, value, access);
    if (g->stores.size) {
      const Stored *last = &ITEMS(Stored, g->stores)[g->stores.size - 1];
      add_edge(g, last->node, value, same_line(&last->key, &key) ? SAME_LINE : OTHER_LINE);
    }
    keep(g, &g->stores, &key, value, access);
  }
}

static void add_instruction(Graphs *g, const Instruction *instruction, const int64_t *record,
                            double latency, int64_t end) {
  const Described *one = (const Described *)record;
  const Named *reads = (const Named *)(one + 1), *addresses = reads + one->reads;
  const int64_t *immediates = (const int64_t *)(addresses + one->addresses);
  const Access *accesses = (const Access *)(immediates + one->immediates);
  const Named *writes = (const Named *)(accesses + one->accesses);
  int32_t node = add_node(g, one->opcode, 0);
  if (g->places.size > g->place)
    add_edge(g, ITEMS(int32_t, g->places)[g->places.size - 1], node, NEXT);
  int32_t *place = PUSH(int32_t, g->places);
  double *own_latency = PUSH(double, g->latencies);
  if (!place || !own_latency) {
    g->failed = 1;
    return;
  }
  *place = node;
  *own_latency = latency;
  for (int64_t i = 0; i < one->reads; ++i)
    read_value(g, reads[i].resource, reads[i].token, node, INPUT);
  for (int64_t i = 0; i < one->addresses; ++i)
    read_value(g, addresses[i].resource, addresses[i].token, node, INPUT);
  for (int64_t i = 0; i < one->immediates; ++i)
    add_edge(g, add_node(g, immediates[i], 0), node, INPUT);
  int64_t own = added(instruction->displacement, instruction->from_next, end);
  access_memory(g, accesses, one->accesses, node, own);
  for (int64_t i = 0; i < one->writes; ++i) {
    int64_t resource = writes[i].resource;
    if (resource >= CARRY) {
      // Most are never read; a node is made when one is.
      g->unread[resource - CARRY] = node;
      continue;
    }
    int32_t value = add_node(g, writes[i].token, 0);
    g->values[resource] = value;
    g->value_marks[resource] = g->mark;
    add_edge(g, node, value, OUTPUT);
    Symbol symbol = symbol_of(g, resource);
    if (resource == instruction->grows)
      symbol.distance = added(symbol.distance, 1, instruction->by);
    else
      symbol = (Symbol){++g->made, 0};
    g->symbols[resource] = symbol;
    g->symbol_marks[resource] = g->mark;
  }
}

// What the next execution addresses, in terms of the registers of this one.
static int next_time(const Graphs *g, const Stored *one, Key *key) {
  *key = one->key;
  const int64_t roots[] = {key->base, key->index}, registers[] = {one->base, one->index},
                factors[] = {1, key->scale};
  for (int i = 0; i < 2; ++i) {
    Symbol last = symbol_of(g, registers[i]);
    if (roots[i] && (roots[i] != registers[i] || last.root != roots[i]))
      return 0;
    key->distance = added(key->distance, factors[i], last.distance);
  }
  return 1;
}

// The block is executed again and again: what it reads first comes from its end.
static void close_block(Graphs *g) {
  for (size_t i = 0; i < g->early.size; ++i) {
    Early early = ITEMS(Early, g->early)[i];
    int32_t value = value_of(g, early.resource, early.token);
    int32_t kind = early.is_address ? CARRIED_ADDRESS : CARRIED_INPUT;
    if (value >= 0) {
      g->is_carried = 1;
    } else {
      kind = early.is_address ? BASE : INPUT;
      if (g->initial_marks[early.resource] != g->mark) {
        g->initial_marks[early.resource] = g->mark;
        g->initial[early.resource] = add_node(g, early.token, 0);
      }
      value = g->initial[early.resource];
    }
    add_edge(g, value, early.node, kind);
  }
  Key key;
  for (size_t i = 0; i < g->loaded.size; ++i) {
    const Stored *loaded = &ITEMS(Stored, g->loaded)[i];
    const Stored *stored = next_time(g, loaded, &key) ? find(&g->stored, &key) : NULL;
    if (stored) {
      add_edge(g, stored->node, loaded->node, CARRIED_MEMORY);
      g->is_carried = 1;
    }
  }
  if (g->stores.size) {
    const Stored *first = ITEMS(Stored, g->stores), *last = first + g->stores.size - 1;
    int is_same = next_time(g, first, &key) && same_line(&last->key, &key);
    add_edge(g, last->node, first->node, is_same ? SAME_LINE : OTHER_LINE);
  }
}

static void wait_for(Graphs *g, Array *array, int32_t node, Wait wait) {
  Owned *owned = PUSH(Owned, *array);
  if (owned)
    *owned = (Owned){node, wait};
  else
    g->failed = 1;
}

// Room for so many items, which are all there then.
static int resize(Graphs *g, Array *array, size_t size, size_t width) {
  array->size = 0;
  if (!reserve(array, size, width)) {
    g->failed = 1;
    return 0;
  }
  array->size = size;
  return 1;
}

// What instructions wait for, in the order of edges: `waits`, by number of the instruction.
static int find_waits(Graphs *g, size_t nodes, size_t count) {
  const int32_t *places = ITEMS(int32_t, g->places) + g->place;
  const Edge *edges = ITEMS(Edge, g->edges) + g->edge;
  size_t number_of_edges = g->edges.size - g->edge;
  const uint8_t *is_memory = ITEMS(uint8_t, g->is_memory);
  if (!resize(g, &g->numbers, nodes, sizeof(int32_t)) ||
      !resize(g, &g->writers, nodes, sizeof(int32_t)))
    return 0;
  int32_t *numbers = ITEMS(int32_t, g->numbers), *writers = ITEMS(int32_t, g->writers);
  memset(writers, 0xff, nodes * sizeof *writers);
  for (size_t i = 0; i < count; ++i)
    numbers[places[i]] = (int32_t)i;
  g->sources.size = g->waits.size = 0;
  for (size_t i = 0; i < number_of_edges; ++i)
    if (edges[i].kind == OUTPUT)
      writers[edges[i].target] = numbers[edges[i].source];
  for (size_t i = 0; i < number_of_edges; ++i) {
    const Edge edge = edges[i];
    if (writers[edge.source] < 0)
      continue;
    if (edge.kind == BASE || edge.kind == INDEX || edge.kind == CARRIED_ADDRESS)
      wait_for(g, &g->sources, edge.target,
               (Wait){writers[edge.source], edge.kind == CARRIED_ADDRESS, ADDRESS});
    else if (edge.kind == CARRIED_MEMORY)
      wait_for(g, &g->sources, edge.target, (Wait){writers[edge.source], 1, FORWARDED});
  }
  for (size_t i = 0; i < number_of_edges; ++i) {
    const Edge edge = edges[i];
    if (edge.kind != INPUT && edge.kind != CARRIED_INPUT)
      continue;
    int32_t waiter = numbers[edge.target];
    if (writers[edge.source] >= 0) {
      int32_t role = is_memory[edge.source] ? FORWARDED : REGISTER;
      wait_for(g, &g->waits, waiter,
               (Wait){writers[edge.source], edge.kind == CARRIED_INPUT, role});
    }
    for (size_t j = 0; j < g->sources.size; ++j)
      if (ITEMS(Owned, g->sources)[j].node == edge.source)
        wait_for(g, &g->waits, waiter, ITEMS(Owned, g->sources)[j].wait);
  }
  return !g->failed;
}

// The longest chain that an execution hands to the next.
static void add_chain(Graphs *g) {
  size_t nodes = g->tokens.size - g->node, count = g->places.size - g->place;
  if (!g->is_carried || !find_waits(g, nodes, count))
    return;
  // By execution, from 0, before which nothing was: when results are ready, and the wait that was
  // last.
  if (!resize(g, &g->ready, (EXECUTIONS + 1) * count, sizeof(double)) ||
      !resize(g, &g->came, (EXECUTIONS + 1) * count, sizeof(Wait)))
    return;
  double *ready = ITEMS(double, g->ready);
  Wait *came = ITEMS(Wait, g->came);
  const double *latencies = ITEMS(double, g->latencies);
  const Owned *waits = ITEMS(Owned, g->waits);
  for (size_t i = 0; i < count; ++i)
    ready[i] = 0.0;
  // Waits of an instruction begin at `first`, in their order.
  if (!resize(g, &g->first, count + 1 + g->waits.size, sizeof(int32_t)))
    return;
  int32_t *first = ITEMS(int32_t, g->first), *order = first + count + 1;
  memset(first, 0, (count + 1) * sizeof *first);
  for (size_t i = 0; i < g->waits.size; ++i)
    ++first[waits[i].node + 1];
  for (size_t i = 0; i < count; ++i)
    first[i + 1] += first[i];
  for (size_t i = 0; i < g->waits.size; ++i)
    order[first[waits[i].node]++] = (int32_t)i;
  for (size_t i = count; i > 0; --i)
    first[i] = first[i - 1];
  first[0] = 0;
  for (int execution = 1; execution <= EXECUTIONS; ++execution) {
    const double *earlier = ready + (execution - 1) * count;
    double *now = ready + execution * count;
    for (size_t i = 0; i < count; ++i) {
      double latest = 0.0;
      Wait link = {-1, 0, 0};
      for (int32_t j = first[i]; j < first[i + 1]; ++j) {
        Wait wait = waits[order[j]].wait;
        double at = (wait.distance ? earlier : now)[wait.number] + LOAD_LATENCIES[wait.role];
        if (at > latest) {
          latest = at;
          link = wait;
        }
      }
      now[i] = latest + latencies[i];
      came[execution * count + i] = link;
    }
  }
  const double *last = ready + EXECUTIONS * count, *half = ready + EXECUTIONS / 2 * count;
  size_t place = 0;
  for (size_t i = 1; i < count; ++i)
    if (last[i] - half[i] > last[place] - half[place])
      place = i;
  // Back along what was waited for, until an instruction comes again.
  if (!resize(g, &g->seen, 2 * count, sizeof(int32_t)))
    return;
  int32_t *seen = ITEMS(int32_t, g->seen);
  memset(seen, 0xff, 2 * count * sizeof *seen);
  g->path.size = 0;
  for (int execution = EXECUTIONS; execution > 0;) {
    if (seen[2 * place] >= 0) {
      float weight = 1.0f / (float)(seen[2 * place + 1] - execution);
      for (size_t i = (size_t)seen[2 * place]; i < g->path.size; ++i) {
        Link *link = PUSH(Link, g->links);
        if (!link) {
          g->failed = 1;
          return;
        }
        *link = ITEMS(Link, g->path)[i];
        link->weight = weight;
      }
      return;
    }
    seen[2 * place] = (int32_t)g->path.size;
    seen[2 * place + 1] = execution;
    Wait wait = came[(size_t)execution * count + place];
    if (wait.number < 0)
      return;
    Link *link = PUSH(Link, g->path);
    if (!link) {
      g->failed = 1;
      return;
    }
    *link = (Link){(float)place, (float)wait.role, 0.0f};
    place = (size_t)wait.number;
    execution -= wait.distance;
  }
}

// Adds the graphs of blocks; returns 0 when memory runs out.
//
// records, offsets: what instructions are, and where each begins; latencies: of these, in cycles.
// instructions: with their constants. numbers, ends: of each instruction of the blocks, which it
// is, and where the next one begins. starts: of blocks, among these; one more than there are
// blocks.
int graphs_add(Graphs *g, const int64_t *records, const int64_t *offsets, const double *latencies,
               const Instruction *instructions, const int32_t *numbers, const int32_t *ends,
               const int64_t *starts, int64_t blocks) {
  for (int64_t block = 0; block < blocks && !g->failed; ++block) {
    g->node = g->tokens.size;
    g->place = g->places.size;
    g->edge = g->edges.size;
    g->link = g->links.size;
    ++g->mark;
    g->unread[0] = g->unread[1] = -1;
    g->made = 1 << 16;
    g->is_carried = 0;
    g->is_memory.size = g->early.size = g->memory.size = g->stored.size = 0;
    g->loaded.size = g->stores.size = g->latencies.size = 0;
    for (int64_t i = starts[block]; i < starts[block + 1]; ++i) {
      const Instruction *one = &instructions[numbers[i]];
      add_instruction(g, one, records + offsets[one->described], latencies[one->described],
                      ends[i]);
    }
    close_block(g);
    add_chain(g);
    if (!reserve(&g->counts, 4, sizeof(int64_t)))
      return 0;
    int64_t *counts = ITEMS(int64_t, g->counts) + g->counts.size;
    g->counts.size += 4;
    counts[0] = (int64_t)(g->tokens.size - g->node);
    counts[1] = (int64_t)(g->places.size - g->place);
    counts[2] = (int64_t)(g->edges.size - g->edge);
    counts[3] = (int64_t)(g->links.size - g->link);
  }
  return !g->failed;
}

// Adds to each node what its neighbours send: relu(sent * gate + shift), gate and shift by the kind
// of edge.
//
// sent: [nodes, stride], of which `width` values from its beginning are sent. gates, shifts:
// [kinds, width]. sources, targets: of the edges; step: from one to the next. received: [nodes,
// received_stride].
void send_messages(const float *sent, int64_t stride, const float *gates, const float *shifts,
                   int64_t width, const int32_t *sources, const int32_t *targets,
                   const int32_t *kinds, int64_t edges, float *received, int64_t received_stride) {
  for (int64_t i = 0; i < edges; ++i) {
    const float *from = sent + sources[i] * stride, *gate = gates + kinds[i] * width,
                *shift = shifts + kinds[i] * width;
    float *restrict to = received + targets[i] * received_stride;
    for (int64_t j = 0; j < width; ++j) {
      float message = from[j] * gate[j] + shift[j];
      to[j] += message > 0.0f ? message : 0.0f;
    }
  }
}
