// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Simulates the branch predictor of a modern core on a block trace; counts mispredicted branches.
// TAGE predicts directions and ITTAGE predicts targets (Seznec and Michaud, "A case for (partially)
// tagged geometric history length branch prediction", 2006; Seznec, "A 64-Kbytes ITTAGE indirect
// branch predictor", 2011). Vendors do not publish their predictors. Like those, this one learns
// patterns of hundreds of branches; callgrind's does not. Its tables are larger than those that are
// known of, with some 500 and 300 KiB of state. In smaller ones hot branches collide, and which do
// changes with the place of the code: one change of it tripled the mispredictions of Lua.
//
// A trace has blocks, but no instructions. The successor shows how a block ended: a function's
// entry follows a call, and an inner block of another function follows a return. Every other
// successor follows the block's exit, which counts as a branch once it has had two successors.

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TABLES 12
#define TABLE_BITS 14
#define TAG_BITS 16
#define BASE_BITS 14
#define TARGET_TABLES 6
#define TARGET_TABLE_BITS 13
#define HISTORY 1024
#define CALLS 4096
// After this many branches the usefulness of all entries is halved.
#define AGING (1u << 18)

static const uint16_t lengths[TABLES] = {4, 6, 10, 16, 25, 40, 64, 101, 160, 254, 403, 640};
static const uint16_t target_lengths[TARGET_TABLES] = {4, 10, 25, 64, 160, 403};

// Prefixes of the history, each folded to the width of an index or a tag. Arrays, so that vector
// instructions update all of them at once.
enum { INDEX, TAG = TABLES, TAG2 = 2 * TABLES, TARGET_INDEX = 3 * TABLES };
enum { TARGET_TAG = TARGET_INDEX + TARGET_TABLES, FOLDS = TARGET_TAG + TARGET_TABLES };

struct folds {
  uint32_t value[FOLDS], width[FOLDS], out[FOLDS], mask[FOLDS], length[FOLDS];
};

struct entry {
  int8_t counter;
  uint8_t useful;
  uint16_t tag;
};

struct target_entry {
  uint32_t target;
  uint16_t tag;
  int8_t confidence;
  uint8_t useful;
};

enum { UNSEEN = UINT32_MAX };

// Behaviour of a block so far: first, second and last successor of its exit, and its last callee.
struct behaviour {
  uint32_t first, second, last, callee;
  uint8_t is_return, is_indirect_exit, is_indirect_call;
};

struct counts {
  uint64_t exits, mispredicted_exits, calls, mispredicted_calls;
};

// A block, and its position in the run.
struct execution {
  uint32_t block;
  uint64_t position;
};

struct predictor {
  uint32_t blocks;
  const uint32_t *function;
  const uint8_t *is_entry;

  uint8_t history[HISTORY];
  uint32_t position;
  struct folds folds;
  int8_t base[1 << BASE_BITS];
  struct entry table[TABLES][1 << TABLE_BITS];
  struct target_entry target_table[TARGET_TABLES][1 << TARGET_TABLE_BITS];
  int8_t alternative_is_better;
  uint32_t random, updates;

  struct behaviour *seen;
  struct counts *counts;

  // Call stack: the calling blocks and the positions of their executions, outermost first.
  struct execution stack[CALLS];
  uint32_t depth;
  struct execution previous;

  // Mispredicted executions: twice the position, plus 1 for a call.
  uint64_t *wrong;
  size_t wrong_count, wrong_room;
};

static void set_fold(struct predictor *p, int i, uint32_t length, uint32_t width) {
  p->folds.length[i] = length;
  p->folds.width[i] = width;
  p->folds.out[i] = length % width;
  p->folds.mask[i] = (1u << width) - 1;
}

#if defined(__x86_64__)
__attribute__((target_clones("avx2", "default")))
#endif
static void fold_bit(struct folds *f, uint32_t bit, const uint32_t old[FOLDS]) {
  for (int i = 0; i < FOLDS; i++) {
    uint32_t value = (f->value[i] << 1 | bit) ^ old[i] << f->out[i];
    f->value[i] = (value ^ value >> f->width[i]) & f->mask[i];
  }
}

static void push_bit(struct predictor *p, uint32_t bit) {
  uint32_t old[FOLDS];
  p->position = (p->position + 1) % HISTORY;
  p->history[p->position] = bit;
  for (int i = 0; i < FOLDS; i++)
    old[i] = p->history[(p->position + HISTORY - p->folds.length[i]) % HISTORY];
  fold_bit(&p->folds, bit, old);
}

static uint32_t scatter(uint32_t number) {
  number *= 0x9e3779b1u;
  return number ^ number >> 15;
}

// Returns the next number of xorshift32, which spreads new entries over the tables.
static uint32_t draw(struct predictor *p) {
  p->random ^= p->random << 13;
  p->random ^= p->random >> 17;
  return p->random ^= p->random << 5;
}

static void count_up_or_down(int8_t *counter, int up, int8_t least, int8_t most) {
  if (up && *counter < most)
    ++*counter;
  if (!up && *counter > least)
    --*counter;
}

// Predicts a direction and learns the outcome; returns whether it was mispredicted.
static int predict_direction(struct predictor *p, uint32_t block, int taken) {
  uint32_t hash = scatter(block), place[TABLES];
  uint16_t tag[TABLES];
  int provider = -1, other = -1;
  for (int i = TABLES - 1; i >= 0; i--) {
    place[i] = (hash ^ hash >> (TABLE_BITS - i % 4) ^ p->folds.value[INDEX + i]) & ((1 << TABLE_BITS) - 1);
    tag[i] = (hash >> 7 ^ p->folds.value[TAG + i] ^ p->folds.value[TAG2 + i] << 1) & ((1 << TAG_BITS) - 1);
    if (p->table[i][place[i]].tag == tag[i]) {
      if (provider < 0)
        provider = i;
      else if (other < 0)
        other = i;
    }
  }
  int8_t *base = &p->base[hash & ((1 << BASE_BITS) - 1)];
  int alternative = other >= 0 ? p->table[other][place[other]].counter >= 0 : *base >= 0;
  int prediction = alternative, provided = alternative;
  if (provider >= 0) {
    struct entry *e = &p->table[provider][place[provider]];
    provided = e->counter >= 0;
    // A new entry may predict worse than the alternative with a shorter history.
    int is_new = !e->useful && (e->counter == 0 || e->counter == -1);
    prediction = is_new && p->alternative_is_better >= 0 ? alternative : provided;
    if (is_new && provided != alternative)
      count_up_or_down(&p->alternative_is_better, alternative == taken, -8, 7);
    if (provided != alternative)
      e->useful = provided == taken ? e->useful + (e->useful < 3) : e->useful - (e->useful > 0);
    count_up_or_down(&e->counter, taken, -4, 3);
    if (!e->useful && other < 0)
      count_up_or_down(base, taken, -2, 1);
  } else {
    count_up_or_down(base, taken, -2, 1);
  }
  if (provided != taken && provider < TABLES - 1) {
    // Allocate an entry with a longer history; random choice prefers shorter ones.
    int first = provider + 1 + (draw(p) & 1);
    int found = 0;
    for (int i = first; i < TABLES && !found; i++) {
      struct entry *e = &p->table[i][place[i]];
      if (!e->useful) {
        *e = (struct entry){.counter = taken ? 0 : -1, .tag = tag[i]};
        found = 1;
      }
    }
    for (int i = first; i < TABLES && !found; i++) {
      struct entry *e = &p->table[i][place[i]];
      e->useful -= e->useful > 0;
    }
  }
  if (++p->updates % AGING == 0)
    for (int i = 0; i < TABLES; i++)
      for (int k = 0; k < 1 << TABLE_BITS; k++)
        p->table[i][k].useful >>= 1;
  return prediction != taken;
}

// Predicts a target and learns it; returns whether it was mispredicted. `last` is the last target.
static int predict_target(struct predictor *p, uint32_t block, uint32_t last, uint32_t target) {
  uint32_t hash = scatter(block ^ 0x55555555u), place[TARGET_TABLES];
  uint16_t tag[TARGET_TABLES];
  int provider = -1;
  for (int i = TARGET_TABLES - 1; i >= 0; i--) {
    place[i] = (hash ^ p->folds.value[TARGET_INDEX + i]) & ((1 << TARGET_TABLE_BITS) - 1);
    tag[i] = (hash >> 9 ^ p->folds.value[TARGET_TAG + i]) & ((1 << TAG_BITS) - 1);
    if (provider < 0 && p->target_table[i][place[i]].tag == tag[i])
      provider = i;
  }
  uint32_t prediction = last;
  if (provider >= 0) {
    struct target_entry *e = &p->target_table[provider][place[provider]];
    if (e->confidence >= 0)
      prediction = e->target;
    if (e->target == target) {
      e->useful |= last != target;
      count_up_or_down(&e->confidence, 1, -2, 1);
    } else if (e->confidence > -2) {
      --e->confidence;
      e->useful = 0;
    } else {
      e->target = target;
      e->confidence = 0;
    }
  }
  if (prediction != target)
    for (int i = provider + 1; i < TARGET_TABLES; i++) {
      struct target_entry *e = &p->target_table[i][place[i]];
      if (!e->useful) {
        *e = (struct target_entry){.target = target, .tag = tag[i]};
        break;
      }
      e->useful = draw(p) & 3 ? e->useful : 0;
    }
  uint32_t bits = scatter(target);
  for (int i = 0; i < 3; i++)
    push_bit(p, bits >> (8 + i) & 1);
  return prediction != target;
}

void predictor_delete(struct predictor *p) {
  free(p->seen);
  free(p->counts);
  free(p->wrong);
  free(p);
}

struct predictor *predictor_new(uint32_t blocks, const uint32_t *function,
                                const uint8_t *is_entry) {
  struct predictor *p = calloc(1, sizeof *p);
  if (!p)
    return NULL;
  p->seen = malloc(((size_t)blocks + 1) * sizeof *p->seen);
  p->counts = calloc((size_t)blocks + 1, sizeof *p->counts);
  if (!p->seen || !p->counts) {
    predictor_delete(p);
    return NULL;
  }
  p->blocks = blocks;
  p->function = function;
  p->is_entry = is_entry;
  p->random = 1;
  p->previous.block = UNSEEN;
  for (int i = 0; i < TABLES; i++) {
    set_fold(p, INDEX + i, lengths[i], TABLE_BITS);
    set_fold(p, TAG + i, lengths[i], TAG_BITS);
    set_fold(p, TAG2 + i, lengths[i], TAG_BITS - 1);
  }
  for (int i = 0; i < TARGET_TABLES; i++) {
    set_fold(p, TARGET_INDEX + i, target_lengths[i], TARGET_TABLE_BITS);
    set_fold(p, TARGET_TAG + i, target_lengths[i], TAG_BITS);
  }
  for (uint32_t b = 0; b < blocks; b++)
    p->seen[b] = (struct behaviour){UNSEEN, UNSEEN, UNSEEN, UNSEEN, 0, 0, 0};
  return p;
}

// Returns whether there was memory.
static int note_wrong(struct predictor *p, uint64_t position, int is_call) {
  if (p->wrong_count == p->wrong_room) {
    size_t room = 2 * p->wrong_room + 1024;
    uint64_t *wrong = realloc(p->wrong, room * sizeof *wrong);
    if (!wrong)
      return 0;
    p->wrong = wrong;
    p->wrong_room = room;
  }
  p->wrong[p->wrong_count++] = 2 * position + (uint64_t)is_call;
  return 1;
}

// Returns whether there was memory.
static int leave_block(struct predictor *p, struct execution execution, uint32_t next) {
  uint32_t block = execution.block;
  struct behaviour *s = &p->seen[block];
  struct counts *c = &p->counts[block];
  uint32_t last = s->last;
  c->exits++;
  s->last = next;
  if (s->first == UNSEEN)
    s->first = next;
  int is_second = next != s->first;
  if (is_second && s->second == UNSEEN)
    s->second = next;
  s->is_indirect_exit |= is_second && next != s->second;
  // An exit with one successor so far: an unconditional jump, or none.
  if (s->second == UNSEEN)
    return 1;
  int is_wrong;
  if (s->is_indirect_exit) {
    is_wrong = predict_target(p, block, last, next);
  } else {
    is_wrong = predict_direction(p, block, is_second);
    push_bit(p, is_second);
  }
  c->mispredicted_exits += is_wrong;
  return !is_wrong || note_wrong(p, execution.position, 0);
}

// Returns whether there was memory.
static int enter_function(struct predictor *p, struct execution execution, uint32_t callee) {
  uint32_t block = execution.block;
  struct behaviour *s = &p->seen[block];
  struct counts *c = &p->counts[block];
  c->calls++;
  // The decoder knows the targets of direct calls. A block with two direct calls looks like one
  // with an indirect call.
  s->is_indirect_call |= s->callee != callee && s->callee != UNSEEN;
  int is_wrong = s->is_indirect_call && predict_target(p, ~block, s->callee, callee);
  c->mispredicted_calls += is_wrong;
  s->callee = callee;
  if (p->depth == CALLS) {
    memmove(p->stack, p->stack + CALLS / 2, CALLS / 2 * sizeof *p->stack);
    p->depth = CALLS / 2;
  }
  p->stack[p->depth++] = execution;
  return !is_wrong || note_wrong(p, execution.position, 1);
}

// Simulates the step from a block to the next one of the run. Returns whether there was memory.
static int step(struct predictor *p, struct execution previous, uint32_t next) {
  struct behaviour *s = &p->seen[previous.block];
  if (p->is_entry[next])
    // After a return, the caller's block makes another call.
    return enter_function(p, s->is_return && p->depth ? p->stack[--p->depth] : previous, next);
  s->is_return |= p->function[next] != p->function[previous.block];
  if (!s->is_return)
    return leave_block(p, previous, next);
  // Callers that ended with a tail call have left the stack, too.
  while (p->depth && p->function[p->stack[p->depth - 1].block] != p->function[next])
    p->depth--;
  return !p->depth || leave_block(p, p->stack[--p->depth], next);
}

// Simulates the next blocks of a stream, the first of which has the position `first` in the run. A
// number above the block table is a gap. Returns 0, or -4 when memory runs out.
int predictor_add(struct predictor *p, const uint32_t *numbers, size_t count, uint64_t first,
                  int starts) {
  if (starts) {
    p->previous.block = UNSEEN;
    p->depth = 0;
  }
  for (size_t i = 0; i < count; i++) {
    struct execution next = {numbers[i], first + i}, previous = p->previous;
    p->previous = next;
    if (next.block >= p->blocks) {
      p->previous.block = UNSEEN;
      p->depth = 0;
    } else if (previous.block != UNSEEN && !step(p, previous, next.block)) {
      return -4;
    }
  }
  return 0;
}

size_t predictor_wrong_count(const struct predictor *p) { return p->wrong_count; }
const uint64_t *predictor_wrong(const struct predictor *p) { return p->wrong; }

// Returns [blocks][4]: exits, mispredicted exits, calls, mispredicted calls.
const uint64_t *predictor_counts(const struct predictor *p) { return (const uint64_t *)p->counts; }
