//===- ValueTracker.cpp - Which accesses are of one address ---------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ValueTracker.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace llvm;
using namespace llvm::tracecost;

/// Older stores of an area are in the cache: no core has a larger store buffer.
static constexpr unsigned StoreBuffer = 128;
static constexpr unsigned LineSize = 64, PageSize = 4096;

void StoreQueue::add(uint64_t Offset, unsigned Size, unsigned Index) {
  if (Stores.size() == StoreBuffer)
    Stores.erase(Stores.begin(), Stores.begin() + StoreBuffer / 2);
  Stores.push_back({Offset, Size, Index});
}

Dependence StoreQueue::find(uint64_t Offset, unsigned Size) const {
  for (const Store &S : reverse(Stores)) {
    // Offsets wrap around, as addresses do.
    uint64_t Behind = Offset - S.Offset, Before = S.Offset - Offset;
    if (Behind >= S.Size && Before >= Size)
      continue;
    return {S.Index + 1, Behind >= S.Size || Behind + Size > S.Size};
  }
  return {};
}

void AddressedStores::add(StoresByLine &Lines, uint64_t Address, unsigned Size,
                          unsigned Index) {
  uint64_t First = Address / LineSize, Last = (Address + Size - 1) / LineSize;
  Lines[First].add(Address, Size, Index);
  if (Last != First)
    Lines[Last].add(Address, Size, Index);
}

Dependence AddressedStores::find(const StoresByLine &Lines, uint64_t Address,
                                 unsigned Size) {
  Dependence Youngest;
  for (uint64_t Byte : {Address, Address + Size - 1}) {
    auto It = Lines.find(Byte / LineSize);
    if (It == Lines.end())
      continue;
    Dependence Found = It->second.find(Address, Size);
    if (Found.Store > Youngest.Store)
      Youngest = Found;
  }
  return Youngest;
}

void AddressedStores::add(uint64_t Address, unsigned Size, unsigned Index) {
  add(Lines, Address, Size, Index);
  add(InPage, Address % PageSize, Size, Index);
}

Dependence AddressedStores::find(uint64_t Address, unsigned Size) const {
  return find(Lines, Address, Size);
}

unsigned AddressedStores::findAlias(uint64_t Address, unsigned Size) const {
  unsigned Store = find(InPage, Address % PageSize, Size).Store;
  return Store > find(Address, Size).Store ? Store : 0;
}

Dependence ValueTracker::access(const DataFlow &Op, unsigned Index) {
  const ValueEffect &Effect = Op.Effect;
  Dependence Result;
  Symbol *Value = nullptr;
  if (Op.Memory) {
    auto [In, Offset] = locate(*Op.Memory);
    if (Op.Loads)
      Result = In.Stores.find(Offset, Op.Memory->Size);
    if (Op.Stores)
      In.Stores.add(Offset, Op.Memory->Size, Index);
    auto [It, Inserted] = In.Values.try_emplace(Offset);
    if (Inserted)
      It->second = unknown();
    Value = &It->second;
  }
  bool Moves = Effect.To != NoGPR && Effect.From != NoGPR;
  // The value that a load finds is older than what it writes.
  Symbol Moved;
  if (Moves) {
    Moved = Registers[Effect.From];
    Moved.Offset += Effect.Amount;
  }
  for (GPR Reg : Op.Written)
    Registers[Reg] = unknown();
  if (Moves)
    Registers[Effect.To] = Moved;
  if (Value && Op.Stores)
    *Value = Effect.Value == NoGPR ? unknown() : Registers[Effect.Value];
  else if (Value && Effect.Value != NoGPR)
    Registers[Effect.Value] = *Value;
  if (Op.IsCall) {
    Calls.push_back(Registers);
    for (GPR Reg : CallClobbered)
      Registers[Reg] = unknown();
  }
  return Result;
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

std::pair<ValueTracker::Area &, uint64_t>
ValueTracker::locate(const MemoryPlace &Place) {
  Symbol Base = Place.Base == NoGPR ? Symbol() : Registers[Place.Base];
  Symbol Index = Place.Index == NoGPR ? Symbol() : Registers[Place.Index];
  uint64_t RegionAndScale = uint64_t(Place.Displacement.In) << 8;
  if (Index.Name)
    RegionAndScale |= Place.Scale;
  uint64_t Offset = uint64_t(Base.Offset) +
                    uint64_t(Place.Displacement.Offset) +
                    Place.Scale * uint64_t(Index.Offset);
  return {Areas[{Base.Name, Index.Name, RegionAndScale}], Offset};
}
