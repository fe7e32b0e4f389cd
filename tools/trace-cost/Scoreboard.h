//===- Scoreboard.h - A fast model of an out-of-order core ------*- C++ -*-===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// When the instructions of a sequence are executed and retire, by LLVM's
/// scheduling model of the CPU: latencies, ports, reservation stations and the
/// reorder buffer. MCA's pipeline advances by cycles; this one visits each
/// instruction once, in program order, and finds the earliest cycle in which it
/// can be dispatched and issued. That is 20 to 50 times faster, and differs
/// only where a younger instruction would have to give up a port to an older
/// one whose operands come later.
///
//===----------------------------------------------------------------------===//

#ifndef TRACE_COST_SCOREBOARD_H
#define TRACE_COST_SCOREBOARD_H

#include "CPUParameters.h"
#include "TargetModel.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/MCA/Instruction.h"

namespace llvm {
namespace tracecost {

/// What the scheduling model says of an instruction, and how the renamer and
/// the memory unit treat it. Cycles count from its issue.
struct TimedInst {
  struct Read {
    uint16_t Unit;
    /// How much later than at the issue the value is needed.
    int8_t Advance;
    /// Whether the address of a load depends on it.
    bool IsAddress;
  };
  struct Write {
    uint16_t Unit;
    uint16_t Latency;
  };
  struct PortUse {
    /// The ports of which one is used, a bit for each.
    uint64_t Ports;
    unsigned Cycles;
  };

  SmallVector<Read, 6> Reads;
  SmallVector<Write, 6> Writes;
  SmallVector<PortUse, 3> Ports;
  /// Reservation stations that it waits in until it is issued.
  SmallVector<uint8_t, 2> Buffers;
  unsigned MicroOps = 1;
  unsigned Latency = 0;
  /// The latency of its load alone; 0 if it doesn't load.
  unsigned LoadLatency = 0;
  bool Stores = false;
};

/// One instruction of a sequence.
struct StreamEntry {
  const TimedInst *Inst;
  /// Bytes of code.
  unsigned Size = 0;
  /// The last store of memory that it reads, as 1 + its index in the sequence;
  /// 0 if unknown.
  unsigned Store = 0;
  /// Whether it reads more than that store wrote.
  bool FailsToForward = false;
  /// The last store to the same place of another page, in the same way.
  unsigned Alias = 0;
  /// Whether the memory is on the stack.
  bool OnStack = false;
  /// Whether the next instruction lies elsewhere.
  bool Jumps = false;
};

/// The events of a sequence, a bit for each of its operations.
struct WindowEvents {
  explicit WindowEvents(unsigned NumOperations)
      : Miss(NumOperations), FirstLevelMiss(NumOperations),
        Mispredict(NumOperations), FetchMiss(NumOperations),
        TranslationMiss(NumOperations), Decode(NumOperations) {}

  BitVector Miss, FirstLevelMiss, Mispredict, FetchMiss;
  /// Misses of the TLB of code, and what the decoders have to decode.
  BitVector TranslationMiss, Decode;
};

/// Makes one micro-operation of a comparison and the branch behind it.
void fuse(TimedInst &Comparison, TimedInst &Branch);

class Scoreboard {
public:
  /// An error if the scheduling model has more ports than it can count.
  static Expected<Scoreboard>
  create(const TargetModel &Model, const CPUParameters &CPU, ModelParts Parts);

  /// What \p I, made of \p MI, does to the pipeline.
  TimedInst describe(const mca::Instruction &I, const MCInst &MI) const;

  /// The cycles in which the first \p Ends[0], Ends[1] and so on instructions
  /// of \p Stream have retired and the front end goes on. For several threads
  /// at once. Sets in \p Blocked the loads that waited for a store which could
  /// not be forwarded.
  std::vector<unsigned> finish(ArrayRef<StreamEntry> Stream,
                               ArrayRef<unsigned> Ends,
                               const WindowEvents &Events,
                               BitVector *Blocked = nullptr) const;

private:
  Scoreboard(const TargetModel &Model, const CPUParameters &CPU,
             ModelParts Parts)
      : Model(Model), CPU(CPU), Parts(Parts) {}
  bool isEliminated(const MCInst &MI) const;
  /// From a store to the use of a load that reads what it wrote.
  unsigned forwardLatency(bool OnStack) const;

  const TargetModel &Model;
  CPUParameters CPU;
  ModelParts Parts;
  unsigned DispatchWidth, ReorderBuffer;
  /// The ports of each resource, by the bit of its mask.
  std::vector<uint64_t> PortsOfBit;
  /// The number of entries of each reservation station.
  std::vector<unsigned> BufferSizes;
  std::vector<std::optional<uint8_t>> BufferOfBit;
};

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_SCOREBOARD_H
