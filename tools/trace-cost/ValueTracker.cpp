//===- ValueTracker.cpp - Which accesses are of one address ---------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ValueTracker.h"
#include <algorithm>

using namespace llvm;
using namespace llvm::tracecost;

unsigned ValueTracker::access(const DataFlow &Op) {
  unsigned Slot = Op.Memory ? slot(*Op.Memory) : 0;
  const ValueEffect &Effect = Op.Effect;
  bool Moves = Effect.To != NoGPR && Effect.From != NoGPR;
  // The value that a load finds is older than what it writes.
  Symbol Result;
  if (Moves) {
    Result = Registers[Effect.From];
    Result.Offset += Effect.Amount;
  }
  for (GPR Reg : Op.Written)
    Registers[Reg] = unknown();
  if (Moves)
    Registers[Effect.To] = Result;
  if (Slot && Op.Stores)
    Memory[Slot] = Effect.Value == NoGPR ? unknown() : Registers[Effect.Value];
  else if (Slot && Effect.Value != NoGPR)
    Registers[Effect.Value] = Memory[Slot];
  if (Op.IsCall) {
    Calls.push_back(Registers);
    for (GPR Reg : CallClobbered)
      Registers[Reg] = unknown();
  }
  return Slot;
}

void ValueTracker::beginBlock(bool IsEntry) {
  if (IsEntry && InCaller) {
    Frame &F = Frames.back();
    Registers = F.Calls[std::min<size_t>(F.NextCall++, F.Calls.size() - 1)];
    InCaller = false;
  }
  while (InCaller) {
    bool Returns = Frames.pop_back_val().Returns;
    InCaller = false;
    if (Returns)
      leaveFunction();
  }
}

void ValueTracker::endBlock(bool HasReturn) {
  if (!Calls.empty()) {
    Frames.push_back({Registers, std::move(Calls), 0, HasReturn});
    Calls.clear();
    InCaller = true;
  } else if (HasReturn) {
    leaveFunction();
  }
}

void ValueTracker::leaveFunction() {
  if (Frames.empty())
    return loseAll();
  Registers = Frames.back().After;
  InCaller = true;
}

unsigned ValueTracker::slot(const MemoryPlace &Place) {
  Symbol Base = Place.Base == NoGPR ? Symbol() : Registers[Place.Base];
  Symbol Index = Place.Index == NoGPR ? Symbol() : Registers[Place.Index];
  uint64_t RegionAndScale = uint64_t(Place.Displacement.In) << 8;
  if (Index.Name)
    RegionAndScale |= Place.Scale;
  // Offsets wrap around, as addresses do.
  uint64_t Offset = uint64_t(Base.Offset) +
                    uint64_t(Place.Displacement.Offset) +
                    Place.Scale * uint64_t(Index.Offset);
  auto [It, Inserted] = Slots.try_emplace(
      {Base.Name, Index.Name, RegionAndScale, int64_t(Offset)}, Memory.size());
  if (Inserted)
    Memory.push_back(unknown());
  return It->second;
}
