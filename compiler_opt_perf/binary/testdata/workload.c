// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A program whose counts are known. Tests find its lines by the marks in comments.

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef NOINLINE
#define NOINLINE __attribute__((noinline))
#endif
#define INLINE static inline __attribute__((always_inline))

// 8 MiB in 64-byte lines: four times the last-level cache of the tests.
enum { kLines = 1 << 17, kWordsInLine = 8, kSteps = 100000 };
enum { kBytes = 20000, kRepeats = 3 };

static uint64_t State = 88172645463325252u;
volatile long Sink;

static uint64_t nextRandom(void) {
  State ^= State << 13;
  State ^= State >> 7;
  State ^= State << 17;
#ifdef MEASURED
  if (State % 3 == MEASURED)
    ++State;
#endif
  return State;
}

// One load a step, each of another line in random order.
NOINLINE uint64_t chase(const uint64_t *Next, long Steps) {
  uint64_t At = 0;
  for (long I = 0; I < Steps; ++I)
    At = Next[At]; // mark: chase
  return At;
}

// A branch that depends on each byte; the empty asm keeps it a branch.
NOINLINE long countSmall(const uint8_t *Bytes, long N) {
  long Small = 0;
  for (long I = 0; I < N; ++I)
    if (Bytes[I] < 128) { // mark: random
      ++Small;
      __asm__ volatile("" : "+r"(Small));
    }
  return Small;
}

NOINLINE long countSmallOfSorted(const uint8_t *Bytes, long N) {
  long Small = 0;
  for (long I = 0; I < N; ++I)
    if (Bytes[I] < 128) { // mark: sorted
      ++Small;
      __asm__ volatile("" : "+r"(Small));
    }
  return Small;
}

// An inline stack of three: outer, middle, inner.
INLINE void inner(long I) {
  Sink = I; // mark: inner
}
INLINE void middle(long I) {
  inner(I); // mark: middle
}
NOINLINE void outer(long N) {
  for (long I = 0; I < N; ++I)
    middle(I); // mark: outer
}

// Two calls on one line, told apart by their discriminators.
NOINLINE void often(void) { ++Sink; }
NOINLINE void seldom(void) { --Sink; }
NOINLINE void choose(long N) {
  for (long I = 0; I < N; ++I)
    if (I % 10) often(); else seldom(); // mark: choose
}

NOINLINE void indirect(long N) {
  void (*volatile Callee)(void) = seldom;
  for (long I = 0; I < N; ++I)
    Callee(); // mark: indirect
}

// Another target at each call: whoever expects the last one again is always wrong.
NOINLINE void even(void) { Sink += 4; }
NOINLINE void odd(void) { Sink += 5; }
NOINLINE void alternate(long N) {
  void (*const Callees[])(void) = {even, odd};
  for (long I = 0; I < N; ++I) {
    void (*volatile Callee)(void) = Callees[I & 1];
    Callee(); // mark: alternate
  }
}

// Eight copies of the body, each executed an eighth as often as the line.
NOINLINE void unrolled(long N) {
#pragma clang loop unroll_count(8)
  for (long I = 0; I < N; ++I)
    Sink = I; // mark: unrolled
}

// Called by the C library only.
static int compare(const void *A, const void *B) {
  return *(const uint8_t *)A - *(const uint8_t *)B;
}

// Names that C allows and that look like something else in a text profile.
NOINLINE void colon(void) __asm__("a name:with 3");
NOINLINE void colon(void) { Sink += 2; }
NOINLINE void digit(void) __asm__("3:4");
NOINLINE void digit(void) { Sink += 3; }

static void *thread(void *Argument) {
  outer((long)Argument);
  return NULL;
}

NOINLINE void repeated(void) {
  outer(700);
  choose(500);
  indirect(20);
  unrolled(800);
}

static void measure(void) {
  uint64_t *Ring = calloc(kLines * kWordsInLine, sizeof(uint64_t));
  uint32_t *Order = malloc(kLines * sizeof(uint32_t));
  for (uint32_t I = 0; I < kLines; ++I)
    Order[I] = I;
  for (uint32_t I = kLines - 1; I > 0; --I) {
    uint32_t J = nextRandom() % I, Other = Order[I];
    Order[I] = Order[J];
    Order[J] = Other;
  }
  for (uint32_t I = 0; I < kLines; ++I)
    Ring[Order[I] * kWordsInLine] = Order[(I + 1) % kLines] * kWordsInLine;
  Sink += chase(Ring, kSteps);

  uint8_t *Bytes = malloc(kBytes);
  for (long I = 0; I < kBytes; ++I)
    Bytes[I] = nextRandom() >> 32;
  for (long I = 0; I < kRepeats; ++I)
    Sink += countSmall(Bytes, kBytes);
  qsort(Bytes, kBytes, 1, compare);
  for (long I = 0; I < kRepeats; ++I)
    Sink += countSmallOfSorted(Bytes, kBytes);

  for (long I = 0; I < 300; ++I)
    Sink += strtol("7", NULL, 10); // mark: external

  outer(7000);
  choose(5000);
  indirect(200);
  alternate(1000);
  unrolled(8000);
  colon();
  digit();
}

int main(int Argc, char **Argv) {
  const char *Mode = Argc > 1 ? Argv[1] : "measure";
  if (!strcmp(Mode, "measure")) {
    measure();
  } else if (!strcmp(Mode, "fail")) {
    outer(10);
    fprintf(stderr, "no such level: %s\n", Argv[2]);
    return 3;
  } else if (!strcmp(Mode, "crash")) {
    abort();
  } else if (!strcmp(Mode, "hang")) {
    for (;;)
      outer(1000);
  } else if (!strcmp(Mode, "fork")) {
    outer(100);
    if (fork() == 0) {
      outer(100000);
      _exit(0);
    }
    wait(NULL);
  } else if (!strcmp(Mode, "threads")) {
    pthread_t Threads[2];
    for (int I = 0; I < 2; ++I)
      pthread_create(&Threads[I], NULL, thread, (void *)500);
    for (int I = 0; I < 2; ++I)
      pthread_join(Threads[I], NULL);
  } else if (!strcmp(Mode, "generate")) {
    // A function made at run time: lea -1(%rdi), %rdi; test %rdi, %rdi; jne; ret.
    static const uint8_t Code[] = {0x48, 0x8d, 0x7f, 0xff, 0x48, 0x85,
                                   0xff, 0x75, 0xf7, 0xc3};
    void *Page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(Page, Code, sizeof(Code));
    ((void (*)(long))Page)(100000);
  } else if (!strcmp(Mode, "repeat")) {
    for (long I = 0; I < atol(Argv[2]); ++I)
      repeated();
  } else if (!strcmp(Mode, "copy")) {
    char Folder[4096];
    for (int C; (C = getchar()) != EOF;)
      putchar(C);
    puts(getcwd(Folder, sizeof(Folder)));
    puts(strrchr(Argv[0], '/'));
  }
  return 0;
}
