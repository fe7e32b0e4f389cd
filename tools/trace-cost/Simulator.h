//===- Simulator.h - Cycles of a sequence of blocks -------------*- C++ -*-===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Makes machine blocks ready for MCA's out-of-order pipeline and for the
/// scoreboard, and simulates sequences of them.
///
//===----------------------------------------------------------------------===//

#ifndef TRACE_COST_SIMULATOR_H
#define TRACE_COST_SIMULATOR_H

#include "BlockTrace.h"
#include "ControlFlow.h"
#include "Scoreboard.h"
#include "ValueTracker.h"
#include "llvm/MCA/CustomBehaviour.h"
#include "llvm/MCA/InstrBuilder.h"
#include "llvm/MCA/Instruction.h"

namespace llvm {
namespace tracecost {

/// What an instruction of a block makes the pipeline do.
struct Operation {
  using UniqueInst = std::unique_ptr<mca::Instruction>;

  UniqueInst Inst;
  TimedInst Timed;
  DataFlow Flow;
  uint64_t Address = 0;
  /// The bytes of the instruction; 0 for all but the first operation of it.
  unsigned Size = 0;
  /// Where the traced block's instruction with the same access begins in its
  /// block. Nothing if there is none.
  std::optional<unsigned> TracedOffset;
  /// The number of the load among those of the block that can miss; of the
  /// traced block, if it has the same load.
  unsigned LoadNumber = 0;
  /// Whether it loads from elsewhere than the stack.
  bool CanMiss = false;
  bool IsConditionalBranch = false;
  /// Whether it jumps to, or calls, an address in a register or in memory.
  bool IsIndirectJump = false, IsIndirectCall = false;
  /// Whether it is the first of the block in its cache line.
  bool StartsLine = false;

  bool canMispredict() const {
    return IsConditionalBranch || IsIndirectJump || IsIndirectCall;
  }
};

/// A block that is ready for the pipeline. Threads share it and never change
/// it.
struct SimBlock {
  std::vector<Operation> Operations;
  unsigned NumInstructions = 0;
  const CodeBlock *Code = nullptr;
  /// The jumps in its middle, and the number of operations up to each.
  SmallVector<MiddleExit, 1> Exits;
  SmallVector<unsigned, 1> OperationsTo;
  bool HasCall = false;
  /// Whether the operations' traced offsets come from the traced block. Without
  /// its code they are the block's own.
  bool IsMatched = false;
  /// Whether its last instruction is an unconditional jump.
  bool EndsWithJump = false;
  /// The number of operations that most executions reach. It counts where the
  /// next block is unknown.
  unsigned LikelyOperations = 0;
  /// Opcodes that the scheduling model lacks, and undecodable bytes.
  std::vector<std::string> Unsupported;
};

/// The instructions of a sequence of blocks, ready for the scoreboard.
struct SimWindow {
  SmallVector<StreamEntry, 0> Stream;
  /// The number of instructions up to the end of each block.
  std::vector<unsigned> Ends;
};

class Simulator {
public:
  /// An error if the CPU's scheduling model can't be used.
  static Expected<std::unique_ptr<Simulator>>
  create(const Program &Code, const CPUParameters &CPU, ModelParts Parts);

  /// Makes \p Block ready. An execution skips \p Skipped of its instructions on
  /// average, because a jump before them is taken. Not thread-safe.
  SimBlock prepare(const CodeBlock &Block, bool HasFrame, double Skipped);

  /// Finds the accesses and loads of \p Block in \p Original, the code of the
  /// traced block.
  void matchAccesses(SimBlock &Block, bool HasFrame, ArrayRef<uint8_t> Original,
                     bool OriginalHasFrame) const;

  /// Makes a sequence ready. The blocks must outlive it. \p Accesses are those
  /// of each block that were recorded; none if they are unknown.
  SimWindow window(ArrayRef<const SimBlock *> Blocks,
                   ArrayRef<ArrayRef<TracedAccess>> Accesses = {}) const;

  /// The cycles that the scoreboard needs to finish the sequence up to the end
  /// of each block; \p Blocked as in Scoreboard::finish. Thread-safe.
  std::vector<unsigned> finish(const SimWindow &Window,
                               const WindowEvents &Events,
                               BitVector *Blocked = nullptr) const {
    return Board.finish(Window.Stream, Window.Ends, Events, Blocked);
  }

  /// The cycles that the last block adds to those before it, on MCA's pipeline.
  Expected<unsigned> plainCycles(ArrayRef<const SimBlock *> Blocks) const;

private:
  Simulator(const Program &Code, ModelParts Parts, Scoreboard Board);
  Error append(SimBlock &Block, const DecodedInst &D, bool HasFrame);

  const Program &Code;
  const TargetModel &Model;
  ModelParts Parts;
  Scoreboard Board;
  mca::InstrumentManager Instruments;
  mca::InstrBuilder Builder;
  std::unique_ptr<mca::InstrPostProcess> PostProcess;
};

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_SIMULATOR_H
