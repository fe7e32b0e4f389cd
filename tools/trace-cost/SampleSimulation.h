//===- SampleSimulation.h - Cycles of samples of a run ----------*- C++ -*-===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Simulates the samples of a run, and estimates from them what the blocks cost
/// in the run.
///
//===----------------------------------------------------------------------===//

#ifndef TRACE_COST_SAMPLESIMULATION_H
#define TRACE_COST_SAMPLESIMULATION_H

#include "ReadyBlocks.h"
#include "Samples.h"

namespace llvm {
namespace tracecost {

class RatioEstimator;

/// The executions of a block that were simulated, and their cost.
struct Simulated {
  double Executions = 0;
  Cycles Cost;
};

class SampleSimulation {
public:
  /// Without samples if \p Histogram has none of the candidate's blocks.
  SampleSimulation(const Program &Code, const BlockHistogram &Histogram,
                   const BlockMapping &Mapping);

  /// Whether the samples visit \p Block often enough to do without windows.
  bool suffice(unsigned Block) const {
    return Visits[Block] >= MinSampleVisits;
  }
  /// Adds the blocks of the samples.
  void addNeeded(BitVector &Needed) const;
  void simulate(const ReadyBlocks &Ready);
  /// Replaces in \p ByBlock what windows say of a block by what samples do, if
  /// they tell more. Adds the errors of that to \p Result.
  void addTo(std::vector<Simulated> &ByBlock, const ReadyBlocks &Ready,
             CostResult &Result) const;

private:
  static constexpr unsigned MinSampleVisits = 16;

  struct ReadySample {
    Sample Run;
    /// Of each of its blocks.
    std::vector<Cycles> Costs;
    std::vector<EventNumbers> Numbers;
    /// Loads that waited for a store which could not be forwarded: the position
    /// of the block, and the load's offset in it.
    std::vector<std::pair<unsigned, unsigned>> Blocked;
    unsigned Simulations = 0;
  };

  /// Draws the events of all blocks of a sample, the \p Draw-th time.
  static std::vector<EventNumbers>
  drawEvents(const ReadySample &S, const SimWindow &Sequence, unsigned Draw,
             const ReadyBlocks &Ready, WindowEvents &Events);
  static void simulate(ReadySample &S, const ReadyBlocks &Ready);
  void addFailedForwards(CostResult &Result) const;
  void estimateErrors(const RatioEstimator &Estimator,
                      const BitVector &Estimated, CostResult &Result) const;

  const Program &Code;
  const unsigned NumSamples;
  std::vector<ReadySample> Samples;
  /// How often samples visit each block behind the warm-up.
  std::vector<unsigned> Visits;
};

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_SAMPLESIMULATION_H
