//===- Simulation.cpp - Cycles of a candidate's code on a trace -----------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Simulation.h"
#include "EventProbabilities.h"
#include "RatioEstimator.h"
#include "Samples.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Parallel.h"
#include "llvm/Support/xxhash.h"

using namespace llvm;
using namespace llvm::tracecost;

/// How many sets of events are drawn, over all windows.
static constexpr unsigned AllVisits = 4096;
/// The most sets of events that are drawn for one window; more tell little.
static constexpr unsigned MaxVisits = 64;
/// The draws of a window depend on so many of its last blocks.
static constexpr unsigned KeyBlocks = 4;
/// A block that samples visit less often is simulated in its windows.
static constexpr unsigned MinSampleVisits = 16;

namespace {

/// A block that is ready for the pipeline, and its events.
struct ReadyBlock {
  SimBlock Sim;
  EventProbabilities Events;
  /// Identifies the block in all candidates.
  uint64_t Key;
};

struct ReadyWindow {
  std::vector<unsigned> Blocks;
  uint64_t Count;
  unsigned Visits = 1;
  Cycles PerExecution;
  unsigned Simulations = 0;
};

struct ReadySample {
  Sample Run;
  std::vector<Cycles> Costs;
  unsigned Simulations;
};

/// One simulation of a run.
class Simulation {
public:
  Simulation(const Program &Code, const BlockHistogram &Histogram,
             const BlockMapping &Mapping, const CPUParameters &CPU,
             EventRates *Rates, const SimulationOptions &Options,
             CostResult &Result)
      : Code(Code), Histogram(Histogram), Mapping(Mapping), CPU(CPU),
        Rates(Rates), Options(Options), Result(Result) {}

  Error run();

private:
  void collectSamples();
  void collectWindows();
  Error prepareBlocks();
  /// What is recorded of \p Block, as far as the parts of the model use it.
  RecordedEvents recorded(const SampledBlock &Block) const;
  /// Draws the events of the block at \p Index of the sequence \p Window. Some
  /// may be \p Recorded.
  void drawEvents(unsigned Block, unsigned Index, const SimWindow &Window,
                  const RecordedEvents &Recorded, DrawFn Draw,
                  WindowEvents &Events) const;
  void simulate(ReadySample &S) const;
  Error simulate(ReadyWindow &W) const;
  void addUp();
  void estimateErrors(const RatioEstimator &Estimator,
                      const std::vector<bool> &IsEstimated);

  const Program &Code;
  const BlockHistogram &Histogram;
  const BlockMapping &Mapping;
  const CPUParameters &CPU;
  EventRates *Rates;
  const SimulationOptions &Options;
  CostResult &Result;

  std::unique_ptr<Simulator> Sim;
  /// One element for each of Program::blocks(); null if not needed.
  std::vector<std::unique_ptr<ReadyBlock>> Ready;
  std::vector<ReadySample> Samples;
  /// How often samples visit each block behind the warm-up.
  std::vector<unsigned> SampleVisits;
  std::vector<ReadyWindow> Windows;
};

} // namespace

void Simulation::collectSamples() {
  SampleVisits.resize(Code.blocks().size());
  if (Options.Plain)
    return;
  for (Sample &S :
       tracecost::collectSamples(Histogram, Mapping, Code.blocks().size())) {
    for (auto [Index, B] : S.counted())
      ++SampleVisits[B.Block];
    Samples.push_back({std::move(S), {}, 0});
  }
}

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
    if (SampleVisits[*Last] >= MinSampleVisits) {
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

Error Simulation::prepareBlocks() {
  Expected<std::unique_ptr<Simulator>> SimOrError =
      Simulator::create(Code, CPU, Options.Parts);
  if (!SimOrError)
    return SimOrError.takeError();
  Sim = std::move(*SimOrError);
  Ready.resize(Code.blocks().size());
  std::vector<const PredictedBranches *> Predicted(Code.blocks().size());
  if (Options.Parts.has(ModelPart::Predictor))
    for (auto [Index, Branches] : enumerate(Histogram.Branches))
      if (std::optional<unsigned> Own = Mapping.of(Index))
        Predicted[*Own] = &Branches;
  BitVector IsNeeded(Code.blocks().size());
  for (const ReadyWindow &W : Windows)
    for (unsigned B : W.Blocks)
      IsNeeded.set(B);
  for (const ReadySample &S : Samples)
    for (const SampledBlock &B : S.Run.Blocks)
      IsNeeded.set(B.Block);

  // The traced block of each of the candidate's, if its code is known, and
  // whether the traced functions have frame pointers.
  std::vector<std::optional<unsigned>> Originals(Code.blocks().size());
  std::vector<bool> HaveFrames(Histogram.Functions.size());
  for (auto [Index, Bytes] : enumerate(Histogram.Code)) {
    const TracedBlock &Traced = Histogram.Blocks[Index];
    if (Traced.Address == Histogram.Functions[Traced.Function].Address)
      HaveFrames[Traced.Function] = Code.model().setsFramePointer(
          Code.model().decodeAll(Bytes, Traced.Address));
    if (std::optional<unsigned> Own = Mapping.of(Index); Own && !Bytes.empty())
      Originals[*Own] = Index;
  }

  EventModel Events(Rates, Options.Parts, Result.Loads, Result.Branches);
  for (const CodeFunction &F : Code.functions()) {
    std::optional<bool> HasFrame;
    for (unsigned B = F.FirstBlock; B != F.FirstBlock + F.NumBlocks; ++B) {
      if (!IsNeeded[B])
        continue;
      if (!HasFrame)
        HasFrame = Code.hasFramePointer(F);
      const CodeBlock &Block = Code.blocks()[B];
      const BlockCost &Cost = Result.Blocks[B];
      Ready[B] = std::make_unique<ReadyBlock>();
      ReadyBlock &R = *Ready[B];
      R.Sim = Sim->prepare(Block, *HasFrame, Cost.meanSkipped());
      if (std::optional<unsigned> Original = Originals[B])
        Sim->matchAccesses(R.Sim, *HasFrame, Histogram.Code[*Original],
                           HaveFrames[Histogram.Blocks[*Original].Function]);
      R.Key = xxh3_64bits(F.Name) + Block.ID * 0x9e3779b97f4a7c15;
      R.Events = Events.probabilities(R.Sim, Cost.Executions, Predicted[B]);
      for (const std::string &Opcode : R.Sim.Unsupported)
        Result.Unsupported[Opcode] += Cost.Executions;
    }
  }
  return Error::success();
}

RecordedEvents Simulation::recorded(const SampledBlock &Block) const {
  const ModelParts &Parts = Options.Parts;
  RecordedEvents Result = Block.Events;
  if (!Parts.has(ModelPart::Predictor) || !Parts.has(ModelPart::Mispredicts))
    Result.Branches.reset();
  if (!Result.Fetches)
    return Result;
  if (!Parts.has(ModelPart::ICacheMisses))
    Result.Fetches->Lines = 0;
  if (!Parts.has(ModelPart::ITLBMisses))
    Result.Fetches->Pages = 0;
  if (!Parts.has(ModelPart::DecodedCode))
    Result.Fetches->Decoded = 0;
  return Result;
}

void Simulation::drawEvents(unsigned Block, unsigned Index,
                            const SimWindow &Window,
                            const RecordedEvents &Recorded, DrawFn Draw,
                            WindowEvents &Events) const {
  const ReadyBlock &R = *Ready[Block];
  unsigned First = Index ? Window.Ends[Index - 1] : 0;
  tracecost::drawEvents(
      R.Events,
      ArrayRef(R.Sim.Operations).take_front(Window.Ends[Index] - First), First,
      Recorded, Draw, Events);
}

/// Simulates without events, and then with those of one more cause each time.
template <typename SimulateFn>
static auto simulateParts(const WindowEvents &All, SimulateFn Simulate) {
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
static Cycles differences(const std::array<double, 5> &C) {
  return {C[0], C[1] - C[0], C[2] - C[1], C[3] - C[2], C[4] - C[3]};
}

void Simulation::simulate(ReadySample &S) const {
  SmallVector<const SimBlock *, 0> Blocks;
  SmallVector<ArrayRef<TracedAccess>, 0> Accesses;
  for (const SampledBlock &B : S.Run.Blocks) {
    Blocks.push_back(&Ready[B.Block]->Sim);
    Accesses.push_back(B.Accesses);
  }
  SimWindow Sequence = Sim->window(Blocks, Accesses);
  WindowEvents All(Sequence.Stream.size());
  for (auto [Index, B] : enumerate(S.Run.Blocks)) {
    auto Draw = [Key = Ready[B.Block]->Key, Visit = B.Visit](unsigned Ordinal,
                                                             DrawKind Kind) {
      return drawVisit(Key, Ordinal, Kind, Visit);
    };
    drawEvents(B.Block, Index, Sequence, recorded(B), Draw, All);
  }
  auto Finished = simulateParts(All, [&](const WindowEvents &Events) {
    ++S.Simulations;
    return Sim->finish(Sequence, Events);
  });
  for (unsigned Index = 0; Index != S.Run.Blocks.size(); ++Index) {
    std::array<double, 5> Parts;
    for (auto [Cost, F] : zip(Parts, Finished))
      Cost = double(F[Index]) - (Index ? F[Index - 1] : 0);
    S.Costs.push_back(differences(Parts));
  }
}

/// The cycles that the last block of a sequence adds.
static unsigned marginal(ArrayRef<unsigned> Finished) {
  return Finished.back() - (Finished.size() > 1 ? Finished.end()[-2] : 0);
}

Error Simulation::simulate(ReadyWindow &W) const {
  SmallVector<const SimBlock *, 16> Blocks;
  for (unsigned B : W.Blocks)
    Blocks.push_back(&Ready[B]->Sim);
  if (Options.Plain) {
    Expected<unsigned> Execution = Sim->plainCycles(Blocks);
    if (!Execution)
      return Execution.takeError();
    W.PerExecution.Execution = *Execution;
    W.Simulations = 1;
    return Error::success();
  }
  SimWindow Sequence = Sim->window(Blocks);
  uint64_t Key = 0;
  for (unsigned B : ArrayRef(W.Blocks).take_back(KeyBlocks))
    Key = Key * 31 + Ready[B]->Key;
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
      It->second = marginal(Sim->finish(Sequence, Events));
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
      drawEvents(B, Index, Sequence, RecordedEvents(), Draw, All);
    }
    Sum += differences(simulateParts(All, Simulate));
  }
  W.PerExecution = Sum * (1.0 / W.Visits);
  W.Simulations = Known.size();
  return Error::success();
}

void Simulation::addUp() {
  // The executions of a block that were simulated, and their cost.
  struct Simulated {
    double Executions = 0;
    Cycles Cost;
  };
  std::vector<Simulated> InWindows(Result.Blocks.size());
  for (const ReadyWindow &W : Windows) {
    Simulated &S = InWindows[W.Blocks.back()];
    S.Executions += W.Count;
    S.Cost += W.PerExecution * W.Count;
    Result.Simulations += W.Simulations;
    for (unsigned B : W.Blocks)
      Result.SimulatedInstructions +=
          uint64_t(W.Simulations) * Ready[B]->Sim.NumInstructions;
  }
  std::vector<Simulated> InSamples(Result.Blocks.size());
  uint64_t NumVisits = 0;
  for (unsigned Visits : SampleVisits)
    NumVisits += Visits;
  RatioEstimator Estimator(
      Result.Blocks.size(), Histogram.Samples.size(),
      Result.Executions ? double(NumVisits) / Result.Executions : 0);
  for (const ReadySample &S : Samples) {
    for (const SampledBlock &B : S.Run.Blocks)
      Result.SimulatedInstructions +=
          uint64_t(S.Simulations) * Ready[B.Block]->Sim.NumInstructions;
    Result.Simulations += S.Simulations;
    for (auto [Index, B] : S.Run.counted()) {
      ++InSamples[B.Block].Executions;
      InSamples[B.Block].Cost += S.Costs[Index];
      Estimator.add(S.Run.Index, B.Block, S.Costs[Index].total());
    }
  }
  std::vector<bool> IsEstimated(Result.Blocks.size());

  // Rare windows cost what the block's other windows do. An instruction of a
  // rare block costs what those of other blocks do.
  Cycles Sum;
  double Instructions = 0, Executions = 0;
  std::vector<BlockCost *> Rare;
  for (auto [Index, Block] : enumerate(Result.Blocks)) {
    if (!Block.Executions)
      continue;
    const Simulated *S = &InWindows[Index];
    // Few visits tell less than the windows, but more than other blocks.
    if (InSamples[Index].Executions >= MinSampleVisits || !S->Executions)
      S = &InSamples[Index];
    IsEstimated[Index] = S == &InSamples[Index] && S->Executions;
    if (!S->Executions) {
      Rare.push_back(&Block);
      continue;
    }
    Block.Total = S->Cost * (Block.Executions / S->Executions);
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
  if (!Samples.empty())
    estimateErrors(Estimator, IsEstimated);
}

void Simulation::estimateErrors(const RatioEstimator &Estimator,
                                const std::vector<bool> &IsEstimated) {
  std::vector<RatioEstimator::Weight> All, Own;
  for (const CodeFunction &F : Code.functions()) {
    Own.clear();
    for (unsigned B = F.FirstBlock; B != F.FirstBlock + F.NumBlocks; ++B) {
      if (!IsEstimated[B])
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

Error Simulation::run() {
  collectSamples();
  collectWindows();
  if (Error E = prepareBlocks())
    return E;
  parallelFor(0, Samples.size(), [&](size_t I) { simulate(Samples[I]); });
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
