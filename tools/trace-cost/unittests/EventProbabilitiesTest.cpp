//===- EventProbabilitiesTest.cpp - Which events a block has --------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EventProbabilities.h"
#include "gtest/gtest.h"

using namespace llvm;
using namespace llvm::tracecost;

namespace {

/// A block with two conditional branches, an indirect call and a load.
SimBlock block() {
  SimBlock Result;
  Result.Operations.resize(4);
  Result.Operations[0].IsConditionalBranch = true;
  Result.Operations[1].IsIndirectCall = true;
  Result.Operations[2].IsConditionalBranch = true;
  Result.Operations[3].CanMiss = true;
  return Result;
}

TEST(EventProbabilitiesTest, PredictedExitsAreTheLastBranchs) {
  KnownShare Loads, Branches;
  EventModel Model(/*Rates=*/nullptr, ModelParts::allBut(0), Loads, Branches);
  PredictedBranches Predicted{/*Exits=*/8, /*MispredictedExits=*/2,
                              /*Calls=*/4, /*MispredictedCalls=*/3};
  EventProbabilities P = Model.probabilities(block(), 10, &Predicted);
  EXPECT_EQ(P.Mispredict, (std::vector<double>{0, 0.75, 0.25, 0}));
  EXPECT_EQ(P.Miss, std::vector<double>(4));
  // The branches of all executions are known, and loads were not asked for.
  EXPECT_EQ(Branches.Known, 20);
  EXPECT_EQ(Branches.All, 20);
  EXPECT_EQ(Loads.All, 0);
}

TEST(EventProbabilitiesTest, APartThatIsLeftOutHasNoEvents) {
  KnownShare Loads, Branches;
  EventModel Model(nullptr,
                   ModelParts::allBut(1u << unsigned(ModelPart::Mispredicts)),
                   Loads, Branches);
  PredictedBranches Predicted{8, 2, 4, 3};
  EventProbabilities P = Model.probabilities(block(), 10, &Predicted);
  EXPECT_EQ(P.Mispredict, std::vector<double>(4));
  EXPECT_EQ(Branches.All, 0);
}

TEST(EventProbabilitiesTest, AsManyLoadsMissAsTheRunHas) {
  EventProbabilities First, Second;
  First.Miss = {0.25, 0};
  Second.Miss = {0.125, 0.125};
  // 100 times 0.25, and 300 times 0.25.
  ExecutedProbabilities Blocks[] = {{&First, 100}, {&Second, 300}};
  scaleTo(200, &EventProbabilities::Miss, Blocks);
  EXPECT_EQ(First.Miss, (std::vector<double>{0.5, 0}));
  EXPECT_EQ(Second.Miss, (std::vector<double>{0.25, 0.25}));
  // No more than all.
  scaleTo(1000000, &EventProbabilities::Miss, Blocks);
  EXPECT_EQ(Second.Miss, (std::vector<double>{1, 1}));
  scaleTo(std::nullopt, &EventProbabilities::Miss, Blocks);
  EXPECT_EQ(First.Miss, (std::vector<double>{1, 0}));
}

TEST(EventProbabilitiesTest, DrawsDecideWhatHappens) {
  SimBlock Block;
  Block.Operations.resize(5);
  EventProbabilities P;
  P.Miss = {0.2, 0.2, 0.2, 0, 0};
  P.FirstLevelMiss = {0.5, 0.5, 0.5, 0, 0};
  P.Mispredict = {0, 0, 0, 0.5, 0.5};
  P.FetchMiss = {0.5, 0, 0, 0, 0};
  for (unsigned I = 0; I != 3; ++I)
    Block.Operations[I].CanMiss = true;
  for (unsigned I = 0; I != 3; ++I)
    Block.Operations[I].LoadNumber = 2 - I;
  Block.Operations[0].StartsLine = true;
  Block.Operations[3].IsConditionalBranch = true;
  Block.Operations[4].IsIndirectJump = true;
  auto Draw = [](unsigned Ordinal, DrawKind Kind) {
    static constexpr double Numbers[3][3] = {
        {0.6, 0.3, 0.1}, {0.4, 0.6, 1}, {0.4, 1, 1}};
    return Numbers[unsigned(Kind)][Ordinal];
  };
  // The block is the second of a window, behind two operations.
  WindowEvents Events(7);
  EventNumbers Numbers =
      drawEvents(P, Block.Operations, 2, RecordedEvents(), Draw, Events);
  EXPECT_NEAR(Numbers[LLCMisses].Expected, 3 * 0.2, 1e-9);
  EXPECT_EQ(Numbers[LLCMisses].Happened, 1);
  EXPECT_NEAR(Numbers[FirstLevelMisses].Expected, 3 * 0.3, 1e-9);
  EXPECT_EQ(Numbers[FirstLevelMisses].Happened, 1);
  EXPECT_EQ(Numbers[Mispredictions].Expected, 1);
  EXPECT_EQ(Numbers[Mispredictions].Happened, 1);
  auto Bits = [](const BitVector &V) {
    return std::vector<unsigned>(V.set_bits_begin(), V.set_bits_end());
  };
  EXPECT_EQ(Bits(Events.Miss), std::vector<unsigned>{2});
  EXPECT_EQ(Bits(Events.FirstLevelMiss), std::vector<unsigned>{3});
  EXPECT_EQ(Bits(Events.Mispredict), std::vector<unsigned>{5});
  EXPECT_EQ(Bits(Events.FetchMiss), std::vector<unsigned>{2});
}

TEST(EventProbabilitiesTest, RecordedBranchesAreNotDrawn) {
  SimBlock Block = block();
  EventProbabilities P;
  P.Miss = P.FirstLevelMiss = P.FetchMiss = std::vector<double>(4);
  P.Mispredict = {0, 0.75, 0.25, 0};
  auto Mispredicted = [&](ArrayRef<Operation> Executed,
                          std::optional<BranchOutcome> Recorded) {
    WindowEvents Events(4);
    EventNumbers Numbers = drawEvents(
        P, Executed, 0, {Recorded, std::nullopt},
        [](unsigned, DrawKind) { return 0.2; }, Events);
    // Rates are those of all executions, by whichever branch they leave.
    EXPECT_EQ(Numbers[Mispredictions].Expected, 1);
    EXPECT_EQ(Numbers[Mispredictions].Happened, Events.Mispredict.count());
    return std::vector<unsigned>(Events.Mispredict.set_bits_begin(),
                                 Events.Mispredict.set_bits_end());
  };
  using Bits = std::vector<unsigned>;
  ArrayRef<Operation> All = Block.Operations;
  EXPECT_EQ(Mispredicted(All, std::nullopt), (Bits{1, 2}));
  EXPECT_EQ(Mispredicted(All, BranchOutcome{false, 0}), Bits{});
  EXPECT_EQ(Mispredicted(All, BranchOutcome{true, 0}), Bits{2});
  EXPECT_EQ(Mispredicted(All, BranchOutcome{false, 1}), Bits{1});
  // An execution that left by the first branch.
  EXPECT_EQ(Mispredicted(All.take_front(1), BranchOutcome{true, 0}), Bits{0});
}

TEST(EventProbabilitiesTest, TheFirstLinesOfABlockMiss) {
  // Three lines of two operations each, all of which the profile says to miss.
  SimBlock Block;
  Block.Operations.resize(6);
  EventProbabilities P;
  P.Miss = P.FirstLevelMiss = P.Mispredict = P.FetchMiss =
      std::vector<double>(6);
  for (unsigned I : {0, 2, 4}) {
    Block.Operations[I].StartsLine = true;
    P.FetchMiss[I] = 1;
  }
  WindowEvents Events(7);
  auto Draw = [&](std::optional<FetchMisses> Misses) {
    Events = WindowEvents(7);
    // Behind one operation.
    drawEvents(
        P, Block.Operations, 1, {std::nullopt, Misses},
        [](unsigned, DrawKind) { return 0.5; }, Events);
  };
  auto Bits = [](const BitVector &V) {
    return std::vector<unsigned>(V.set_bits_begin(), V.set_bits_end());
  };
  using Set = std::vector<unsigned>;
  Draw(FetchMisses{/*Lines=*/2, /*Pages=*/1, /*Decoded=*/2});
  EXPECT_EQ(Bits(Events.FetchMiss), (Set{1, 3}));
  EXPECT_EQ(Bits(Events.TranslationMiss), Set{1});
  EXPECT_EQ(Bits(Events.Decode), (Set{1, 2, 3, 4}));
  // An execution that is known to miss nothing.
  Draw(FetchMisses());
  EXPECT_EQ(Bits(Events.FetchMiss), Set{});
  EXPECT_EQ(Bits(Events.Decode), Set{});
  // A block with fewer lines than missed.
  Draw(FetchMisses{9, 9, ~0u});
  EXPECT_EQ(Bits(Events.FetchMiss), (Set{1, 3, 5}));
  EXPECT_EQ(Bits(Events.Decode), (Set{1, 2, 3, 4, 5, 6}));
  // Nothing is recorded: the profile counts.
  Draw(std::nullopt);
  EXPECT_EQ(Bits(Events.FetchMiss), (Set{1, 3, 5}));
  EXPECT_EQ(Bits(Events.TranslationMiss), Set{});
}

} // namespace
