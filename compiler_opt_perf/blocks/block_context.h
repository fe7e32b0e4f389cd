/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * The memory and the constants that a measured block runs with. Included by rated_block.h and
 * run_block.h.
 */
#ifndef BLOCK_CONTEXT_H
#define BLOCK_CONTEXT_H

#include "core_clock.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

enum {
  PAGE = 4096,
  /* Half of the smallest first level, 32 KiB; and fewer pages than the first level of address
   * translation knows. */
  PHYSICAL_PAGES = 4,
  MOST_PAGES = 40,
  MOST_BYTES = 512,
  MOST_OPERANDS = 128,
  CODE_BYTES = 1 << 16,
  /* Samples of one block in one process. */
  SAMPLES = 9,
  TRIES = 8 * SAMPLES,
  /* Ticks of the shorter of the two times of a sample, of which a step of the counter, 10 ns on some
   * CPUs, is less than half a percent. */
  SAMPLE_TICKS = 8000,
  WAIT_NANOSECONDS = 1000000,
  MOST_PROCESSOR_MICROSECONDS = 300000,
};

/* The largest distances of the medians of samples from their minima. */
static const double MOST_SPREAD = 0.05, MOST_RATED_SPREAD = 0.1;
/* Samples of these take longer, and others that use the core leave it rarely for so long. */
static const double RATED_NOP_TOLERANCE = 0.3;
/* Reasons that the caller acts on. */
static const char TOO_MANY_PAGES[] = "too many pages", DISTURBED[] = "disturbed", UNSTABLE[] = "unstable";

/* Far from where the system maps anything. Registers begin with pointers of 32 bits, so that what an
 * instruction of 32 bits leaves of one is a pointer still. */
#define CONTEXT ((char *)0x100000000000)
#define CODE (CONTEXT + 0x100000)
#define TARGETS (CONTEXT + 0x4000000)
#define FIRST_POINTER 0x10000800u
/* What memory holds: a pointer, whose low half is one, too. */
#define STORED_POINTER 0x14000fc0u
/* Another page and another line for each register. */
#define POINTER(n) (FIRST_POINTER + (n) * 0x100000u + (n) * 128u)

/* What copies and the code around them refer to, at CONTEXT. */
struct context {
  uint64_t stack, back;
  uint32_t passes, mxcsr;
  double vector[2];
};
#define HERE ((struct context *)CONTEXT)

struct result {
  char reason[80];
  double cycles;
  int pages;
};
static struct result *result;
static int memory;
static char *contents;
static int pages;
static int has_avx;
static int waits_left;

/* The one place of which system calls are allowed when a block runs. */
long confined_call(long number, long a, long b, long c, long d, long e, long f);
extern char confined_call_end[];
__asm__(".text\n.globl confined_call\nconfined_call:\n"
        " mov %rdi, %rax\n mov %rsi, %rdi\n mov %rdx, %rsi\n mov %rcx, %rdx\n mov %r8, %r10\n"
        " mov %r9, %r8\n mov 8(%rsp), %r9\n syscall\n"
        ".globl confined_call_end\nconfined_call_end:\n ret\n");

/* Waits until nobody else uses the core, in all so many times as are left. */
static void wait_for_core(void) {
  struct timespec pause = {.tv_nsec = WAIT_NANOSECONDS};
  for (; waits_left > 0 && !core_stays_ours(); --waits_left)
    confined_call(SYS_nanosleep, (long)&pause, 0, 0, 0, 0, 0);
}

static void drop(const char *reason) {
  strncpy(result->reason, reason, sizeof result->reason - 1);
  confined_call(SYS_exit_group, 0, 0, 0, 0, 0, 0);
}

static void on_signal(int number, siginfo_t *info, void *at) {
  (void)at;
  uintptr_t address = (uintptr_t)info->si_addr;
  switch (number) {
  case SIGILL:
    drop("illegal instruction");
    break;
  case SIGFPE:
    drop("division error or other arithmetic trap");
    break;
  case SIGSYS:
    drop("system call");
    break;
  case SIGTRAP:
    drop("trap");
    break;
  case SIGPROF:
    drop("too slow");
    break;
  }
  /* The processor does not tell which address it refuses as such, or as misaligned. */
  if (number == SIGBUS || info->si_code == SI_KERNEL)
    drop("misaligned or impossible address");
  if (info->si_code == SEGV_ACCERR)
    drop("writes code");
  if (address < 0x10000 || address >= 0x7f0000000000)
    drop("address of no page");
  if (pages == MOST_PAGES)
    drop(TOO_MANY_PAGES);
  long mapped = confined_call(SYS_mmap, (long)(address & -PAGE), PAGE, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_FIXED_NOREPLACE, memory, pages % PHYSICAL_PAGES * PAGE);
  if (mapped < 0)
    drop("address of no page");
  ++pages;
}

static void fill_memory(void) {
  uint64_t *word = (uint64_t *)(void *)contents;
  for (int i = 0; i < PHYSICAL_PAGES * PAGE / 8; ++i)
    word[i] = STORED_POINTER;
}

/* Saves what the caller needs, and jumps to CODE or what is behind it. */
void enter(void *code);
__asm__(".text\n.globl enter\nenter:\n"
        " push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
        " movabs $0x100000000000, %rax\n mov %rsp, (%rax)\n lea 1f(%rip), %rcx\n mov %rcx, 8(%rax)\n"
        " jmp *%rdi\n"
        "1: cld\n pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n");

static char *put(char *at, const char *bytes, int count) {
  memcpy(at, bytes, (size_t)count);
  return at + count;
}

static char *put_distance(char *at, const void *target, const char *end) {
  int32_t distance = (int32_t)((intptr_t)target - (intptr_t)end);
  return put(at, (const char *)&distance, 4);
}

static void require(int good, const char *what) {
  if (good)
    return;
  perror(what);
  exit(3);
}

static int compare(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

#endif
