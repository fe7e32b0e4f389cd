/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Time in core cycles, without performance counters, and whether others use the core. Included by
 * measure_blocks.c and block_context.h.
 */
#ifndef CORE_CLOCK_H
#define CORE_CLOCK_H

#include <math.h>
#include <stdint.h>
#include <unistd.h>
#include <x86intrin.h>

enum {
  /* Instructions in a row, and how often that is repeated: beside samples, and for the unit. */
  CHAIN = 100,
  CHECKED_NOPS = 60,
  CHECKED_CHAINS = 30,
  UNIT_CHAINS = 300,
  UNIT_SAMPLES = 100,
  /* A millisecond apart; then it is taken as it is. */
  UNIT_TRIES = 1000,
  /* Others leave the core for some milliseconds now and then, if not for longer. */
  QUIET_CHECKS = 12,
};

/* By what part a check beside a sample may be off: a step or two of the counter. */
static const double UNIT_TOLERANCE = 0.02, NOP_TOLERANCE = 0.15, LEAST_TOLERANCE = 0.06;

/* More than an instruction without effect ever takes: with it, all cores count as ours. */
static const double ANY_CORE = 10;

/* By what part instructions without effect may be slower where the core counts as ours. */
static double ours_tolerance;

/* Ticks of a core cycle, and of CHECKED_CHAINS; cycles of an instruction without effect. */
static double unit, checked_ticks, nop_cycles;

static uint64_t now(void) {
  _mm_lfence();
  uint64_t time = __rdtsc();
  _mm_lfence();
  return time;
}

static void additions(long n) {
  __asm__ volatile("1:\n .rept 100\n add %%rcx, %%rax\n .endr\n dec %0\n jnz 1b"
                   : "+r"(n)
                   :
                   : "rax", "rcx", "cc");
}

static double chain_ticks(long n) {
  uint64_t start = now();
  additions(n);
  return (double)(now() - start);
}

static double nop_ticks(void) {
  long n = CHECKED_NOPS;
  uint64_t start = now();
  __asm__ volatile("1:\n .rept 100\n nop\n .endr\n dec %0\n jnz 1b" : "+r"(n) : : "cc");
  return (double)(now() - start);
}

/* What it takes to read the time is a thousandth of the longer chain. */
static void measure_unit_once(void) {
  double longer = INFINITY;
  checked_ticks = INFINITY;
  for (int i = 0; i < UNIT_SAMPLES; ++i) {
    checked_ticks = fmin(checked_ticks, chain_ticks(CHECKED_CHAINS));
    longer = fmin(longer, chain_ticks(UNIT_CHAINS));
  }
  unit = longer / ((double)UNIT_CHAINS * CHAIN);
}

static double fewest_nop_ticks(int samples) {
  double least = INFINITY;
  for (int i = 0; i < samples; ++i)
    least = fmin(least, nop_ticks());
  return least;
}

/* Intel's cores let others slow the chain, too, for milliseconds. Instructions without effect then
 * find moments of their own, in which they seem to take less than they can. */
static void measure_unit(void) {
  for (int i = 0; i < UNIT_TRIES; ++i) {
    measure_unit_once();
    double possible = nop_cycles * CHECKED_NOPS * CHAIN * unit * (1 - LEAST_TOLERANCE);
    if (nop_cycles > ANY_CORE || fewest_nop_ticks(UNIT_SAMPLES) > possible)
      return;
    usleep(1000);
  }
}

/* With what it takes to read the time. Each of the two is the least of a second, for others disturb
 * one and not the other. */
static double least_nop(void) {
  double least = INFINITY, least_unit = INFINITY;
  for (int i = 0; i < 100; ++i) {
    measure_unit_once();
    least_unit = fmin(least_unit, unit);
    least = fmin(least, fewest_nop_ticks(1000));
    usleep(5000);
  }
  return least / (least_unit * CHECKED_NOPS * CHAIN);
}

/* Whether nobody else uses the core now. */
static int core_is_ours(void) {
  return nop_ticks() < nop_cycles * CHECKED_NOPS * CHAIN * unit * (1 + ours_tolerance);
}

/* Whether it looks as if nobody did for a while: others pause for some cycles, too. */
static int core_stays_ours(void) {
  for (int i = 0; i < QUIET_CHECKS; ++i)
    if (!core_is_ours())
      return 0;
  return 1;
}

static int unit_holds(void) { return fabs(chain_ticks(CHECKED_CHAINS) / checked_ticks - 1) < UNIT_TOLERANCE; }

#endif
