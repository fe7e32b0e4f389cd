//===- ControlFlow.h - Which blocks follow one another ----------*- C++ -*-===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Infers how often blocks that the trace lacks were executed from the blocks
/// around them: a block is left as often as it is entered.
///
//===----------------------------------------------------------------------===//

#ifndef TRACE_COST_CONTROLFLOW_H
#define TRACE_COST_CONTROLFLOW_H

#include "Program.h"

namespace llvm {
namespace tracecost {

/// A block in the control flow graph of a function. Blocks are named by their
/// numbers in the function.
struct FlowBlock {
  /// Distinct.
  SmallVector<unsigned, 2> Successors;
  /// Whether control enters it only from blocks that have it as a successor,
  /// and leaves it only to its successors. Calls are taken to return.
  bool OnlyEnteredByEdges = true, OnlyLeftByEdges = true;
};

/// The blocks of \p Function, in the order of Program::blocks().
std::vector<FlowBlock> controlFlow(const Program &Code,
                                   const CodeFunction &Function);

/// A jump in the middle of a block. The instructions behind it are executed
/// only if it is not taken.
struct MiddleExit {
  RegionOffset To;
  /// How many instructions of the block are executed if it is taken.
  unsigned Executed;
};

/// The jumps before the last instruction of \p Block whose targets are known.
SmallVector<MiddleExit, 1> middleExits(const Program &Code,
                                       const CodeBlock &Block);

/// The exit by which control gets to \p Next; null if none leads there.
const MiddleExit *exitTo(ArrayRef<MiddleExit> Exits, const CodeBlock &Next);

/// Sets the unknown elements of \p Executions that follow from the known ones.
/// It has an element for each block of \p Flow.
void completeExecutions(ArrayRef<FlowBlock> Flow,
                        MutableArrayRef<std::optional<uint64_t>> Executions);

/// Does the same for \p Edges, too: how often each block was left for each of
/// its successors, in the order of \p Flow.
void completeExecutions(ArrayRef<FlowBlock> Flow,
                        MutableArrayRef<std::optional<uint64_t>> Executions,
                        MutableArrayRef<std::optional<uint64_t>> Edges);

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_CONTROLFLOW_H
