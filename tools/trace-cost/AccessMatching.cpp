//===- AccessMatching.cpp - The same accesses in other code ---------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AccessMatching.h"
#include "llvm/Support/MathExtras.h"
#include <tuple>

using namespace llvm;
using namespace llvm::tracecost;

/// Longer tables of pairs would take too much memory.
static constexpr size_t MaxPairs = size_t(1) << 24;

bool AccessSite::isLike(const AccessSite &Other) const {
  auto Key = [](const AccessSite &A) {
    return std::tie(A.Loads, A.Stores, A.IsStack, A.HasBase, A.HasIndex,
                    A.Scale, A.Displacement, A.Size, A.Content);
  };
  return Key(*this) == Key(Other);
}

std::vector<AccessSite> tracecost::memoryAccesses(const TargetModel &Model,
                                                  ArrayRef<DecodedInst> Block,
                                                  bool HasFrame) {
  std::vector<AccessSite> Result;
  for (const DecodedInst &D : Block) {
    if (!D.Valid || !Model.memoryOperand(D.Inst))
      continue;
    AccessSite A;
    A.Offset = D.Address - Block.front().Address;
    A.Loads = Model.desc(D.Inst).mayLoad();
    A.Stores = Model.desc(D.Inst).mayStore();
    if (!A.Loads && !A.Stores)
      continue;
    A.Content = Model.contentCode(D.Inst);
    if (std::optional<MemoryPlace> Place = Model.memory(D, HasFrame)) {
      A.IsStack = Place->IsStack;
      A.HasBase = Place->Base != NoGPR;
      A.HasIndex = Place->Index != NoGPR;
      A.Scale = A.HasIndex ? Place->Scale : 1;
      A.Size = Place->Size;
      // Frames and the addresses of globals differ between programs.
      if (A.HasBase && !A.IsStack && !Place->Displacement.In &&
          isInt<16>(Place->Displacement.Offset))
        A.Displacement = Place->Displacement.Offset;
    }
    Result.push_back(A);
  }
  return Result;
}

std::vector<std::optional<unsigned>>
tracecost::matchAccesses(ArrayRef<AccessSite> Own,
                         ArrayRef<AccessSite> Traced) {
  std::vector<std::optional<unsigned>> Result(Own.size());
  // Most blocks are alike from both ends.
  unsigned Begin = 0, OwnEnd = Own.size(), TracedEnd = Traced.size();
  for (; Begin != OwnEnd && Begin != TracedEnd &&
         Own[Begin].isLike(Traced[Begin]);
       ++Begin)
    Result[Begin] = Begin;
  for (; OwnEnd != Begin && TracedEnd != Begin &&
         Own[OwnEnd - 1].isLike(Traced[TracedEnd - 1]);
       --OwnEnd, --TracedEnd)
    Result[OwnEnd - 1] = TracedEnd - 1;

  // The heaviest common subsequence of what is left; Weights has that of each
  // pair of ends.
  size_t Rows = OwnEnd - Begin, Columns = TracedEnd - Begin;
  if (!Rows || !Columns || Rows * Columns > MaxPairs)
    return Result;
  Own = Own.slice(Begin, Rows);
  Traced = Traced.slice(Begin, Columns);
  std::vector<uint32_t> Weights((Rows + 1) * (Columns + 1));
  auto Weight = [&](size_t Row, size_t Column) -> uint32_t & {
    return Weights[Row * (Columns + 1) + Column];
  };
  auto Together = [&](size_t Row, size_t Column) {
    return Weight(Row + 1, Column + 1) + (Own[Row].IsStack ? 1 : 2);
  };
  for (size_t Row = Rows; Row-- != 0;)
    for (size_t Column = Columns; Column-- != 0;) {
      uint32_t &Best = Weight(Row, Column);
      Best = std::max(Weight(Row + 1, Column), Weight(Row, Column + 1));
      if (Own[Row].isLike(Traced[Column]))
        Best = std::max(Best, Together(Row, Column));
    }
  for (size_t Row = 0, Column = 0; Row != Rows && Column != Columns;) {
    uint32_t Best = Weight(Row, Column);
    if (Own[Row].isLike(Traced[Column]) && Best == Together(Row, Column))
      Result[Begin + Row++] = Begin + Column++;
    else if (Best == Weight(Row + 1, Column))
      ++Row;
    else
      ++Column;
  }
  return Result;
}
