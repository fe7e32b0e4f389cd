//===- Scoreboard.cpp - A fast model of an out-of-order core --------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Scoreboard.h"
#include "CoreResources.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/MCA/Support.h"

using namespace llvm;
using namespace llvm::tracecost;

/// The most cycles that the front end runs ahead.
static constexpr unsigned FetchQueueCycles = 16;

Expected<Scoreboard> Scoreboard::create(const TargetModel &Model,
                                        const CPUParameters &CPU,
                                        ModelParts Parts) {
  Scoreboard Result(Model, CPU, Parts);
  const MCSchedModel &SM = Model.schedModel();
  Result.DispatchWidth =
      Parts.has(ModelPart::DispatchWidth) ? CPU.DispatchWidth : SM.IssueWidth;
  Result.ReorderBuffer = SM.MicroOpBufferSize;
  SmallVector<uint64_t, 64> Masks(SM.getNumProcResourceKinds());
  mca::computeProcResourceMasks(SM, Masks);
  Result.PortsOfBit.resize(64);
  Result.BufferOfBit.resize(64);
  unsigned NumPorts = 0;
  for (unsigned I = 1, E = SM.getNumProcResourceKinds(); I != E; ++I) {
    const MCProcResourceDesc &Resource = *SM.getProcResource(I);
    unsigned Bit = mca::getResourceStateIndex(Masks[I]);
    if (Resource.BufferSize > 1) {
      Result.BufferOfBit[Bit] = Result.BufferSizes.size();
      Result.BufferSizes.push_back(Resource.BufferSize);
    }
    if (Resource.SubUnitsIdxBegin)
      continue;
    if (NumPorts + Resource.NumUnits > 64)
      return createStringError("LLVM's scheduling model of '" + CPU.SchedModel +
                               "' has more than 64 ports; name a similar CPU "
                               "as \"mcpu\"");
    Result.PortsOfBit[Bit] = maskTrailingOnes<uint64_t>(Resource.NumUnits)
                             << NumPorts;
    NumPorts += Resource.NumUnits;
  }
  return std::move(Result);
}

bool Scoreboard::isEliminated(const MCInst &MI) const {
  switch (Model.renamerOperation(MI)) {
  case RenamerOperation::None:
    return false;
  case RenamerOperation::Move:
    return CPU.MoveElimination;
  case RenamerOperation::VectorMove:
    return true;
  case RenamerOperation::ImmediateAddition:
    return CPU.ImmediateAddition;
  }
  llvm_unreachable("all operations are handled above");
}

unsigned Scoreboard::forwardLatency(bool OnStack) const {
  if (OnStack)
    return CPU.StoreForwardLatency;
  return CPU.OtherForwardLatency.value_or(
      std::max(CPU.StoreForwardLatency, Model.schedModel().LoadLatency));
}

TimedInst Scoreboard::describe(const mca::Instruction &I,
                               const MCInst &MI) const {
  TimedInst Result;
  const mca::InstrDesc &Desc = I.getDesc();
  const MCSchedModel &SM = Model.schedModel();
  Result.Latency = Desc.MaxLatency;
  Result.MicroOps = Desc.NumMicroOps;
  Result.Stores = I.getMayStore();
  if (I.getMayLoad())
    Result.LoadLatency = SM.LoadLatency;

  bool Renames = Parts.has(ModelPart::Renaming);
  bool IsZero = Renames && Model.isZeroIdiom(MI);
  bool IsEliminated = Renames && isEliminated(MI);
  std::optional<unsigned> Memory = Model.memoryOperand(MI);
  for (const mca::ReadState &R : I.getUses()) {
    if (!R.getRegisterID() || R.isIndependentFromDef() || IsZero)
      continue;
    const MCSchedClassDesc *SC =
        SM.getSchedClassDesc(R.getDescriptor().SchedClassID);
    int Advance = Model.subtarget().getReadAdvanceCycles(
        SC, R.getDescriptor().UseIndex, 0);
    bool IsAddress = !Result.LoadLatency;
    // The address depends on the stack pointer of a pop, and on the registers
    // of the memory operand.
    if (Result.LoadLatency && Advance <= 0)
      IsAddress =
          !Memory ||
          any_of(seq(0u, Model.memoryOperandCount()), [&](unsigned K) {
            const MCOperand &Operand = MI.getOperand(*Memory + K);
            return Operand.isReg() && Operand.getReg() == R.getRegisterID();
          });
    for (MCRegUnit Unit : Model.registers().regunits(R.getRegisterID()))
      Result.Reads.push_back({uint16_t(Unit), int8_t(Advance), IsAddress});
  }
  for (const mca::WriteState &W : I.getDefs()) {
    if (!W.getRegisterID())
      continue;
    unsigned Latency = IsZero || IsEliminated || W.isWriteZero()
                           ? 0
                           : std::max(0u, unsigned(W.getLatency()));
    for (MCRegUnit Unit : Model.registers().regunits(W.getRegisterID()))
      Result.Writes.push_back({uint16_t(Unit), uint16_t(Latency)});
  }
  if (IsZero || IsEliminated) {
    Result.Latency = 0;
    return Result;
  }
  for (const auto &[Mask, Usage] : Desc.Resources) {
    uint64_t Units = Mask;
    bool IsGroup = popcount(Mask) > 1;
    if (IsGroup)
      Units ^= bit_floor(Mask);
    uint64_t Ports = 0;
    for (; Units; Units &= Units - 1)
      Ports |= PortsOfBit[countr_zero(Units)];
    if (!Ports)
      continue;
    // Each cycle of a group of ports is a micro-operation of its own.
    if (IsGroup)
      Result.Ports.append(Usage.size(), {Ports, 1});
    else
      Result.Ports.push_back({Ports, Usage.size()});
  }
  for (uint64_t Bits = Desc.UsedBuffers; Bits; Bits &= Bits - 1)
    if (std::optional<uint8_t> Buffer = BufferOfBit[countr_zero(Bits)])
      Result.Buffers.push_back(*Buffer);
  if (!Renames)
    return Result;
  // Scheduling models count what ports execute, not what is dispatched.
  Result.MicroOps = Model.dispatchedMicroOps(MI, Result.MicroOps);
  return Result;
}

void tracecost::fuse(TimedInst &Comparison, TimedInst &Branch) {
  // One operation on the branch's port, with the latency of the comparison.
  Branch.MicroOps = 0;
  Branch.Latency = 0;
  if (!Comparison.LoadLatency) {
    Comparison.Ports.clear();
    Comparison.Buffers.clear();
  }
}

std::vector<unsigned> Scoreboard::finish(ArrayRef<StreamEntry> Stream,
                                         ArrayRef<unsigned> Ends,
                                         const WindowEvents &Events,
                                         BitVector *Blocked) const {
  std::vector<unsigned> Finished(Ends.size());
  // The index of the next of Ends. Blocks may be empty.
  unsigned Next = 0;
  while (Next != Ends.size() && !Ends[Next])
    ++Next;
  SmallVector<unsigned, 0> Ready(Model.registers().getNumRegUnits());
  // By index: when a store knows address and value, and when it retires.
  SmallVector<unsigned, 0> Stored(Stream.size()), StoreRetired(Stream.size());
  // The reorder buffer: when each of the last micro-operations retires.
  SmallVector<unsigned, 0> RetiredAt(PowerOf2Ceil(ReorderBuffer));
  const unsigned Mask = RetiredAt.size() - 1;
  const unsigned LoadLatency = Model.schedModel().LoadLatency;
  PortTable Ports;
  std::vector<EntryPool> Stations;
  for (unsigned Size : BufferSizes)
    Stations.emplace_back(Size);
  // The miss status holding registers.
  EntryPool Misses(Parts.has(ModelPart::OutstandingMisses) &&
                           CPU.OutstandingMisses
                       ? CPU.OutstandingMisses
                       : ~0u);
  // The cycle of dispatch, and how many micro-operations it has already.
  unsigned Dispatch = 0, Dispatched = 0;
  // When the front end delivers what comes next.
  unsigned Front = 0;
  // When it fetches the present stretch of code; it runs ahead by a queue. The
  // bytes that are decoded in that cycle.
  unsigned Fetch = 0, Decoded = 0;
  auto Oldest = [&] { return Dispatch - std::min(Dispatch, FetchQueueCycles); };
  unsigned Retired = 0;
  uint64_t MicroOps = 0;
  for (auto [Index, Entry] : enumerate(Stream)) {
    const TimedInst &I = *Entry.Inst;
    unsigned Penalty =
        (Events.FetchMiss[Index] ? CPU.ICacheMissPenalty : 0) +
        (Events.TranslationMiss[Index] ? CPU.ITLBMissPenalty : 0);
    if (Penalty)
      Front = std::max(Front, Dispatch) + Penalty;
    // In a cycle, the decoders take so many bytes of code at most.
    if (Events.Decode[Index] && Entry.Size) {
      unsigned Begin = std::max(Fetch, Penalty ? Front : Oldest());
      Decoded = (Begin == Fetch ? Decoded : 0) + Entry.Size;
      unsigned More = (Decoded - 1) / CPU.FetchBytes;
      Decoded -= More * CPU.FetchBytes;
      Fetch = Begin + More;
      Front = std::max(Front, Fetch);
    }
    unsigned Earliest = Front;
    if (I.MicroOps && MicroOps + I.MicroOps > ReorderBuffer)
      Earliest = std::max(
          Earliest,
          RetiredAt[(MicroOps + I.MicroOps - 1 - ReorderBuffer) & Mask]);
    for (uint8_t Buffer : I.Buffers)
      Earliest = Stations[Buffer].allocate(Earliest);
    if (Earliest > Dispatch) {
      Dispatch = Earliest;
      Dispatched = 0;
    }
    Dispatched += I.MicroOps;
    while (Dispatched > DispatchWidth) {
      Dispatched -= DispatchWidth;
      ++Dispatch;
    }

    // When the operands of the load's address are ready, and when the others
    // are. Without a load, Address stands for all of them.
    unsigned Address = Dispatch + 1, Others = 0;
    for (const TimedInst::Read &R : I.Reads) {
      int At = int(Ready[R.Unit]) - R.Advance;
      if (I.LoadLatency && !R.IsAddress)
        Others = std::max(Others, At > 0 ? unsigned(At) : 0);
      else
        Address = std::max(Address, At > 0 ? unsigned(At) : 0);
    }
    unsigned Issue = I.Ports.empty() ? Address : 0;
    // The operation on the loaded value may wait for other operands while the
    // load is executed. For simplicity, its ports are taken with the load's.
    for (const TimedInst::PortUse &Use : I.Ports)
      Issue = std::max(Issue, Ports.occupy(Use.Ports, Use.Cycles, Address));
    for (uint8_t Buffer : I.Buffers)
      Stations[Buffer].free(Issue);

    unsigned Done = std::max(Issue, Others) + I.Latency;
    if (I.LoadLatency) {
      unsigned Value = Issue + I.LoadLatency;
      if (Entry.Store && Entry.FailsToForward) {
        // It waits until the store is in the cache, where stores get in order
        // after they retire.
        unsigned InCache =
            StoreRetired[Entry.Store - 1] + CPU.FailedForwardLatency;
        if (Blocked && InCache > Value)
          Blocked->set(Index);
        Value = std::max(Value, InCache);
      } else if (Entry.Store) {
        // Where forwarding is faster than a load, the core recognises the pair
        // when it renames registers, and does not execute the load.
        unsigned Latency = forwardLatency(Entry.OnStack);
        unsigned Own =
            Latency < I.LoadLatency ? Dispatch + 1 : Issue + I.LoadLatency;
        Value = std::max(Own, Stored[Entry.Store - 1] + Latency);
      } else if (Events.Miss[Index]) {
        unsigned Start = Misses.allocate(Issue);
        Value = Start + std::max(CPU.MemoryLatency, I.LoadLatency);
        Misses.free(Value);
      } else if (Events.FirstLevelMiss[Index]) {
        Value = Issue + std::max(CPU.L2Latency, I.LoadLatency);
      }
      // By the lower bits of the address, the load would read what a store that
      // is not in the cache yet writes. It is issued again when the whole
      // address tells that it does not.
      if (Entry.Alias &&
          StoreRetired[Entry.Alias - 1] + CPU.FailedForwardLatency > Value)
        Value += CPU.Alias4KLatency;
      // Other operands that come late delay the result, but not the load.
      unsigned Base = Others ? std::max(Value, Others + I.LoadLatency) : Value;
      Done = Value;
      for (const TimedInst::Write &W : I.Writes) {
        unsigned Rest =
            W.Latency > I.LoadLatency ? W.Latency - I.LoadLatency : 0;
        Ready[W.Unit] = Base + Rest;
        Done = std::max(Done, Base + Rest);
      }
      Issue = Value;
    } else {
      for (const TimedInst::Write &W : I.Writes)
        Ready[W.Unit] = Issue + W.Latency;
    }
    if (I.Stores) {
      // The renamer knows the value from the registers, before it is stored.
      bool Renames = forwardLatency(Entry.OnStack) < LoadLatency;
      Stored[Index] = I.LoadLatency ? std::max(Issue, Others) + 1
                      : Renames     ? Address
                                    : Issue;
      // A store waits for its turn to retire, not for the cache.
      Done = std::max(Issue + 1, I.LoadLatency ? Done : 0);
    }
    Retired = std::max(Retired, Done);
    if (I.Stores)
      StoreRetired[Index] = Retired;
    for (unsigned K = 0; K != I.MicroOps; ++K)
      RetiredAt[MicroOps++ & Mask] = Retired + 1;
    // In a cycle, code is fetched up to the first taken branch at most.
    if (Entry.Jumps && Parts.has(ModelPart::TakenBranches)) {
      Fetch = std::max(Fetch, Oldest()) + 1;
      Decoded = 0;
      Front = std::max(Front, Fetch);
    }
    // A mispredicted branch lasts until the front end goes on.
    unsigned Here = Retired;
    if (Events.Mispredict[Index]) {
      Front = std::max(Front, Done + CPU.MispredictPenalty);
      Fetch = Front;
      Decoded = 0;
      Here = std::max(Here, Front);
    }
    for (; Next != Ends.size() && Ends[Next] == Index + 1; ++Next)
      Finished[Next] = Next ? std::max(Here, Finished[Next - 1]) : Here;
  }
  return Finished;
}
