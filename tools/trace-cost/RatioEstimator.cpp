//===- RatioEstimator.cpp - Costs of blocks from samples ------------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RatioEstimator.h"
#include <algorithm>
#include <cassert>
#include <cmath>

using namespace llvm;
using namespace llvm::tracecost;

void RatioEstimator::add(unsigned Sample, unsigned Block, double Cost) {
  auto &B = ByBlock[Block];
  assert(Sample < NumSamples && "no such sample");
  assert((B.Samples.empty() || B.Samples.back().Sample <= Sample) &&
         "samples must come in ascending order");
  if (B.Samples.empty() || B.Samples.back().Sample != Sample)
    B.Samples.push_back({Sample, 0, 0});
  ++B.Samples.back().Visits;
  B.Samples.back().Cost += Cost;
  ++B.Visits;
  B.Cost += Cost;
}

std::vector<double> RatioEstimator::residuals(ArrayRef<Weight> Weights) const {
  std::vector<double> Result(NumSamples);
  for (auto [Block, Executions] : Weights) {
    const auto &B = ByBlock[Block];
    if (!B.Visits)
      continue;
    double Mean = B.Cost / B.Visits, PerVisit = Executions / B.Visits;
    for (auto [Sample, Visits, Cost] : B.Samples)
      Result[Sample] += PerVisit * (Cost - Mean * Visits);
  }
  return Result;
}

std::optional<double>
RatioEstimator::errorOf(ArrayRef<double> Residuals) const {
  if (NumSamples < 2)
    return std::nullopt;
  double Squares = 0;
  for (double Residual : Residuals)
    Squares += Residual * Residual;
  double Unsampled = std::max(0.0, 1 - SampledShare);
  return std::sqrt(Unsampled * Squares * NumSamples / (NumSamples - 1));
}
