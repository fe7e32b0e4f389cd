//===- Samples.cpp - Samples of a run in a candidate ----------------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Samples.h"
#include <deque>

using namespace llvm;
using namespace llvm::tracecost;

/// Takes the elements of the execution at \p Position from the front of \p
/// Left, which ascends.
template <typename T>
static ArrayRef<T> takeOf(unsigned Position, ArrayRef<T> &Left) {
  ArrayRef<T> Own =
      Left.take_while([&](const T &E) { return E.Block == Position; });
  Left = Left.drop_front(Own.size());
  return Own;
}

std::vector<Sample> tracecost::collectSamples(const BlockHistogram &Histogram,
                                              const BlockMapping &Mapping,
                                              unsigned NumBlocks) {
  std::vector<Sample> Result;
  std::vector<unsigned> Visits(NumBlocks);
  // The candidate's last blocks.
  std::deque<SampledBlock> Recent;
  for (auto [Index, Blocks] : enumerate(Histogram.Samples)) {
    Sample Current;
    Current.Index = Index;
    // If the candidate is one module among others, a sample may have too few
    // blocks to fill the pipeline. The blocks of the samples before do.
    if (any_of(Blocks, [&](unsigned B) {
          return Mapping.Matches[B] == Match::Foreign;
        }))
      Current.Blocks.assign(Recent.begin(), Recent.end());
    bool AnyOwn = false;
    ArrayRef<TracedAccess> Accesses = Histogram.Accesses[Index];
    const std::optional<std::vector<MispredictedBranch>> &Recorded =
        Histogram.Mispredicted[Index];
    ArrayRef<MispredictedBranch> Branches;
    if (Recorded)
      Branches = *Recorded;
    for (auto [Position, B] : enumerate(Blocks)) {
      SampledBlock Next{0, 0, takeOf(Position, Accesses), std::nullopt};
      if (Recorded)
        Next.Branches.emplace();
      for (const MispredictedBranch &Branch : takeOf(Position, Branches))
        if (Branch.IsCall)
          ++Next.Branches->Calls;
        else
          Next.Branches->Exit = true;
      // A block that the candidate lacks leaves no gap: the next one does not
      // begin on an empty pipeline.
      std::optional<unsigned> Own = Mapping.of(B);
      if (!Own)
        continue;
      AnyOwn = true;
      Next.Block = *Own;
      Next.Visit = Visits[*Own]++;
      Current.Blocks.push_back(Next);
      Recent.push_back(Next);
      if (Recent.size() > Sample::WarmUpBlocks)
        Recent.pop_front();
    }
    if (AnyOwn)
      Result.push_back(std::move(Current));
  }
  return Result;
}
