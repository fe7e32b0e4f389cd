// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A plugin for QEMU's user mode (plugin interface 1) that counts the instructions a program
// executes, and writes the number to the file of its argument `output` when the program ends. For
// programs of one thread: the counter is not atomic.
//
// QEMU has no header package in Debian, so that what is used of the interface is declared here.

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_info;
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t,
                                           void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, enum qemu_plugin_op, void *,
                                              uint64_t);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, void *), void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);

int qemu_plugin_version = 1;

static uint64_t count;
static const char *path;

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block) {
  (void)id;
  qemu_plugin_register_vcpu_tb_exec_inline(block, QEMU_PLUGIN_INLINE_ADD_U64, &count,
                                           qemu_plugin_tb_n_insns(block));
}

static void program_ends(qemu_plugin_id_t id, void *data) {
  (void)id;
  (void)data;
  FILE *file = fopen(path, "w");
  if (file) {
    fprintf(file, "%" PRIu64 "\n", count);
    fclose(file);
  }
}

int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info, int argc, char **argv) {
  (void)info;
  if (argc != 1 || strncmp(argv[0], "output=", 7) != 0)
    return 1;
  path = argv[0] + 7;
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_atexit_cb(id, program_ends, NULL);
  return 0;
}
