//===- EventSteps.h - Cycles by cause ---------------------------*- C++ -*-===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Simulates a sequence several times, each time with the events of one more
/// cause, to tell what each adds.
///
//===----------------------------------------------------------------------===//

#ifndef TRACE_COST_EVENTSTEPS_H
#define TRACE_COST_EVENTSTEPS_H

#include "CostResult.h"
#include "Scoreboard.h"
#include "llvm/ADT/STLExtras.h"
#include <array>

namespace llvm {
namespace tracecost {

/// Simulates without events, and then with those of one more cause each time.
template <typename SimulateFn>
auto simulateParts(const WindowEvents &All, SimulateFn Simulate) {
  WindowEvents Some(All.Miss.size());
  std::array<decltype(Simulate(Some)), 5> Results;
  Results[0] = Simulate(Some);
  using Kinds = SmallVector<BitVector WindowEvents::*, 3>;
  Kinds Steps[] = {{&WindowEvents::FirstLevelMiss},
                   {&WindowEvents::Miss},
                   {&WindowEvents::Mispredict},
                   {&WindowEvents::FetchMiss, &WindowEvents::TranslationMiss,
                    &WindowEvents::Decode}};
  for (auto [Index, Step] : enumerate(Steps)) {
    Results[Index + 1] = Results[Index];
    if (all_of(Step, [&](auto Kind) { return (All.*Kind).none(); }))
      continue;
    for (auto Kind : Step)
      Some.*Kind = All.*Kind;
    Results[Index + 1] = Simulate(Some);
  }
  return Results;
}

/// The cycles that each cause adds.
inline Cycles differences(const std::array<double, 5> &C) {
  return {C[0], C[1] - C[0], C[2] - C[1], C[3] - C[2], C[4] - C[3]};
}

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_EVENTSTEPS_H
