/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Runs a block of machine code in a process of its own, and times it. Included by measure_blocks.c
 * alone.
 */
#include "block_context.h"
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
  unsigned char is_failing[2 * MOST_RATED_COPIES] = {0};
  if (rated->failing)
    choose(is_failing, rated->failing * (copies / rated->copies), copies);
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
    if (is_failing[copy])
      memcpy(start + rated->store_place, &rated->store_displacement, 4);
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
