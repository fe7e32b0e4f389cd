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

static void addExecutions(KnownShare *Share, uint64_t Executions,
                          bool IsKnown) {
  if (!Share)
    return;
  Share->All += Executions;
  Share->Known += IsKnown ? Executions : 0;
}

/// How often an event happens at the instruction at \p Address by the profile.
/// At a place that it doesn't know, as often as in the whole program: what the
/// optimiser left without a location misses like other code. \p Share, if
/// given, counts the executions.
static double rate(EventRates &Rates, RateKind Kind, const CodeBlock &Block,
                   uint64_t Address, uint64_t Executions = 0,
                   KnownShare *Share = nullptr) {
  std::optional<double> Known = Rates.at(Kind, Block, Address);
  addExecutions(Share, Executions, Known.has_value());
  return Known ? *Known : Rates.ofProgram(Kind).value_or(0.0);
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
          rate(*Rates, RateKind::LLCMiss, Code, Op.Address, Executions, &Loads);
    if (Op.CanMiss && Parts.has(ModelPart::FirstLevelMisses))
      Result.FirstLevelMiss[I] =
          rate(*Rates, RateKind::FirstLevelMiss, Code, Op.Address);
    if (Op.StartsLine)
      Line = &Result.FetchMiss[I];
    // The rate is per instruction; a line misses once.
    if (Line && Parts.has(ModelPart::ICacheMisses))
      *Line = std::min(
          1.0, *Line + rate(*Rates, RateKind::ICacheMiss, Code, Op.Address));
  }
  return Result;
}

void tracecost::scaleTo(std::optional<uint64_t> Number,
                        std::vector<double> EventProbabilities::*Of,
                        ArrayRef<ExecutedProbabilities> Blocks) {
  double Expected = 0;
  for (auto [Block, Executions] : Blocks)
    Expected += Executions * sum_of(Block->*Of, 0.0);
  if (!Number || !Expected)
    return;
  for (auto [Block, Executions] : Blocks)
    for (double &Probability : Block->*Of)
      Probability = std::min(1.0, Probability * (*Number / Expected));
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
    else if (Predicted) {
      // A branch before the exit is known not to be mispredicted.
      addExecutions(Share, Executions, true);
      Mispredict = &Op == Exit
                       ? ratio(Predicted->MispredictedExits, Predicted->Exits)
                       : 0.0;
    } else if (Rates)
      Mispredict = rate(*Rates,
                        Op.IsConditionalBranch ? RateKind::Mispredict
                                               : RateKind::IndirectMispredict,
                        *Block.Code, Op.Address, Executions, Share);
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

EventNumbers tracecost::drawEvents(const EventProbabilities &Probabilities,
                                   ArrayRef<Operation> Executed, unsigned First,
                                   const RecordedEvents &Recorded, DrawFn Draw,
                                   WindowEvents &Events) {
  EventNumbers Numbers;
  auto Note = [&](EventKind Kind, double Probability, bool Happens,
                  BitVector &Bits, unsigned Bit) {
    Numbers[Kind].Expected += Probability;
    Numbers[Kind].Happened += Happens;
    if (Happens)
      Bits.set(Bit);
  };
  const std::optional<BranchOutcome> &Outcome = Recorded.Branches;
  const Operation *Exit = Outcome ? exitOf(Executed) : nullptr;
  unsigned Branches = 0, Lines = 0, Calls = 0;
  for (auto [I, Op] : enumerate(Executed)) {
    unsigned Bit = First + I;
    // Both levels share one number: what misses the last also misses the first.
    if (Op.CanMiss) {
      double Number = Draw(Op.LoadNumber, DrawKind::Load);
      double Last = Probabilities.Miss[I];
      double Any = std::max(Probabilities.FirstLevelMiss[I], Last);
      Note(LLCMisses, Last, Number < Last, Events.Miss, Bit);
      Note(FirstLevelMisses, Any - Last, Number >= Last && Number < Any,
           Events.FirstLevelMiss, Bit);
    }
    if (Outcome) {
      bool IsWrong = Op.IsIndirectCall ? Calls++ < Outcome->Calls
                                       : Outcome->Exit && &Op == Exit;
      Note(Mispredictions, 0, IsWrong, Events.Mispredict, Bit);
    } else if (Op.canMispredict()) {
      double Probability = Probabilities.Mispredict[I];
      bool IsWrong = Draw(Branches++, DrawKind::Branch) < Probability;
      Note(Mispredictions, Probability, IsWrong, Events.Mispredict, Bit);
    }
    Lines += Op.StartsLine;
    if (Recorded.Fetches)
      setFetches(*Recorded.Fetches, Op, Lines, Bit, Events);
    else if (Op.StartsLine &&
             Draw(Lines - 1, DrawKind::Line) < Probabilities.FetchMiss[I])
      Events.FetchMiss.set(Bit);
  }
  // The rates of a simulated predictor are those of the block's exit and calls,
  // whichever branch an execution leaves by.
  if (Outcome)
    Numbers[Mispredictions].Expected = sum_of(Probabilities.Mispredict, 0.0);
  return Numbers;
}
