//===- ReadyBlocks.cpp - Blocks ready for the pipeline --------------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ReadyBlocks.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/xxhash.h"

using namespace llvm;
using namespace llvm::tracecost;

Error ReadyBlocks::prepare(const BitVector &Needed, const CPUParameters &CPU,
                           EventRates *Rates, CostResult &Result) {
  Expected<std::unique_ptr<Simulator>> SimOrError =
      Simulator::create(Code, CPU, Parts);
  if (!SimOrError)
    return SimOrError.takeError();
  Sim = std::move(*SimOrError);
  Blocks.resize(Code.blocks().size());
  std::vector<const PredictedBranches *> Predicted(Code.blocks().size());
  if (Parts.has(ModelPart::Predictor))
    for (auto [Index, Branches] : enumerate(Histogram.Branches))
      if (std::optional<unsigned> Own = Mapping.of(Index))
        Predicted[*Own] = &Branches;

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

  EventModel Events(Rates, Parts, Result.Loads, Result.Branches);
  std::vector<ExecutedProbabilities> Executed;
  for (const CodeFunction &F : Code.functions()) {
    std::optional<bool> HasFrame;
    for (unsigned B = F.FirstBlock; B != F.FirstBlock + F.NumBlocks; ++B) {
      if (!Needed[B])
        continue;
      if (!HasFrame)
        HasFrame = Code.hasFramePointer(F);
      const CodeBlock &Block = Code.blocks()[B];
      const BlockCost &Cost = Result.Blocks[B];
      Blocks[B] = std::make_unique<ReadyBlock>();
      ReadyBlock &R = *Blocks[B];
      R.Sim = Sim->prepare(Block, *HasFrame, Cost.meanSkipped());
      if (std::optional<unsigned> Original = Originals[B])
        Sim->matchAccesses(R.Sim, *HasFrame, Histogram.Code[*Original],
                           HaveFrames[Histogram.Blocks[*Original].Function]);
      R.Key = xxh3_64bits(F.Name) + Block.ID * 0x9e3779b97f4a7c15;
      R.Events = Events.probabilities(R.Sim, Cost.Executions, Predicted[B]);
      Executed.emplace_back(&R.Events, Cost.Executions);
      for (const std::string &Opcode : R.Sim.Unsupported)
        Result.Unsupported[Opcode] += Cost.Executions;
    }
  }
  if (Rates && IsOwnRun) {
    scaleTo(Rates->number(RateKind::LLCMiss), &EventProbabilities::Miss,
            Executed);
    scaleTo(Rates->number(RateKind::FirstLevelMiss),
            &EventProbabilities::FirstLevelMiss, Executed);
  }
  return Error::success();
}

/// What is recorded of an execution, as far as the parts of the model use it.
static RecordedEvents used(RecordedEvents Result, ModelParts Parts) {
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

EventNumbers ReadyBlocks::drawEvents(unsigned Block, unsigned Index,
                                     const SimWindow &Sequence,
                                     RecordedEvents Recorded, DrawFn Draw,
                                     WindowEvents &Events) const {
  const ReadyBlock &R = *Blocks[Block];
  unsigned First = Index ? Sequence.Ends[Index - 1] : 0;
  return tracecost::drawEvents(
      R.Events,
      ArrayRef(R.Sim.Operations).take_front(Sequence.Ends[Index] - First),
      First, used(std::move(Recorded), Parts), Draw, Events);
}
