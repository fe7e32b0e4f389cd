//===- llvm-trace-cost.cpp - Predict the run time of machine code ---------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Predicts what a candidate's machine code would cost on a recorded run,
/// without running it: the blocks that the run executed are looked up in the
/// candidate by their ids and simulated.
///
//===----------------------------------------------------------------------===//

#include "EventRates.h"
#include "Report.h"
#include "Simulation.h"
#include "TraceReplay.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/Parallel.h"
#include "llvm/Support/ToolOutputFile.h"
#include "llvm/Support/WithColor.h"

using namespace llvm;
using namespace llvm::tracecost;

enum class Model { Count, MCA, MCAPMU };

static cl::OptionCategory Category("llvm-trace-cost options");
static cl::list<std::string>
    Inputs(cl::Positional, cl::OneOrMore,
           cl::desc("<object files or a binary, compiled with "
                    "-fbasic-block-address-map>"),
           cl::cat(Category));
static cl::opt<std::string>
    TracePath("trace", cl::Required, cl::value_desc("file"),
              cl::desc("Block trace (*.bbtrace) or window histogram "
                       "(*.bbwindows)"),
              cl::cat(Category));
static cl::opt<std::string>
    TracedPath("traced", cl::value_desc("file"),
               cl::desc("The binary that was traced. Blocks are then compared "
                        "by what their instructions compute"),
               cl::cat(Category));
static cl::opt<double> MaxUnmapped(
    "max-unmapped", cl::init(0.01),
    cl::desc("Share of executions, up to 1, of blocks that the candidate does "
             "not have; a trace with more is refused. Each of them is charged "
             "what the others cost on average"),
    cl::cat(Category));
static cl::opt<std::string> CPUPath("cpu", cl::value_desc("file"),
                                    cl::desc("CPU file (JSON)"),
                                    cl::cat(Category));
static cl::opt<Model> CostModel(
    "model", cl::desc("The model of the cost"), cl::init(Model::MCAPMU),
    cl::values(clEnumValN(Model::Count, "count", "Retired instructions"),
               clEnumValN(Model::MCA, "mca",
                          "Cycles, too, by MCA's own model of the CPU"),
               clEnumValN(Model::MCAPMU, "mca-pmu",
                          "Cycles, too, with the CPU file's figures, stack "
                          "slots and, with -pmu-profile, events (default)")),
    cl::cat(Category));
static cl::bits<ModelPart> Without(
    "without", cl::CommaSeparated,
    cl::desc("Parts that mca-pmu leaves out, to tell what each of them is for"),
    cl::values(
        clEnumValN(ModelPart::StackSlots, "stack-slots",
                   "Loads of stack slots wait for the last store there"),
        clEnumValN(ModelPart::DispatchWidth, "dispatch-width",
                   "The CPU file's dispatch width instead of LLVM's"),
        clEnumValN(ModelPart::LLCMisses, "llc-misses",
                   "Misses of the last-level cache"),
        clEnumValN(ModelPart::Mispredicts, "mispredicts",
                   "Mispredicted branches"),
        clEnumValN(ModelPart::ICacheMisses, "icache-misses",
                   "Misses of the instruction cache"),
        clEnumValN(ModelPart::Renaming, "renaming",
                   "Instructions that the renamer does, and fused ones"),
        clEnumValN(ModelPart::OutstandingMisses, "outstanding-misses",
                   "Loads from memory wait when too many are under way"),
        clEnumValN(ModelPart::FirstLevelMisses, "l1-misses",
                   "Loads from the second-level cache"),
        clEnumValN(ModelPart::TakenBranches, "taken-branches",
                   "At most one taken branch is fetched in a cycle"),
        clEnumValN(ModelPart::OtherStores, "other-stores",
                   "Loads of other memory wait for the last store there"),
        clEnumValN(ModelPart::Predictor, "predictor",
                   "Mispredictions of the predictor that the trace was "
                   "fed to, instead of the profile's"),
        clEnumValN(ModelPart::FailedForwarding, "failed-forwarding",
                   "Loads of more than the last store wrote wait for the "
                   "cache"),
        clEnumValN(ModelPart::Aliasing4K, "4k-aliasing",
                   "Loads wait for stores to the same place of other pages"),
        clEnumValN(ModelPart::ITLBMisses, "itlb-misses",
                   "Misses of the first-level TLB of code"),
        clEnumValN(ModelPart::DecodedCode, "decoded-code",
                   "What is not in the cache of decoded code takes the "
                   "decoders' time")),
    cl::cat(Category));
static cl::opt<bool> OwnRun(
    "own-run",
    cl::desc("The trace and the PMU profile are of one run of the code, so "
             "that as many loads miss as the profile counts"));
static cl::opt<unsigned> ContextBlocks(
    "context-blocks", cl::init(8),
    cl::desc("The most blocks simulated before the one whose cost is taken"),
    cl::cat(Category));
static cl::opt<unsigned> ContextInstructions(
    "context-instructions", cl::init(96),
    cl::desc("Instructions after which the context needs no further block"),
    cl::cat(Category));
static cl::opt<double> Coverage(
    "coverage", cl::init(0.999),
    cl::desc("Share of executions, up to 1, that are simulated; rarer windows "
             "cost what the others of the same block do, and rarer blocks what "
             "the others do"),
    cl::cat(Category));
static cl::opt<unsigned>
    Threads("threads", cl::init(0),
            cl::desc("The number of threads; 0, the default, is one a core"),
            cl::cat(Category));
static cl::opt<std::string>
    OutputPath("o", cl::init("-"), cl::value_desc("file"),
               cl::desc("Where the report goes, as JSON"), cl::cat(Category));

/// More threads help on no machine, and their stacks need address space.
static constexpr unsigned MaxThreads = 256;

static ExitOnError ExitOnErr;

int main(int argc, char **argv) {
  InitLLVM X(argc, argv);
  cl::ParseCommandLineOptions(
      argc, argv,
      "Predicts the instructions and core cycles of a candidate's machine "
      "code on a recorded run\n");
  ExitOnErr.setBanner("llvm-trace-cost: error: ");

  bool HasCycles = CostModel != Model::Count;
  if (HasCycles && CPUPath.empty())
    ExitOnErr(createStringError("the models of cycles need a CPU: -cpu=FILE"));
  if (!(Coverage > 0 && Coverage <= 1))
    ExitOnErr(
        createStringError("-coverage must be more than 0, and at most 1"));
  if (!(MaxUnmapped >= 0 && MaxUnmapped <= 1))
    ExitOnErr(createStringError("-max-unmapped must be 0 to 1"));
  if (ContextBlocks >= MaxWindowLength)
    ExitOnErr(createStringError("-context-blocks must be at most " +
                                Twine(MaxWindowLength - 1)));
  if (Threads > MaxThreads)
    ExitOnErr(
        createStringError("-threads must be at most " + Twine(MaxThreads)));
  if (CostModel != Model::MCAPMU && EventRates::isRequested())
    ExitOnErr(createStringError("only the model mca-pmu uses -pmu-profile"));
  if (CostModel != Model::MCAPMU && OwnRun)
    ExitOnErr(createStringError("only the model mca-pmu uses -own-run"));
  if (CostModel != Model::MCAPMU && Without.getBits())
    ExitOnErr(createStringError("only the model mca-pmu has parts to leave "
                                "out; drop -without"));
  if (Threads)
    parallel::strategy = hardware_concurrency(Threads);

  std::optional<CPUParameters> CPU;
  if (HasCycles)
    CPU = ExitOnErr(readCPUParameters(CPUPath));
  Expected<std::unique_ptr<TargetModel>> Target =
      TargetModel::create(Triple::x86_64, CPU ? CPU->SchedModel : "x86-64");
  if (!Target)
    ExitOnErr(createFileError(CPUPath, Target.takeError()));
  Program Code(**Target), Traced(**Target);
  for (const std::string &Input : Inputs)
    ExitOnErr(Code.add(Input));
  if (!TracedPath.empty())
    ExitOnErr(Traced.add(TracedPath));
  BlockHistogram Histogram =
      ExitOnErr(readBlockHistogram(TracePath, ContextBlocks + 1));
  if (Histogram.Truncated)
    WithColor::warning(errs(), "llvm-trace-cost")
        << TracePath << ": the recording was cut off; what there is is used\n";
  Expected<TraceReplay> Replay = TraceReplay::create(
      Code, Histogram, TracedPath.empty() ? nullptr : &Traced, MaxUnmapped);
  if (!Replay)
    ExitOnErr(createFileError(TracePath, Replay.takeError()));

  LLVMContext Ctx;
  std::unique_ptr<EventRates> Rates;
  if (EventRates::isRequested())
    Rates = ExitOnErr(EventRates::create(Ctx, Code));
  CostResult Result = Replay->takeResult();
  if (HasCycles)
    ExitOnErr(simulate(Code, Histogram, Replay->mapping(), *CPU, Rates.get(),
                       {ContextInstructions, Coverage,
                        CostModel == Model::MCA
                            ? ModelParts::none()
                            : ModelParts::allBut(Without.getBits()),
                        CostModel == Model::MCA, OwnRun},
                       Result));

  std::error_code EC;
  ToolOutputFile Output(OutputPath, EC, sys::fs::OF_Text);
  if (EC)
    ExitOnErr(createFileError(OutputPath, EC));
  StringRef ModelName = CostModel == Model::Count ? "count"
                        : CostModel == Model::MCA ? "mca"
                                                  : "mca-pmu";
  writeReport(Output.os(), Code, Histogram, Result, ModelName,
              CPU ? &*CPU : nullptr, Rates != nullptr);
  Output.os().flush();
  if (Output.os().has_error()) {
    std::error_code Failure = Output.os().error();
    Output.os().clear_error();
    ExitOnErr(createFileError(OutputPath, Failure));
  }
  Output.keep();
  return 0;
}
