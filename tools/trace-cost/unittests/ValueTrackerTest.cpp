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

DataFlow access(GPR Base, int64_t Offset, GPR Value, bool Stores) {
  DataFlow Op;
  Op.Memory.emplace();
  Op.Memory->Base = Base;
  Op.Memory->Displacement.Offset = Offset;
  Op.Effect.Value = Value;
  Op.Stores = Stores;
  if (!Stores)
    Op.Written = {Value};
  return Op;
}
DataFlow load(GPR Base, int64_t Offset, GPR To) {
  return access(Base, Offset, To, false);
}
DataFlow store(GPR Base, int64_t Offset, GPR From) {
  return access(Base, Offset, From, true);
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

TEST(ValueTrackerTest, CopiesAndConstantsKeepAddresses) {
  ValueTracker T(Clobbered);
  unsigned Slot = T.access(store(B, 8, A));
  EXPECT_NE(Slot, 0u);
  EXPECT_EQ(T.access(load(B, 8, A)), Slot);
  EXPECT_NE(T.access(load(B, 16, A)), Slot);
  T.access(move(C, B, 16));
  EXPECT_EQ(T.access(load(C, -8, A)), Slot);
  T.access(write(C));
  EXPECT_NE(T.access(load(C, -8, A)), Slot);
}

TEST(ValueTrackerTest, SpilledPointersAreKnownWhenTheyAreReloaded) {
  ValueTracker T(Clobbered);
  unsigned Slot = T.access(load(B, 0, A));
  T.access(store(SP, 8, B));
  T.access(write(B));
  T.access(load(SP, 8, C));
  EXPECT_EQ(T.access(load(C, 0, A)), Slot);
  // What was stored there last.
  T.access(store(SP, 8, A));
  T.access(load(SP, 8, C));
  EXPECT_NE(T.access(load(C, 0, A)), Slot);
}

TEST(ValueTrackerTest, ALoadFindsWhatItsAddressWas) {
  ValueTracker T(Clobbered);
  unsigned First = T.access(load(B, 0, B));
  EXPECT_NE(T.access(load(B, 0, B)), First);
}

TEST(ValueTrackerTest, RegionsAndScalesAreApart) {
  ValueTracker T(Clobbered);
  DataFlow Op = load(NoGPR, 0, A);
  Op.Memory->Index = B;
  Op.Memory->Scale = 8;
  Op.Memory->Displacement.In = 1;
  unsigned Slot = T.access(Op);
  EXPECT_EQ(T.access(Op), Slot);
  Op.Memory->Displacement.In = 2;
  EXPECT_NE(T.access(Op), Slot);
  Op.Memory->Displacement.In = 1;
  Op.Memory->Scale = 4;
  EXPECT_NE(T.access(Op), Slot);
  // The largest numbers that offsets and regions have.
  Op.Memory->Displacement = {~0u, INT64_MIN};
  EXPECT_NE(T.access(Op), Slot);
  EXPECT_EQ(T.numSlots(), 4u);
}

TEST(ValueTrackerTest, CallsLoseRegistersAndCalleesGetThem) {
  ValueTracker T(Clobbered);
  T.beginBlock(/*IsEntry=*/true);
  unsigned OfA = T.access(load(A, 0, C)), OfB = T.access(load(B, 0, C));
  T.access(call());
  EXPECT_NE(T.access(load(A, 0, C)), OfA);
  EXPECT_EQ(T.access(load(B, 0, C)), OfB);
  T.access(write(B));
  T.endBlock(/*HasReturn=*/false);

  // The callee: what registers were at the call.
  T.beginBlock(/*IsEntry=*/true);
  EXPECT_EQ(T.access(load(A, 0, C)), OfA);
  EXPECT_EQ(T.access(load(B, 0, C)), OfB);
  T.access(write(B));
  T.endBlock(/*HasReturn=*/true);

  // Back in the caller: what they were at the end of its block.
  T.beginBlock(/*IsEntry=*/false);
  EXPECT_NE(T.access(load(A, 0, C)), OfA);
  EXPECT_NE(T.access(load(B, 0, C)), OfB);
}

TEST(ValueTrackerTest, NothingIsKnownAfterAReturnToUnknownCode) {
  ValueTracker T(Clobbered);
  T.beginBlock(true);
  unsigned Slot = T.access(load(B, 0, C));
  T.endBlock(true);
  T.beginBlock(false);
  EXPECT_NE(T.access(load(B, 0, C)), Slot);
}

} // namespace
