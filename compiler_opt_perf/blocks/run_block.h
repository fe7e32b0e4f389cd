/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Runs a block of machine code in a process of its own, and times it. Included by measure_blocks.c
 * alone.
 */
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
  /* Of one block in one process. */
  SAMPLES = 9,
  TRIES = 8 * SAMPLES,
  /* Ticks of the shorter of the two times of a sample, of which a step of the counter, 10 ns on some
   * CPUs, is less than half a percent. */
  SAMPLE_TICKS = 8000,
  WAIT_NANOSECONDS = 1000000,
  MOST_PROCESSOR_MICROSECONDS = 300000,
};

/* Of the medians of samples from their minima. */
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

#include "rated_block.h"

struct operand {
  int place, end, target;
};

/* rated.copies is 0 where all loads hit. */
struct block {
  int bytes, operands;
  unsigned char code[MOST_BYTES];
  struct operand operand[MOST_OPERANDS];
  struct rated rated;
};

static char *put_list_entry(char *at, const struct rated *rated, int copy, int column, const char *end) {
  return put_distance(at, list_entry(rated, copy, column), end);
}

/* Writes a loop: registers are set, `copies` copies of the block run, nothing else beside them. */
static char *put_loop(char *at, const struct block *block, int copies) {
  const struct rated *rated = &block->rated;
  char *top = at;
  at = put(at, "\x0f\xae\x15", 3); /* ldmxcsr */
  at = put_distance(at, &HERE->mxcsr, at + 4);
  if (has_avx)
    at = put(at, "\xc5\xf8\x77", 3); /* vzeroupper */
  for (int n = 0; n < 16; ++n) {     /* movups vector(%rip), %xmm */
    at = n < 8 ? put(at, "\x0f\x10", 2) : put(at, "\x44\x0f\x10", 3);
    *at++ = (char)(0x05 | (n & 7) << 3);
    at = put_distance(at, HERE->vector, at + 4);
  }
  at = put(at, "\x31\xc0", 2);   /* xor %eax, %eax, for the flags */
  for (int n = 0; n < 16; ++n) { /* mov $pointer, %r32 */
    uint32_t pointer = POINTER(n);
    if (n >= 8)
      *at++ = 0x41;
    *at++ = (char)(0xb8 | (n & 7));
    at = put(at, (const char *)&pointer, 4);
  }
  for (int s = 0; s < rated->sources; ++s) { /* mov list, %r64 */
    if (!rated->source[s].delay)
      continue;
    *at++ = (char)(0x48 | (rated->source[s].reg >> 3) << 2);
    *at++ = (char)0x8b;
    *at++ = (char)(0x05 | (rated->source[s].reg & 7) << 3);
    at = put_list_entry(at, rated, 0, s, at + 4);
  }
  at = put(at, "\x0f\xae\xe8", 3); /* lfence */
  for (int copy = 0; copy < copies; ++copy) {
    char *start = at;
    at = put(at, (const char *)block->code, block->bytes);
    for (int i = 0; i < block->operands; ++i)
      put_distance(start + block->operand[i].place, TARGETS + block->operand[i].target,
                   start + block->operand[i].end);
    for (int s = 0; s < rated->sources; ++s)
      if (rated->source[s].place >= 0)
        put_list_entry(start + rated->source[s].place, rated, copy, s, start + rated->source[s].end);
    if (rated->copies)
      put_list_entry(start + rated->jump_place, rated, copy, rated->sources, start + rated->jump_end);
  }
  /* When the last stores are in the cache, and nothing has begun that comes after. */
  at = put(at, "\x0f\xae\xf0\x0f\xae\xe8", 6); /* mfence, lfence */
  at = put(at, "\xff\x0d", 2);     /* decl passes */
  at = put_distance(at, &HERE->passes, at + 4);
  at = put(at, "\x0f\x85", 2); /* jne */
  at = put_distance(at, top, at + 4);
  at = put(at, "\x48\x8b\x25", 3); /* mov stack, %rsp */
  at = put_distance(at, &HERE->stack, at + 4);
  at = put(at, "\xff\x25", 2); /* jmp *back */
  return put_distance(at, &HERE->back, at + 4);
}

static uint64_t ticks(void *loop, unsigned passes) {
  unsigned mxcsr = _mm_getcsr();
  HERE->passes = passes;
  uint64_t start = now();
  enter(loop);
  uint64_t end = now();
  _mm_setcsr(mxcsr);
  return end - start;
}

/* The mean of the lowest third, for the steps of the counter are as long as many cycles. */
static double least(const double *ordered) {
  double sum = 0;
  for (int i = 0; i < SAMPLES / 3; ++i)
    sum += ordered[i];
  return sum / (SAMPLES / 3);
}

/* From here on, only confined_call and the return from a signal's handler. */
static void confine(void) {
  uint64_t end = (uint64_t)(uintptr_t)confined_call_end;
  struct sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, 6),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 5, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)end, 0, 2),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer) + 4),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(end >> 32), 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
  require(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl");
  require(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), "seccomp, without which no block is run");
}

static void limit(int what, rlim_t most) {
  struct rlimit rule = {most, most};
  require(!setrlimit(what, &rule), "setrlimit");
}

/* The times of a loop of some copies and one of twice as many, in cycles of one copy. */
static void time_copies(void *shorter, void *longer, int copies) {
  double first[SAMPLES], second[SAMPLES];
  /* Everything is mapped, and warm. */
  for (int i = 0; i < 3; ++i) {
    fill_memory();
    ticks(longer, 4);
  }
  uint64_t pass = ~UINT64_C(0);
  for (int i = 0; i < 3; ++i) {
    uint64_t time = ticks(shorter, 4) / 4;
    pass = time < pass ? time : pass;
  }
  unsigned passes = (unsigned)(SAMPLE_TICKS / (pass + 1)) + 1;
  int samples = 0;
  for (int tries = 0; samples < SAMPLES && tries < TRIES && waits_left; ++tries) {
    int known = pages;
    wait_for_core();
    fill_memory();
    ticks(shorter, 2);
    int good = core_is_ours() && unit_holds();
    first[samples] = (double)ticks(shorter, passes);
    fill_memory();
    ticks(longer, 2);
    good &= core_is_ours();
    second[samples] = (double)ticks(longer, passes);
    samples += core_is_ours() && unit_holds() && good && pages == known;
  }
  if (samples < SAMPLES)
    drop(DISTURBED);
  qsort(first, SAMPLES, sizeof *first, compare);
  qsort(second, SAMPLES, sizeof *second, compare);
  double scale = 1 / (unit * passes * copies);
  result->cycles = (least(second) - least(first)) * scale;
  result->pages = pages;
  double middle = (second[SAMPLES / 2] - first[SAMPLES / 2]) * scale;
  if (!(result->cycles > 0) || fabs(middle / result->cycles - 1) > MOST_SPREAD)
    drop(UNSTABLE);
}

static void measure(const struct block *block, int copies) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(sched_getcpu(), &set);
  sched_setaffinity(0, sizeof set, &set);
  static char stack[1 << 16];
  stack_t alternative = {.ss_sp = stack, .ss_size = sizeof stack};
  require(!sigaltstack(&alternative, NULL), "sigaltstack");
  int caught[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGPROF};
  for (size_t i = 0; i < sizeof caught / sizeof *caught; ++i) {
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    require(!sigaction(caught[i], &action, NULL), "sigaction");
  }
  require(mmap(CODE, CODE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
              CODE,
          "mmap");
  char *longer = put_loop(CODE, block, copies);
  longer = (char *)(((uintptr_t)longer + 63) & ~(uintptr_t)63);
  put_loop(longer, block, 2 * copies);
  if (block->rated.copies)
    map_rated(&block->rated);
  require(!mprotect(CODE, CODE_BYTES, PROT_READ | PROT_EXEC), "mprotect");
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_CPU, 2);
  struct itimerval timer = {.it_value = {.tv_usec = MOST_PROCESSOR_MICROSECONDS}};
  require(!setitimer(ITIMER_PROF, &timer, NULL), "setitimer");
  confine();
  if (block->rated.copies)
    time_rated(CODE, longer, &block->rated);
  else
    time_copies(CODE, longer, copies);
  confined_call(SYS_exit_group, 0, 0, 0, 0, 0, 0);
}

static void run(const struct block *block, int copies) {
  memset(result, 0, sizeof *result);
  pid_t child = fork();
  require(child >= 0, "fork");
  if (!child) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    measure(block, copies);
  }
  int status;
  require(waitpid(child, &status, 0) == child, "waitpid");
  if (WIFEXITED(status) && WEXITSTATUS(status))
    exit(WEXITSTATUS(status));
  if (WIFSIGNALED(status))
    snprintf(result->reason, sizeof result->reason, "killed by signal %d", WTERMSIG(status));
}
