//===- CostResult.h - What a candidate costs on a run -----------*- C++ -*-===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Counts and costs of a recorded run that was replayed with a candidate's
/// code.
///
//===----------------------------------------------------------------------===//

#ifndef TRACE_COST_COSTRESULT_H
#define TRACE_COST_COSTRESULT_H

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace llvm {
namespace tracecost {

/// Cycles by cause. Each part is what its cause adds to the parts before it.
struct Cycles {
  double Execution = 0;
  double FirstLevelMiss = 0, LLCMiss = 0, Mispredict = 0, FrontEnd = 0;

  double total() const {
    return Execution + FirstLevelMiss + LLCMiss + Mispredict + FrontEnd;
  }
  Cycles &operator+=(const Cycles &Other) {
    Execution += Other.Execution;
    FirstLevelMiss += Other.FirstLevelMiss;
    LLCMiss += Other.LLCMiss;
    Mispredict += Other.Mispredict;
    FrontEnd += Other.FrontEnd;
    return *this;
  }
  Cycles operator*(double Factor) const {
    return {Execution * Factor, FirstLevelMiss * Factor, LLCMiss * Factor,
            Mispredict * Factor, FrontEnd * Factor};
  }
};

/// The executions of instructions for which the profile knows an event's rate.
struct KnownShare {
  double Known = 0, All = 0;
};

struct BlockCost {
  uint64_t Executions = 0;
  /// In the block. An execution that leaves it early executes fewer.
  unsigned Instructions = 0;
  /// The instructions that all executions together did not reach, because a
  /// jump before them was taken.
  uint64_t Skipped = 0;
  /// The cost of register allocation in one execution, by the weights of LLVM's
  /// RegAllocScore.
  double Allocation = 0;
  /// The cycles of all executions.
  Cycles Total;
  /// The standard error of the cycles, where they come from samples.
  std::optional<double> StandardError;
  /// The share of executions in which a load, by its offset in the block,
  /// waited for a store that could not be forwarded. Nothing without samples.
  std::optional<std::map<unsigned, double>> FailedForwards;

  double executedInstructions() const {
    return double(Executions) * Instructions - double(Skipped);
  }
  /// The mean number of instructions that an execution skips.
  double meanSkipped() const {
    return Executions ? double(Skipped) / Executions : 0;
  }
};

struct CostResult {
  /// One entry for each of Program::blocks().
  std::vector<BlockCost> Blocks;
  /// Executions of blocks that the candidate has.
  uint64_t Executions = 0;
  /// Executions in functions that the candidate doesn't have.
  uint64_t ForeignExecutions = 0;
  /// Executions of blocks that the candidate's function doesn't have, or that
  /// may belong to any of several functions. Each is charged what the
  /// candidate's other executions cost on average.
  uint64_t UnmappedExecutions = 0, AmbiguousExecutions = 0;
  unsigned UnmappedBlocks = 0;
  double UnmappedInstructions = 0, UnmappedAllocation = 0;
  Cycles UnmappedCycles;
  /// Blocks that the trace lacks, in functions that it has. Their executions
  /// follow from the blocks around them, or are unknown.
  uint64_t AddedExecutions = 0;
  unsigned AddedBlocks = 0, UnknownBlocks = 0;
  /// Functions whose block ids differ from the traced ones.
  std::set<std::string> ChangedFunctions;
  uint64_t ChangedExecutions = 0;
  /// Executions of blocks that compute something else than the traced ones.
  /// Nothing if the traced program is not given.
  std::optional<uint64_t> DifferentExecutions;
  /// Executions of instructions that cannot be simulated, by opcode.
  std::map<std::string, uint64_t> Unsupported;
  uint64_t Windows = 0, SimulatedWindows = 0, Simulations = 0,
           SimulatedInstructions = 0;
  /// The share of executions whose block was simulated.
  double Covered = 0;
  /// The standard error of all cycles, and of each function's in the order of
  /// Program::functions(). Nothing where no samples were simulated.
  std::optional<double> StandardError;
  std::vector<std::optional<double>> FunctionErrors;
  /// By how much each sample, scaled to the run, exceeds the estimate.
  std::vector<double> Residuals;
  KnownShare Loads, Branches;
};

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_COSTRESULT_H
