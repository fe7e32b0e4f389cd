//===- ReadyBlocks.h - Blocks ready for the pipeline ------------*- C++ -*-===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// The blocks of a candidate that are simulated, and the events that happen in
/// them.
///
//===----------------------------------------------------------------------===//

#ifndef TRACE_COST_READYBLOCKS_H
#define TRACE_COST_READYBLOCKS_H

#include "BlockMapping.h"
#include "CPUParameters.h"
#include "EventProbabilities.h"

namespace llvm {
namespace tracecost {

struct ReadyBlock {
  SimBlock Sim;
  EventProbabilities Events;
  /// Identifies the block in all candidates.
  uint64_t Key;
};

class ReadyBlocks {
public:
  /// With \p IsOwnRun, the profile's numbers of misses are the candidate's.
  /// Other code has the same misses at other places: of them, rates tell.
  ReadyBlocks(const Program &Code, const BlockHistogram &Histogram,
              const BlockMapping &Mapping, ModelParts Parts, bool IsOwnRun)
      : Code(Code), Histogram(Histogram), Mapping(Mapping), Parts(Parts),
        IsOwnRun(IsOwnRun) {}

  /// Makes the blocks of \p Needed ready. \p Rates may be null. Adds to
  /// \p Result what is unknown of them. An error if the CPU's scheduling model
  /// can't be used.
  Error prepare(const BitVector &Needed, const CPUParameters &CPU,
                EventRates *Rates, CostResult &Result);

  const ReadyBlock &operator[](unsigned Block) const { return *Blocks[Block]; }
  const Simulator &simulator() const { return *Sim; }

  /// Draws the events of the block at \p Index of \p Sequence. Some may be
  /// \p Recorded; those count that the parts of the model use.
  EventNumbers drawEvents(unsigned Block, unsigned Index,
                          const SimWindow &Sequence, RecordedEvents Recorded,
                          DrawFn Draw, WindowEvents &Events) const;

private:
  const Program &Code;
  const BlockHistogram &Histogram;
  const BlockMapping &Mapping;
  const ModelParts Parts;
  const bool IsOwnRun;
  std::unique_ptr<Simulator> Sim;
  /// One element for each of Program::blocks(); null if not needed.
  std::vector<std::unique_ptr<ReadyBlock>> Blocks;
};

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_READYBLOCKS_H
