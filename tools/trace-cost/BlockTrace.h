//===- BlockTrace.h - Windows of executed blocks ----------------*- C++ -*-===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Reads block traces (*.bbtrace) and window histograms (*.bbwindows). A window
/// is a block that was executed and the few blocks executed before it, its
/// context. A program executes billions of blocks but few distinct windows.
///
//===----------------------------------------------------------------------===//

#ifndef TRACE_COST_BLOCKTRACE_H
#define TRACE_COST_BLOCKTRACE_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>
#include <vector>

namespace llvm {
namespace tracecost {

/// The most blocks that a window has.
inline constexpr unsigned MaxWindowLength = 1024;

struct TracedFunction {
  std::string Name;
  /// In the traced binary.
  uint64_t Address;
};

struct TracedBlock {
  unsigned Function;
  unsigned ID;
};

struct Window {
  /// Indices into BlockHistogram::Blocks, oldest first; the last one is the
  /// block whose executions are counted.
  std::vector<unsigned> Blocks;
  uint64_t Count = 0;
};

/// How often a predictor, fed with the run, mispredicted where a block's branch
/// and its calls led.
struct PredictedBranches {
  uint64_t Exits = 0, MispredictedExits = 0, Calls = 0, MispredictedCalls = 0;
};

struct BlockHistogram {
  std::string BuildID;
  std::vector<TracedFunction> Functions;
  std::vector<TracedBlock> Blocks;
  /// Distinct, most frequent first.
  std::vector<Window> Windows;
  /// Parts of the run, evenly spread over it: consecutive blocks.
  std::vector<std::vector<unsigned>> Samples;
  /// By block; empty if unknown.
  std::vector<PredictedBranches> Branches;
  /// Executions of all windows.
  uint64_t Total = 0;
  /// Set if the recording was cut off; what was read is what there was.
  bool Truncated = false;
};

/// Reads a trace or a window histogram. Windows get at most \p Length blocks, 1
/// to MaxWindowLength. An error names the file and the place in it.
Expected<BlockHistogram> readBlockHistogram(StringRef Path, unsigned Length);

/// The same of the contents of the file \p Path.
Expected<BlockHistogram> parseBlockHistogram(StringRef Path, StringRef Contents,
                                             unsigned Length);

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_BLOCKTRACE_H
