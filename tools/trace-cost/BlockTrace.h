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
#include <optional>
#include <string>
#include <vector>

namespace llvm {
namespace tracecost {

/// The most blocks that a window has.
inline constexpr unsigned MaxWindowLength = 1024;

/// Bytes of a line of the caches of code.
inline constexpr unsigned CacheLine = 64;

struct TracedFunction {
  std::string Name;
  /// Its address in the traced binary.
  uint64_t Address;
};

struct TracedBlock {
  unsigned Function;
  unsigned ID;
  /// Its place in the traced binary.
  uint64_t Address = 0;
  unsigned Size = 0;
};

struct Window {
  /// Indices into BlockHistogram::Blocks, oldest first; the last one is the
  /// block whose executions are counted.
  std::vector<unsigned> Blocks;
  uint64_t Count = 0;
};

/// What a branch predictor did at the exit of a block and at its calls, in the
/// whole run.
struct PredictedBranches {
  uint64_t Exits = 0, MispredictedExits = 0, Calls = 0, MispredictedCalls = 0;
};

/// Which branches of one execution of a block were mispredicted.
struct BranchOutcome {
  bool Exit = false;
  /// How many of its calls, of which nothing else is known.
  unsigned Calls = 0;
};

/// What fetching the code of one execution of a block missed: lines of the
/// instruction cache, pages of the TLB, and lines of the decoded code.
struct FetchMisses {
  unsigned Lines = 0, Pages = 0, Decoded = 0;
};

/// What was recorded of one execution of a block. Nothing where it is unknown.
struct RecordedEvents {
  std::optional<BranchOutcome> Branches;
  std::optional<FetchMisses> Fetches;
};

/// What an instruction of a sample accessed.
struct TracedAccess {
  /// Index into the sample.
  unsigned Block;
  /// Where the instruction begins in the block.
  unsigned Offset;
  bool Stores;
  /// The first byte.
  uint64_t Address;
};

/// A mispredicted branch of a sample.
struct MispredictedBranch {
  /// Index into the sample.
  unsigned Block;
  /// Whether it is a call in the block, or else the block's exit.
  bool IsCall;
};

/// A block of a sample whose code missed.
struct MissedFetch {
  /// Index into the sample.
  unsigned Block;
  FetchMisses Misses;
};

struct BlockHistogram {
  std::string BuildID;
  std::vector<TracedFunction> Functions;
  std::vector<TracedBlock> Blocks;
  /// Distinct windows, the most frequent first.
  std::vector<Window> Windows;
  /// Stretches of consecutive blocks, evenly spread over the run.
  std::vector<std::vector<unsigned>> Samples;
  /// The accesses of each sample, by block; empty if unknown.
  std::vector<std::vector<TracedAccess>> Accesses;
  /// The machine code of each of Blocks, as traced; empty where it is unknown.
  std::vector<std::vector<uint8_t>> Code;
  /// What a branch predictor mispredicted in each sample, by block; nothing if
  /// unknown.
  std::vector<std::optional<std::vector<MispredictedBranch>>> Mispredicted;
  /// What fetching code missed in each sample, by block; nothing if unknown.
  std::vector<std::optional<std::vector<MissedFetch>>> Fetched;
  /// One entry for each of Blocks; empty if unknown.
  std::vector<PredictedBranches> Branches;
  /// The executions of all windows.
  uint64_t Total = 0;
  /// Whether the recording was cut off. Everything before the cut is here.
  bool Truncated = false;
};

/// Reads a trace or a window histogram. Windows get at most \p Length blocks, 1
/// to MaxWindowLength. An error names the file and the place in it.
Expected<BlockHistogram> readBlockHistogram(StringRef Path, unsigned Length);

/// Parses \p Contents, which the file \p Path holds.
Expected<BlockHistogram> parseBlockHistogram(StringRef Path, StringRef Contents,
                                             unsigned Length);

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_BLOCKTRACE_H
