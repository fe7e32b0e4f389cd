//===- BlockMapping.h - Traced blocks in a candidate ------------*- C++ -*-===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Finds the blocks of a trace in a candidate by the names of functions and the
/// ids of blocks. Where the traced program is given, also by what the blocks'
/// instructions compute.
///
//===----------------------------------------------------------------------===//

#ifndef TRACE_COST_BLOCKMAPPING_H
#define TRACE_COST_BLOCKMAPPING_H

#include "BlockTrace.h"
#include "Program.h"
#include <set>

namespace llvm {
namespace tracecost {

enum class Match : uint8_t {
  /// The block is in the candidate.
  Mapped,
  /// The candidate has no function of this name.
  Foreign,
  /// It has the function, but not this block.
  Missing,
  /// It has functions of this name, and it is not known which of them was
  /// traced.
  Ambiguous
};

struct BlockMapping {
  /// How each block of the trace was matched.
  std::vector<Match> Matches;
  /// The candidate's block for each block of the trace that is mapped.
  std::vector<unsigned> Blocks;
  /// The trace's functions whose block ids differ in the candidate, by index.
  std::set<unsigned> Changed;
  /// Blocks of the trace that are mapped to blocks which compute something
  /// else. Nothing if the traced program is not given.
  std::optional<std::set<unsigned>> Different;

  std::optional<unsigned> of(unsigned TracedBlock) const {
    if (Matches[TracedBlock] != Match::Mapped)
      return std::nullopt;
    return Blocks[TracedBlock];
  }
};

/// Maps the blocks of \p Histogram to those of \p Code. \p Traced is the traced
/// program, or null. An error if it is another program than the trace is of.
Expected<BlockMapping> mapBlocks(const Program &Code,
                                 const BlockHistogram &Histogram,
                                 const Program *Traced);

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_BLOCKMAPPING_H
