// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Simulates the caches that code is fetched from on a block trace: the first-level instruction
// cache (32 KiB), the first-level instruction TLB (64 pages of 4 KiB), and a cache of decoded
// instructions (16 KiB of code, which has some 4096 instructions). All have 8 ways, and forget what
// was used least recently. Sizes are those of common cores; where cores differ, none is simulated.
//
// A block's code is fetched whole when the block begins. A line that directly follows the one
// fetched before is prefetched: it does not miss the instruction cache.

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BITS = 6, PAGE_BITS = 12, WAYS = 8 };
enum { CODE_SETS = 64, DECODED_SETS = 32, PAGE_SETS = 8 };
// Of longer blocks the first lines are simulated: they are twice what the caches hold.
enum { MOST_LINES = 1024 };

// Of one execution: lines that missed the instruction cache, pages that missed the TLB, and lines
// that had to be decoded.
struct misses {
  uint16_t lines, pages, decoded;
};

struct caches {
  uint32_t blocks;
  // First line of each block, and their number.
  uint64_t *first;
  uint16_t *lines;
  // The line fetched last.
  uint64_t last;
  // The entries of a set, the one used last first.
  uint64_t code[CODE_SETS][WAYS], decoded[DECODED_SETS][WAYS], pages[PAGE_SETS][WAYS];
};

void caches_delete(struct caches *c) {
  free(c->first);
  free(c->lines);
  free(c);
}

struct caches *caches_new(uint32_t blocks, const uint64_t *address, const uint32_t *size) {
  struct caches *c = malloc(sizeof *c);
  if (!c)
    return NULL;
  // No line and no page has the number that this gives: addresses have fewer bits.
  memset(c, 0xff, sizeof *c);
  c->blocks = blocks;
  c->first = malloc(((size_t)blocks + 1) * sizeof *c->first);
  c->lines = malloc(((size_t)blocks + 1) * sizeof *c->lines);
  if (!c->first || !c->lines) {
    caches_delete(c);
    return NULL;
  }
  for (uint32_t b = 0; b < blocks; b++) {
    uint64_t first = address[b] >> LINE_BITS;
    uint64_t lines = size[b] ? ((address[b] + size[b] - 1) >> LINE_BITS) - first + 1 : 0;
    c->first[b] = first;
    c->lines[b] = lines < MOST_LINES ? lines : MOST_LINES;
  }
  return c;
}

// Makes an entry the last used one of its set; returns whether it was missing.
static int look_up(uint64_t set[WAYS], uint64_t entry) {
  uint64_t newer = set[0];
  if (newer == entry)
    return 0;
  set[0] = entry;
  for (int i = 1; i < WAYS; i++) {
    uint64_t older = set[i];
    set[i] = newer;
    if (older == entry)
      return 0;
    newer = older;
  }
  return 1;
}

// Fetches the next blocks of a stream. Adds what each of them misses. A number above the block
// table is a gap.
void caches_add(struct caches *c, const uint32_t *numbers, size_t count, struct misses *missed) {
  for (size_t i = 0; i < count; i++) {
    if (numbers[i] >= c->blocks)
      continue;
    uint64_t line = c->first[numbers[i]], end = line + c->lines[numbers[i]];
    // What was fetched last is still there.
    for (line += line == c->last; line < end; c->last = line++) {
      uint64_t page = line >> (PAGE_BITS - LINE_BITS);
      missed[i].decoded += look_up(c->decoded[line % DECODED_SETS], line);
      missed[i].lines += look_up(c->code[line % CODE_SETS], line) && line != c->last + 1;
      missed[i].pages += look_up(c->pages[page % PAGE_SETS], page);
    }
  }
}
