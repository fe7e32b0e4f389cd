//===- Cost.h - Cost of a candidate's code on a trace -----------*- C++ -*-===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Replays a recorded run with the code of a candidate.
///
//===----------------------------------------------------------------------===//

#ifndef TRACE_COST_COST_H
#define TRACE_COST_COST_H

#include "BlockMapping.h"
#include "CPUParameters.h"
#include "ControlFlow.h"
#include <map>

namespace llvm {
namespace tracecost {

class EventRates;

/// Cycles, by what costs them. Each part is what an effect adds to the cycles
/// with the effects before it.
struct Cycles {
  double Execution = 0;
  double FirstLevelMiss = 0, LLCMiss = 0, Mispredict = 0, FrontEnd = 0;

  double total() const;
  Cycles &operator+=(const Cycles &Other);
  Cycles operator*(double Factor) const;
};

struct CostOptions {
  /// The instructions after which a window's context needs no further block.
  unsigned ContextInstructions;
  /// The share of executions whose windows are simulated.
  double Coverage;
  /// How many sets of events are drawn, in all windows.
  unsigned Visits;
  ModelParts Parts;
  /// MCA's own model.
  bool Plain;
};

/// How much of an event the profile knows, in executions.
struct KnownShare {
  double Known = 0, All = 0;
};

struct BlockCost {
  uint64_t Executions = 0;
  unsigned Instructions = 0;
  /// Of all executions: the instructions behind a jump that was taken.
  uint64_t Skipped = 0;
  /// Of an execution: what register allocation adds, by the weights of LLVM's
  /// RegAllocScore.
  double Allocation = 0;
  Cycles Total;
  /// Of the cycles, where samples tell them.
  std::optional<double> StandardError;

  double executedInstructions() const {
    return double(Executions) * Instructions - double(Skipped);
  }
  /// Of an execution.
  double meanSkipped() const {
    return Executions ? double(Skipped) / Executions : 0;
  }
};

struct CostResult {
  /// By Program::blocks().
  std::vector<BlockCost> Blocks;
  /// Of blocks that the candidate has.
  uint64_t Executions = 0;
  /// In functions that the candidate doesn't have.
  uint64_t ForeignExecutions = 0;
  /// Of blocks that the candidate's function doesn't have, or that may be any
  /// of several functions. Each is charged what the candidate's other
  /// executions cost on average.
  uint64_t UnmappedExecutions = 0, AmbiguousExecutions = 0;
  unsigned UnmappedBlocks = 0;
  double UnmappedInstructions = 0, UnmappedAllocation = 0;
  Cycles UnmappedCycles;
  /// Of blocks that the trace lacks, in functions that it has: how often they
  /// are executed follows from the blocks around them, or is not known.
  uint64_t AddedExecutions = 0;
  unsigned AddedBlocks = 0, UnknownBlocks = 0;
  /// Functions with other block ids than those of the trace.
  std::set<std::string> ChangedFunctions;
  uint64_t ChangedExecutions = 0;
  /// Of blocks that compute something else than the traced ones. Nothing if the
  /// traced program is not at hand.
  std::optional<uint64_t> DifferentExecutions;
  /// Executions by opcode.
  std::map<std::string, uint64_t> Unsupported;
  uint64_t Windows = 0, SimulatedWindows = 0, Simulations = 0,
           SimulatedInstructions = 0;
  double Covered = 0;
  /// Of the samples: the standard errors of all cycles and by
  /// Program::functions(), and how much each sample is above the estimate.
  std::optional<double> StandardError;
  std::vector<std::optional<double>> FunctionErrors;
  std::vector<double> Residuals;
  KnownShare Loads, Branches;
};

/// Counts the executions and instructions of the candidate's blocks.
class TraceReplay {
public:
  /// An error if the trace doesn't belong to the candidate: more than
  /// \p MaxUnmapped, a share, of its executions have no place there. \p Traced
  /// is the traced program, or null.
  static Expected<TraceReplay> create(const Program &Code,
                                      const BlockHistogram &Histogram,
                                      const Program *Traced,
                                      double MaxUnmapped);

  const CostResult &result() const { return Result; }

  /// Adds the cycles. \p Rates may be null.
  Error simulate(const CPUParameters &CPU, EventRates *Rates,
                 const CostOptions &Options);

private:
  TraceReplay(const Program &Code, const BlockHistogram &Histogram)
      : Code(Code), Histogram(Histogram) {}
  void countExecutions();
  void countAddedBlocks();
  void countSkipped();
  void countSkipped(const CodeFunction &Function);
  /// Of a block with \p Exits in its middle; \p Edges say how often it was left
  /// for each of its \p Successors, by their numbers in the function.
  void countSkipped(unsigned Block, ArrayRef<MiddleExit> Exits,
                    ArrayRef<unsigned> Successors,
                    ArrayRef<std::optional<uint64_t>> Edges);
  /// How often each block of the function was left for each of its successors,
  /// in the order of \p Flow. Nothing where that is not known.
  std::vector<std::optional<uint64_t>>
  countEdges(const CodeFunction &Function, ArrayRef<FlowBlock> Flow) const;

  const Program &Code;
  const BlockHistogram &Histogram;
  BlockMapping Mapping;
  /// By Program::blocks(): whether the trace has the block.
  std::vector<bool> IsMapped;
  /// How often a block of the candidate was executed right behind another. No
  /// pair is known if windows have one block only.
  std::map<std::pair<unsigned, unsigned>, uint64_t> Pairs;
  CostResult Result;
};

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_COST_H
