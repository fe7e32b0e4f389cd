//===- CoreResources.h - Finite resources of a core -------------*- C++ -*-===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Resources that instructions compete for: entries of queues, and ports. Both
/// are asked once for each instruction, in program order.
///
//===----------------------------------------------------------------------===//

#ifndef TRACE_COST_CORERESOURCES_H
#define TRACE_COST_CORERESOURCES_H

#include "llvm/ADT/bit.h"
#include <algorithm>
#include <cstdint>
#include <vector>

namespace llvm {
namespace tracecost {

/// A queue with a limited number of entries, such as a reservation station, a
/// load buffer or the miss status holding registers (MSHR) of a cache. An
/// allocation from a full queue waits for the entry that is freed first.
class EntryPool {
public:
  explicit EntryPool(unsigned Size) : Free(Size) {}

  /// The first cycle, \p Cycle or later, in which an entry is free. Takes it.
  /// free() must be called before the next allocation.
  unsigned allocate(unsigned Cycle) {
    if (Free) {
      --Free;
      return Cycle;
    }
    while (!Freed[Earliest])
      ++Earliest;
    --Freed[Earliest];
    return std::max(Cycle, Earliest);
  }

  /// The entry that was allocated last is freed in \p Cycle, which is not
  /// before its allocation.
  void free(unsigned Cycle) {
    if (Cycle >= Freed.size())
      Freed.resize(2 * Cycle + 64);
    ++Freed[Cycle];
  }

private:
  unsigned Free;
  /// By cycle: how many entries become free. None does before Earliest.
  std::vector<unsigned> Freed;
  unsigned Earliest = 0;
};

/// Which execution ports are busy in which cycle.
class PortTable {
public:
  /// Occupies one of \p Ports, a bit for each, for \p Cycles cycles from
  /// \p Earliest or later on. Returns the first of them.
  unsigned occupy(uint64_t Ports, unsigned Cycles, unsigned Earliest) {
    for (unsigned Cycle = Earliest;; ++Cycle) {
      while (Cycle < Busy.size() && !(Ports & ~Busy[Cycle]))
        ++Cycle;
      if (Cycle + Cycles > Busy.size())
        Busy.resize(2 * (Cycle + Cycles));
      uint64_t Idle = Ports;
      for (unsigned C = Cycle; C != Cycle + Cycles; ++C)
        Idle &= ~Busy[C];
      if (!Idle)
        continue;
      // Cores bind micro-operations to the port with the fewest of them.
      unsigned Best = countr_zero(Idle);
      for (uint64_t Rest = Idle; Rest; Rest &= Rest - 1)
        if (unsigned Port = countr_zero(Rest); Uses[Port] < Uses[Best])
          Best = Port;
      Uses[Best] += Cycles;
      for (unsigned C = Cycle; C != Cycle + Cycles; ++C)
        Busy[C] |= uint64_t(1) << Best;
      return Cycle;
    }
  }

private:
  std::vector<uint64_t> Busy;
  unsigned Uses[64] = {};
};

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_CORERESOURCES_H
