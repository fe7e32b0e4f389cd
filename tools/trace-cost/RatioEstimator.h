//===- RatioEstimator.h - Costs of blocks from samples ----------*- C++ -*-===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Estimates what a run's executions of blocks cost from the visits in a few
/// samples of the run. The mean cost of a block's visits is a ratio of two sums
/// over the samples, its cost and its visits; the standard error is that of the
/// ratio estimator of cluster sampling (W. G. Cochran, Sampling Techniques,
/// section 9A), with samples as clusters.
///
//===----------------------------------------------------------------------===//

#ifndef TRACE_COST_RATIOESTIMATOR_H
#define TRACE_COST_RATIOESTIMATOR_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include <cstdint>
#include <optional>
#include <vector>

namespace llvm {
namespace tracecost {

class RatioEstimator {
public:
  /// \p SampledShare is the part of the run that is in the samples.
  RatioEstimator(unsigned NumBlocks, unsigned NumSamples, double SampledShare)
      : NumSamples(NumSamples), SampledShare(SampledShare), ByBlock(NumBlocks) {
  }

  /// Adds a visit. Samples must come in ascending order.
  void add(unsigned Sample, unsigned Block, double Cost);

  uint64_t visits(unsigned Block) const { return ByBlock[Block].Visits; }
  /// The mean cost of the block's visits, of which there must be some.
  double mean(unsigned Block) const {
    return ByBlock[Block].Cost / ByBlock[Block].Visits;
  }

  /// How many executions a block has in the run.
  struct Weight {
    unsigned Block;
    double Executions;
  };

  /// By how much each sample's visits of these blocks, scaled to the run, cost
  /// more than the estimate says. The sum of squares approximates the variance
  /// of the estimated cost of all executions. Two candidates have the same
  /// samples, so they are compared by the differences of their residuals.
  std::vector<double> residuals(ArrayRef<Weight> Weights) const;

  /// The standard error of the cost of all these executions. Nothing if there
  /// are fewer than two samples.
  std::optional<double> standardError(ArrayRef<Weight> Weights) const {
    return errorOf(residuals(Weights));
  }
  /// The standard error that belongs to \p Residuals.
  std::optional<double> errorOf(ArrayRef<double> Residuals) const;

private:
  struct InSample {
    unsigned Sample;
    unsigned Visits;
    double Cost;
  };
  struct Block {
    SmallVector<InSample, 2> Samples;
    uint64_t Visits = 0;
    double Cost = 0;
  };

  unsigned NumSamples;
  double SampledShare;
  std::vector<Block> ByBlock;
};

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_RATIOESTIMATOR_H
