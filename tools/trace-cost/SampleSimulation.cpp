//===- SampleSimulation.cpp - Cycles of samples of a run ------------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SampleSimulation.h"
#include "EventSteps.h"
#include "RatioEstimator.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Parallel.h"
#include <numeric>

using namespace llvm;
using namespace llvm::tracecost;

/// How often misses of a sample are drawn, and the number of expected misses
/// below which once is enough. What misses cost depends on what waits for them,
/// so that many draws tell more.
static constexpr unsigned MissDraws = 4;
static constexpr double FewMisses = 0.1;

SampleSimulation::SampleSimulation(const Program &Code,
                                   const BlockHistogram &Histogram,
                                   const BlockMapping &Mapping)
    : Code(Code), NumSamples(Histogram.Samples.size()),
      Visits(Code.blocks().size()) {
  for (Sample &S : collectSamples(Histogram, Mapping, Code.blocks().size())) {
    for (auto [Index, B] : S.counted())
      ++Visits[B.Block];
    Samples.emplace_back().Run = std::move(S);
  }
}

void SampleSimulation::addNeeded(BitVector &Needed) const {
  for (const ReadySample &S : Samples)
    for (const SampledBlock &B : S.Run.Blocks)
      Needed.set(B.Block);
}

std::vector<EventNumbers>
SampleSimulation::drawEvents(const ReadySample &S, const SimWindow &Sequence,
                             unsigned Draw, const ReadyBlocks &Ready,
                             WindowEvents &Events) {
  std::vector<EventNumbers> Result;
  for (auto [Index, B] : enumerate(S.Run.Blocks)) {
    auto Number = [&, Key = Ready[B.Block].Key,
                   Visit = B.Visit](unsigned Ordinal, DrawKind Kind) {
      return drawVisit(Key, Ordinal, Kind, Visit * MissDraws + Draw);
    };
    Result.push_back(
        Ready.drawEvents(B.Block, Index, Sequence, B.Events, Number, Events));
  }
  return Result;
}

void SampleSimulation::simulate(ReadySample &S, const ReadyBlocks &Ready) {
  const Simulator &Sim = Ready.simulator();
  SmallVector<const SimBlock *, 0> Blocks;
  SmallVector<ArrayRef<TracedAccess>, 0> Accesses;
  for (const SampledBlock &B : S.Run.Blocks) {
    Blocks.push_back(&Ready[B.Block].Sim);
    Accesses.push_back(B.Accesses);
  }
  SimWindow Sequence = Sim.window(Blocks, Accesses);
  BitVector Blocked(Sequence.Stream.size());
  auto Simulate = [&](const WindowEvents &Events) {
    ++S.Simulations;
    // What each block adds.
    Blocked.reset();
    std::vector<unsigned> Finished = Sim.finish(Sequence, Events, &Blocked);
    std::vector<double> Result(Finished.begin(), Finished.end());
    std::adjacent_difference(Result.begin(), Result.end(), Result.begin());
    return Result;
  };
  WindowEvents All(Sequence.Stream.size());
  S.Numbers = drawEvents(S, Sequence, 0, Ready, All);
  auto Added = simulateParts(All, Simulate);
  // The last of these simulations has all events.
  unsigned First = 0;
  for (auto [Index, End] : enumerate(Sequence.Ends)) {
    const SimBlock &Block = *Blocks[Index];
    for (; First != End; ++First)
      if (Blocked[First])
        S.Blocked.push_back(
            {Index,
             Block.Operations[First - (Index ? Sequence.Ends[Index - 1] : 0)]
                     .Address -
                 Block.Code->Address});
  }
  for (unsigned Index = 0; Index != S.Run.Blocks.size(); ++Index) {
    std::array<double, 5> Parts;
    for (auto [Cost, Of] : zip(Parts, Added))
      Cost = Of[Index];
    S.Costs.push_back(differences(Parts));
  }

  double Expected = 0;
  for (const EventNumbers &Numbers : S.Numbers)
    Expected += Numbers[LLCMisses].Expected;
  if (Expected <= FewMisses)
    return;
  for (unsigned Draw = 1; Draw != MissDraws; ++Draw) {
    WindowEvents Drawn(Sequence.Stream.size()), Some(Sequence.Stream.size());
    std::vector<EventNumbers> Numbers =
        drawEvents(S, Sequence, Draw, Ready, Drawn);
    Some.FirstLevelMiss = Drawn.FirstLevelMiss;
    std::vector<double> First = Simulate(Some);
    Some.Miss = Drawn.Miss;
    std::vector<double> Both = Simulate(Some);
    // The mean of all draws so far.
    auto Add = [&](double &Mean, double Value) {
      Mean += (Value - Mean) / (Draw + 1);
    };
    for (unsigned Index = 0; Index != S.Run.Blocks.size(); ++Index) {
      Add(S.Costs[Index].FirstLevelMiss, First[Index] - Added[0][Index]);
      Add(S.Costs[Index].LLCMiss, Both[Index] - First[Index]);
      for (EventKind Kind : {FirstLevelMisses, LLCMisses})
        Add(S.Numbers[Index][Kind].Happened, Numbers[Index][Kind].Happened);
    }
  }
}

void SampleSimulation::simulate(const ReadyBlocks &Ready) {
  parallelFor(0, Samples.size(),
              [&](size_t I) { simulate(Samples[I], Ready); });
}

void SampleSimulation::addTo(std::vector<Simulated> &ByBlock,
                             const ReadyBlocks &Ready,
                             CostResult &Result) const {
  if (Samples.empty())
    return;
  BitVector Estimated(ByBlock.size());
  uint64_t NumVisits = 0;
  for (unsigned B = 0; B != ByBlock.size(); ++B) {
    // Few visits tell less than the windows, but more than other blocks.
    Estimated[B] = suffice(B) || (Visits[B] && !ByBlock[B].Executions);
    if (Estimated[B])
      ByBlock[B] = {double(Visits[B]), {}};
    NumVisits += Visits[B];
  }

  auto ForEachVisit = [&](auto Do) {
    for (const ReadySample &S : Samples)
      for (auto [Index, B] : S.Run.counted())
        if (Estimated[B.Block])
          Do(S.Run.Index, B.Block, S.Numbers[Index], S.Costs[Index]);
  };
  EventCorrection Correction;
  ForEachVisit([&](unsigned, unsigned B, const EventNumbers &Numbers,
                   const Cycles &Cost) {
    double Executions = Result.Blocks[B].Executions;
    Correction.add(Numbers, Cost, Executions / Visits[B]);
  });
  RatioEstimator Estimator(
      Result.Blocks.size(), NumSamples,
      Result.Executions ? double(NumVisits) / Result.Executions : 0);
  ForEachVisit([&](unsigned Index, unsigned B, const EventNumbers &Numbers,
                   const Cycles &Cost) {
    ByBlock[B].Cost += Correction.corrected(Cost);
    Estimator.add(Index, B, Correction.influence(Numbers, Cost));
  });
  for (const ReadySample &S : Samples) {
    Result.Simulations += S.Simulations;
    for (const SampledBlock &B : S.Run.Blocks)
      Result.SimulatedInstructions +=
          uint64_t(S.Simulations) * Ready[B.Block].Sim.NumInstructions;
  }
  estimateErrors(Estimator, Estimated, Result);
  addFailedForwards(Result);
}

void SampleSimulation::addFailedForwards(CostResult &Result) const {
  for (auto [Block, NumVisits] : zip(Result.Blocks, Visits))
    if (NumVisits)
      Block.FailedForwards.emplace();
  for (const ReadySample &S : Samples)
    for (auto [Position, Offset] : S.Blocked)
      if (Position >= Sample::WarmUpBlocks) {
        unsigned B = S.Run.Blocks[Position].Block;
        ++(*Result.Blocks[B].FailedForwards)[Offset];
      }
  for (auto [Block, NumVisits] : zip(Result.Blocks, Visits))
    if (NumVisits)
      for (auto &[Offset, Share] : *Block.FailedForwards)
        Share /= NumVisits;
}

void SampleSimulation::estimateErrors(const RatioEstimator &Estimator,
                                      const BitVector &Estimated,
                                      CostResult &Result) const {
  std::vector<RatioEstimator::Weight> All, Own;
  for (const CodeFunction &F : Code.functions()) {
    Own.clear();
    for (unsigned B = F.FirstBlock; B != F.FirstBlock + F.NumBlocks; ++B) {
      if (!Estimated[B])
        continue;
      RatioEstimator::Weight Weight{B, double(Result.Blocks[B].Executions)};
      Result.Blocks[B].StandardError = Estimator.standardError(Weight);
      Own.push_back(Weight);
    }
    All.insert(All.end(), Own.begin(), Own.end());
    Result.FunctionErrors.push_back(Own.empty() ? std::nullopt
                                                : Estimator.standardError(Own));
  }
  Result.Residuals = Estimator.residuals(All);
  Result.StandardError = Estimator.errorOf(Result.Residuals);
}
