/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Measures the throughput of basic blocks of machine code in core cycles, without performance
 * counters, in the manner of BHive (Chen et al.: BHive, 2019): a block is copied n and 2n times in a
 * row, and the difference of the two times is that of n copies. Times are of the time-stamp counter,
 * in units of a chain of dependent additions, of which each takes one core cycle (calibration.c).
 *
 * Each block runs in a process of its own that may do nothing but map memory and end. Wherever a
 * block touches memory that is not there, a page is mapped and the instruction tried again. All these
 * pages are a few physical ones that the first level of the cache holds. BHive has one; but Zen's
 * first level is looked up by virtual addresses, and two of them for one line evict each other (a
 * load then takes three times as long).
 *
 * Others on the same core, which a guest of a virtual machine does not see, make a block up to twice
 * as slow for seconds. They leave the chain of additions as it is (AMD) or slow it for milliseconds
 * (Intel), and slow a run of instructions without effect, which take all that the core can begin: so
 * a sample counts only between two such runs that were as short as they can be.
 *
 * usage: measure_blocks
 * Prints the cycles of an instruction without effect, the least that was found in a second.
 *
 * usage: measure_blocks CYCLES [WAITS] < BLOCKS
 * CYCLES is that; a round of a block waits for the core so many times. A line of BLOCKS is the code in
 * hexadecimal digits and, for each operand relative to the instruction pointer, " PLACE:END:TARGET": where
 * its displacement stands in the code, where its instruction ends, and an address below 2^24 that all copies
 * shall mean. Of a block whose loads miss at a known rate (rated_block.h) there follows " / LEVEL COPIES COLD
 * RANDOM SEED PLACE:END", for each source " PARENT:DELAY:OFFSET:PLACE:END:REGISTER:FIRST:LINES", and " +
 * FAILING:PLACE:DISPLACEMENT" if stores make loads fail. At the end, prints a line for each: "measured
 * CYCLES AGREEING ROUNDS PAGES" or "dropped REASON". The blocks are measured in some rounds; CYCLES are the
 * lowest that recur, of AGREEING of the ROUNDS.
 */
#define _GNU_SOURCE

#include <inttypes.h>

#include "core_clock.h"
#include "run_block.h"

enum {
  /* Bytes of n copies; their number is at least FEWEST. */
  COPIED_BYTES = 1024,
  FEWEST = 8,
  MOST_COPIES = 128,
  /* Rounds of all blocks, so that what else runs beside a block is another. */
  MOST_ROUNDS = 10,
  FEWEST_AGREEING = 2,
  /* For the core, in one round of one block. */
  WAITS = 1500,
};

/* Of rounds; which loads miss is drawn, and what memory takes depends on what else uses it. */
static const double AGREEMENT = 0.02, RATED_AGREEMENT = 0.05;
static int waits;

static int digit(int character) {
  return character >= '0' && character <= '9'   ? character - '0'
         : character >= 'a' && character <= 'f' ? character - 'a' + 10
                                                : -1;
}

/* A block and what is known of it.
 *   values: rounds that gave cycles.
 *   agreeing: rounds whose cycles `found` is the mean of, once it is above 0.
 *   reason: why it is dropped. */
struct measured {
  struct block block;
  int copies, rounds, values, agreeing, pages;
  double cycles[MOST_ROUNDS], found;
  const char *reason;
};

/* Why a line is no block; NULL for one. */
static const char *read_block(const char *line, struct block *block) {
  memset(block, 0, sizeof *block);
  for (; digit(line[0]) >= 0 && digit(line[1]) >= 0; line += 2) {
    if (block->bytes == MOST_BYTES)
      return "too long";
    block->code[block->bytes++] = (unsigned char)(digit(line[0]) << 4 | digit(line[1]));
  }
  int used, place, end, target;
  while (sscanf(line, " %d:%d:%d%n", &place, &end, &target, &used) == 3) {
    if (place < 0 || place > block->bytes - 4 || target < 0 || target >= 1 << 24)
      return "not a block";
    if (block->operands == MOST_OPERANDS)
      return "too long";
    block->operand[block->operands++] = (struct operand){place, end, target};
    line += used;
  }
  struct rated *rated = &block->rated;
  unsigned level;
  if (sscanf(line, " / %u %d %d %d %" SCNu64 " %d:%d%n", &level, &rated->copies, &rated->cold, &rated->random,
             &rated->seed, &rated->jump_place, &rated->jump_end, &used) == 7) {
    line += used;
    rated->level = (enum level)level;
    if (level > MEMORY_LEVEL || rated->copies < 1 || rated->copies > MOST_RATED_COPIES || !rated->seed ||
        rated->cold < 0 || rated->cold > rated->copies || rated->random < 0 || rated->random > rated->copies)
      return "not a block";
    for (struct source s; sscanf(line, " %d:%d:%d:%d:%d:%d:%d:%d%n", &s.parent, &s.delay, &s.offset, &s.place, &s.end,
                                 &s.reg, &s.first, &s.lines, &used) == 8;
         line += used) {
      if (rated->sources == MOST_SOURCES)
        return "too long";
      rated->source[rated->sources++] = s;
    }
    if (sscanf(line, " + %d:%d:%" SCNd32 "%n", &rated->failing, &rated->store_place, &rated->store_displacement,
               &used) == 3) {
      line += used;
      if (rated->failing < 0 || rated->failing > rated->copies || rated->store_place < 0 ||
          rated->store_place > block->bytes - 4)
        return "not a block";
    }
  }
  return block->bytes && (*line == '\n' || !*line) ? NULL : "not a block";
}

/* The lowest cycles that recur, as the mean of the rounds that agree with them; 0 when none recur.
 * The very lowest may stand alone once there are no more rounds. */
static double recurring(struct measured *one, int last) {
  double agreement = one->block.rated.copies ? RATED_AGREEMENT : AGREEMENT;
  qsort(one->cycles, (size_t)one->values, sizeof *one->cycles, compare);
  for (int first = 0; first + 1 < one->values && first <= last; ++first) {
    double sum = 0;
    one->agreeing = 0;
    for (int i = first; i < one->values && one->cycles[i] < one->cycles[first] * (1 + agreement); ++i) {
      sum += one->cycles[i];
      ++one->agreeing;
    }
    /* Two of many rounds that happen to be too low agree, where each varies by itself. */
    if (one->agreeing >= FEWEST_AGREEING && (!one->block.rated.copies || 2 * one->agreeing >= one->rounds))
      return sum / one->agreeing;
  }
  return 0;
}

/* One more round of a block. */
static void measure_again(struct measured *one) {
  waits_left = waits;
  ours_tolerance = one->block.rated.copies ? RATED_NOP_TOLERANCE : NOP_TOLERANCE;
  wait_for_core();
  /* Each round draws other cells. */
  drawn_state = one->block.rated.seed + (uint64_t)one->rounds * UINT64_C(0x9e3779b97f4a7c15);
  run(&one->block, one->copies);
  /* Where pointers grow with each copy. */
  if (!strcmp(result->reason, TOO_MANY_PAGES) && one->copies > FEWEST && !one->block.rated.copies)
    run(&one->block, one->copies = FEWEST);
  int last = ++one->rounds == MOST_ROUNDS;
  if (!*result->reason) {
    one->cycles[one->values++] = result->cycles;
    one->pages = result->pages;
  } else if (strcmp(result->reason, DISTURBED) && strcmp(result->reason, UNSTABLE)) {
    one->reason = strdup(result->reason);
    return;
  }
  one->found = recurring(one, last);
  if (!one->found && last)
    one->reason = one->values ? UNSTABLE : DISTURBED;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    printf("%.4f\n", least_nop());
    return 0;
  }
  nop_cycles = atof(argv[1]);
  waits = argc > 2 ? atoi(argv[2]) : WAITS;
  result = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  require(result != MAP_FAILED, "mmap");
  memory = memfd_create("blocks", MFD_CLOEXEC);
  require(memory >= 0 && !ftruncate(memory, PHYSICAL_PAGES * PAGE), "memfd_create");
  contents = mmap(NULL, PHYSICAL_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  require(contents != MAP_FAILED, "mmap");
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
  require(mmap(CONTEXT, PAGE, PROT_READ | PROT_WRITE, flags, -1, 0) == CONTEXT, "mmap");
  /* Denormal numbers count as zero, and results that are some become zero. */
  *HERE = (struct context){.mxcsr = 0x9fc0, .vector = {1.0, 1.0}};
  has_avx = __builtin_cpu_supports("avx");
  struct measured *all = NULL;
  size_t count = 0, size = 0, left = 0;
  for (char *line = NULL; getline(&line, &size, stdin) > 0; ++count) {
    all = realloc(all, (count + 1) * sizeof *all);
    require(all != NULL, "realloc");
    struct measured *one = memset(&all[count], 0, sizeof *all);
    one->reason = read_block(line, &one->block);
    if (one->reason)
      continue;
    one->copies = COPIED_BYTES / one->block.bytes;
    one->copies = one->copies < FEWEST ? FEWEST : one->copies > MOST_COPIES ? MOST_COPIES : one->copies;
    if (one->block.rated.copies)
      one->copies = one->block.rated.copies;
    ++left;
  }
  while (left) {
    measure_unit();
    for (struct measured *one = all; one < all + count; ++one) {
      if (one->reason || one->found)
        continue;
      measure_again(one);
      left -= one->reason || one->found;
    }
  }
  for (const struct measured *one = all; one < all + count; ++one)
    if (one->reason)
      printf("dropped %s\n", one->reason);
    else
      printf("measured %.4f %d %d %d\n", one->found, one->agreeing, one->rounds, one->pages);
  return 0;
}
