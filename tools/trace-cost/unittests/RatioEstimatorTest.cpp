//===- RatioEstimatorTest.cpp - Standard errors ---------------------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RatioEstimator.h"
#include "gtest/gtest.h"
#include <cmath>
#include <random>

using namespace llvm;
using namespace llvm::tracecost;

namespace {

TEST(RatioEstimatorTest, MeansAreOfAllVisits) {
  RatioEstimator E(2, 2, 0);
  E.add(0, 1, 4);
  E.add(1, 1, 1);
  E.add(1, 1, 1);
  EXPECT_EQ(E.visits(0), 0u);
  EXPECT_EQ(E.visits(1), 3u);
  EXPECT_EQ(E.mean(1), 2);
}

TEST(RatioEstimatorTest, ErrorIsThatOfARatio) {
  // Two samples: one visit of 4 cycles; two of 1. The mean is 2, so the
  // residuals of 30 executions are 10 * (4 - 2) and 10 * (2 - 4).
  RatioEstimator E(1, 2, 0);
  E.add(0, 0, 4);
  E.add(1, 0, 1);
  E.add(1, 0, 1);
  EXPECT_EQ(E.residuals({{0, 30}}), (std::vector<double>{20, -20}));
  EXPECT_NEAR(*E.standardError({{0, 30}}), std::sqrt(2 * 800.0), 1e-9);
}

TEST(RatioEstimatorTest, ErrorsOfBlocksMayCancel) {
  // Where one block is dear, the other is cheap.
  RatioEstimator E(2, 2, 0);
  E.add(0, 0, 1);
  E.add(0, 1, 3);
  E.add(1, 0, 3);
  E.add(1, 1, 1);
  EXPECT_GT(*E.standardError({{0, 10}}), 0);
  EXPECT_EQ(*E.standardError({{0, 10}, {1, 10}}), 0);
}

TEST(RatioEstimatorTest, NoErrorWhereAllIsKnown) {
  RatioEstimator One(1, 1, 0), Whole(1, 2, 1);
  One.add(0, 0, 1);
  EXPECT_EQ(One.standardError({{0, 10}}), std::nullopt);
  Whole.add(0, 0, 1);
  Whole.add(1, 0, 5);
  EXPECT_EQ(Whole.standardError({{0, 2}}), 0);
}

TEST(RatioEstimatorTest, ErrorsAreAsLargeAsTheySay) {
  // Samples of a run of two kinds of phases: four fifths of the estimates or
  // so lie within 1.28 standard errors.
  std::mt19937 Random(7);
  unsigned Inside = 0;
  constexpr unsigned Trials = 400, Samples = 40;
  for (unsigned Trial = 0; Trial != Trials; ++Trial) {
    RatioEstimator E(1, Samples, 0);
    for (unsigned S = 0; S != Samples; ++S) {
      bool IsSlow = Random() % 4 == 0;
      for (unsigned Visit = 0, N = 5 + Random() % 10; Visit != N; ++Visit)
        E.add(S, 0, IsSlow ? 10 : 2);
    }
    double Error = std::abs(E.mean(0) - 4);
    Inside += Error < 1.28 * *E.standardError({{0, 1}});
  }
  EXPECT_GT(Inside, Trials * 0.72);
  EXPECT_LT(Inside, Trials * 0.88);
}

} // namespace
