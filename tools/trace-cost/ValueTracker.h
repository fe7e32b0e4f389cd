//===- ValueTracker.h - Which accesses are of one address -------*- C++ -*-===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Finds the store that wrote what a load reads. Registers and memory hold
/// symbolic values: an unknown plus an offset. A value that is copied, spilled,
/// reloaded or changed by a constant remains the same unknown. So the same
/// accesses are recognised however registers are allocated.
///
//===----------------------------------------------------------------------===//

#ifndef TRACE_COST_VALUETRACKER_H
#define TRACE_COST_VALUETRACKER_H

#include "TargetModel.h"
#include "llvm/ADT/DenseMap.h"
#include <array>

namespace llvm {
namespace tracecost {

/// What an operation does to registers and memory.
struct DataFlow {
  /// Nothing if it accesses no memory, or in a way that registers do not tell.
  std::optional<MemoryPlace> Memory;
  ValueEffect Effect;
  /// The general registers that it writes.
  SmallVector<GPR, 2> Written;
  bool Stores = false;
  bool IsCall = false;
};

class ValueTracker {
public:
  /// \p CallClobbered are the registers that callees may change.
  explicit ValueTracker(ArrayRef<GPR> CallClobbered)
      : CallClobbered(CallClobbered) {
    loseAll();
  }

  /// A number for the memory that \p Op accesses, 0 if unknown. Then does to
  /// the registers what \p Op does.
  unsigned access(const DataFlow &Op);

  /// The numbers of memory are 1 to this.
  unsigned numSlots() const { return Memory.size() - 1; }

  /// The trace lists a block with calls before the blocks of the callees, which
  /// therefore begin after the whole of the caller's block was visited: a
  /// callee gets the registers that there were at the call.
  void beginBlock(bool IsEntry);
  void endBlock(bool HasReturn);

private:
  struct Symbol {
    /// 0 is the constant 0.
    unsigned Name = 0;
    int64_t Offset = 0;
  };
  using State = std::array<Symbol, MaxGPRs>;
  /// A block whose calls are under way.
  struct Frame {
    State After;
    std::vector<State> Calls;
    unsigned NextCall;
    bool Returns;
  };

  Symbol unknown() { return {++NumNames, 0}; }
  void loseAll() {
    for (Symbol &Register : Registers)
      Register = unknown();
  }
  void leaveFunction();
  unsigned slot(const MemoryPlace &Place);

  ArrayRef<GPR> CallClobbered;
  unsigned NumNames = 0;
  State Registers;
  /// The value of each slot of memory; there is no slot 0.
  std::vector<Symbol> Memory = std::vector<Symbol>(1);
  /// The slots of addresses: names of base and index, region and scale, offset.
  DenseMap<std::tuple<unsigned, unsigned, uint64_t, int64_t>, unsigned> Slots;
  std::vector<State> Calls;
  SmallVector<Frame, 4> Frames;
  /// Whether the next block may be a callee's, or the caller's next one.
  bool InCaller = false;
};

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_VALUETRACKER_H
