//===- EventDrawsTest.cpp - Even and reproducible draws -------------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EventDraws.h"
#include "gtest/gtest.h"
#include <set>

using namespace llvm::tracecost;

namespace {

TEST(EventDrawsTest, FewVisitsHaveTheRightShareOfEvents) {
  for (uint64_t Key : {1, 2, 3})
    for (double Probability : {0.1, 0.5, 0.9}) {
      unsigned Events = 0;
      for (unsigned Visit = 0; Visit != 50; ++Visit)
        Events += drawVisit(Key, 0, DrawKind::Load, Visit) < Probability;
      // Independent draws would be off by 7 at 0.5 in one case of twenty.
      EXPECT_NEAR(Events, 50 * Probability, 2);
    }
}

TEST(EventDrawsTest, PlacesAreIndependent) {
  double Number = drawVisit(1, 0, DrawKind::Load, 0);
  EXPECT_EQ(drawVisit(1, 0, DrawKind::Load, 0), Number);
  EXPECT_NE(drawVisit(2, 0, DrawKind::Load, 0), Number);
  EXPECT_NE(drawVisit(1, 1, DrawKind::Load, 0), Number);
  EXPECT_NE(drawVisit(1, 0, DrawKind::Branch, 0), Number);
  // Two of probability one half happen together in a quarter of the visits,
  // whichever places they are.
  for (uint64_t Other = 2; Other != 50; ++Other) {
    unsigned Both = 0;
    for (unsigned Visit = 0; Visit != 400; ++Visit)
      Both += drawVisit(1, 0, DrawKind::Load, Visit) < 0.5 &&
              drawVisit(Other, 1, DrawKind::Branch, Visit) < 0.5;
    EXPECT_NEAR(Both, 100, 40);
  }
}

TEST(EventDrawsTest, EachStratumIsDrawnOnce) {
  for (unsigned Visits : {1, 8, 64}) {
    StratifiedDraw Draw(5, Visits);
    std::set<unsigned> Strata;
    for (unsigned Visit = 0; Visit != Visits; ++Visit) {
      double Number = Draw(1, 2, DrawKind::Line, Visit);
      EXPECT_GE(Number, 0);
      EXPECT_LT(Number, 1);
      Strata.insert(Number * Visits);
    }
    EXPECT_EQ(Strata.size(), Visits);
  }
}

} // namespace
