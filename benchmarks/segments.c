/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 * Preloaded into a program (LD_PRELOAD): notes the processor time whenever it reads a
 * file, asks for the time, or has allocated some memory, and writes the times, doubles in seconds, to
 * the file SEGMENTS at exit. For programs of one thread. With FAULTS defined, it notes how often
 * the kernel had to give the program a page instead. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* MOMENT says to tools/tracer/qemu_plugin.c that it is this library that asks. */
enum { CAPACITY = 1 << 18, ALLOCATIONS = 64, MOMENT = 0x6d6f6d65 };
static double Noted[CAPACITY];
static unsigned Count;

static double value(void) {
#ifdef FAULTS
  struct rusage Usage;
  getrusage(RUSAGE_SELF, &Usage);
  return (double)Usage.ru_minflt;
#else
  struct timespec Now;
  syscall(SYS_clock_gettime, CLOCK_PROCESS_CPUTIME_ID, &Now, MOMENT);
  return (double)Now.tv_sec + 1e-9 * (double)Now.tv_nsec;
#endif
}

static void note(void) {
  double Value = value();
  if (Count < CAPACITY)
    Noted[Count++] = Value;
}

/* Many allocations fit into the time of one note. */
static void allocate(void) {
  static unsigned Allocations;
  if (++Allocations % ALLOCATIONS == 0)
    note();
}

/* The C library's other names; dlsym() is of no use, for there are programs with one of their own. */
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);

void *malloc(size_t Size) {
  allocate();
  return __libc_malloc(Size);
}

/* Compilers make it of malloc() and memset() where they see both. */
void *calloc(size_t Number, size_t Size) {
  allocate();
  return __libc_calloc(Number, Size);
}

void *realloc(void *Block, size_t Size) {
  allocate();
  return __libc_realloc(Block, Size);
}

size_t _IO_fread(void *, size_t, size_t, FILE *);

size_t fread(void *restrict Buffer, size_t Size, size_t Number, FILE *restrict Stream) {
  note();
  return _IO_fread(Buffer, Size, Number, Stream);
}

ssize_t read(int File, void *Buffer, size_t Size) {
  note();
  return syscall(SYS_read, File, Buffer, Size);
}

clock_t clock(void) {
  struct timespec Now;
  note();
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &Now);
  return Now.tv_sec * CLOCKS_PER_SEC + Now.tv_nsec / (1000000000 / CLOCKS_PER_SEC);
}

int gettimeofday(struct timeval *restrict Time, void *restrict Zone) {
  struct timespec Now;
  (void)Zone;
  note();
  clock_gettime(CLOCK_REALTIME, &Now);
  *Time = (struct timeval){.tv_sec = Now.tv_sec, .tv_usec = Now.tv_nsec / 1000};
  return 0;
}

__attribute__((constructor)) static void begin(void) { note(); }

__attribute__((destructor)) static void end(void) {
  const char *Path = getenv("SEGMENTS");
  FILE *Output = Path ? fopen(Path, "wb") : NULL;
  note();
  if (!Output)
    return;
  fwrite(Noted, sizeof *Noted, Count, Output);
  fclose(Output);
}
