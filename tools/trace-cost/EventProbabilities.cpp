//===- EventProbabilities.cpp - Which events a block has ------------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EventProbabilities.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;
using namespace llvm::tracecost;

/// The probability that \p Rate says, 0 if it is unknown. \p Share, if given,
/// counts the executions.
static double probability(std::optional<double> Rate, uint64_t Executions = 0,
                          KnownShare *Share = nullptr) {
  if (Share) {
    Share->All += Executions;
    Share->Known += Rate ? Executions : 0;
  }
  return Rate.value_or(0.0);
}

static double ratio(uint64_t Part, uint64_t Whole) {
  return Whole ? double(Part) / Whole : 0.0;
}

/// The branch at the end of an execution of \p Operations, of which the trace
/// tells: the last of several conditional branches. Null if there is none.
static const Operation *exitOf(ArrayRef<Operation> Operations) {
  const Operation *Exit = nullptr;
  for (const Operation &Op : Operations)
    if (Op.IsConditionalBranch ||
        (Op.IsIndirectJump && !(Exit && Exit->IsConditionalBranch)))
      Exit = &Op;
  return Exit;
}

EventProbabilities
EventModel::probabilities(const SimBlock &Block, uint64_t Executions,
                          const PredictedBranches *Predicted) {
  EventProbabilities Result;
  size_t N = Block.Operations.size();
  for (std::vector<double> *Kind : {&Result.Miss, &Result.FirstLevelMiss,
                                    &Result.Mispredict, &Result.FetchMiss})
    Kind->resize(N);
  if (Parts.has(ModelPart::Mispredicts))
    setMispredictions(Result, Block, Executions, Predicted);
  const CodeBlock &Code = *Block.Code;
  double *Line = nullptr;
  for (size_t I = 0; Rates && I != N; ++I) {
    const Operation &Op = Block.Operations[I];
    if (Op.CanMiss && Parts.has(ModelPart::LLCMisses))
      Result.Miss[I] =
          probability(Rates->llcMiss(Code, Op.Address), Executions, &Loads);
    if (Op.CanMiss && Parts.has(ModelPart::FirstLevelMisses))
      Result.FirstLevelMiss[I] =
          probability(Rates->firstLevelMiss(Code, Op.Address));
    if (Op.StartsLine)
      Line = &Result.FetchMiss[I];
    // The rate is per instruction; a line misses once.
    if (Line && Parts.has(ModelPart::ICacheMisses))
      *Line = std::min(
          1.0, *Line + probability(Rates->icacheMiss(Code, Op.Address)));
  }
  return Result;
}

void EventModel::setMispredictions(EventProbabilities &Result,
                                   const SimBlock &Block, uint64_t Executions,
                                   const PredictedBranches *Predicted) {
  const Operation *Exit = exitOf(Block.Operations);
  for (auto [Op, Mispredict] : zip(Block.Operations, Result.Mispredict)) {
    if (!Op.canMispredict())
      continue;
    KnownShare *Share = Op.IsConditionalBranch ? &Branches : nullptr;
    if (Predicted && Op.IsIndirectCall)
      Mispredict = ratio(Predicted->MispredictedCalls, Predicted->Calls);
    else if (Predicted)
      // A branch before the exit is known not to be mispredicted.
      Mispredict = probability(
          &Op == Exit ? ratio(Predicted->MispredictedExits, Predicted->Exits)
                      : 0.0,
          Executions, Share);
    else if (Rates)
      Mispredict =
          probability(Op.IsConditionalBranch
                          ? Rates->mispredict(*Block.Code, Op.Address)
                          : Rates->indirectMispredict(*Block.Code, Op.Address),
                      Executions, Share);
  }
}

/// Sets what is recorded of \p Op, which is in the \p Line-th line of its
/// block, from 1. The first lines are those that missed.
static void setFetches(const FetchMisses &Misses, const Operation &Op,
                       unsigned Line, unsigned Bit, WindowEvents &Events) {
  if (Op.StartsLine && Line <= Misses.Lines)
    Events.FetchMiss.set(Bit);
  if (Op.StartsLine && Line <= Misses.Pages)
    Events.TranslationMiss.set(Bit);
  if (Line <= Misses.Decoded)
    Events.Decode.set(Bit);
}

void tracecost::drawEvents(const EventProbabilities &Probabilities,
                           ArrayRef<Operation> Executed, unsigned First,
                           const RecordedEvents &Recorded, DrawFn Draw,
                           WindowEvents &Events) {
  const std::optional<BranchOutcome> &Outcome = Recorded.Branches;
  const Operation *Exit = Outcome ? exitOf(Executed) : nullptr;
  unsigned Branches = 0, Lines = 0, Calls = 0;
  for (auto [I, Op] : enumerate(Executed)) {
    unsigned Bit = First + I;
    // Both levels share one number: what misses the last also misses the first.
    if (Op.CanMiss) {
      double Number = Draw(Op.LoadNumber, DrawKind::Load);
      if (Number < Probabilities.Miss[I])
        Events.Miss.set(Bit);
      else if (Number < Probabilities.FirstLevelMiss[I])
        Events.FirstLevelMiss.set(Bit);
    }
    if (Outcome ? (Op.IsIndirectCall ? Calls++ < Outcome->Calls
                                     : Outcome->Exit && &Op == Exit)
                : Op.canMispredict() && Draw(Branches++, DrawKind::Branch) <
                                            Probabilities.Mispredict[I])
      Events.Mispredict.set(Bit);
    Lines += Op.StartsLine;
    if (Recorded.Fetches)
      setFetches(*Recorded.Fetches, Op, Lines, Bit, Events);
    else if (Op.StartsLine &&
             Draw(Lines - 1, DrawKind::Line) < Probabilities.FetchMiss[I])
      Events.FetchMiss.set(Bit);
  }
}
