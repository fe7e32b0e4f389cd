//===- X86Opcodes.h - What x86-64 opcodes are -------------------*- C++ -*-===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Classifies opcodes by their names, which are the only public description of
/// them: the enumeration is private to the X86 target.
///
//===----------------------------------------------------------------------===//

#ifndef TRACE_COST_X86OPCODES_H
#define TRACE_COST_X86OPCODES_H

#include "llvm/ADT/StringRef.h"
#include <cstdint>

namespace llvm {
namespace tracecost {
namespace x86 {

/// What the simulation distinguishes.
enum Kind : uint8_t {
  Other,
  Push,
  Pop,
  Move,
  Load,
  Store,
  Addition,
  Subtraction,
  Increment,
  Decrement,
  Lea,
  ZeroIdiom,
  VectorMove,
  ConditionalJump
};

/// Which conditions of a branch the flags of an instruction fuse with, as
/// LLVM's X86MacroFusion knows them.
enum Fusion : uint8_t { NotFused, Tests, Compares, Arithmetics, Counts };

struct OpcodeInfo {
  Kind K = Other;
  Fusion F = NotFused;
  /// A number for what the opcode computes, whether its operands are in
  /// registers or in memory. 0 for what register allocation and block placement
  /// insert: copies, constants, pushes, pops, jumps and padding.
  uint64_t Content = 0;
};

/// Classifies the opcode that LLVM calls \p Name.
OpcodeInfo classify(StringRef Name);

} // namespace x86
} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_X86OPCODES_H
