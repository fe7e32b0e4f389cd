//===- Samples.h - Samples of a run in a candidate --------------*- C++ -*-===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// The samples of a recorded run as sequences of the candidate's blocks, with
/// what was recorded of each execution.
///
//===----------------------------------------------------------------------===//

#ifndef TRACE_COST_SAMPLES_H
#define TRACE_COST_SAMPLES_H

#include "BlockMapping.h"
#include "llvm/ADT/STLExtras.h"

namespace llvm {
namespace tracecost {

/// One execution of a block.
struct SampledBlock {
  /// Index into Program::blocks().
  unsigned Block;
  /// How often the block came before in all samples.
  unsigned Visit;
  ArrayRef<TracedAccess> Accesses;
  RecordedEvents Events;
};

/// The blocks of a sample that the candidate has.
struct Sample {
  /// Index into BlockHistogram::Samples.
  unsigned Index;
  std::vector<SampledBlock> Blocks;

  /// The blocks behind those that fill the pipeline, with their positions.
  auto counted() const {
    return drop_begin(enumerate(Blocks),
                      std::min<size_t>(WarmUpBlocks, Blocks.size()));
  }

  /// The first blocks of a sample fill the pipeline; their costs are left out.
  static constexpr unsigned WarmUpBlocks = 100;
};

/// The samples of \p Histogram of which a candidate of \p NumBlocks blocks has
/// any.
std::vector<Sample> collectSamples(const BlockHistogram &Histogram,
                                   const BlockMapping &Mapping,
                                   unsigned NumBlocks);

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_SAMPLES_H
