// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Fast functions for the Python package: decoding and encoding of records, and counts of windows of
// blocks. Functions return a negative error code on failure.

#include "record.h"
#include <stdbool.h>
#include <stdlib.h>

enum { DAMAGED = -1, MALFORMED = -2, OUT_OF_RANGE = -3, NO_MEMORY = -4 };

// Decodes `count` numbers, each at most `limit`, from a zstd frame with `raw_bytes` of content.
// Returns 0.
int trace_decode(const uint8_t *frame, size_t frame_bytes, size_t raw_bytes, uint32_t *numbers,
                 size_t count, uint32_t limit) {
  uint8_t *raw = malloc(raw_bytes + 1);
  if (raw == NULL)
    return NO_MEMORY;
  int result = DAMAGED;
  if (ZSTD_decompress(raw, raw_bytes, frame, frame_bytes) == raw_bytes) {
    const uint8_t *in = raw, *const end = raw + raw_bytes;
    uint32_t previous = 0;
    result = 0;
    for (size_t i = 0; i < count && result == 0; ++i) {
      uint32_t code = 0, shift = 0, byte = 0x80;
      for (; in != end && shift < 35 && byte & 0x80; shift += 7) {
        byte = *in++;
        code |= (byte & 0x7f) << shift;
      }
      numbers[i] = previous += unzigzag(code);
      if (byte & 0x80)
        result = MALFORMED;
      else if (previous > limit)
        result = OUT_OF_RANGE;
    }
    if (result == 0 && in != end)
      result = MALFORMED;
  }
  free(raw);
  return result;
}

// Returns the largest size of a frame with `bytes` of content.
size_t trace_bound(size_t bytes) { return ZSTD_compressBound(bytes); }

// Compresses to a zstd frame; returns its size.
int64_t trace_compress(const uint8_t *raw, size_t raw_bytes, uint8_t *frame, size_t frame_bytes) {
  ZSTD_CCtx *compressor = ZSTD_createCCtx();
  if (compressor == NULL)
    return NO_MEMORY;
  ZSTD_CCtx_setParameter(compressor, ZSTD_c_compressionLevel, 1);
  ZSTD_CCtx_setParameter(compressor, ZSTD_c_checksumFlag, 1);
  size_t bytes = ZSTD_compress2(compressor, frame, frame_bytes, raw, raw_bytes);
  ZSTD_freeCCtx(compressor);
  return ZSTD_isError(bytes) ? DAMAGED : (int64_t)bytes;
}

// Decompresses a zstd frame with `raw_bytes` of content. Returns 0.
int trace_decompress(const uint8_t *frame, size_t frame_bytes, uint8_t *raw, size_t raw_bytes) {
  return ZSTD_decompress(raw, raw_bytes, frame, frame_bytes) == raw_bytes ? 0 : DAMAGED;
}

// Writes block numbers as differences, at most MAX_BYTES each; returns the number of bytes.
int64_t trace_encode(const uint32_t *numbers, size_t count, uint8_t *raw) {
  return (int64_t)encode(numbers, count, raw);
}

// Distinct windows of `length` consecutive blocks, with counts. A hash table with open addressing
// and a rolling hash.
struct windows {
  size_t length;
  uint32_t gap;
  uint64_t power; // base^length, the weight of the number that leaves the window
  uint64_t hash;
  uint32_t *history; // the numbers of the current window
  size_t used, room;
  uint32_t *numbers; // `length` numbers for each distinct window
  uint64_t *counts;
  size_t slots;    // a power of two
  uint32_t *table; // index of the distinct window plus 1; 0 for a free slot
};

static const uint64_t base = 0x9E3779B97F4A7C15; // any large odd number

void trace_windows_delete(struct windows *w) {
  if (w == NULL)
    return;
  free(w->history);
  free(w->numbers);
  free(w->counts);
  free(w->table);
  free(w);
}

struct windows *trace_windows_new(size_t length, uint32_t gap) {
  struct windows *w = calloc(1, sizeof *w);
  if (w == NULL)
    return NULL;
  w->length = length;
  w->gap = gap;
  w->power = 1;
  for (size_t i = 0; i < length; ++i)
    w->power *= base;
  w->slots = 1 << 10;
  w->room = 1 << 9;
  w->history = malloc(length * sizeof *w->history);
  w->numbers = malloc(w->room * length * sizeof *w->numbers);
  w->counts = malloc(w->room * sizeof *w->counts);
  w->table = calloc(w->slots, sizeof *w->table);
  if (!w->history || !w->numbers || !w->counts || !w->table) {
    trace_windows_delete(w);
    return NULL;
  }
  return w;
}

static uint64_t mix(uint64_t hash) {
  hash ^= hash >> 29;
  hash *= 0xBF58476D1CE4E5B9;
  return hash ^ hash >> 32;
}

static uint64_t hash_of(const uint32_t *window, size_t length) {
  uint64_t hash = 0;
  for (size_t i = 0; i < length; ++i)
    hash = hash * base + window[i] + 1;
  return hash;
}

static bool grow(struct windows *w) {
  size_t room = w->room * 2, slots = w->slots * 2;
  uint32_t *numbers = realloc(w->numbers, room * w->length * sizeof *numbers);
  if (numbers != NULL)
    w->numbers = numbers;
  uint64_t *counts = realloc(w->counts, room * sizeof *counts);
  if (counts != NULL)
    w->counts = counts;
  uint32_t *table = calloc(slots, sizeof *table);
  if (numbers == NULL || counts == NULL || table == NULL) {
    free(table);
    return false;
  }
  for (size_t i = 0; i < w->used; ++i) {
    size_t slot = mix(hash_of(numbers + i * w->length, w->length)) & (slots - 1);
    while (table[slot] != 0)
      slot = (slot + 1) & (slots - 1);
    table[slot] = (uint32_t)i + 1;
  }
  free(w->table);
  w->table = table;
  w->room = room;
  w->slots = slots;
  return true;
}

static void restart(struct windows *w) {
  for (size_t i = 0; i < w->length; ++i)
    w->history[i] = w->gap;
  w->hash = hash_of(w->history, w->length);
}

// Counts the window that ends at each of `count` numbers, but for gaps. `starts` says that the
// numbers begin a stream. Returns the number of blocks.
int64_t trace_windows_add(struct windows *w, const uint32_t *numbers, size_t count, int starts) {
  int64_t blocks = 0;
  if (starts)
    restart(w);
  const size_t length = w->length, bytes = length * sizeof *numbers;
  for (size_t n = 0; n < count; ++n) {
    if (numbers[n] == w->gap) {
      restart(w);
      continue;
    }
    ++blocks;
    w->hash = w->hash * base + numbers[n] + 1 - (w->history[0] + UINT64_C(1)) * w->power;
    memmove(w->history, w->history + 1, bytes - sizeof *numbers);
    w->history[length - 1] = numbers[n];
    size_t slot = mix(w->hash) & (w->slots - 1);
    uint32_t found;
    while ((found = w->table[slot]) != 0 &&
           memcmp(w->numbers + (found - 1) * length, w->history, bytes) != 0)
      slot = (slot + 1) & (w->slots - 1);
    if (found != 0) {
      ++w->counts[found - 1];
      continue;
    }
    memcpy(w->numbers + w->used * length, w->history, bytes);
    w->counts[w->used++] = 1;
    w->table[slot] = (uint32_t)w->used;
    if (w->used == w->room && !grow(w))
      return NO_MEMORY;
  }
  return blocks;
}

size_t trace_windows_size(const struct windows *w) { return w->used; }
const uint32_t *trace_windows_numbers(const struct windows *w) { return w->numbers; }
const uint64_t *trace_windows_counts(const struct windows *w) { return w->counts; }
