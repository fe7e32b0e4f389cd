// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A program whose executed blocks are known: its first argument says what it
// does.

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static volatile uint32_t sink;

// One turn of the loop takes one of two ways.
NOINLINE void turn(uint32_t number) {
#pragma clang loop unroll(disable)
  for (uint32_t i = 0, state = 1; i < number; ++i) {
    state = state * 1664525 + 1013904223;
    if (state >> 31)
      sink += state;
    else
      __asm__ volatile("nop");
  }
}

// A block that begins with an instruction that repeats itself.
NOINLINE void clear(char *to, size_t bytes) {
  if (bytes == 0)
    return;
  __asm__ volatile("jmp 1f\n1: rep stosb"
                   : "+D"(to), "+c"(bytes)
                   : "a"(0)
                   : "memory");
}

NOINLINE void clear_often(uint32_t number) {
  char buffer[1000];
  for (uint32_t i = 0; i < number; ++i)
    clear(buffer, 1 + i % sizeof buffer);
  sink += (uint32_t)buffer[0];
}

// The repeating instruction is the first of a block, without a jump before it.
NOINLINE void fill(char *to, size_t bytes, int c) {
  __asm__ volatile goto("test %2, %2\n jz %l3\n"
                        :
                        : "D"(to), "c"(bytes), "r"(c)
                        :
                        : zero);
  __asm__ volatile("rep stosb" : "+D"(to), "+c"(bytes) : "a"(1) : "memory");
zero:
  sink += (uint32_t)c;
}

NOINLINE void fill_often(uint32_t number) {
  static char buffer[1000];
  for (uint32_t i = 0; i < number; ++i)
    fill(buffer, 1 + i % sizeof buffer, (int)(i & 1));
}

static void *thread(void *number) {
  turn((uint32_t)(uintptr_t)number);
  return NULL;
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  uint32_t number = argc > 2 ? (uint32_t)atoi(argv[2]) : 1000;
  if (!strcmp(what, "turn")) {
    turn(number);
  } else if (!strcmp(what, "clear")) {
    clear_often(number);
    fill_often(number);
  } else if (!strcmp(what, "threads")) {
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; ++i)
      pthread_create(&threads[i], NULL, thread, (void *)(number * (i + 1)));
    for (int i = 0; i < 4; ++i)
      pthread_join(threads[i], NULL);
  } else if (!strcmp(what, "fork")) {
    turn(number);
    if (fork() == 0) {
      turn(2 * number);
      return 0;
    }
    wait(NULL);
    turn(number);
  } else if (!strcmp(what, "abort")) {
    turn(number);
    abort();
  } else if (!strcmp(what, "crash")) {
    turn(number);
    *(volatile int *)NULL = 1;
  } else if (!strcmp(what, "hang")) {
    for (;;)
      turn(number);
  } else if (!strcmp(what, "close")) {
    // As a daemon does, and then takes the numbers for itself.
    for (int i = 3; i < 2000; ++i)
      close(i);
    for (int i = 3; i < 1000; ++i)
      dup(1);
    turn(number);
  } else if (!strcmp(what, "start")) {
    return system("exit 0");
  } else if (!strcmp(what, "load")) {
    void *library = dlopen(argv[3], RTLD_NOW);
    void (*run)(uint32_t) =
        library ? (void (*)(uint32_t))dlsym(library, "turn") : NULL;
    if (run == NULL)
      return 2;
    run(number);
    dlclose(library);
  } else {
    return 3;
  }
  return 0;
}
