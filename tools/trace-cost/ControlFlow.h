//===- ControlFlow.h - Which blocks follow one another ----------*- C++ -*-===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Executions of blocks that the trace lacks, from those of the blocks around
/// them: what enters a block leaves it.
///
//===----------------------------------------------------------------------===//

#ifndef TRACE_COST_CONTROLFLOW_H
#define TRACE_COST_CONTROLFLOW_H

#include "Program.h"

namespace llvm {
namespace tracecost {

/// A block of a function, by its number there.
struct FlowBlock {
  /// Distinct.
  SmallVector<unsigned, 2> Successors;
  /// Whether control comes from blocks that have it as a successor alone, and
  /// goes to its successors alone. Calls return.
  bool OnlyEnteredByEdges = true, OnlyLeftByEdges = true;
};

/// The blocks of \p Function, in the order of Program::blocks().
std::vector<FlowBlock> controlFlow(const Program &Code,
                                   const CodeFunction &Function);

/// A jump with instructions behind it: those are executed only where it does
/// not jump.
struct MiddleExit {
  RegionOffset To;
  /// How many instructions of the block are executed where it jumps.
  unsigned Executed;
};

/// Of the jumps of \p Block, but for its last instruction, those of which it is
/// known where they lead.
SmallVector<MiddleExit, 1> middleExits(const Program &Code,
                                       const CodeBlock &Block);

/// The exit by which control gets to \p Next; null if none leads there.
const MiddleExit *exitTo(ArrayRef<MiddleExit> Exits, const CodeBlock &Next);

/// Sets those of \p Executions, by block of \p Flow, that are not known and
/// follow from the others.
void completeExecutions(ArrayRef<FlowBlock> Flow,
                        MutableArrayRef<std::optional<uint64_t>> Executions);

/// The same with \p Edges: how often each block was left for each of its
/// successors, in the order of \p Flow. What is known of them counts, and what
/// follows is set.
void completeExecutions(ArrayRef<FlowBlock> Flow,
                        MutableArrayRef<std::optional<uint64_t>> Executions,
                        MutableArrayRef<std::optional<uint64_t>> Edges);

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_CONTROLFLOW_H
