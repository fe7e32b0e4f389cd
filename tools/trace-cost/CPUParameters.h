//===- CPUParameters.h - What MCA doesn't know of a CPU ---------*- C++ -*-===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Reads a CPU file: measured or published figures of one CPU, written by hand
/// or by a calibration:
/// \code
///   {"format": "compiler-opt-perf/cpu", "version": 1,
///    "name": "Intel Skylake-SP", "mcpu": "skylake-avx512",
///    "parameters": {"memory_latency": {"value": 220, "low": 210, "high": 240,
///                                      "source": "measured"}, ...}}
/// \endcode
///
//===----------------------------------------------------------------------===//

#ifndef TRACE_COST_CPUPARAMETERS_H
#define TRACE_COST_CPUPARAMETERS_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <optional>
#include <string>

namespace llvm {
namespace tracecost {

/// The figures of a CPU. Cycles are core cycles.
struct CPUParameters {
  std::string Name;
  /// The CPU whose scheduling model of LLVM's is used.
  std::string SchedModel;
  /// Load to use, from memory.
  unsigned MemoryLatency;
  /// Load to use, from the second-level cache.
  unsigned L2Latency;
  /// Loads from memory that can be under way at once; 0: as many as there are.
  unsigned OutstandingMisses;
  /// From a store to the use of a load of the same stack slot.
  unsigned StoreForwardLatency;
  /// The same for other memory. Without a figure, it is at least a load's.
  std::optional<unsigned> OtherForwardLatency;
  /// From a store to the use of a load that it cannot be forwarded to, because
  /// the load reads more than the store wrote.
  unsigned FailedForwardLatency;
  /// How much longer a load takes that an older store to the same place of
  /// another page is under way for.
  unsigned Alias4KLatency;
  /// From the execution of a mispredicted branch to the dispatch of the first
  /// instruction of the right path.
  unsigned MispredictPenalty;
  /// How long no instruction comes after a miss in the first-level instruction
  /// cache.
  unsigned ICacheMissPenalty;
  /// The same after a miss in the first-level TLB of code that hits the second.
  unsigned ITLBMissPenalty;
  /// Bytes of code that the decoders take in a cycle.
  unsigned FetchBytes;
  /// Micro-operations that are dispatched in a cycle.
  unsigned DispatchWidth;
  /// Whether moves between general registers, and additions of small constants,
  /// are done when registers are renamed.
  bool MoveElimination, ImmediateAddition;
};

/// What the model mca-pmu adds to MCA's own; MCA's has none of them.
enum class ModelPart : unsigned {
  StackSlots,
  DispatchWidth,
  LLCMisses,
  Mispredicts,
  ICacheMisses,
  Renaming,
  OutstandingMisses,
  FirstLevelMisses,
  TakenBranches,
  OtherStores,
  Predictor,
  FailedForwarding,
  Aliasing4K,
  ITLBMisses,
  DecodedCode
};

/// A set of parts.
class ModelParts {
public:
  static ModelParts none() { return ModelParts(0); }
  /// All but those whose bits are set in \p Bits.
  static ModelParts allBut(unsigned Bits) { return ModelParts(~Bits); }

  bool has(ModelPart Part) const { return Bits >> unsigned(Part) & 1; }

private:
  explicit ModelParts(unsigned Bits) : Bits(Bits) {}
  unsigned Bits;
};

/// Reads the CPU file \p Path. An error names the file and the parameter.
Expected<CPUParameters> readCPUParameters(StringRef Path);

/// Parses \p Contents, which the file \p Path holds.
Expected<CPUParameters> parseCPUParameters(StringRef Path, StringRef Contents);

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_CPUPARAMETERS_H
