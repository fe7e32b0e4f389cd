//===- ScoreboardTest.cpp - Cycles of sequences ---------------------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Scoreboard.h"
#include "llvm/Testing/Support/Error.h"
#include "gtest/gtest.h"

using namespace llvm;
using namespace llvm::tracecost;

namespace {

/// Instructions that are made by hand, on a core of four micro-operations a
/// cycle.
class ScoreboardTest : public testing::Test {
protected:
  void SetUp() override {
    Expected<std::unique_ptr<TargetModel>> M =
        TargetModel::create(Triple::x86_64, "skylake");
    ASSERT_THAT_EXPECTED(M, Succeeded());
    Model = std::move(*M);
    CPU.MemoryLatency = 200;
    CPU.L2Latency = 14;
    CPU.OutstandingMisses = 2;
    CPU.StoreForwardLatency = 5;
    CPU.FailedForwardLatency = 14;
    CPU.Alias4KLatency = 0;
    CPU.MispredictPenalty = 16;
    CPU.ICacheMissPenalty = 10;
    CPU.ITLBMissPenalty = 7;
    CPU.FetchBytes = 16;
    CPU.DispatchWidth = 4;
    CPU.MoveElimination = CPU.ImmediateAddition = false;
  }

  /// Reads one register and writes another.
  static TimedInst compute(uint16_t From, uint16_t To, unsigned Latency = 1) {
    TimedInst I;
    I.Latency = Latency;
    I.Reads.push_back({From, 0, true});
    I.Writes.push_back({To, uint16_t(Latency)});
    return I;
  }
  static TimedInst load(uint16_t Address, uint16_t To) {
    TimedInst I = compute(Address, To, 5);
    I.LoadLatency = 5;
    return I;
  }

  /// When the last of \p Insts has retired.
  unsigned finish(ArrayRef<TimedInst> Insts,
                  std::optional<WindowEvents> Events = std::nullopt,
                  unsigned Without = 0) {
    std::vector<StreamEntry> Stream;
    for (const TimedInst &I : Insts)
      Stream.emplace_back().Inst = &I;
    return finish(Stream, Events.value_or(WindowEvents(Insts.size())), Without);
  }
  unsigned finish(ArrayRef<StreamEntry> Stream, const WindowEvents &Events,
                  unsigned Without = 0) {
    Expected<Scoreboard> Board =
        Scoreboard::create(*Model, CPU, ModelParts::allBut(Without));
    EXPECT_THAT_EXPECTED(Board, Succeeded());
    return Board->finish(Stream, {unsigned(Stream.size())}, Events).back();
  }

  std::unique_ptr<TargetModel> Model;
  CPUParameters CPU;
};

TEST_F(ScoreboardTest, ChainsTakeTheirLatencies) {
  std::vector<TimedInst> Chain(100, compute(1, 1, 3)),
      Apart(100, compute(1, 2, 3));
  EXPECT_NEAR(finish(Chain), 300, 3);
  EXPECT_NEAR(finish(Apart), 100 / 4 + 3, 3);
}

TEST_F(ScoreboardTest, PortsAndStationsLimit) {
  TimedInst I = compute(1, 2);
  I.Ports.push_back({0b11, 1});
  EXPECT_NEAR(finish(std::vector<TimedInst>(100, I)), 50, 3);
  I.Ports.back() = {0b1, 3};
  EXPECT_NEAR(finish(std::vector<TimedInst>(100, I)), 300, 4);
}

TEST_F(ScoreboardTest, TheReorderBufferLimits) {
  // A load from memory, and as many independent ones as the buffer has room
  // for, overlap.
  unsigned Size = Model->schedModel().MicroOpBufferSize;
  CPU.OutstandingMisses = 0;
  auto Cycles = [&](unsigned Between) {
    std::vector<TimedInst> Insts{load(1, 2)};
    Insts.resize(1 + Between, compute(3, 4));
    Insts.push_back(load(1, 2));
    WindowEvents Events(Insts.size());
    Events.Miss.set(0);
    Events.Miss.set(Insts.size() - 1);
    return finish(Insts, Events);
  };
  EXPECT_LT(Cycles(Size / 2), 300u);
  EXPECT_GT(Cycles(Size + 10), 400u);
}

TEST_F(ScoreboardTest, MissStatusRegistersLimit) {
  std::vector<TimedInst> Loads(8, load(1, 2));
  WindowEvents Events(8);
  Events.Miss.set();
  EXPECT_NEAR(finish(Loads, Events), 4 * 200, 5);
  EXPECT_NEAR(
      finish(Loads, Events, 1u << unsigned(ModelPart::OutstandingMisses)), 200,
      5);
}

TEST_F(ScoreboardTest, LoadsTakeTheLatencyOfTheirLevel) {
  std::vector<TimedInst> Chain(10, load(1, 1));
  WindowEvents Events(10);
  EXPECT_NEAR(finish(Chain, Events), 50, 3);
  Events.FirstLevelMiss.set();
  EXPECT_NEAR(finish(Chain, Events), 140, 3);
  Events.Miss.set();
  EXPECT_NEAR(finish(Chain, Events), 2000, 3);
}

TEST_F(ScoreboardTest, MispredictionsWaitForTheBranch) {
  // A branch on a loaded value, and what follows it.
  std::vector<TimedInst> Insts{load(1, 2), compute(2, 3), compute(4, 5)};
  WindowEvents Events(3);
  unsigned Predicted = finish(Insts, Events);
  Events.Mispredict.set(1);
  EXPECT_NEAR(finish(Insts, Events), Predicted + 16, 2);
  Events.Miss.set(0);
  EXPECT_NEAR(finish(Insts, Events), Predicted + 16 + 195, 2);
}

TEST_F(ScoreboardTest, LoadsWaitForTheStoreThatTheyRead) {
  TimedInst Load = load(1, 2), Use = compute(2, 3);
  TimedInst Store;
  Store.Latency = 1;
  Store.Stores = true;
  Store.Reads.push_back({3, 0, false});
  // Each load reads what the one before it led to.
  auto Cycles = [&](bool Fails, bool OnStack) {
    std::vector<StreamEntry> Stream;
    for (unsigned I = 0; I != 100; ++I) {
      StreamEntry &S = Stream.emplace_back();
      S.Inst = &Store;
      S.OnStack = OnStack;
      StreamEntry &L = Stream.emplace_back();
      L.Inst = &Load;
      L.Store = Stream.size() - 1;
      L.FailsToForward = Fails;
      L.OnStack = OnStack;
      Stream.emplace_back().Inst = &Use;
    }
    return finish(Stream, WindowEvents(Stream.size()));
  };
  CPU.StoreForwardLatency = 0;
  CPU.FailedForwardLatency = 13;
  // Without a figure for other memory: a load's latency.
  EXPECT_NEAR(Cycles(false, false), 100 * (5 + 1), 10);
  EXPECT_NEAR(Cycles(false, true), 100 * 1, 10);
  CPU.OtherForwardLatency = 2;
  EXPECT_NEAR(Cycles(false, false), 100 * (2 + 1), 10);
  // The store retires a cycle after it knows its value.
  EXPECT_NEAR(Cycles(true, true), 100 * (1 + 13 + 1), 20);

  // Loads of which nothing needs the value follow one another all the same:
  // stores get to the cache in the order in which they retire.
  Use.Reads.clear();
  Store.Reads.clear();
  EXPECT_LT(Cycles(false, true), 100u);
  EXPECT_GT(Cycles(true, true), 100u * 13);
}

TEST_F(ScoreboardTest, TellsWhichLoadsWaitForTheCache) {
  TimedInst Load = load(1, 2), Store, Slow = compute(3, 3, 100);
  Store.Latency = 1;
  Store.Stores = true;
  CPU.FailedForwardLatency = 13;
  // A load that needs a slow value, and one that does not, of one store.
  TimedInst Late = load(3, 4);
  std::vector<StreamEntry> Stream(4);
  Stream[0].Inst = &Store;
  Stream[1].Inst = &Slow;
  Stream[2].Inst = &Late;
  Stream[3].Inst = &Load;
  for (unsigned I : {2, 3}) {
    Stream[I].Store = 1;
    Stream[I].FailsToForward = true;
  }
  Expected<Scoreboard> Board =
      Scoreboard::create(*Model, CPU, ModelParts::allBut(0));
  ASSERT_THAT_EXPECTED(Board, Succeeded());
  BitVector Blocked(4);
  Board->finish(Stream, {4}, WindowEvents(4), &Blocked);
  EXPECT_FALSE(Blocked[2]);
  EXPECT_TRUE(Blocked[3]);
}

TEST_F(ScoreboardTest, LoadsWaitForStoresOfTheSamePlaceInOtherPages) {
  TimedInst Load = load(1, 1), Store;
  Store.Latency = 1;
  Store.Stores = true;
  // Loads whose addresses need the values of those before.
  auto Cycles = [&](unsigned Between, bool Aliases) {
    TimedInst Nop;
    std::vector<StreamEntry> Stream;
    for (unsigned I = 0; I != 50; ++I) {
      Stream.emplace_back().Inst = &Store;
      unsigned Index = Stream.size();
      for (unsigned K = 0; K != Between; ++K)
        Stream.emplace_back().Inst = &Nop;
      StreamEntry &L = Stream.emplace_back();
      L.Inst = &Load;
      L.Alias = Aliases ? Index : 0;
    }
    return finish(Stream, WindowEvents(Stream.size()));
  };
  CPU.Alias4KLatency = 6;
  EXPECT_NEAR(Cycles(0, true), 50 * (5 + 6), 12);
  EXPECT_NEAR(Cycles(0, false), 50 * 5, 12);
  CPU.Alias4KLatency = 0;
  EXPECT_NEAR(Cycles(0, true), 50 * 5, 12);
  // A store that is in the cache is not under way.
  CPU.Alias4KLatency = 6;
  EXPECT_EQ(Cycles(400, true), Cycles(400, false));
}

TEST_F(ScoreboardTest, DecodersTakeSoManyBytesACycle) {
  TimedInst Nop;
  std::vector<StreamEntry> Stream(400);
  for (StreamEntry &Entry : Stream) {
    Entry.Inst = &Nop;
    Entry.Size = 8;
  }
  WindowEvents Events(Stream.size());
  EXPECT_NEAR(finish(Stream, Events), 100, 2);
  // Two instructions of eight bytes a cycle.
  Events.Decode.set();
  EXPECT_NEAR(finish(Stream, Events), 200, 2);
  CPU.FetchBytes = 32;
  EXPECT_NEAR(finish(Stream, Events), 100, 2);
  // Little code to decode comes from the queue that others leave full.
  CPU.FetchBytes = 16;
  Events.Decode.reset(8, 400);
  EXPECT_NEAR(finish(Stream, Events), 102, 2);
  Events.Decode.reset();
  Events.Decode.set(200, 208);
  EXPECT_NEAR(finish(Stream, Events), 100, 2);
  // What is not at hand cannot be decoded ahead.
  Events.TranslationMiss.set(200);
  EXPECT_NEAR(finish(Stream, Events), 100 + 7 + 2, 2);
  Events.FetchMiss.set(200);
  EXPECT_NEAR(finish(Stream, Events), 100 + 7 + 10 + 2, 2);
}

TEST_F(ScoreboardTest, FusedComparisonsAreOneOperation) {
  TimedInst Comparison = compute(1, 2), Branch = compute(2, 3);
  Comparison.Ports.push_back({1, 1});
  Branch.Ports.push_back({2, 1});
  fuse(Comparison, Branch);
  EXPECT_TRUE(Comparison.Ports.empty());
  EXPECT_EQ(Comparison.MicroOps + Branch.MicroOps, 1u);
  // A comparison with memory still loads.
  TimedInst Load = load(1, 2);
  Load.Ports.push_back({4, 1});
  fuse(Load, Branch);
  EXPECT_EQ(Load.Ports.size(), 1u);
}

} // namespace
