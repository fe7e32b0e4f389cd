/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Measures one x86-64 core in core cycles, without performance counters: the time-stamp counter runs
 * at a fixed rate, so each measurement stands between two chains of dependent additions, of which
 * each takes exactly one core cycle on every out-of-order x86 CPU. Two registers are added: Golden
 * Cove and later cores add small constants six at a time when they rename registers.
 *
 * usage: calibration REPETITIONS L1_BYTES L2_BYTES L3_BYTES MEMORY_BYTES
 * Prints "NAME CYCLES" for each measurement, in the order in which they were made.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <x86intrin.h>

#define R5(x) x x x x x
#define R10(x) R5(x) R5(x)
#define R100(x) R10(R10(x))

enum { CHAIN = 100, LINE = 64 };

static uint64_t now(void) {
  unsigned core;
  _mm_lfence();
  uint64_t time = __rdtscp(&core);
  _mm_lfence();
  return time;
}

/* What a benchmark works on; set up before it is timed. */
static void **chase_next;
static uint32_t *branch_bits;
static void (*jumps)(void);
static uint64_t memory[1024] __attribute__((aligned(4096)));

#define LOOP(name, body, ...)                                                                       \
  static void name(long n) {                                                                       \
    __asm__ volatile("1:\n" body "dec %0\n jnz 1b" : "+r"(n) : "r"(memory) : "cc", "memory", __VA_ARGS__); \
  }
LOOP(additions, R100("add %%rcx, %%rax\n"), "rax")
LOOP(immediate_additions, R100("add $1, %%rax\n"), "rax")
LOOP(moves, R100("mov %%rcx, %%rax\n mov %%rax, %%rcx\n"), "rax", "rcx")
LOOP(nops, R100("nop\n"), "rax")
LOOP(alu, R10("add %%r13, %%rax\n add %%r13, %%rcx\n add %%r13, %%rdx\n add %%r13, %%rsi\n"
              "add %%r13, %%rdi\n add %%r13, %%r8\n add %%r13, %%r9\n add %%r13, %%r10\n"
              "add %%r13, %%r11\n add %%r13, %%r12\n"),
     "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12")
LOOP(multiplications, R100("imul %%rax, %%rax\n"), "rax")
LOOP(loads, R10("mov (%1), %%rax\n mov 8(%1), %%rcx\n mov 64(%1), %%rdx\n mov 72(%1), %%r8\n mov 128(%1), %%r9\n"
                "mov 136(%1), %%rax\n mov 192(%1), %%rcx\n mov 200(%1), %%rdx\n mov 256(%1), %%r8\n mov 264(%1), %%r9\n"),
     "rax", "rcx", "rdx", "r8", "r9")
LOOP(stores, R10("mov %%rax, (%1)\n mov %%rax, 8(%1)\n mov %%rax, 64(%1)\n mov %%rax, 72(%1)\n mov %%rax, 128(%1)\n"
                 "mov %%rax, 136(%1)\n mov %%rax, 192(%1)\n mov %%rax, 200(%1)\n mov %%rax, 256(%1)\n mov %%rax, 264(%1)\n"),
     "rax")
/* Of the stack, by the stack pointer, as spills and reloads are: Zen 3 recognises those pairs when it
 * renames registers, and no others. The addition leaves time for a store in each cycle. */
LOOP(forwards, "lea -256(%%rsp), %%rsp\n" R100("mov %%rax, 64(%%rsp)\n mov 64(%%rsp), %%rax\n add %%rcx, %%rax\n")
               "lea 256(%%rsp), %%rsp\n", "rax")
/* The same by another register. */
LOOP(other_forwards, R100("mov %%rax, 64(%1)\n mov 64(%1), %%rax\n add %%rcx, %%rax\n"), "rax")
/* A load of what two stores wrote cannot be forwarded: it waits until both are in the cache. */
LOOP(failed_forwards, R100("mov %%al, 64(%1)\n mov %%cl, 65(%1)\n movzwl 64(%1), %%eax\n add %%ecx, %%eax\n"), "rax")
/* A chain of loads of zero, each behind a store to the same place of another page, and behind one to
 * another place. */
#define CHASE_BEHIND(store) "and $0, %%eax\n" R100("mov %%rcx, " store "(%1)\n mov 4160(%1, %%rax), %%rax\n")
LOOP(aliased, CHASE_BEHIND("64"), "rax")
LOOP(unaliased, CHASE_BEHIND("128"), "rax")
/* 100 pops at a time; the loop puts the stack pointer back. */
LOOP(pops, "lea -800(%%rsp), %%rsp\n" R100("pop %%rax\n"), "rax")

static void chase(long n) {
  void **p = chase_next;
  for (long i = 0; i < n; ++i)
    __asm__ volatile(R100("mov (%0), %0\n") : "+r"(p));
  chase_next = p;
}

/* Loads of lines in the order of a list, that need nothing of one another. */
static char *scatter_area;
static uint32_t *scatter_lines;
static size_t scatter_count, scatter_at;

static void scatter(long n) {
  const uint32_t *line = scatter_lines + scatter_at;
  for (long i = 0; i < n * CHAIN; i += 4, line += 4)
    __asm__ volatile("mov (%0), %%ecx\n shl $6, %%rcx\n mov (%1, %%rcx), %%rdx\n"
                     "mov 4(%0), %%ecx\n shl $6, %%rcx\n mov (%1, %%rcx), %%rdx\n"
                     "mov 8(%0), %%ecx\n shl $6, %%rcx\n mov (%1, %%rcx), %%rdx\n"
                     "mov 12(%0), %%ecx\n shl $6, %%rcx\n mov (%1, %%rcx), %%rdx\n"
                     : : "r"(line), "r"(scatter_area) : "rcx", "rdx", "cc", "memory");
  scatter_at += (size_t)n * CHAIN;
  if (scatter_at + (size_t)n * CHAIN > scatter_count)
    scatter_at = 0;
}

static void jump(long n) {
  for (long i = 0; i < n; ++i)
    jumps();
}

/* A branch on each bit of a table of 2^16 words: too many to be learnt when they are random. */
static void branches(long n) {
  for (long i = 0; i < n; ++i) {
    uint64_t count = 0;
    const uint32_t *end = branch_bits + 4096;
    for (const uint32_t *p = branch_bits + (i & 15) * 4096, *stop = p + (end - branch_bits); p < stop; ++p)
      __asm__ volatile("mov (%1), %%eax\n test %%eax, %%eax\n jz 1f\n inc %0\n 1:\n"
                       : "+r"(count) : "r"(p) : "rax", "cc", "memory");
  }
}

static uint64_t random_state = 0x9e3779b97f4a7c15;
static uint64_t next_random(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  return random_state ^= random_state << 17;
}

/* One cycle through all `count` numbers, in random order (Sattolo). */
static uint32_t *random_cycle(size_t count) {
  uint32_t *next = malloc(count * sizeof *next);
  if (!next)
    exit(3);
  for (size_t i = 0; i < count; ++i)
    next[i] = i;
  for (size_t i = count - 1; i > 0; --i) {
    size_t j = next_random() % i;
    uint32_t swapped = next[i];
    next[i] = next[j];
    next[j] = swapped;
  }
  return next;
}

static char *map(size_t bytes, int protection) {
  /* Large pages, so that the chase measures caches rather than address translation. */
  enum { LARGE = 2 << 20 };
  char *area = mmap(NULL, bytes + LARGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (area == MAP_FAILED) {
    perror("mmap");
    exit(3);
  }
  area = (char *)(((uintptr_t)area + LARGE - 1) & ~(uintptr_t)(LARGE - 1));
  madvise(area, bytes, MADV_HUGEPAGE);
  return area;
}

static char *make_chase(size_t bytes) {
  size_t lines = bytes / LINE;
  char *area = map(bytes, PROT_READ | PROT_WRITE);
  uint32_t *next = random_cycle(lines);
  for (size_t i = 0; i < lines; ++i)
    *(void **)(area + i * LINE) = area + (size_t)next[i] * LINE;
  free(next);
  chase_next = (void **)area;
  return area;
}

/* A chain of jumps through `lines` cache lines in random order, then a return. */
static char *make_jumps(size_t lines) {
  char *area = map(lines * LINE, PROT_READ | PROT_WRITE | PROT_EXEC);
  uint32_t *next = random_cycle(lines);
  for (uint32_t i = 0, seen = 0; seen < lines; ++seen, i = next[i]) {
    char *at = area + (size_t)i * LINE;
    int32_t distance = (int32_t)((int64_t)next[i] - i) * LINE - 5;
    *at = seen + 1 < lines ? (char)0xe9 : (char)0xc3;
    memcpy(at + 1, &distance, sizeof distance);
  }
  free(next);
  jumps = (void (*)(void))(void *)area;
  return area;
}

/* Cycles of one of the `operations` that f(n) does n times. */
static double cycles(void (*f)(long), long n, double operations) {
  const long chains = 200;
  uint64_t a = now();
  additions(chains);
  uint64_t b = now();
  f(n);
  uint64_t c = now();
  additions(chains);
  uint64_t d = now();
  double ticks_per_cycle = ((double)(b - a) + (double)(d - c)) / 2 / (chains * (double)CHAIN);
  return (double)(c - b) / (double)n / operations / ticks_per_cycle;
}

static void measure(const char *name, int repetitions, void (*f)(long), long n, double operations) {
  f(n / 4 + 1);
  /* A sample in which another process ran here tells nothing; on a busy machine, some may be left. */
  for (int i = 0, tries = 20 * repetitions; i < repetitions; --tries) {
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    double sample = cycles(f, n, operations);
    getrusage(RUSAGE_SELF, &after);
    if (before.ru_nivcsw != after.ru_nivcsw && tries > 0)
      continue;
    printf("%s %.5f\n", name, sample);
    ++i;
  }
}

int main(int argc, char **argv) {
  if (argc != 6) {
    fprintf(stderr, "usage: %s REPETITIONS L1_BYTES L2_BYTES L3_BYTES MEMORY_BYTES\n", argv[0]);
    return 2;
  }
  int repetitions = atoi(argv[1]);
  cpu_set_t set;
  if (!sched_getaffinity(0, sizeof set, &set)) {
    int core = 0;
    for (int i = 0; i < CPU_SETSIZE; ++i)
      core = CPU_ISSET(i, &set) ? i : core;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    sched_setaffinity(0, sizeof set, &set);
  }
  additions(200000);

  measure("nop", repetitions, nops, 200, 100);
  measure("immediate_addition", repetitions, immediate_additions, 200, 100);
  measure("move", repetitions, moves, 200, 200);
  measure("alu", repetitions, alu, 200, 100);
  measure("multiplication", repetitions, multiplications, 200, 100);
  measure("load", repetitions, loads, 200, 100);
  measure("store", repetitions, stores, 200, 100);
  measure("store_forward", repetitions, forwards, 200, 100);
  measure("other_forward", repetitions, other_forwards, 200, 100);
  measure("failed_forward", repetitions, failed_forwards, 200, 100);
  measure("aliased", repetitions, aliased, 200, 100);
  measure("unaliased", repetitions, unaliased, 200, 100);
  measure("pop", repetitions, pops, 200, 100);

  const char *levels[] = {"l1", "l2", "l3", "memory"};
  for (int level = 0; level < 4; ++level) {
    size_t bytes = strtoull(argv[2 + level], NULL, 10);
    char *area = make_chase(bytes);
    /* All of the lines once, then as many loads as take long enough. */
    chase((long)(bytes / LINE / CHAIN) + 1);
    measure(levels[level], repetitions, chase, 10, CHAIN);
    if (level == 3) {
      scatter_area = area;
      scatter_count = bytes / LINE;
      scatter_lines = random_cycle(scatter_count);
      measure("memory_independent", repetitions, scatter, 20, CHAIN);
      free(scatter_lines);
    }
    munmap(area, bytes);
  }

  branch_bits = malloc((size_t)65536 * 4);
  if (!branch_bits)
    return 3;
  for (int i = 0; i < 65536; ++i)
    branch_bits[i] = 0;
  measure("branch_taken", repetitions, branches, 16, 4096);
  for (int i = 0; i < 65536; ++i)
    branch_bits[i] = 1;
  measure("branch_not_taken", repetitions, branches, 16, 4096);
  for (int i = 0; i < 65536; ++i)
    branch_bits[i] = (next_random() >> 33) & 1;
  measure("branch_random", repetitions, branches, 16, 4096);

  make_jumps(128);
  measure("jump_in_l1", repetitions, jump, 200, 128);
  make_jumps(2048);
  measure("jump_in_l2", repetitions, jump, 20, 2048);
  return 0;
}
