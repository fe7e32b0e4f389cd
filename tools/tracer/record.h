// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Encodes one record of a block trace (docs/reference/formats.md): a list of block numbers as bytes.

#ifndef TRACER_RECORD_H
#define TRACER_RECORD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <zstd.h>

enum {
  RECORD_MAGIC = 0x184D2A5B, // a skippable frame of zstd
  RECORD_BLOCKS = 3,
  RECORD_ACCESSES = 7,
  RECORD_STREAM_ENDS = 1,
};

// Stretches of consecutive blocks whose accesses to memory are recorded: blocks in each, and the most
// of a stream. They are evenly spread over it.
enum { STRETCH_BLOCKS = 600, MOST_STRETCHES = 1200 };

// The host is x86-64, which is little endian, as is the format.
struct record_head {
  uint32_t magic;
  uint32_t head_bytes; // of the fields after this one
  uint32_t kind;
  uint32_t stream;
  uint32_t payload_bytes;
  uint32_t raw_bytes;
  uint32_t count;
  uint32_t flags;
  uint32_t pid;
  uint32_t tid;
};

_Static_assert(sizeof(struct record_head) == 40, "the head is written as it is in memory");

// A difference of two block numbers takes at most this many bytes.
enum { MAX_BYTES = 5 };

static inline uint32_t zigzag(uint32_t difference) {
  return difference << 1 ^ (uint32_t)((int32_t)difference >> 31);
}

static inline uint64_t zigzag64(uint64_t difference) {
  return difference << 1 ^ (uint64_t)((int64_t)difference >> 63);
}

static inline uint32_t unzigzag(uint32_t code) { return code >> 1 ^ -(code & 1); }

// Writes a number in LEB128; returns the end of its bytes.
static inline uint8_t *put(uint8_t *out, uint64_t number) {
  for (; number >= 0x80; number >>= 7)
    *out++ = (uint8_t)number | 0x80;
  *out++ = (uint8_t)number;
  return out;
}

// Writes `count` block numbers as differences; returns the number of bytes.
static inline size_t encode(const uint32_t *numbers, size_t count, uint8_t *out) {
  uint8_t *const start = out;
  uint32_t previous = 0;
  for (size_t i = 0; i < count; ++i) {
    out = put(out, zigzag(numbers[i] - previous));
    previous = numbers[i];
  }
  return (size_t)(out - start);
}

#endif
