//===- ControlFlow.cpp - Which blocks follow one another ------------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ControlFlow.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <map>

using namespace llvm;
using namespace llvm::tracecost;

std::vector<FlowBlock> tracecost::controlFlow(const Program &Code,
                                              const CodeFunction &Function) {
  const TargetModel &Model = Code.model();
  ArrayRef<CodeBlock> Blocks = Code.blocks(Function);
  std::vector<FlowBlock> Flow(Blocks.size());
  // A jump to an address with empty blocks goes through all of them, except for
  // those at the end of a range.
  std::map<std::pair<Region, uint64_t>, unsigned> ByAddress;
  bool HasCodeBehind = true;
  for (unsigned B = Blocks.size(); B--;) {
    const CodeBlock &Block = Blocks[B];
    HasCodeBehind &= !Block.EndsRange;
    HasCodeBehind |= !Block.Bytes.empty();
    if (HasCodeBehind)
      ByAddress[{Block.In, Block.Address}] = B;
  }

  bool HasIndirectBranch = false;
  for (auto [B, Block] : enumerate(Blocks)) {
    FlowBlock &F = Flow[B];
    F.OnlyEnteredByEdges = !Block.IsEntry && !Block.Flags.IsEHPad;
    F.OnlyLeftByEdges = !Block.Flags.HasReturn && !Block.Flags.HasTailCall;
    auto AddSuccessor = [&, &F = F](unsigned To) {
      if (!is_contained(F.Successors, To))
        F.Successors.push_back(To);
    };
    auto AddPlace = [&, &F = F](std::optional<RegionOffset> To) {
      auto It = To ? ByAddress.find({To->In, To->Offset}) : ByAddress.end();
      if (It != ByAddress.end())
        AddSuccessor(It->second);
      else
        F.OnlyLeftByEdges = false;
    };
    bool EndsWithJump = false;
    for (const DecodedInst &D : Code.decode(Block)) {
      EndsWithJump = D.Valid && Model.desc(D.Inst).isUnconditionalBranch();
      if (D.Valid && Model.desc(D.Inst).isBranch())
        AddPlace(Code.jumpTarget(D, Block));
    }
    // A jump to the next block of the map counts as falling through. At the end
    // of a range, the next block is elsewhere. Control then reaches what lies
    // behind only if the linker has removed the jump.
    bool FallsThrough = Block.Flags.CanFallThrough && !EndsWithJump;
    if (FallsThrough && !Block.EndsRange)
      AddSuccessor(B + 1);
    else if (FallsThrough)
      AddPlace(
          RegionOffset{Block.In, int64_t(Block.Address + Block.Bytes.size())});
    HasIndirectBranch |= Block.Flags.HasIndirectBranch;
  }
  // Indirect branches lead anywhere.
  if (HasIndirectBranch)
    for (FlowBlock &F : Flow)
      F.OnlyEnteredByEdges = false;
  return Flow;
}

SmallVector<MiddleExit, 1> tracecost::middleExits(const Program &Code,
                                                  const CodeBlock &Block) {
  SmallVector<MiddleExit, 1> Result;
  std::vector<DecodedInst> Insts = Code.decode(Block);
  for (auto [I, D] : enumerate(Insts)) {
    if (I + 1 == Insts.size())
      break;
    if (std::optional<RegionOffset> To = Code.jumpTarget(D, Block))
      Result.push_back({*To, unsigned(I + 1)});
  }
  return Result;
}

const MiddleExit *tracecost::exitTo(ArrayRef<MiddleExit> Exits,
                                    const CodeBlock &Next) {
  auto It = llvm::find_if(Exits, [&](const MiddleExit &Exit) {
    return Exit.To.In == Next.In && uint64_t(Exit.To.Offset) == Next.Address;
  });
  return It == Exits.end() ? nullptr : It;
}

namespace {

/// All edges that enter a block, or all that leave it.
struct FlowSide {
  unsigned Block;
  SmallVector<unsigned, 2> Edges;
};

} // namespace

void tracecost::completeExecutions(
    ArrayRef<FlowBlock> Flow,
    MutableArrayRef<std::optional<uint64_t>> Executions,
    MutableArrayRef<std::optional<uint64_t>> Edges) {
  std::vector<FlowSide> Entering(Flow.size()), Leaving(Flow.size());
  unsigned NumEdges = 0;
  for (auto [B, Block] : enumerate(Flow))
    for (unsigned To : Block.Successors) {
      Leaving[B].Edges.push_back(NumEdges);
      Entering[To].Edges.push_back(NumEdges);
      ++NumEdges;
    }
  assert(Edges.size() == NumEdges && "an edge for each successor");
  std::vector<FlowSide> Sides;
  for (auto [B, Block] : enumerate(Flow)) {
    Entering[B].Block = Leaving[B].Block = B;
    if (Block.OnlyEnteredByEdges)
      Sides.push_back(std::move(Entering[B]));
    // A block without successors may end with a call that doesn't return.
    if (Block.OnlyLeftByEdges && !Leaving[B].Edges.empty())
      Sides.push_back(std::move(Leaving[B]));
  }

  for (bool IsChanged = true; std::exchange(IsChanged, false);)
    for (const FlowSide &Side : Sides) {
      std::optional<uint64_t> &Whole = Executions[Side.Block];
      std::optional<uint64_t> *Unknown = nullptr;
      unsigned NumUnknown = 0;
      uint64_t Known = 0;
      for (unsigned E : Side.Edges) {
        if (Edges[E]) {
          Known += *Edges[E];
          continue;
        }
        Unknown = &Edges[E];
        ++NumUnknown;
      }
      if (!Whole && !NumUnknown) {
        Whole = Known;
        IsChanged = true;
      }
      // A run that was cut off, or a call that was left by an exception, may
      // have entered a block once more than left it.
      if (Whole && NumUnknown == 1) {
        *Unknown = *Whole - std::min(Known, *Whole);
        IsChanged = true;
      }
    }
}

void tracecost::completeExecutions(
    ArrayRef<FlowBlock> Flow,
    MutableArrayRef<std::optional<uint64_t>> Executions) {
  size_t NumEdges = 0;
  for (const FlowBlock &Block : Flow)
    NumEdges += Block.Successors.size();
  std::vector<std::optional<uint64_t>> Edges(NumEdges);
  completeExecutions(Flow, Executions, Edges);
}
