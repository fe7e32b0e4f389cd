//===- ValueTrackerTest.cpp - Which accesses are of one address -----------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ValueTracker.h"
#include "gtest/gtest.h"

using namespace llvm;
using namespace llvm::tracecost;

namespace {

constexpr GPR A = 0, B = 3, SP = 4, C = 12;
constexpr GPR Clobbered[] = {A};

DataFlow access(GPR Base, int64_t Offset, GPR Value, bool Stores,
                unsigned Size) {
  DataFlow Op;
  Op.Memory.emplace();
  Op.Memory->Base = Base;
  Op.Memory->Displacement.Offset = Offset;
  Op.Memory->Size = Size;
  Op.Effect.Value = Value;
  Op.Stores = Stores;
  Op.Loads = !Stores;
  if (!Stores)
    Op.Written = {Value};
  return Op;
}
DataFlow load(GPR Base, int64_t Offset, GPR To, unsigned Size = 8) {
  return access(Base, Offset, To, false, Size);
}
DataFlow store(GPR Base, int64_t Offset, GPR From, unsigned Size = 8) {
  return access(Base, Offset, From, true, Size);
}
DataFlow move(GPR To, GPR From, int64_t Amount = 0) {
  DataFlow Op;
  Op.Written = {To};
  Op.Effect.To = To;
  Op.Effect.From = From;
  Op.Effect.Amount = Amount;
  return Op;
}
DataFlow write(GPR Reg) {
  DataFlow Op;
  Op.Written = {Reg};
  return Op;
}
DataFlow call() {
  DataFlow Op;
  Op.IsCall = true;
  return Op;
}

class ValueTrackerTest : public testing::Test {
protected:
  /// Executes \p Op. The number of the store that it reads from; 0 if unknown.
  unsigned run(const DataFlow &Op) {
    Last = T.access(Op, ++Count);
    return Last.Store ? Last.Store - 1 : 0;
  }
  /// Executes a store, and returns its number.
  unsigned number(const DataFlow &Op) {
    run(Op);
    return Count;
  }

  ValueTracker T{Clobbered};
  unsigned Count = 0;
  Dependence Last;
};

TEST_F(ValueTrackerTest, CopiesAndConstantsKeepAddresses) {
  unsigned Store = number(store(B, 8, A));
  EXPECT_EQ(run(load(B, 8, A)), Store);
  EXPECT_EQ(run(load(B, 16, A)), 0u);
  run(move(C, B, 16));
  EXPECT_EQ(run(load(C, -8, A)), Store);
  run(write(C));
  EXPECT_EQ(run(load(C, -8, A)), 0u);
}

TEST_F(ValueTrackerTest, SpilledPointersAreKnownWhenTheyAreReloaded) {
  unsigned Store = number(store(B, 0, A));
  run(store(SP, 8, B));
  run(write(B));
  run(load(SP, 8, C));
  EXPECT_EQ(run(load(C, 0, A)), Store);
  // What was stored there last.
  run(store(SP, 8, A));
  run(load(SP, 8, C));
  EXPECT_EQ(run(load(C, 0, A)), 0u);
}

TEST_F(ValueTrackerTest, ALoadFindsWhatItsAddressWas) {
  run(store(B, 0, A));
  EXPECT_NE(run(load(B, 0, B)), 0u);
  EXPECT_EQ(run(load(B, 0, B)), 0u);
}

TEST_F(ValueTrackerTest, RegionsAndScalesAreApart) {
  auto Access = [](Region In, uint8_t Scale, bool Stores) {
    DataFlow Op = access(NoGPR, 0, A, Stores, 8);
    Op.Memory->Index = B;
    Op.Memory->Scale = Scale;
    Op.Memory->Displacement.In = In;
    return Op;
  };
  unsigned Store = number(Access(1, 8, true));
  EXPECT_EQ(run(Access(1, 8, false)), Store);
  EXPECT_EQ(run(Access(2, 8, false)), 0u);
  EXPECT_EQ(run(Access(1, 4, false)), 0u);
  // The largest numbers that offsets and regions have.
  DataFlow Op = Access(1, 4, false);
  Op.Memory->Displacement = {~0u, INT64_MIN};
  EXPECT_EQ(run(Op), 0u);
}

TEST_F(ValueTrackerTest, LoadsOfMoreThanWasStoredArePartial) {
  unsigned Word = number(store(SP, 8, A, 2));
  // Its second byte alone.
  EXPECT_EQ(run(load(SP, 9, B, 1)), Word);
  EXPECT_FALSE(Last.IsPartial);
  EXPECT_EQ(run(load(SP, 8, B, 4)), Word);
  EXPECT_TRUE(Last.IsPartial);
  EXPECT_EQ(run(load(SP, 9, B, 2)), Word);
  EXPECT_TRUE(Last.IsPartial);
  EXPECT_EQ(run(load(SP, 10, B, 2)), 0u);
  EXPECT_EQ(run(load(SP, 7, B, 1)), 0u);
  // The bytes of a word, one by one.
  run(store(SP, 8, A, 1));
  unsigned Byte = number(store(SP, 9, A, 1));
  EXPECT_EQ(run(load(SP, 8, B, 2)), Byte);
  EXPECT_TRUE(Last.IsPartial);
}

TEST_F(ValueTrackerTest, OnlyTheLastStoresAreInFlight) {
  unsigned First = number(store(SP, 0, A));
  for (int I = 1; I != 64; ++I)
    run(store(SP, 8 * I, A));
  EXPECT_EQ(run(load(SP, 0, B)), First);
  for (int I = 64; I != 1000; ++I)
    run(store(SP, 8 * I, A));
  EXPECT_EQ(run(load(SP, 0, B)), 0u);
}

TEST(AddressedStoresTest, StoresInTwoLinesAreFoundInBoth) {
  AddressedStores Stores;
  Stores.add(60, 8, 1);
  Stores.add(68, 4, 2);
  EXPECT_EQ(Stores.find(60, 4).Store, 2u);
  EXPECT_EQ(Stores.find(64, 4).Store, 2u);
  EXPECT_FALSE(Stores.find(64, 4).IsPartial);
  // Of both: the youngest, and only in part.
  EXPECT_EQ(Stores.find(62, 8).Store, 3u);
  EXPECT_TRUE(Stores.find(62, 8).IsPartial);
  EXPECT_EQ(Stores.find(72, 8).Store, 0u);
}

TEST_F(ValueTrackerTest, CallsLoseRegistersAndCalleesGetThem) {
  T.beginBlock(/*IsEntry=*/true);
  unsigned OfA = number(store(A, 0, C)), OfB = number(store(B, 0, C));
  run(call());
  EXPECT_EQ(run(load(A, 0, C)), 0u);
  EXPECT_EQ(run(load(B, 0, C)), OfB);
  run(write(B));
  T.endBlock(/*HasReturn=*/false);

  // The callee: what registers were at the call.
  T.beginBlock(/*IsEntry=*/true);
  EXPECT_EQ(run(load(A, 0, C)), OfA);
  EXPECT_EQ(run(load(B, 0, C)), OfB);
  run(write(B));
  T.endBlock(/*HasReturn=*/true);

  // Back in the caller: what they were at the end of its block.
  T.beginBlock(/*IsEntry=*/false);
  EXPECT_EQ(run(load(A, 0, C)), 0u);
  EXPECT_EQ(run(load(B, 0, C)), 0u);
}

TEST_F(ValueTrackerTest, NothingIsKnownAfterAReturnToUnknownCode) {
  T.beginBlock(true);
  unsigned Store = number(store(B, 0, C));
  EXPECT_EQ(run(load(B, 0, C)), Store);
  T.endBlock(true);
  T.beginBlock(false);
  EXPECT_EQ(run(load(B, 0, C)), 0u);
}

TEST(AddressedStoresTest, PlacesOfOtherPagesAlias) {
  AddressedStores Stores;
  Stores.add(0x12040, 8, 3);
  EXPECT_EQ(Stores.findAlias(0x13044, 4), 4u);
  EXPECT_EQ(Stores.findAlias(0x13048, 4), 0u);
  // The place itself is none.
  EXPECT_EQ(Stores.findAlias(0x12040, 8), 0u);
  // Nor is one that was written before the place itself.
  Stores.add(0x13040, 8, 5);
  EXPECT_EQ(Stores.findAlias(0x13040, 8), 0u);
  EXPECT_EQ(Stores.findAlias(0x12040, 8), 6u);
}

} // namespace
