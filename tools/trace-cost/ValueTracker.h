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
  bool Loads = false, Stores = false;
  bool IsCall = false;
};

/// Which store a load depends on.
struct Dependence {
  /// 1 + the index of the youngest store of what is read; 0 if unknown.
  unsigned Store = 0;
  /// Whether that store wrote only a part of what is read.
  bool IsPartial = false;
};

/// The last stores to an area of memory, oldest first.
class StoreQueue {
public:
  /// Adds a store of \p Size bytes, the operation with number \p Index.
  void add(uint64_t Offset, unsigned Size, unsigned Index);
  /// The youngest store that wrote what is read.
  Dependence find(uint64_t Offset, unsigned Size) const;

private:
  struct Store {
    uint64_t Offset;
    unsigned Size;
    unsigned Index;
  };
  SmallVector<Store, 8> Stores;
};

/// The stores to recorded addresses.
class AddressedStores {
public:
  void add(uint64_t Address, unsigned Size, unsigned Index);
  Dependence find(uint64_t Address, unsigned Size) const;
  /// The youngest store to a place that only the page tells from the one that
  /// is read; as 1 + its index, 0 if none is younger than the one of that
  /// place.
  unsigned findAlias(uint64_t Address, unsigned Size) const;

private:
  /// By cache line. A store of parts of two lines is in both.
  using StoresByLine = DenseMap<uint64_t, StoreQueue>;
  static void add(StoresByLine &Lines, uint64_t Address, unsigned Size,
                  unsigned Index);
  static Dependence find(const StoresByLine &Lines, uint64_t Address,
                         unsigned Size);

  StoresByLine Lines;
  /// As if all pages were one.
  StoresByLine InPage;
};

class ValueTracker {
public:
  /// \p CallClobbered are the registers that callees may change.
  explicit ValueTracker(ArrayRef<GPR> CallClobbered)
      : CallClobbered(CallClobbered) {
    loseAll();
  }

  /// The store that \p Op reads from, if it loads. Then does to registers and
  /// memory what \p Op does, the operation with number \p Index.
  Dependence access(const DataFlow &Op, unsigned Index);

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
  /// Memory whose addresses differ by known numbers of bytes.
  struct Area {
    /// The value of each offset.
    DenseMap<uint64_t, Symbol> Values;
    StoreQueue Stores;
  };
  void leaveFunction();
  /// The area of \p Place, and the offset in it.
  std::pair<Area &, uint64_t> locate(const MemoryPlace &Place);

  ArrayRef<GPR> CallClobbered;
  unsigned NumNames = 0;
  State Registers;
  /// By the names of base and index, region and scale.
  DenseMap<std::tuple<unsigned, unsigned, uint64_t>, Area> Areas;
  std::vector<State> Calls;
  SmallVector<Frame, 4> Frames;
  /// Whether the next block may be a callee's, or the caller's next one.
  bool InCaller = false;
};

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_VALUETRACKER_H
