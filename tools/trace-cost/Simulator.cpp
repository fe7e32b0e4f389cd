//===- Simulator.cpp - Cycles of a sequence of blocks ---------------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Simulator.h"
#include "AccessMatching.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/MCA/HWEventListener.h"
#include "llvm/MCA/HardwareUnits/LSUnit.h"
#include "llvm/MCA/HardwareUnits/RegisterFile.h"
#include "llvm/MCA/HardwareUnits/RetireControlUnit.h"
#include "llvm/MCA/HardwareUnits/Scheduler.h"
#include "llvm/MCA/IncrementalSourceMgr.h"
#include "llvm/MCA/Pipeline.h"
#include "llvm/MCA/Stages/DispatchStage.h"
#include "llvm/MCA/Stages/EntryStage.h"
#include "llvm/MCA/Stages/ExecuteStage.h"
#include "llvm/MCA/Stages/RetireStage.h"

using namespace llvm;
using namespace llvm::tracecost;

namespace {

/// Notes when instructions retire.
class RetirementListener : public mca::HWEventListener {
public:
  /// The cycle in which instruction \p Index retired.
  unsigned retiredAt(unsigned Index) const { return Cycles[Index]; }

  void onCycleBegin() override { ++Cycle; }
  void onEvent(const mca::HWInstructionEvent &Event) override {
    if (Event.Type != mca::HWInstructionEvent::Retired)
      return;
    unsigned Index = Event.IR.getSourceIndex();
    if (Index >= Cycles.size())
      Cycles.resize(Index + 1);
    Cycles[Index] = Cycle;
  }

private:
  unsigned Cycle = 0;
  SmallVector<unsigned, 256> Cycles;
};

} // namespace

Simulator::Simulator(const Program &Code, ModelParts Parts, Scoreboard Board)
    : Code(Code), Model(Code.model()), Parts(Parts), Board(std::move(Board)),
      Instruments(Model.subtarget(), Model.instructions()),
      Builder(Model.subtarget(), Model.instructions(), Model.registers(),
              Model.analysis(), Instruments, /*CallLatency=*/1),
      PostProcess(Model.target().createInstrPostProcess(Model.subtarget(),
                                                        Model.instructions())) {
  if (!PostProcess)
    PostProcess = std::make_unique<mca::InstrPostProcess>(Model.subtarget(),
                                                          Model.instructions());
}

Expected<std::unique_ptr<Simulator>> Simulator::create(const Program &Code,
                                                       const CPUParameters &CPU,
                                                       ModelParts Parts) {
  Expected<Scoreboard> Board = Scoreboard::create(Code.model(), CPU, Parts);
  if (!Board)
    return Board.takeError();
  return std::unique_ptr<Simulator>(
      new Simulator(Code, Parts, std::move(*Board)));
}

Error Simulator::append(SimBlock &Block, const DecodedInst &D, bool HasFrame) {
  const MCInstrDesc &Desc = Model.desc(D.Inst);
  std::optional<Replacement> Call = Model.replaceCall(D.Inst);
  for (const MCInst &MI :
       Call ? ArrayRef<MCInst>(Call->Insts) : ArrayRef<MCInst>(D.Inst)) {
    Expected<Operation::UniqueInst> I = Builder.createInstruction(MI, {});
    if (!I)
      return I.takeError();
    PostProcess->postProcessInstruction(**I, MI);
    Operation &Op = Block.Operations.emplace_back();
    Op.Address = D.Address;
    Op.Timed = Board.describe(**I, MI);
    Op.Inst = std::move(*I);
    DecodedInst Own = D;
    Own.Inst = MI;
    // The return address that a call pushes is no value of the caller.
    if (!Call || MI.getOpcode() == Call->Insts.back().getOpcode())
      Op.Flow.Memory = Model.memory(Own, HasFrame);
    Op.Flow.Loads = Op.Timed.LoadLatency;
    Op.Flow.Stores = Op.Timed.Stores;
    // The stack is in the first-level cache. The profile would say otherwise: a
    // reload has the source line of the instruction that it was inserted
    // before.
    Op.CanMiss = Model.desc(MI).mayLoad() && Model.memoryOperand(MI) &&
                 !Model.accessesStack(MI, HasFrame);
  }
  Operation &First =
      Block.Operations.end()[Call ? -int(Call->Insts.size()) : -1];
  Operation &Last = Block.Operations.back();
  if (Call) {
    First.Flow.IsCall = Call->IsCall;
    Last.IsIndirectCall = Call->IsIndirect;
    return Error::success();
  }
  First.Flow.Effect = Model.values(D.Inst);
  for (const mca::WriteState &W : First.Inst->getDefs())
    if (GPR Reg = Model.number(W.getRegisterID()); Reg != NoGPR)
      First.Flow.Written.push_back(Reg);
  Last.IsConditionalBranch = Desc.isConditionalBranch();
  Last.IsIndirectJump = Desc.isIndirectBranch();
  return Error::success();
}

SimBlock Simulator::prepare(const CodeBlock &Block, bool HasFrame,
                            double Skipped) {
  SimBlock Result;
  Result.Code = &Block;
  Result.Exits = middleExits(Code, Block);
  const MCInst *Previous = nullptr;
  std::optional<uint64_t> Line;
  std::vector<DecodedInst> Decoded = Code.decode(Block);
  for (const DecodedInst &D : Decoded) {
    if (Result.OperationsTo.size() != Result.Exits.size() &&
        Result.Exits[Result.OperationsTo.size()].Executed ==
            Result.NumInstructions)
      Result.OperationsTo.push_back(Result.Operations.size());
    ++Result.NumInstructions;
    Result.HasCall |= D.Valid && Model.desc(D.Inst).isCall();
    Result.EndsWithJump = D.Valid && Model.desc(D.Inst).isUnconditionalBranch();
    unsigned First = Result.Operations.size();
    if (!D.Valid) {
      Result.Unsupported.push_back("(undecodable)");
      continue;
    }
    if (Error E = append(Result, D, HasFrame)) {
      consumeError(std::move(E));
      Result.Operations.resize(First);
      Result.Unsupported.push_back(Model.name(D.Inst).str());
      continue;
    }
    if (First && Previous && Parts.has(ModelPart::Renaming) &&
        Model.isFused(*Previous, D.Inst))
      fuse(Result.Operations[First - 1].Timed, Result.Operations[First].Timed);
    Previous = &D.Inst;
    Result.Operations[First].Size = D.Size;
    if (Line != D.Address / CacheLine) {
      Line = D.Address / CacheLine;
      Result.Operations[First].StartsLine = true;
    }
  }
  unsigned NumLoads = 0;
  for (Operation &Op : Result.Operations) {
    Op.TracedOffset = Op.Address - Block.Address;
    if (Op.CanMiss)
      Op.LoadNumber = NumLoads++;
  }
  Result.LikelyOperations = Result.Operations.size();
  if (!Result.Exits.empty() &&
      2 * Skipped > Result.NumInstructions - Result.Exits[0].Executed)
    Result.LikelyOperations = Result.OperationsTo[0];
  return Result;
}

void Simulator::matchAccesses(SimBlock &Block, bool HasFrame,
                              ArrayRef<uint8_t> Original,
                              bool OriginalHasFrame) const {
  std::vector<AccessSite> Own = memoryAccesses(Model, Code.decode(*Block.Code),
                                               HasFrame),
                          Others = memoryAccesses(
                              Model, Model.decodeAll(Original, /*Address=*/0),
                              OriginalHasFrame);
  // The numbers of the original's loads, and of its other accesses none.
  std::vector<std::optional<unsigned>> Numbers(Others.size());
  unsigned NumLoads = 0;
  for (auto [A, Number] : zip(Others, Numbers))
    if (A.Loads && !A.IsStack)
      Number = NumLoads++;
  std::vector<std::optional<unsigned>> Matches =
      tracecost::matchAccesses(Own, Others);
  Block.IsMatched = true;
  size_t Next = 0;
  for (Operation &Op : Block.Operations) {
    unsigned Offset = Op.Address - Block.Code->Address;
    while (Next != Own.size() && Own[Next].Offset < Offset)
      ++Next;
    std::optional<unsigned> Match;
    if (Next != Own.size() && Own[Next].Offset == Offset)
      Match = Matches[Next];
    Op.TracedOffset.reset();
    if (Match)
      Op.TracedOffset = Others[*Match].Offset;
    if (Op.CanMiss)
      Op.LoadNumber = Match && Numbers[*Match] ? *Numbers[*Match] : NumLoads++;
  }
}

/// The operations of \p Block that are executed before \p Next, which is null
/// if it is unknown.
static ArrayRef<Operation> executed(const SimBlock &Block,
                                    const SimBlock *Next) {
  ArrayRef<Operation> All = Block.Operations;
  if (Block.Exits.empty())
    return All;
  if (Next) {
    if (const MiddleExit *Exit = exitTo(Block.Exits, *Next->Code))
      return All.take_front(Block.OperationsTo[Exit - Block.Exits.begin()]);
    // The next block may belong to a function that the block calls.
    if (!Block.HasCall ||
        (Next->Code->Function == Block.Code->Function && !Next->Code->IsEntry))
      return All;
  }
  return All.take_front(Block.LikelyOperations);
}

/// Whether \p Next lies right behind \p Block in the same function.
static bool isBehind(const CodeBlock &Next, const CodeBlock &Block) {
  return Next.Function == Block.Function && Next.In == Block.In &&
         Next.Address == Block.Address + Block.Bytes.size();
}

/// Whether \p Op is the instruction of which \p A tells.
static bool isOf(const TracedAccess &A, const Operation &Op) {
  return A.Offset == Op.TracedOffset &&
         (A.Stores ? Op.Flow.Stores : Op.Flow.Loads);
}

/// What \p Op accessed in an execution of its block; null if unknown.
static const TracedAccess *recorded(const Operation &Op,
                                    ArrayRef<TracedAccess> Accesses) {
  for (const TracedAccess &A : Accesses)
    if (isOf(A, Op))
      return &A;
  return nullptr;
}

/// Whether \p Accesses may be of the code of \p Block, where the traced code is
/// unknown: each is of one of its instructions.
static bool fit(ArrayRef<TracedAccess> Accesses, const SimBlock &Block) {
  return Block.IsMatched || all_of(Accesses, [&](const TracedAccess &A) {
           return any_of(Block.Operations,
                         [&](const Operation &Op) { return isOf(A, Op); });
         });
}

SimWindow Simulator::window(ArrayRef<const SimBlock *> Blocks,
                            ArrayRef<ArrayRef<TracedAccess>> Accesses) const {
  SimWindow Result;
  ValueTracker Values(Model.callClobbered());
  AddressedStores Addressed;
  // Whether the addresses of operations are recorded.
  BitVector IsRecorded;
  for (auto [Index, Block] : enumerate(Blocks)) {
    const SimBlock *Next =
        Index + 1 != Blocks.size() ? Blocks[Index + 1] : nullptr;
    ArrayRef<Operation> Operations = executed(*Block, Next);
    ArrayRef<TracedAccess> Own;
    if (!Accesses.empty() && fit(Accesses[Index], *Block))
      Own = Accesses[Index];
    Values.beginBlock(Block->Code->IsEntry);
    for (const Operation &Op : Operations) {
      StreamEntry &Entry = Result.Stream.emplace_back();
      Entry.Inst = &Op.Timed;
      Entry.Size = Op.Size;
      unsigned Number = Result.Stream.size() - 1;
      Dependence Memory = Values.access(Op.Flow, Number);
      IsRecorded.push_back(false);
      if (!Op.Flow.Memory)
        continue;
      if (const TracedAccess *A = recorded(Op, Own)) {
        unsigned Size = Op.Flow.Memory->Size;
        // Symbols tell of stores whose address was not recorded, and of spills
        // and reloads, whatever they were taken for.
        if (Op.Flow.Loads)
          if (Dependence Found = Addressed.find(A->Address, Size);
              Found.Store > Memory.Store ||
              (Memory.Store && IsRecorded[Memory.Store - 1] &&
               !Op.Flow.Memory->IsStack))
            Memory = Found;
        if (Op.Flow.Loads && Parts.has(ModelPart::Aliasing4K))
          if (unsigned Alias = Addressed.findAlias(A->Address, Size);
              Alias > Memory.Store)
            Entry.Alias = Alias;
        if (Op.Flow.Stores)
          Addressed.add(A->Address, Size, Number);
        IsRecorded.set(Number);
      }
      Entry.OnStack = Op.Flow.Memory->IsStack;
      if (!Parts.has(Entry.OnStack ? ModelPart::StackSlots
                                   : ModelPart::OtherStores))
        continue;
      Entry.Store = Memory.Store;
      Entry.FailsToForward =
          Memory.IsPartial && Parts.has(ModelPart::FailedForwarding);
    }
    Values.endBlock(Block->Code->Flags.HasReturn);
    // Addresses tell what lies behind a block only within a section of a
    // function: the linker orders sections.
    if (Next && !Result.Stream.empty())
      Result.Stream.back().Jumps |=
          Operations.size() != Block->Operations.size() ||
          Block->EndsWithJump || !isBehind(*Next->Code, *Block->Code);
    Result.Ends.push_back(Result.Stream.size());
  }
  return Result;
}

Expected<unsigned>
Simulator::plainCycles(ArrayRef<const SimBlock *> Blocks) const {
  mca::IncrementalSourceMgr Source;
  unsigned NumContext = 0, Last = 0;
  for (auto [Index, Block] : enumerate(Blocks)) {
    NumContext = Last;
    ArrayRef<Operation> Operations = executed(
        *Block, Index + 1 != Blocks.size() ? Blocks[Index + 1] : nullptr);
    for (const Operation &Op : Operations)
      Source.addInst(std::make_unique<mca::Instruction>(*Op.Inst));
    Last += Operations.size();
  }
  Source.endOfStream();
  if (Last == NumContext)
    return 0;

  const MCSchedModel &SM = Model.schedModel();
  mca::RetireControlUnit RCU(SM);
  mca::RegisterFile PRF(SM, Model.registers(), 0);
  mca::LSUnit LSU(SM, 0, 0, /*AssumeNoAlias=*/true);
  mca::Scheduler HWS(SM, LSU);
  RetirementListener Retirement;
  mca::Pipeline Pipeline;
  Pipeline.appendStage(std::make_unique<mca::EntryStage>(Source));
  Pipeline.appendStage(std::make_unique<mca::DispatchStage>(
      Model.subtarget(), Model.registers(), /*MaxDispatchWidth=*/0, RCU, PRF));
  Pipeline.appendStage(std::make_unique<mca::ExecuteStage>(
      HWS, /*ShouldPerformBottleneckAnalysis=*/false));
  Pipeline.appendStage(std::make_unique<mca::RetireStage>(RCU, PRF, LSU));
  Pipeline.addEventListener(&Retirement);
  if (Expected<unsigned> Cycles = Pipeline.run(); !Cycles)
    return Cycles.takeError();
  return Retirement.retiredAt(Last - 1) -
         (NumContext ? Retirement.retiredAt(NumContext - 1) : 0);
}
