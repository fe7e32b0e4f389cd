//===- EventProbabilities.h - Which events a block has ----------*- C++ -*-===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Finds the probabilities of a block's events, cache misses and mispredicted
/// branches, and draws events by them.
///
//===----------------------------------------------------------------------===//

#ifndef TRACE_COST_EVENTPROBABILITIES_H
#define TRACE_COST_EVENTPROBABILITIES_H

#include "BlockTrace.h"
#include "CostResult.h"
#include "EventCorrection.h"
#include "EventDraws.h"
#include "EventRates.h"
#include "Simulator.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace llvm {
namespace tracecost {

/// The probability of each kind of event at each operation of a block.
struct EventProbabilities {
  /// A load that misses the first level may miss the last one, too.
  std::vector<double> Miss, FirstLevelMiss, Mispredict, FetchMiss;
};

/// A block's probabilities, and its executions in the run.
using ExecutedProbabilities = std::pair<EventProbabilities *, uint64_t>;

/// Scales the probabilities \p Of a kind so that \p Number events are expected.
/// By source lines they may be off: loads of one line share a rate, and some
/// have no line.
void scaleTo(std::optional<uint64_t> Number,
             std::vector<double> EventProbabilities::*Of,
             ArrayRef<ExecutedProbabilities> Blocks);

/// Finds the probabilities of blocks' events.
class EventModel {
public:
  /// \p Rates are the PMU profile's, or null. Adds to \p Loads and \p Branches
  /// how much of the executions the probabilities are known for.
  EventModel(EventRates *Rates, ModelParts Parts, KnownShare &Loads,
             KnownShare &Branches)
      : Rates(Rates), Parts(Parts), Loads(Loads), Branches(Branches) {}

  /// \p Predicted is what a branch predictor did in the block, or null; then
  /// the profile's rates count.
  EventProbabilities probabilities(const SimBlock &Block, uint64_t Executions,
                                   const PredictedBranches *Predicted);

private:
  void setMispredictions(EventProbabilities &Result, const SimBlock &Block,
                         uint64_t Executions,
                         const PredictedBranches *Predicted);

  EventRates *Rates;
  ModelParts Parts;
  KnownShare &Loads, &Branches;
};

/// A number between 0 and 1 for the \p Ordinal-th place of its kind in a block.
using DrawFn = function_ref<double(unsigned Ordinal, DrawKind Kind)>;

/// Draws the events of one visit of a block, of which \p Executed are executed.
/// Sets bits of \p Events, where the first operation has the bit \p First.
/// Branches and misses of code are not drawn where \p Recorded tells of them.
/// Returns how many events were expected and how many happened.
EventNumbers drawEvents(const EventProbabilities &Probabilities,
                        ArrayRef<Operation> Executed, unsigned First,
                        const RecordedEvents &Recorded, DrawFn Draw,
                        WindowEvents &Events);

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_EVENTPROBABILITIES_H
