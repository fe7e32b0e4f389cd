// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Records the machine blocks that a program executes, as a plugin of QEMU's user mode.
//
// QEMU translates and executes code in straight pieces (translation blocks). A block of the address
// map is executed whenever a piece with its first instruction is. Each thread has a stream of block
// numbers, which it writes as compressed records. One write() appends a whole record, so threads
// and forked processes can share the file. A killed program loses only records not yet written.
//
// Parameters:
//   plan=FILE         the blocks to record: see struct plan
//   binary=FILE       full path of the executable or shared library that holds the blocks
//   trace=FILE        the trace, which has its description and block table already
//   messages=FILE     receives messages for the user, one a line
//   sync_points=FILE  optional; receives a struct sync_point for each call of clock_gettime() with
//                     SYNC_POINT as third argument, which the kernel ignores
//
// QEMU is under GNU's General Public License, version 2, with which the licence above is
// compatible. Debian ships no header for plugins: the declarations below are written from QEMU's
// documentation of the interface (docs/devel/tcg-plugins), version 1.

#define _GNU_SOURCE
#include "record.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

// QEMU's interface.

typedef uint64_t qemu_plugin_id_t;
struct qemu_info;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum { NO_REGISTERS };
typedef void (*translated_t)(qemu_plugin_id_t, struct qemu_plugin_tb *);
typedef void (*executed_t)(unsigned, void *);
typedef void (*thread_t)(qemu_plugin_id_t, unsigned);
typedef void (*syscall_t)(qemu_plugin_id_t, unsigned, int64_t, uint64_t, uint64_t, uint64_t,
                          uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
typedef void (*syscall_result_t)(qemu_plugin_id_t, unsigned, int64_t, int64_t);
typedef void (*exit_t)(qemu_plugin_id_t, void *);
typedef void (*accessed_t)(unsigned, uint32_t, uint64_t, void *);
enum { READS_AND_WRITES = 3 };

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, translated_t);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, executed_t, int, void *);
void qemu_plugin_register_vcpu_exit_cb(qemu_plugin_id_t, thread_t);
void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t, syscall_t);
void qemu_plugin_register_vcpu_syscall_ret_cb(qemu_plugin_id_t, syscall_result_t);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, exit_t, void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
void *qemu_plugin_insn_haddr(const struct qemu_plugin_insn *);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, accessed_t, int, int, void *);
bool qemu_plugin_mem_is_store(uint32_t);

int qemu_plugin_version = 1;

// The blocks to record. The file holds the two counts, then the three arrays.
static struct plan {
  uint64_t segment_count;
  uint64_t block_count;
  const struct segment {
    uint64_t offset, size, address; // file offset, bytes, link-time address
  } *segments;
  const uint64_t *addresses; // link-time address of each block, ascending
  const uint32_t *numbers;   // number of each block
} plan;

static const char *binary_path, *trace_path, *messages_path, *sync_points_path;
static int trace_file = -1;
static struct stat trace_identity;

// One counter numbers the streams of all processes.
static atomic_uint *next_stream;

enum { BLOCKS_IN_RECORD = 1 << 16, SYNC_POINT = 0x6d6f6d65 };

// Progress of a thread: blocks in its stream, and instructions executed outside of the binary.
struct sync_point {
  uint64_t blocks, elsewhere;
};

// The accesses to memory of some consecutive blocks of a stream, encoded: for each, LEB128 numbers of
// the blocks that began since the access before, of the instruction and of the address.
struct stretch {
  uint64_t first; // position of the first block in the stream
  uint8_t *bytes;
  size_t size;
};

struct stream {
  struct stream *next;
  ZSTD_CCtx *compressor;
  uint32_t id, pid, tid;
  bool written;
  // Address of the repeated string instruction that the thread is executing; else 0.
  uint64_t repeating;
  // `written_blocks` counts the blocks in the file.
  uint64_t written_blocks, elsewhere;
  size_t count;
  uint32_t numbers[BLOCKS_IN_RECORD];
  // Blocks so far, and the number of them at which the next stretch begins or the present one ends.
  uint64_t position, turn;
  // Stretches begin at its multiples. It doubles when there are too many, and every other is dropped.
  uint64_t interval;
  bool in_stretch;
  struct stretch stretches[MOST_STRETCHES + 1]; // the last one may be the present one
  size_t stretch_count, capacity;
  uint64_t begun; // blocks since the last access
  uint64_t instruction, address;
  bool stores;
};

// The streams of this process's threads.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream *streams;
static __thread struct stream *own __attribute__((tls_model("initial-exec")));

// Diagnostics

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line, sizeof line - 1, format, arguments);
  va_end(arguments);
  if (length > (int)sizeof line - 2)
    length = sizeof line - 2;
  line[length++] = '\n';
  int file = open(messages_path, O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file >= 0) {
    (void)!write(file, line, (size_t)length);
    close(file);
  }
}

// Ends the program: a trace must have no holes.
__attribute__((noreturn)) static void fail(const char *what, int error) {
  say("error: %s: %s", what, strerror(error));
  _exit(125);
}

// Writing

// The program shares our file descriptors. It may have closed ours or reused its number.
static void ensure_open(void) {
  struct stat found;
  if (trace_file >= 0 && fstat(trace_file, &found) == 0 && found.st_dev == trace_identity.st_dev &&
      found.st_ino == trace_identity.st_ino)
    return;
  int file = open(trace_path, O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file < 0 || fstat(file, &trace_identity) != 0)
    fail(trace_path, errno);
  // Programs hardly use numbers as high as this.
  trace_file = fcntl(file, F_DUPFD_CLOEXEC, 900);
  if (trace_file >= 0)
    close(file);
  else
    trace_file = file;
}

// Writes a record. No other thread may use the stream meanwhile.
static void write_payload(struct stream *stream, uint32_t kind, const uint8_t *raw, size_t raw_bytes,
                          size_t count, uint32_t flags) {
  size_t bound = ZSTD_compressBound(raw_bytes);
  uint8_t *record = malloc(sizeof(struct record_head) + bound);
  if (record == NULL)
    fail("writing the trace", ENOMEM);
  size_t bytes = ZSTD_compress2(stream->compressor, record + sizeof(struct record_head), bound, raw,
                                raw_bytes);
  if (ZSTD_isError(bytes))
    fail(ZSTD_getErrorName(bytes), ENOMEM);
  struct record_head head = {
      .magic = RECORD_MAGIC,
      .head_bytes = sizeof head - 8,
      .kind = kind,
      .stream = stream->id,
      .payload_bytes = (uint32_t)bytes,
      .raw_bytes = (uint32_t)raw_bytes,
      .count = (uint32_t)count,
      .flags = flags,
      .pid = stream->pid,
      .tid = stream->tid,
  };
  memcpy(record, &head, sizeof head);
  bytes += sizeof head;
  pthread_mutex_lock(&lock);
  ensure_open();
  // One call: the kernel appends the record as a whole, also beside other writers.
  ssize_t done = write(trace_file, record, bytes);
  if (done != (ssize_t)bytes)
    fail(trace_path, done < 0 ? errno : ENOSPC);
  pthread_mutex_unlock(&lock);
  free(record);
  stream->written = true;
}

// Writes the stream's blocks as a record.
static void write_record(struct stream *stream, uint32_t flags) {
  if (stream->count == 0 && !(flags && stream->written))
    return;
  uint8_t *raw = malloc(BLOCKS_IN_RECORD * MAX_BYTES);
  if (raw == NULL)
    fail("writing the trace", ENOMEM);
  size_t raw_bytes = encode(stream->numbers, stream->count, raw);
  write_payload(stream, RECORD_BLOCKS, raw, raw_bytes, stream->count, flags);
  free(raw);
  stream->written_blocks += stream->count;
  stream->count = 0;
}

// Accesses

static void drop_every_other_stretch(struct stream *stream) {
  stream->interval *= 2;
  size_t kept = 0;
  for (size_t i = 0; i < stream->stretch_count; ++i) {
    if (stream->stretches[i].first % stream->interval == 0)
      stream->stretches[kept++] = stream->stretches[i];
    else
      free(stream->stretches[i].bytes);
  }
  stream->stretch_count = kept;
}

// Ends the present stretch, and begins the next one if that is here.
static void turn(struct stream *stream) {
  if (stream->in_stretch && ++stream->stretch_count == MOST_STRETCHES)
    drop_every_other_stretch(stream);
  stream->in_stretch = stream->position % stream->interval == 0;
  if (!stream->in_stretch) {
    stream->turn = (stream->position / stream->interval + 1) * stream->interval;
    return;
  }
  stream->turn = stream->position + STRETCH_BLOCKS;
  stream->capacity = 1 << 13;
  struct stretch *stretch = &stream->stretches[stream->stretch_count];
  *stretch = (struct stretch){stream->position, malloc(stream->capacity), 0};
  if (stretch->bytes == NULL)
    fail("accesses to memory", ENOMEM);
  stream->begun = stream->instruction = stream->address = 0;
}

// `instruction` is its link-time address.
static void accessed(unsigned cpu, uint32_t info, uint64_t address, void *instruction) {
  (void)cpu;
  struct stream *stream = own;
  if (stream == NULL || !stream->in_stretch)
    return;
  bool stores = qemu_plugin_mem_is_store(info);
  uint64_t place = (uintptr_t)instruction;
  // Of several accesses of one instruction, as of vectors and repeated strings, the first counts.
  if (stream->begun == 0 && place == stream->instruction && stores == stream->stores)
    return;
  struct stretch *stretch = &stream->stretches[stream->stretch_count];
  if (stretch->size + 32 > stream->capacity) {
    stream->capacity *= 2;
    stretch->bytes = realloc(stretch->bytes, stream->capacity);
    if (stretch->bytes == NULL)
      fail("accesses to memory", ENOMEM);
  }
  uint8_t *out = stretch->bytes + stretch->size;
  out = put(out, stream->begun);
  out = put(out, zigzag64(place - stream->instruction) << 1 | stores);
  out = put(out, zigzag64(address - stream->address));
  stretch->size = (size_t)(out - stretch->bytes);
  stream->begun = 0;
  stream->instruction = place;
  stream->address = address;
  stream->stores = stores;
}

// Writes the accesses of the whole stream: LEB128 position and bytes of each stretch, then those.
static void write_accesses(struct stream *stream) {
  size_t bytes = 0, count = stream->stretch_count + stream->in_stretch;
  for (size_t i = 0; i < count; ++i)
    bytes += 20 + stream->stretches[i].size;
  uint8_t *raw = malloc(bytes + 1), *out = raw;
  if (raw == NULL)
    fail("accesses to memory", ENOMEM);
  for (size_t i = 0; i < count; ++i) {
    const struct stretch *stretch = &stream->stretches[i];
    out = put(out, stretch->first);
    out = put(out, stretch->size);
    memcpy(out, stretch->bytes, stretch->size);
    out += stretch->size;
  }
  if (count != 0)
    write_payload(stream, RECORD_ACCESSES, raw, (size_t)(out - raw), count, 0);
  free(raw);
}

static void end_stream(struct stream *stream) {
  write_accesses(stream);
  write_record(stream, RECORD_STREAM_ENDS);
}

static struct stream *new_stream(void) {
  struct stream *stream = calloc(1, sizeof *stream);
  if (stream == NULL || (stream->compressor = ZSTD_createCCtx()) == NULL)
    fail("a thread's buffer", ENOMEM);
  ZSTD_CCtx_setParameter(stream->compressor, ZSTD_c_compressionLevel, 1);
  ZSTD_CCtx_setParameter(stream->compressor, ZSTD_c_checksumFlag, 1);
  stream->id = atomic_fetch_add(next_stream, 1);
  stream->interval = STRETCH_BLOCKS;
  stream->pid = (uint32_t)getpid();
  stream->tid = (uint32_t)syscall(SYS_gettid);
  pthread_mutex_lock(&lock);
  stream->next = streams;
  streams = stream;
  pthread_mutex_unlock(&lock);
  own = stream;
  return stream;
}

static void delete_stream(struct stream *stream) {
  ZSTD_freeCCtx(stream->compressor);
  for (size_t i = 0; i < stream->stretch_count + stream->in_stretch; ++i)
    free(stream->stretches[i].bytes);
  free(stream);
}

// Execution: callbacks of each piece of code. The lower half of `data` is the index of its first
// block in the plan, the upper half the number of blocks.

static inline void append(struct stream *stream, uint32_t place) {
  if (__builtin_expect(stream->position == stream->turn, 0))
    turn(stream);
  ++stream->position;
  ++stream->begun;
  stream->numbers[stream->count] = plan.numbers[place];
  if (__builtin_expect(++stream->count == BLOCKS_IN_RECORD, 0))
    write_record(stream, 0);
}

static inline struct stream *own_stream(void) {
  struct stream *stream = own;
  return __builtin_expect(stream == NULL, 0) ? new_stream() : stream;
}

static void one_block(unsigned cpu, void *data) {
  (void)cpu;
  append(own_stream(), (uint32_t)(uintptr_t)data);
}

static void several_blocks(unsigned cpu, void *data) {
  (void)cpu;
  struct stream *stream = own_stream();
  uint32_t place = (uint32_t)(uintptr_t)data;
  for (uint32_t end = place + (uint32_t)((uintptr_t)data >> 32); place != end; ++place)
    append(stream, place);
}

static void elsewhere(unsigned cpu, void *instructions) {
  (void)cpu;
  own_stream()->elsewhere += (uintptr_t)instructions;
}

// QEMU jumps back to a string instruction with a repeat prefix after each element. A block that
// begins there is entered only when the thread was not repeating already.

static uint64_t last_address(void *data) {
  uintptr_t code = (uintptr_t)data;
  return plan.addresses[(uint32_t)code + (code >> 32) - 1];
}

static void repeated_block(unsigned cpu, void *data) {
  struct stream *stream = own_stream();
  if (stream->repeating == last_address(data))
    return;
  stream->repeating = last_address(data);
  several_blocks(cpu, data);
}

static void blocks_up_to_repetition(unsigned cpu, void *data) {
  own_stream()->repeating = last_address(data);
  several_blocks(cpu, data);
}

static void after_repetition(unsigned cpu, void *data) {
  own_stream()->repeating = 0;
  several_blocks(cpu, data);
}

// Translation: finds the blocks that begin in a piece of code.

enum { MAX_REGIONS = 64, MAX_REPEATS = 1024 };
static pthread_mutex_t map_lock = PTHREAD_MUTEX_INITIALIZER;
static struct region {
  uint64_t start, end, offset; // addresses in memory, file offset
} regions[MAX_REGIONS];
static size_t region_count;
static atomic_bool regions_known;
// Link-time end addresses of repeated string instructions.
static uint64_t repeat_ends[MAX_REPEATS];
static size_t repeat_count;

static void read_regions(void) {
  atomic_store(&regions_known, true);
  region_count = 0;
  struct stat binary = {0};
  (void)stat(binary_path, &binary);
  FILE *maps = fopen("/proc/self/maps", "re");
  if (maps == NULL)
    fail("/proc/self/maps", errno);
  char *line = NULL;
  size_t capacity = 0;
  while (getline(&line, &capacity, maps) > 0 && region_count < MAX_REGIONS) {
    struct region region;
    unsigned major, minor;
    uint64_t inode;
    int path = 0;
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %x:%x %" SCNu64 " %n", &region.start,
               &region.end, &region.offset, &major, &minor, &inode, &path) < 6 ||
        inode == 0)
      continue;
    line[strcspn(line, "\n")] = 0;
    // Some file systems show another device number here than stat does: compare the path, too.
    if ((inode == binary.st_ino && makedev(major, minor) == binary.st_dev) ||
        strcmp(line + path, binary_path) == 0)
      regions[region_count++] = region;
  }
  free(line);
  fclose(maps);
}

// Finds the link-time address of code at `address` in memory; false outside of the binary.
static bool link_time(uint64_t address, uint64_t *result) {
  for (const struct region *r = regions; r != regions + region_count; ++r) {
    if (address < r->start || address >= r->end)
      continue;
    uint64_t offset = address - r->start + r->offset;
    for (const struct segment *s = plan.segments; s != plan.segments + plan.segment_count; ++s)
      if (offset >= s->offset && offset < s->offset + s->size) {
        *result = offset - s->offset + s->address;
        return true;
      }
  }
  return false;
}

// Returns the index of the first block at or after an address.
static uint64_t lower_bound(uint64_t address) {
  uint64_t low = 0, high = plan.block_count;
  while (low < high) {
    uint64_t middle = (low + high) / 2;
    if (plan.addresses[middle] < address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static bool is_repeated_string(const struct qemu_plugin_insn *instruction) {
  const uint8_t *code = qemu_plugin_insn_data(instruction);
  size_t size = qemu_plugin_insn_size(instruction);
  bool repeated = false;
  for (size_t i = 0; i < size; ++i) {
    uint8_t byte = code[i];
    if (byte == 0xf2 || byte == 0xf3)
      repeated = true;
    else if (byte == 0x66 || byte == 0x67 || (byte & 0xf0) == 0x40)
      continue; // operand-size and address-size prefixes, REX
    else
      return repeated && ((byte >= 0xa4 && byte <= 0xa7) || (byte >= 0xaa && byte <= 0xaf));
  }
  return false;
}

static bool is_repeat_end(uint64_t address) {
  for (size_t i = 0; i < repeat_count; ++i)
    if (repeat_ends[i] == address)
      return true;
  return false;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *piece) {
  (void)id;
  size_t count = qemu_plugin_tb_n_insns(piece);
  if (count == 0)
    return;
  const struct qemu_plugin_insn *first = qemu_plugin_tb_get_insn(piece, 0);
  const struct qemu_plugin_insn *last = qemu_plugin_tb_get_insn(piece, count - 1);
  uint64_t bytes =
      qemu_plugin_insn_vaddr(last) + qemu_plugin_insn_size(last) - qemu_plugin_insn_vaddr(first);
  pthread_mutex_lock(&map_lock);
  if (!atomic_load(&regions_known))
    read_regions();
  uint64_t start;
  if (link_time((uintptr_t)qemu_plugin_insn_haddr(first), &start)) {
    uint64_t begin = lower_bound(start), end = lower_bound(start + bytes);
    void *data = (void *)(uintptr_t)(begin | (end - begin) << 32);
    executed_t callback = end == begin ? NULL : end == begin + 1 ? one_block : several_blocks;
    if (is_repeat_end(start))
      callback = after_repetition;
    // A repeated string instruction ends the piece.
    uint64_t last_start = start + bytes - qemu_plugin_insn_size(last);
    if (end != begin && plan.addresses[end - 1] == last_start && is_repeated_string(last)) {
      callback = last_start == start ? repeated_block : blocks_up_to_repetition;
      if (!is_repeat_end(start + bytes)) {
        if (repeat_count == MAX_REPEATS)
          fail("too many blocks begin with a repeated string instruction", E2BIG);
        repeat_ends[repeat_count++] = start + bytes;
      }
    }
    if (callback != NULL)
      qemu_plugin_register_vcpu_tb_exec_cb(piece, callback, NO_REGISTERS, data);
    for (size_t i = 0; i < count; ++i) {
      struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(piece, i);
      uint64_t place = start + qemu_plugin_insn_vaddr(instruction) - qemu_plugin_insn_vaddr(first);
      qemu_plugin_register_vcpu_mem_cb(instruction, accessed, NO_REGISTERS, READS_AND_WRITES,
                                       (void *)(uintptr_t)place);
    }
  } else if (sync_points_path != NULL) {
    qemu_plugin_register_vcpu_tb_exec_cb(piece, elsewhere, NO_REGISTERS, (void *)(uintptr_t)count);
  }
  pthread_mutex_unlock(&map_lock);
}

// Threads, processes, system calls

static void thread_ends(qemu_plugin_id_t id, unsigned cpu) {
  (void)id, (void)cpu;
  struct stream *stream = own;
  if (stream == NULL)
    return;
  end_stream(stream);
  pthread_mutex_lock(&lock);
  struct stream **link = &streams;
  while (*link != stream)
    link = &(*link)->next;
  *link = stream->next;
  pthread_mutex_unlock(&lock);
  own = NULL;
  delete_stream(stream);
}

static void program_ends(qemu_plugin_id_t id, void *data) {
  (void)id, (void)data;
  // QEMU no longer calls this plugin from other threads.
  for (struct stream *stream = streams; stream != NULL; stream = stream->next)
    end_stream(stream);
}

static void before_fork(void) {
  pthread_mutex_lock(&map_lock);
  pthread_mutex_lock(&lock);
}

static void after_fork_in_parent(void) {
  pthread_mutex_unlock(&lock);
  pthread_mutex_unlock(&map_lock);
}

// The child begins with empty streams: the parent writes their blocks.
static void after_fork_in_child(void) {
  for (struct stream *stream = streams, *next; stream != NULL; stream = next) {
    next = stream->next;
    delete_stream(stream);
  }
  streams = own = NULL;
  after_fork_in_parent();
}

static void write_sync_point(void) {
  const struct stream *stream = own_stream();
  struct sync_point point = {stream->written_blocks + stream->count, stream->elsewhere};
  // Opened each time: the program may have closed our descriptor.
  int file = open(sync_points_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0 || write(file, &point, sizeof point) != (ssize_t)sizeof point)
    fail(sync_points_path, errno);
  close(file);
}

static void system_call(qemu_plugin_id_t id, unsigned cpu, int64_t number, uint64_t a1, uint64_t a2,
                        uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7,
                        uint64_t a8) {
  (void)id, (void)cpu, (void)a1, (void)a2, (void)a4, (void)a5, (void)a6, (void)a7, (void)a8;
  switch (number) {
  case SYS_clock_gettime:
    if (a3 == SYNC_POINT && sync_points_path != NULL)
      write_sync_point();
    break;
  case SYS_execve:
  case SYS_execveat:
    // The new program runs outside of QEMU.
    say("execve");
    if (own != NULL)
      end_stream(own);
    break;
  case SYS_kill:
  case SYS_tkill:
  case SYS_tgkill:
    // The signal may end this process, as in abort().
    if (own != NULL)
      write_record(own, 0);
    break;
  }
}

static void system_call_done(qemu_plugin_id_t id, unsigned cpu, int64_t number, int64_t result) {
  (void)id, (void)cpu, (void)result;
  if (number == SYS_mmap || number == SYS_munmap || number == SYS_mremap)
    atomic_store(&regions_known, false);
}

static void read_plan(const char *path) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  struct stat found;
  if (file < 0 || fstat(file, &found) != 0)
    fail(path, errno);
  const uint64_t *words = mmap(NULL, (size_t)found.st_size, PROT_READ, MAP_PRIVATE, file, 0);
  if (words == MAP_FAILED)
    fail(path, errno);
  close(file);
  plan.segment_count = words[0];
  plan.block_count = words[1];
  plan.segments = (const struct segment *)(words + 2);
  plan.addresses = (const uint64_t *)(plan.segments + plan.segment_count);
  plan.numbers = (const uint32_t *)(plan.addresses + plan.block_count);
}

int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info, int argc, char **argv) {
  (void)info;
  const char *plan_path = NULL;
  const struct {
    const char *name;
    const char **value;
    bool optional;
  } parameters[] = {{"plan=", &plan_path, false},
                    {"binary=", &binary_path, false},
                    {"trace=", &trace_path, false},
                    {"messages=", &messages_path, false},
                    {"sync_points=", &sync_points_path, true}};
  for (size_t p = 0; p < sizeof parameters / sizeof *parameters; ++p) {
    size_t length = strlen(parameters[p].name);
    for (int i = 0; i < argc; ++i)
      if (strncmp(argv[i], parameters[p].name, length) == 0)
        *parameters[p].value = strdup(argv[i] + length);
    if (*parameters[p].value == NULL && !parameters[p].optional) {
      fprintf(stderr, "block trace: parameter %s is missing\n", parameters[p].name);
      return 1;
    }
  }
  read_plan(plan_path);
  next_stream =
      mmap(NULL, sizeof *next_stream, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (next_stream == MAP_FAILED)
    fail("the counter of streams", errno);
  ensure_open();
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_vcpu_exit_cb(id, thread_ends);
  qemu_plugin_register_vcpu_syscall_cb(id, system_call);
  qemu_plugin_register_vcpu_syscall_ret_cb(id, system_call_done);
  qemu_plugin_register_atexit_cb(id, program_ends, NULL);
  return 0;
}
