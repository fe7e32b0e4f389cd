//===- EventCorrection.cpp - Events of a run and of samples ---------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EventCorrection.h"

using namespace llvm;
using namespace llvm::tracecost;

/// The cycles that each kind of event adds.
static constexpr double Cycles::*Parts[] = {
    &Cycles::FirstLevelMiss, &Cycles::LLCMiss, &Cycles::Mispredict};
static constexpr EventKind Kinds[] = {FirstLevelMisses, LLCMisses,
                                      Mispredictions};

void EventCorrection::add(const EventNumbers &Numbers, const Cycles &Cost,
                          double Weight) {
  for (EventKind Kind : Kinds) {
    Sums[Kind].Expected += Weight * Numbers[Kind].Expected;
    Sums[Kind].Happened += Weight * Numbers[Kind].Happened;
  }
  Costs += Cost * Weight;
}

double EventCorrection::factor(EventKind Kind) const {
  const EventNumber &Sum = Sums[Kind];
  return Sum.Happened ? Sum.Expected / Sum.Happened : 1;
}

Cycles EventCorrection::corrected(const Cycles &Cost) const {
  Cycles Result = Cost;
  for (EventKind Kind : Kinds)
    Result.*Parts[Kind] *= factor(Kind);
  return Result;
}

double EventCorrection::influence(const EventNumbers &Numbers,
                                  const Cycles &Cost) const {
  double Result = corrected(Cost).total();
  for (EventKind Kind : Kinds) {
    if (!Sums[Kind].Happened)
      continue;
    double CyclesOfOne = Costs.*Parts[Kind] / Sums[Kind].Happened;
    Result += CyclesOfOne *
              (Numbers[Kind].Expected - factor(Kind) * Numbers[Kind].Happened);
  }
  return Result;
}
