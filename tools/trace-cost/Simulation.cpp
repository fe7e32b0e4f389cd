//===- Simulation.cpp - Cycles of a candidate's code on a trace -----------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Simulation.h"
#include "EventSteps.h"
#include "SampleSimulation.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Parallel.h"

using namespace llvm;
using namespace llvm::tracecost;

/// How many sets of events are drawn, over all windows.
static constexpr unsigned AllVisits = 4096;
/// The most sets of events that are drawn for one window; more tell little.
static constexpr unsigned MaxVisits = 64;
/// The draws of a window depend on so many of its last blocks.
static constexpr unsigned KeyBlocks = 4;

namespace {

struct ReadyWindow {
  std::vector<unsigned> Blocks;
  uint64_t Count;
  unsigned Visits = 1;
  Cycles PerExecution;
  unsigned Simulations = 0;
};

/// One simulation of a run.
class Simulation {
public:
  Simulation(const Program &Code, const BlockHistogram &Histogram,
             const BlockMapping &Mapping, const CPUParameters &CPU,
             EventRates *Rates, const SimulationOptions &Options,
             CostResult &Result)
      : Code(Code), Histogram(Histogram), Mapping(Mapping), CPU(CPU),
        Rates(Rates), Options(Options), Result(Result),
        Ready(Code, Histogram, Mapping, Options.Parts, Options.IsOwnRun) {
    if (!Options.Plain)
      Samples.emplace(Code, Histogram, Mapping);
  }

  Error run();

private:
  void collectWindows();
  Error simulate(ReadyWindow &W) const;
  void addWindows(std::vector<Simulated> &ByBlock);
  void addUp();

  const Program &Code;
  const BlockHistogram &Histogram;
  const BlockMapping &Mapping;
  const CPUParameters &CPU;
  EventRates *Rates;
  const SimulationOptions &Options;
  CostResult &Result;

  ReadyBlocks Ready;
  /// Nothing if windows alone are simulated.
  std::optional<SampleSimulation> Samples;
  std::vector<ReadyWindow> Windows;
};

} // namespace

void Simulation::collectWindows() {
  // Windows become one if they differ only in blocks that the candidate lacks,
  // or that lie too far back to matter.
  uint64_t Covered = 0;
  std::map<std::vector<unsigned>, uint64_t> Counts;
  for (const Window &W : Histogram.Windows) {
    std::optional<unsigned> Last = Mapping.of(W.Blocks.back());
    if (!Last)
      continue;
    // Samples tell more: a core looks further ahead than a window reaches back.
    if (Samples && Samples->suffice(*Last)) {
      Covered += W.Count;
      continue;
    }
    std::vector<unsigned> Blocks{*Last};
    unsigned Context = 0;
    for (unsigned B : drop_begin(reverse(W.Blocks))) {
      if (Context >= Options.ContextInstructions)
        break;
      std::optional<unsigned> Own = Mapping.of(B);
      if (!Own)
        continue;
      Context += Result.Blocks[*Own].Instructions;
      Blocks.push_back(*Own);
    }
    std::reverse(Blocks.begin(), Blocks.end());
    Counts[std::move(Blocks)] += W.Count;
  }
  std::vector<ReadyWindow> All;
  for (const auto &[Blocks, Count] : Counts) {
    ReadyWindow &W = All.emplace_back();
    W.Blocks = Blocks;
    W.Count = Count;
  }
  llvm::sort(All, [](const ReadyWindow &A, const ReadyWindow &B) {
    return std::tie(B.Count, A.Blocks) < std::tie(A.Count, B.Blocks);
  });
  Result.Windows = All.size();

  // The most frequent ones are simulated.
  for (ReadyWindow &W : All) {
    if (Covered >= Options.Coverage * Result.Executions)
      break;
    Covered += W.Count;
    double Share = double(W.Count) / Result.Executions;
    uint64_t Visits =
        std::min<uint64_t>({uint64_t(Share * AllVisits), W.Count, MaxVisits});
    if (Rates || !Histogram.Branches.empty())
      W.Visits = llvm::bit_floor(std::max<uint64_t>(Visits, 1));
    Windows.push_back(std::move(W));
  }
  Result.SimulatedWindows = Windows.size();
  if (Result.Executions)
    Result.Covered = double(Covered) / Result.Executions;
}

/// The cycles that the last block of a sequence adds.
static unsigned marginal(ArrayRef<unsigned> Finished) {
  return Finished.back() - (Finished.size() > 1 ? Finished.end()[-2] : 0);
}

Error Simulation::simulate(ReadyWindow &W) const {
  SmallVector<const SimBlock *, 16> Blocks;
  for (unsigned B : W.Blocks)
    Blocks.push_back(&Ready[B].Sim);
  if (Options.Plain) {
    Expected<unsigned> Execution = Ready.simulator().plainCycles(Blocks);
    if (!Execution)
      return Execution.takeError();
    W.PerExecution.Execution = *Execution;
    W.Simulations = 1;
    return Error::success();
  }
  SimWindow Sequence = Ready.simulator().window(Blocks);
  uint64_t Key = 0;
  for (unsigned B : ArrayRef(W.Blocks).take_back(KeyBlocks))
    Key = Key * 31 + Ready[B].Key;
  StratifiedDraw Drawn(Key, W.Visits);

  // Most visits have a set of events that was simulated before.
  std::map<std::vector<unsigned>, unsigned> Known;
  auto Simulate = [&](const WindowEvents &Events) {
    std::vector<unsigned> Set;
    for (const BitVector *Bits : {&Events.Miss, &Events.FirstLevelMiss,
                                  &Events.Mispredict, &Events.FetchMiss}) {
      Set.insert(Set.end(), Bits->set_bits_begin(), Bits->set_bits_end());
      Set.push_back(~0u);
    }
    auto [It, Inserted] = Known.try_emplace(std::move(Set));
    if (Inserted)
      It->second = marginal(Ready.simulator().finish(Sequence, Events));
    return double(It->second);
  };
  Cycles Sum;
  for (unsigned Visit = 0; Visit != W.Visits; ++Visit) {
    WindowEvents All(Sequence.Stream.size());
    for (auto [Index, B] : enumerate(W.Blocks)) {
      unsigned FromEnd = W.Blocks.size() - Index;
      auto Draw = [&](unsigned Ordinal, DrawKind Kind) {
        return Drawn(FromEnd, Ordinal, Kind, Visit);
      };
      Ready.drawEvents(B, Index, Sequence, RecordedEvents(), Draw, All);
    }
    Sum += differences(simulateParts(All, Simulate));
  }
  W.PerExecution = Sum * (1.0 / W.Visits);
  W.Simulations = Known.size();
  return Error::success();
}

void Simulation::addWindows(std::vector<Simulated> &ByBlock) {
  for (const ReadyWindow &W : Windows) {
    Simulated &S = ByBlock[W.Blocks.back()];
    S.Executions += W.Count;
    S.Cost += W.PerExecution * W.Count;
    Result.Simulations += W.Simulations;
    for (unsigned B : W.Blocks)
      Result.SimulatedInstructions +=
          uint64_t(W.Simulations) * Ready[B].Sim.NumInstructions;
  }
}

void Simulation::addUp() {
  std::vector<Simulated> ByBlock(Result.Blocks.size());
  addWindows(ByBlock);
  if (Samples)
    Samples->addTo(ByBlock, Ready, Result);

  // Rare windows cost what the block's other windows do. An instruction of a
  // rare block costs what those of other blocks do.
  Cycles Sum;
  double Instructions = 0, Executions = 0;
  std::vector<BlockCost *> Rare;
  for (auto [Block, S] : zip_equal(Result.Blocks, ByBlock)) {
    if (!Block.Executions)
      continue;
    if (!S.Executions) {
      Rare.push_back(&Block);
      continue;
    }
    Block.Total = S.Cost * (Block.Executions / S.Executions);
    Sum += Block.Total;
    Instructions += double(Block.Executions) * Block.Instructions;
    Executions += Block.Executions;
  }
  for (BlockCost *Block : Rare)
    if (Instructions)
      Block->Total = Sum * (double(Block->Executions) * Block->Instructions /
                            Instructions);
  if (Executions)
    Result.UnmappedCycles = Sum * (Result.UnmappedExecutions / Executions);
}

Error Simulation::run() {
  collectWindows();
  BitVector Needed(Code.blocks().size());
  for (const ReadyWindow &W : Windows)
    for (unsigned B : W.Blocks)
      Needed.set(B);
  if (Samples)
    Samples->addNeeded(Needed);
  if (Error E = Ready.prepare(Needed, CPU, Rates, Result))
    return E;
  if (Samples)
    Samples->simulate(Ready);
  std::vector<std::string> Errors(Windows.size());
  parallelFor(0, Windows.size(), [&](size_t I) {
    if (Error E = simulate(Windows[I]))
      Errors[I] = toString(std::move(E));
  });
  for (const std::string &Message : Errors)
    if (!Message.empty())
      return createStringError(Message);
  addUp();
  return Error::success();
}

Error tracecost::simulate(const Program &Code, const BlockHistogram &Histogram,
                          const BlockMapping &Mapping, const CPUParameters &CPU,
                          EventRates *Rates, const SimulationOptions &Options,
                          CostResult &Result) {
  return Simulation(Code, Histogram, Mapping, CPU, Rates, Options, Result)
      .run();
}
