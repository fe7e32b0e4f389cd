//===- AccessMatching.h - The same accesses in other code -------*- C++ -*-===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Finds the instructions of a candidate's block that access the same memory as
/// those of the traced block: register allocation changes registers, spills and
/// the places of instructions, but not which memory the program accesses.
///
//===----------------------------------------------------------------------===//

#ifndef TRACE_COST_ACCESSMATCHING_H
#define TRACE_COST_ACCESSMATCHING_H

#include "TargetModel.h"

namespace llvm {
namespace tracecost {

/// An instruction with a memory operand, as far as register allocation leaves
/// it as it is.
struct AccessSite {
  /// Where it begins in its block.
  unsigned Offset = 0;
  bool Loads = false, Stores = false;
  /// Whether it may be a spill or a reload.
  bool IsStack = false;
  bool HasBase = false, HasIndex = false;
  unsigned Scale = 1;
  /// 0 if it differs between the programs.
  int64_t Displacement = 0;
  /// 0 if it is unknown.
  unsigned Size = 0;
  /// TargetModel::contentCode().
  uint64_t Content = 0;

  /// Whether another program's instruction may access the same memory.
  bool isLike(const AccessSite &Other) const;
};

/// The accesses of a block of these instructions, in their order.
std::vector<AccessSite> memoryAccesses(const TargetModel &Model,
                                       ArrayRef<DecodedInst> Block,
                                       bool HasFrame);

/// For each of \p Own, the one of \p Traced that is the same access, as an
/// index. The order of both is the same. Accesses outside of the stack weigh
/// more than those of the stack, which spills and reloads may be.
std::vector<std::optional<unsigned>> matchAccesses(ArrayRef<AccessSite> Own,
                                                   ArrayRef<AccessSite> Traced);

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_ACCESSMATCHING_H
