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

/// The branches of an execution that were mispredicted.
static BranchOutcome outcome(ArrayRef<MispredictedBranch> Branches) {
  BranchOutcome Result;
  for (const MispredictedBranch &Branch : Branches)
    if (Branch.IsCall)
      ++Result.Calls;
    else
      Result.Exit = true;
  return Result;
}

/// What an execution of \p Block missed, of which \p Fetches tell.
static FetchMisses misses(ArrayRef<MissedFetch> Fetches,
                          const TracedBlock &Block) {
  FetchMisses Result;
  if (!Fetches.empty())
    Result = Fetches.front().Misses;
  // If all code had to be decoded, so has what another candidate adds to it.
  uint64_t Last = Block.Address + std::max(Block.Size, 1u) - 1;
  if (Result.Decoded > Last / CacheLine - Block.Address / CacheLine)
    Result.Decoded = ~0u;
  return Result;
}

/// A view of \p Recorded, which is empty if nothing is known.
template <typename T>
static ArrayRef<T> known(const std::optional<std::vector<T>> &Recorded) {
  return Recorded ? ArrayRef<T>(*Recorded) : ArrayRef<T>();
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
    ArrayRef<MispredictedBranch> Branches =
        known(Histogram.Mispredicted[Index]);
    ArrayRef<MissedFetch> Fetches = known(Histogram.Fetched[Index]);
    for (auto [Position, B] : enumerate(Blocks)) {
      SampledBlock Next{0, 0, takeOf(Position, Accesses), {}};
      if (Histogram.Mispredicted[Index])
        Next.Events.Branches = outcome(takeOf(Position, Branches));
      if (Histogram.Fetched[Index])
        Next.Events.Fetches =
            misses(takeOf(Position, Fetches), Histogram.Blocks[B]);
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
