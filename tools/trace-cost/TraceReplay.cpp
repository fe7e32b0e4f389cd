//===- TraceReplay.cpp - Count what a candidate executes ------------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TraceReplay.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;
using namespace llvm::tracecost;

Expected<TraceReplay> TraceReplay::create(const Program &Code,
                                          const BlockHistogram &Histogram,
                                          const Program *Traced,
                                          double MaxUnmapped) {
  TraceReplay Replay(Code, Histogram);
  // A module of the program that the run didn't execute costs nothing.
  if (none_of(Histogram.Functions, [&](const TracedFunction &F) {
        return !Code.functionsNamed(F.Name).empty();
      }))
    return createStringError("none of the functions of the traced program is "
                             "in the candidate; the trace is of another "
                             "program");
  Expected<BlockMapping> Mapping = mapBlocks(Code, Histogram, Traced);
  if (!Mapping)
    return Mapping.takeError();
  Replay.Mapping = std::move(*Mapping);
  Replay.countExecutions();

  const CostResult &R = Replay.Result;
  uint64_t Own = R.Executions + R.UnmappedExecutions;
  if (R.UnmappedExecutions > MaxUnmapped * Own ||
      (R.UnmappedExecutions && !R.Executions)) {
    std::string Message;
    raw_string_ostream OS(Message);
    OS << R.UnmappedExecutions << " of " << Own
       << " executions are of blocks that the candidate doesn't have";
    if (R.AmbiguousExecutions)
      OS << ", " << R.AmbiguousExecutions
         << " of them of functions whose name several functions of the "
            "candidate have; give each file once, and the traced binary by "
            "-traced";
    OS << "; the trace is of another build: record one with the same inlining, "
          "and compile with the flags that keep block ids";
    return createStringError(Message);
  }
  return std::move(Replay);
}

static bool hasCall(const Program &Code, const CodeBlock &Block) {
  return any_of(Code.decode(Block), [&](const DecodedInst &D) {
    return D.Valid && Code.model().desc(D.Inst).isCall();
  });
}

// The weights of LLVM's RegAllocScore.cpp.
static constexpr double CopyWeight = 0.2, LoadWeight = 4.0, StoreWeight = 1.0;

/// Weighs copies, and loads and stores of the stack. These are reloads, spills,
/// pushes and pops, and accesses of the function's own variables there, which
/// are the same for all allocations.
static double allocationScore(const Program &Code, const CodeBlock &Block,
                              bool HasFrame) {
  const TargetModel &Model = Code.model();
  double Score = 0;
  for (const DecodedInst &D : Code.decode(Block)) {
    if (!D.Valid)
      continue;
    RenamerOperation Operation = Model.renamerOperation(D.Inst);
    if (Operation == RenamerOperation::Move ||
        Operation == RenamerOperation::VectorMove)
      Score += CopyWeight;
    if (!Model.accessesStack(D.Inst, HasFrame))
      continue;
    const MCInstrDesc &Desc = Model.desc(D.Inst);
    Score +=
        (Desc.mayLoad() ? LoadWeight : 0) + (Desc.mayStore() ? StoreWeight : 0);
  }
  return Score;
}

void TraceReplay::countExecutions() {
  Result.Blocks.resize(Code.blocks().size());
  if (Mapping.Different)
    Result.DifferentExecutions = 0;
  std::vector<uint64_t> Executions(Histogram.Blocks.size());
  for (const Window &W : Histogram.Windows)
    Executions[W.Blocks.back()] += W.Count;
  for (auto [Index, Count] : enumerate(Executions)) {
    if (!Count)
      continue;
    unsigned Function = Histogram.Blocks[Index].Function;
    Match M = Mapping.Matches[Index];
    if (M == Match::Foreign) {
      Result.ForeignExecutions += Count;
      continue;
    }
    if (Mapping.Changed.count(Function)) {
      Result.ChangedFunctions.insert(Histogram.Functions[Function].Name);
      Result.ChangedExecutions += Count;
    }
    if (Mapping.Different && Mapping.Different->count(Index))
      *Result.DifferentExecutions += Count;
    if (M == Match::Mapped) {
      Result.Executions += Count;
      Result.Blocks[Mapping.Blocks[Index]].Executions += Count;
      continue;
    }
    ++Result.UnmappedBlocks;
    Result.UnmappedExecutions += Count;
    if (M == Match::Ambiguous)
      Result.AmbiguousExecutions += Count;
  }
  IsMapped.resize(Result.Blocks.size());
  for (unsigned Index = 0; Index != Histogram.Blocks.size(); ++Index)
    if (std::optional<unsigned> Own = Mapping.of(Index))
      IsMapped[*Own] = true;
  countAddedBlocks();
  countInstructions();
}

void TraceReplay::countInstructions() {
  double Instructions = 0, Allocation = 0;
  for (const CodeFunction &F : Code.functions()) {
    std::optional<bool> HasFrame;
    for (auto [Block, Cost] :
         zip(Code.blocks(F),
             MutableArrayRef(Result.Blocks).slice(F.FirstBlock, F.NumBlocks))) {
      if (!Cost.Executions)
        continue;
      if (!HasFrame)
        HasFrame = Code.hasFramePointer(F);
      Cost.Instructions = Code.decode(Block).size();
      Cost.Allocation = allocationScore(Code, Block, *HasFrame);
      Allocation += Cost.Executions * Cost.Allocation;
    }
  }
  countSkipped();
  for (const BlockCost &Block : Result.Blocks)
    Instructions += Block.executedInstructions();
  // A candidate that has lost blocks must not be cheaper for it.
  if (Result.Executions) {
    double Lost = double(Result.UnmappedExecutions) / Result.Executions;
    Result.UnmappedInstructions = Instructions * Lost;
    Result.UnmappedAllocation = Allocation * Lost;
  }
}

void TraceReplay::countAddedBlocks() {
  for (const CodeFunction &F : Code.functions()) {
    std::vector<std::optional<uint64_t>> Executions(F.NumBlocks);
    bool IsExecuted = false, HasAdded = false;
    for (auto [I, Count] : enumerate(Executions)) {
      HasAdded |= !IsMapped[F.FirstBlock + I];
      if (IsMapped[F.FirstBlock + I])
        Count = Result.Blocks[F.FirstBlock + I].Executions;
      IsExecuted |= Count.value_or(0) != 0;
    }
    if (!IsExecuted || !HasAdded)
      continue;
    completeExecutions(controlFlow(Code, F), Executions);
    for (auto [I, Count] : enumerate(Executions)) {
      if (IsMapped[F.FirstBlock + I])
        continue;
      ++(Count ? Result.AddedBlocks : Result.UnknownBlocks);
      Result.AddedExecutions += Count.value_or(0);
      Result.Blocks[F.FirstBlock + I].Executions = Count.value_or(0);
    }
  }
}

void TraceReplay::countSkipped() {
  for (const Window &W : Histogram.Windows) {
    if (W.Blocks.size() < 2)
      continue;
    std::optional<unsigned> From = Mapping.of(W.Blocks.end()[-2]),
                            To = Mapping.of(W.Blocks.back());
    if (From && To)
      Pairs[{*From, *To}] += W.Count;
  }
  for (const CodeFunction &F : Code.functions())
    countSkipped(F);
}

void TraceReplay::countSkipped(const CodeFunction &Function) {
  // Blocks with a jump in their middle are few.
  ArrayRef<CodeBlock> Blocks = Code.blocks(Function);
  std::vector<SmallVector<MiddleExit, 1>> Exits(Blocks.size());
  for (auto [I, Block] : enumerate(Blocks))
    if (Result.Blocks[Function.FirstBlock + I].Executions)
      Exits[I] = middleExits(Code, Block);
  if (all_of(Exits, [](const auto &Own) { return Own.empty(); }))
    return;
  std::vector<FlowBlock> Flow = controlFlow(Code, Function);
  std::vector<std::optional<uint64_t>> Edges = countEdges(Function, Flow);
  ArrayRef<std::optional<uint64_t>> Next = Edges;
  for (auto [I, Block] : enumerate(Flow)) {
    size_t NumSuccessors = Block.Successors.size();
    if (!Exits[I].empty())
      countSkipped(Function.FirstBlock + I, Exits[I], Block.Successors,
                   Next.take_front(NumSuccessors));
    Next = Next.drop_front(NumSuccessors);
  }
}

std::vector<std::optional<uint64_t>>
TraceReplay::countEdges(const CodeFunction &Function,
                        ArrayRef<FlowBlock> Flow) const {
  // The next block of the trace is a block's successor, unless the block calls
  // a traced function. Then the successor follows from the blocks around.
  std::vector<std::optional<uint64_t>> Executions, Edges;
  for (auto [I, Block] : enumerate(Flow)) {
    unsigned Index = Function.FirstBlock + I;
    Executions.push_back(Result.Blocks[Index].Executions);
    std::vector<uint64_t> Counts;
    for (unsigned To : Block.Successors) {
      auto It = Pairs.find({Index, Function.FirstBlock + To});
      Counts.push_back(It == Pairs.end() ? 0 : It->second);
    }
    bool IsTold =
        !Pairs.empty() && (!hasCall(Code, Code.blocks()[Index]) ||
                           sum_of(Counts, uint64_t(0)) == Executions.back());
    for (auto [To, Count] : zip(Block.Successors, Counts)) {
      Edges.emplace_back();
      if (IsTold && IsMapped[Function.FirstBlock + To])
        Edges.back() = Count;
    }
  }
  completeExecutions(Flow, Executions, Edges);
  return Edges;
}

void TraceReplay::countSkipped(unsigned Block, ArrayRef<MiddleExit> Exits,
                               ArrayRef<unsigned> Successors,
                               ArrayRef<std::optional<uint64_t>> Edges) {
  BlockCost &Cost = Result.Blocks[Block];
  const CodeFunction &Function =
      Code.functions()[Code.blocks()[Block].Function];
  ArrayRef<CodeBlock> Own = Code.blocks(Function);
  uint64_t Rest = Cost.Executions;
  auto Leave = [&](const MiddleExit *Exit, uint64_t Count) {
    Count = std::min(Count, Rest);
    Rest -= Count;
    if (Exit)
      Cost.Skipped += Count * (Cost.Instructions - Exit->Executed);
  };

  SmallVector<const MiddleExit *, 2> Unknown;
  bool EndsInFunction = false;
  for (auto [To, Count] : zip(Successors, Edges)) {
    const MiddleExit *Exit = exitTo(Exits, Own[To]);
    EndsInFunction |= !Exit;
    if (Count)
      Leave(Exit, *Count);
    else
      Unknown.push_back(Exit);
  }
  // Jumps to other functions.
  for (auto It = Pairs.lower_bound({Block, 0});
       It != Pairs.end() && It->first.first == Block; ++It)
    if (const CodeBlock &To = Code.blocks()[It->first.second];
        &Code.functions()[To.Function] != &Function)
      if (const MiddleExit *Exit = exitTo(Exits, To))
        Leave(Exit, It->second);
  // Edges of which nothing is known share the rest equally.
  for (auto [Place, Exit] : enumerate(Unknown))
    Leave(Exit, Rest / (Unknown.size() - Place));
  // Where the last jump of the block stays in the function, the executions that
  // are left have left it before, by a jump to another function.
  auto LeadsOut = [&](const MiddleExit &Exit) {
    return none_of(Successors,
                   [&](unsigned To) { return exitTo(Exit, Own[To]); });
  };
  if (auto Out = find_if(Exits, LeadsOut); EndsInFunction && Out != Exits.end())
    Leave(Out, Rest);
}
