//===- TraceReplay.h - Count what a candidate executes ----------*- C++ -*-===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Replays a recorded run with the code of a candidate.
///
//===----------------------------------------------------------------------===//

#ifndef TRACE_COST_TRACEREPLAY_H
#define TRACE_COST_TRACEREPLAY_H

#include "BlockMapping.h"
#include "ControlFlow.h"
#include "CostResult.h"

namespace llvm {
namespace tracecost {

/// Counts the executions and instructions of the candidate's blocks.
class TraceReplay {
public:
  /// \p Traced is the traced program, or null. An error if more than
  /// \p MaxUnmapped, a share, of the executions have no place in the candidate:
  /// the trace is then of another program.
  static Expected<TraceReplay> create(const Program &Code,
                                      const BlockHistogram &Histogram,
                                      const Program *Traced,
                                      double MaxUnmapped);

  const BlockMapping &mapping() const { return Mapping; }
  /// The counts, without cycles.
  CostResult takeResult() { return std::move(Result); }

private:
  TraceReplay(const Program &Code, const BlockHistogram &Histogram)
      : Code(Code), Histogram(Histogram) {}
  void countExecutions();
  void countAddedBlocks();
  void countInstructions();
  void countSkipped();
  void countSkipped(const CodeFunction &Function);
  /// Counts what the executions of \p Block skip. \p Exits are the jumps in its
  /// middle. \p Edges say how often it was left for each of its \p Successors,
  /// which are numbers of blocks in the function.
  void countSkipped(unsigned Block, ArrayRef<MiddleExit> Exits,
                    ArrayRef<unsigned> Successors,
                    ArrayRef<std::optional<uint64_t>> Edges);
  /// How often each block of the function was left for each of its successors,
  /// in the order of \p Flow. Nothing where that is unknown.
  std::vector<std::optional<uint64_t>>
  countEdges(const CodeFunction &Function, ArrayRef<FlowBlock> Flow) const;

  const Program &Code;
  const BlockHistogram &Histogram;
  BlockMapping Mapping;
  /// Whether the trace has the block, for each of Program::blocks().
  std::vector<bool> IsMapped;
  /// How often a block of the candidate was executed right behind another.
  /// Empty if windows have one block only.
  std::map<std::pair<unsigned, unsigned>, uint64_t> Pairs;
  CostResult Result;
};

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_TRACEREPLAY_H
