//===- Simulation.h - Cycles of a candidate's code on a run -----*- C++ -*-===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Simulates parts of a recorded run with the code of a candidate: samples of
/// the run and, for what they visit rarely, windows.
///
//===----------------------------------------------------------------------===//

#ifndef TRACE_COST_SIMULATION_H
#define TRACE_COST_SIMULATION_H

#include "BlockMapping.h"
#include "CPUParameters.h"
#include "CostResult.h"

namespace llvm {
namespace tracecost {

class EventRates;

struct SimulationOptions {
  /// The instructions after which a window's context needs no further block.
  unsigned ContextInstructions;
  /// The share of executions whose windows are simulated.
  double Coverage;
  ModelParts Parts;
  /// Whether MCA's own model is asked, which simulates windows alone.
  bool Plain;
  /// Whether the profile is of the run that is simulated, and that is one of
  /// the candidate itself.
  bool IsOwnRun;
};

/// Adds the cycles to \p Result, which holds the counts of a TraceReplay with
/// the mapping \p Mapping. \p Rates may be null.
Error simulate(const Program &Code, const BlockHistogram &Histogram,
               const BlockMapping &Mapping, const CPUParameters &CPU,
               EventRates *Rates, const SimulationOptions &Options,
               CostResult &Result);

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_SIMULATION_H
