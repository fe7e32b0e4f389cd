//===- ControlFlowTest.cpp - Executions of blocks that a trace lacks ------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ControlFlow.h"
#include "gtest/gtest.h"

using namespace llvm;
using namespace llvm::tracecost;

namespace {

using Counts = std::vector<std::optional<uint64_t>>;
constexpr std::nullopt_t Unknown = std::nullopt;

/// Blocks with these successors; the first is the function's entry.
std::vector<FlowBlock> flow(ArrayRef<std::vector<unsigned>> Successors) {
  std::vector<FlowBlock> Flow(Successors.size());
  for (auto [Block, To] : zip(Flow, Successors))
    Block.Successors.assign(To.begin(), To.end());
  Flow.front().OnlyEnteredByEdges = false;
  return Flow;
}

Counts completed(ArrayRef<FlowBlock> Flow, Counts Executions) {
  completeExecutions(Flow, Executions);
  return Executions;
}

TEST(ControlFlowTest, ABlockOnAnEdgeIsExecutedWithIt) {
  // A loop of 1, 3 and sometimes 2; 5 is on the edge from 1 to 3.
  std::vector<FlowBlock> Flow = flow({{1}, {2, 5}, {3}, {1, 4}, {}, {3}});
  EXPECT_EQ(completed(Flow, {7, 100, 30, 100, 7, Unknown}),
            Counts({7, 100, 30, 100, 7, 70}));
  // What goes on one way alone is known without the blocks before it.
  Flow[1].OnlyLeftByEdges = false;
  EXPECT_EQ(completed(Flow, {7, 100, 30, 100, 7, Unknown}),
            Counts({7, 100, 30, 100, 7, 70}));
}

TEST(ControlFlowTest, BlocksOneAfterTheOtherAreExecutedTheSame) {
  std::vector<FlowBlock> Flow = flow({{1, 2}, {3}, {3}, {4}, {5}, {}});
  EXPECT_EQ(completed(Flow, {10, 4, 6, Unknown, Unknown, 10}),
            Counts({10, 4, 6, 10, 10, 10}));
  // Also where control may come from elsewhere.
  Flow[3].OnlyEnteredByEdges = false;
  EXPECT_EQ(completed(Flow, {10, 4, 6, Unknown, Unknown, 10}),
            Counts({10, 4, 6, 10, 10, 10}));
}

TEST(ControlFlowTest, BlocksBehindOnesThatAreNotExecutedAreNot) {
  EXPECT_EQ(completed(flow({{1, 3}, {2}, {3}, {}}), {10, 0, Unknown, 10}),
            Counts({10, 0, 0, 10}));
}

TEST(ControlFlowTest, NothingIsGuessed) {
  // An edge may go around a block.
  EXPECT_EQ(completed(flow({{1, 2}, {2}, {}}), {10, Unknown, 10}),
            Counts({10, Unknown, 10}));
  // Rounds of a loop of one block.
  EXPECT_EQ(completed(flow({{1}, {1, 2}, {}}), {10, Unknown, 10}),
            Counts({10, Unknown, 10}));
  // Two blocks, each on an edge between two of the same.
  std::vector<FlowBlock> Flow = flow({{1, 2}, {3}, {3}, {}});
  EXPECT_EQ(completed(Flow, {10, Unknown, Unknown, 10}),
            Counts({10, Unknown, Unknown, 10}));
  // Control that comes from elsewhere, or goes elsewhere.
  Flow[3].OnlyEnteredByEdges = false;
  EXPECT_EQ(completed(Flow, {10, 4, Unknown, 10}), Counts({10, 4, 6, 10}));
  Flow[0].OnlyLeftByEdges = false;
  EXPECT_EQ(completed(Flow, {10, 4, Unknown, 10}),
            Counts({10, 4, Unknown, 10}));
}

TEST(ControlFlowTest, ACountIsNeverBelowZero) {
  EXPECT_EQ(completed(flow({{1, 2}, {3}, {3}, {}}), {10, 11, Unknown, 11}),
            Counts({10, 11, 0, 11}));
}

} // namespace
