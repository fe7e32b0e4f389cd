//===- EventCorrectionTest.cpp - Events of a run and of samples -----------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EventCorrection.h"
#include "gtest/gtest.h"

using namespace llvm;
using namespace llvm::tracecost;

namespace {

/// A visit that costs 10 cycles, and 30 more if its branch is mispredicted,
/// which happens in one of four executions.
struct Visit {
  EventNumbers Numbers{};
  Cycles Cost;
  explicit Visit(bool IsWrong) {
    Numbers[Mispredictions] = {0.25, double(IsWrong)};
    Cost.Execution = 10;
    Cost.Mispredict = IsWrong ? 30 : 0;
  }
};

TEST(EventCorrectionTest, SamplesHaveTheRunsEvents) {
  // Half of the visits are mispredicted, twice as many as in the run.
  EventCorrection C;
  Visit Wrong(true), Right(false);
  C.add(Wrong.Numbers, Wrong.Cost, 50);
  C.add(Right.Numbers, Right.Cost, 50);
  EXPECT_EQ(C.corrected(Wrong.Cost).Mispredict, 15);
  EXPECT_EQ(C.corrected(Wrong.Cost).Execution, 10);
  // 100 executions, 25 of which are mispredicted.
  double Total = 0;
  for (const Visit &V : {Wrong, Right})
    Total += 50 * C.corrected(V.Cost).total();
  EXPECT_EQ(Total, 100 * 10 + 25 * 30);
}

TEST(EventCorrectionTest, VisitsThatDifferOnlyInEventsHaveTheSameInfluence) {
  EventCorrection C;
  Visit Wrong(true), Right(false);
  C.add(Wrong.Numbers, Wrong.Cost, 50);
  C.add(Right.Numbers, Right.Cost, 50);
  EXPECT_EQ(C.influence(Wrong.Numbers, Wrong.Cost), 10 + 0.25 * 30);
  EXPECT_EQ(C.influence(Right.Numbers, Right.Cost), 10 + 0.25 * 30);
}

TEST(EventCorrectionTest, WithoutEventsNothingIsCorrected) {
  EventCorrection C;
  Visit Right(false);
  C.add(Right.Numbers, Right.Cost, 100);
  EXPECT_EQ(C.corrected(Right.Cost).total(), 10);
  EXPECT_EQ(C.influence(Right.Numbers, Right.Cost), 10);
}

} // namespace
