//===- EventCorrection.h - Events of a run and of samples -------*- C++ -*-===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Corrects the costs of samples by the number of events in the whole run,
/// which is known: samples that happen to have 3% more mispredictions than
/// their share cost too much. Events of one kind are taken to cost the same in
/// the samples as in the run (a ratio estimator; W. G. Cochran, Sampling
/// Techniques, chapter 6).
///
//===----------------------------------------------------------------------===//

#ifndef TRACE_COST_EVENTCORRECTION_H
#define TRACE_COST_EVENTCORRECTION_H

#include "CostResult.h"
#include <array>

namespace llvm {
namespace tracecost {

/// The kinds of events whose numbers in the run are known.
enum EventKind : unsigned { FirstLevelMisses, LLCMisses, Mispredictions };

/// How many events of a kind are expected by their rates in the whole run, and
/// how many happened.
struct EventNumber {
  double Expected = 0, Happened = 0;
};

/// By EventKind.
using EventNumbers = std::array<EventNumber, 3>;

class EventCorrection {
public:
  /// Adds a visit of a block, which stands for \p Weight executions.
  void add(const EventNumbers &Numbers, const Cycles &Cost, double Weight);

  /// The costs of visits that were added, corrected.
  Cycles corrected(const Cycles &Cost) const;

  /// What a visit adds to the corrected cost of all, to first order: it changes
  /// the correction, too.
  double influence(const EventNumbers &Numbers, const Cycles &Cost) const;

private:
  double factor(EventKind Kind) const;

  EventNumbers Sums;
  Cycles Costs;
};

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_EVENTCORRECTION_H
