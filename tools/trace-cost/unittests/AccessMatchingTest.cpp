//===- AccessMatchingTest.cpp - The same accesses in other code -----------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AccessMatching.h"
#include "gtest/gtest.h"

using namespace llvm;
using namespace llvm::tracecost;

namespace {

AccessSite load(int64_t Displacement, unsigned Size = 8) {
  AccessSite A;
  A.Loads = A.HasBase = true;
  A.Displacement = Displacement;
  A.Size = Size;
  return A;
}

AccessSite reload(unsigned Size = 8) {
  AccessSite A = load(0, Size);
  A.IsStack = true;
  return A;
}

std::vector<int> match(ArrayRef<AccessSite> Own, ArrayRef<AccessSite> Traced) {
  std::vector<int> Result;
  for (std::optional<unsigned> Index : matchAccesses(Own, Traced))
    Result.push_back(Index ? int(*Index) : -1);
  return Result;
}

using Indices = std::vector<int>;

TEST(AccessMatchingTest, ReloadsAreSkipped) {
  EXPECT_EQ(match({reload(), load(8), reload(), load(16), reload()},
                  {load(8), load(16)}),
            (Indices{-1, 0, -1, 1, -1}));
  EXPECT_EQ(match({load(8), load(16)}, {load(8), reload(), load(16)}),
            (Indices{0, 2}));
  EXPECT_EQ(match({}, {load(8)}), Indices{});
}

TEST(AccessMatchingTest, WhatIsAccessedInAnotherWayIsAnother) {
  AccessSite Store = load(8);
  std::swap(Store.Loads, Store.Stores);
  AccessSite Indexed = load(8), Adds = load(8);
  Indexed.HasIndex = true;
  Adds.Content = 7;
  for (const AccessSite &Other :
       {load(8, 4), load(16), Store, Indexed, Adds, reload()})
    EXPECT_EQ(match({load(8)}, {Other}), Indices{-1});
  EXPECT_EQ(match({load(8)}, {load(8)}), Indices{0});
}

TEST(AccessMatchingTest, TheOrderIsKept) {
  EXPECT_EQ(match({load(1), load(2), load(3), load(4)},
                  {load(2), load(1), load(4), load(3)}),
            (Indices{-1, 0, -1, 2}));
  // Of one that crosses two, it is the one that is left out.
  EXPECT_EQ(match({load(9), load(1), load(2), load(5)},
                  {load(1), load(2), load(9), load(6)}),
            (Indices{-1, 0, 1, -1}));
}

TEST(AccessMatchingTest, TheStackWeighsLess) {
  // Either the pointer's load or the slot's can be paired.
  EXPECT_EQ(match({load(8), reload(), load(7)}, {reload(), load(8), load(6)}),
            (Indices{1, -1, -1}));
  EXPECT_EQ(match({reload(), load(8), load(7)}, {load(8), reload(), load(6)}),
            (Indices{-1, 0, -1}));
}

} // namespace
