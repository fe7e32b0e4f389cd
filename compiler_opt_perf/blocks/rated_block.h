/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Times a block some of whose loads miss, to a known level of the cache, and before which a jump is
 * mispredicted, at known rates. Included by run_block.h.
 *
 * Some of the block's pointers, its sources, are given anew in each copy: read from a list, or from
 * memory that another source points to, of this copy or (as in a linked list) of the one before. Each
 * points to a cell of some lines of its own, which lies where the first level holds it, or is cold. A
 * pass over the copies is timed by itself, and the cells are made cold before it, by what the level
 * says: flushed out of all levels, or crowded out of the first level, or of the first and the second,
 * by twice as much as it holds. Then a pass over hot cells alone makes code and lists warm again.
 * Cold cells are drawn anew for each pass from two megabytes, one large page where the system gives
 * it, so that neither a prefetcher nor address translation knows more or less of them than of others.
 *
 * The jump before each copy leads to the next instruction. In some copies a random bit says whether it
 * is taken, so that any predictor is wrong half of the time; in all others it never is.
 */
#include "block_context.h"

enum {
  MOST_SOURCES = 8,
  MOST_RATED_COPIES = 128,
  LINE = 64,
  PASSES = 6,
  /* How often what crowds a level out is read, and how large it is for its size. */
  CROWDING_ROUNDS = 2,
  CROWDING_SIZES = 2,
};
enum level { NO_LEVEL, SECOND_LEVEL, THIRD_LEVEL, MEMORY_LEVEL };

/* Within 2 GiB of the code; and for the block, where sums of two other pointers are not. */
#define LISTS (CONTEXT + 0x200000)
#define POOL ((char *)0x3a000000)
#define POOL_BYTES 0x200000
#define COLD (POOL + 0x10000)
#define COLD_LINES ((POOL_BYTES - 0x10000) / LINE)
#define CROWD (POOL + POOL_BYTES)

/* A pointer that the harness chooses.
 *   parent: the source whose cell it is read from, at `offset` from that pointer; -1 where it is read
 *     from the list alone.
 *   delay: 1 where that is the cell of the copy before, and the list has that of the first copy only.
 *   place, end: the displacement in the code that names the list; place is -1 where none does.
 *   reg: that the first copy has it in, where delay is 1.
 *   first, lines: the lines of its cell, from the pointer on; `first` may be below 0. */
struct source {
  int parent, delay, offset, place, end, reg, first, lines;
};

/*   seed: of what is drawn, above 0.
 *   copies: in the shorter loop; the longer one has twice as many, and of what follows, too.
 *   cold: cells of each source that are cold. random: copies whose jump is.
 *   jump_place, jump_end: the displacement of the byte that the jump depends on.
 *   failing: copies whose store before the block has `store_displacement` at `store_place`, so that it
 *     writes a part of what the block loads. In the others it writes what the block does not touch. */
struct rated {
  enum level level;
  uint64_t seed;
  int copies, cold, random, jump_place, jump_end, failing, store_place, sources;
  int32_t store_displacement;
  struct source source[MOST_SOURCES];
};

static uint64_t drawn_state;

static int drawn(int most) {
  drawn_state ^= drawn_state << 13;
  drawn_state ^= drawn_state >> 7;
  drawn_state ^= drawn_state << 17;
  return (int)((drawn_state >> 16) % (uint64_t)most);
}

/* Chooses so many of them, all choices alike (Knuth, The art of computer programming 2, 3.4.2, S). */
static void choose(unsigned char *is_chosen, int chosen, int count) {
  for (int i = 0; i < count; ++i) {
    is_chosen[i] = drawn(count - i) < chosen;
    chosen -= is_chosen[i];
  }
}

static char *list_entry(const struct rated *rated, int copy, int column) {
  return LISTS + (copy * (rated->sources + 1) + column) * 8;
}

static void fill_cell(char *cell, int lines) {
  for (int i = 0; i < lines * LINE / 8; ++i)
    ((volatile uint64_t *)(void *)cell)[i] = STORED_POINTER;
}

/* Where the cells of each copy begin. */
static char *hot[MOST_SOURCES][2 * MOST_RATED_COPIES], *cells[MOST_SOURCES][2 * MOST_RATED_COPIES];
static unsigned char is_cold[MOST_SOURCES][2 * MOST_RATED_COPIES];
static unsigned char is_random[2 * MOST_RATED_COPIES];

/* Draws the cold cells of a pass, no line of two of them. */
static void draw_cells(const struct rated *rated, int factor) {
  static unsigned used[COLD_LINES], pass;
  ++pass;
  for (int s = 0; s < rated->sources; ++s) {
    int lines = rated->source[s].lines;
    choose(is_cold[s], factor * rated->cold, factor * rated->copies);
    for (int copy = 0; copy < factor * rated->copies; ++copy) {
      cells[s][copy] = hot[s][copy];
      for (int is_free = 0; is_cold[s][copy] && !is_free;) {
        int line = drawn(COLD_LINES - lines);
        is_free = 1;
        for (int i = 0; i < lines; ++i)
          is_free &= used[line + i] != pass;
        for (int i = 0; is_free && i < lines; ++i)
          used[line + i] = pass;
        cells[s][copy] = COLD + line * LINE;
      }
    }
  }
}

/* Writes what the hot cells hold, or the cold ones, where pointers are those of `cell`. */
static void fill_cells(const struct rated *rated, char *(*cell)[2 * MOST_RATED_COPIES], int copies, int cold) {
  for (int s = 0; s < rated->sources; ++s)
    for (int copy = 0; copy < copies; ++copy)
      if (is_cold[s][copy] == cold || cell == hot)
        fill_cell(cell[s][copy], rated->source[s].lines);
  for (int s = 0; s < rated->sources; ++s) {
    const struct source *one = &rated->source[s];
    for (int copy = one->delay; one->parent >= 0 && copy < copies; ++copy) {
      const struct source *parent = &rated->source[one->parent];
      if (is_cold[one->parent][copy - one->delay] != cold && cell != hot)
        continue;
      uint64_t pointer = (uint64_t)cell[s][copy] - (uint64_t)(one->first * LINE);
      memcpy(cell[one->parent][copy - one->delay] + one->offset - parent->first * LINE, &pointer, 8);
    }
  }
}

static void write_lists(const struct rated *rated, char *(*cell)[2 * MOST_RATED_COPIES], int copies) {
  for (int copy = 0; copy < copies; ++copy) {
    for (int s = 0; s < rated->sources; ++s) {
      uint64_t pointer = (uint64_t)cell[s][copy] - (uint64_t)(rated->source[s].first * LINE);
      memcpy(list_entry(rated, copy, s), &pointer, 8);
    }
    *list_entry(rated, copy, rated->sources) = is_random[copy] ? (char)drawn(2) : 0;
  }
}

static long crowd_bytes(enum level level) {
  return CROWDING_SIZES * sysconf(level == SECOND_LEVEL ? _SC_LEVEL1_DCACHE_SIZE : _SC_LEVEL2_CACHE_SIZE);
}

static void make_cold(const struct rated *rated, int copies) {
  if (rated->level == MEMORY_LEVEL)
    for (int s = 0; s < rated->sources; ++s)
      for (int copy = 0; copy < copies; ++copy)
        for (int i = 0; is_cold[s][copy] && i < rated->source[s].lines; ++i)
          _mm_clflush(cells[s][copy] + i * LINE);
  if (rated->level == SECOND_LEVEL || rated->level == THIRD_LEVEL) {
    long bytes = crowd_bytes(rated->level);
    for (int i = 0; i < CROWDING_ROUNDS; ++i)
      for (long at = 0; at < bytes; at += LINE)
        (void)*(volatile char *)(CROWD + at);
  }
  _mm_mfence();
}

static uint64_t ticks(void *loop, unsigned passes);

static double rated_ticks(void *loop, const struct rated *rated, int factor) {
  int copies = factor * rated->copies;
  draw_cells(rated, factor);
  fill_cells(rated, cells, copies, 1);
  make_cold(rated, copies);
  fill_memory();
  fill_cells(rated, hot, copies, 0);
  write_lists(rated, hot, copies);
  ticks(loop, 1);
  fill_cells(rated, cells, copies, 0);
  write_lists(rated, cells, copies);
  return (double)ticks(loop, 1);
}

/* Before the process is confined. */
static void map_rated(const struct rated *rated) {
  size_t bytes = POOL_BYTES;
  if (rated->level == SECOND_LEVEL || rated->level == THIRD_LEVEL)
    bytes += (size_t)crowd_bytes(rated->level);
  size_t listed = MOST_RATED_COPIES * 2 * (MOST_SOURCES + 1) * 8;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
  require(mmap(LISTS, listed, PROT_READ | PROT_WRITE, flags, -1, 0) == LISTS, "mmap");
  require(mmap(POOL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0) == POOL, "mmap");
  /* Not all systems have large pages. */
  madvise(POOL, bytes, MADV_HUGEPAGE);
  memset(POOL, 1, bytes);
  char *at = POOL;
  for (int s = 0; s < rated->sources; ++s)
    for (int copy = 0; copy < 2 * rated->copies; ++copy, at += rated->source[s].lines * LINE)
      hot[s][copy] = at;
  require(at <= COLD, "rated block: too many lines");
}

/* The mean of the middle half, for the steps of the counter are long, and interrupts are longer. */
static double middle_half(double *values, int count) {
  double sum = 0;
  qsort(values, (size_t)count, sizeof *values, compare);
  for (int i = count / 4; i < count - count / 4; ++i)
    sum += values[i];
  return sum / (count - count / 4 * 2);
}

/* Times two loops, one of twice as many copies, each pass by itself. */
static void time_rated(void *shorter, void *longer, const struct rated *rated) {
  double first[SAMPLES * PASSES], second[SAMPLES * PASSES], cycles[SAMPLES];
  double scale = 1 / (unit * rated->copies);
  /* Which copies have a random jump stays, or no predictor would know those that have none. */
  choose(is_random, rated->random, rated->copies);
  choose(is_random + rated->copies, rated->random, rated->copies);
  /* Everything is mapped, and predictors have learnt what there is to learn. */
  for (int i = 0; i < PASSES; ++i) {
    rated_ticks(longer, rated, 2);
    rated_ticks(shorter, rated, 1);
  }
  int samples = 0;
  for (int tries = 0; samples < SAMPLES && tries < TRIES && waits_left; ++tries) {
    int known = pages;
    double *one = first + samples * PASSES, *two = second + samples * PASSES;
    wait_for_core();
    int good = core_is_ours() && unit_holds();
    for (int i = 0; i < PASSES; ++i) {
      one[i] = rated_ticks(shorter, rated, 1);
      two[i] = rated_ticks(longer, rated, 2);
    }
    if (!(core_is_ours() && unit_holds() && good && pages == known))
      continue;
    double copied[2][PASSES];
    memcpy(copied[0], one, sizeof copied[0]);
    memcpy(copied[1], two, sizeof copied[1]);
    cycles[samples++] = (middle_half(copied[1], PASSES) - middle_half(copied[0], PASSES)) * scale;
  }
  if (samples < SAMPLES)
    drop(DISTURBED);
  result->pages = pages;
  result->cycles = (middle_half(second, SAMPLES * PASSES) - middle_half(first, SAMPLES * PASSES)) * scale;
  double middle = middle_half(cycles, SAMPLES);
  if (!(result->cycles > 0) || fabs(middle / result->cycles - 1) > MOST_RATED_SPREAD)
    drop(UNSTABLE);
}
