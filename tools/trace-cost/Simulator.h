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
  /// It loads, and not from the stack.
  bool CanMiss = false;
  bool IsConditionalBranch = false;
  /// A jump, or a call, to where a register or memory says.
  bool IsIndirectJump = false, IsIndirectCall = false;
  /// The instruction is the first of the block in its cache line.
  bool StartsLine = false;

  bool canMispredict() const {
    return IsConditionalBranch || IsIndirectJump || IsIndirectCall;
  }
};

/// A block, ready for the pipeline. Shared by threads, never changed.
struct SimBlock {
  std::vector<Operation> Operations;
  unsigned NumInstructions = 0;
  const CodeBlock *Code = nullptr;
  /// The jumps with instructions behind them, and the operations up to each.
  SmallVector<MiddleExit, 1> Exits;
  SmallVector<unsigned, 1> OperationsTo;
  bool HasCall = false;
  /// Its last instruction jumps in any case.
  bool EndsWithJump = false;
  /// Where it is not known what follows: the operations that are executed in
  /// most cases.
  unsigned LikelyOperations = 0;
  /// Opcodes that the scheduling model doesn't know, or undecodable bytes.
  std::vector<std::string> Unsupported;
};

/// The instructions of a sequence of blocks, ready for the scoreboard.
struct SimWindow {
  SmallVector<StreamEntry, 0> Stream;
  /// By block: the instructions up to its end.
  std::vector<unsigned> Ends;
  unsigned NumSlots = 0;
};

class Simulator {
public:
  /// An error if the CPU's scheduling model can't be used.
  static Expected<std::unique_ptr<Simulator>>
  create(const Program &Code, const CPUParameters &CPU, ModelParts Parts);

  /// Makes \p Block ready. \p Skipped of its instructions lie behind a jump
  /// that is taken, in the mean. Not for several threads at once.
  SimBlock prepare(const CodeBlock &Block, bool HasFrame, double Skipped);

  /// Makes a sequence ready. The blocks must outlive it.
  SimWindow window(ArrayRef<const SimBlock *> Blocks) const;

  /// By block: the cycles after which the sequence up to its end is finished,
  /// on the scoreboard. For several threads at once.
  std::vector<unsigned> finish(const SimWindow &Window,
                               const WindowEvents &Events) const {
    return Board.finish(Window.Stream, Window.Ends, Window.NumSlots, Events);
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
