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

#include "Cost.h"
#include "EventRates.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Parallel.h"
#include "llvm/Support/TargetSelect.h"
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
               cl::desc("The binary that was traced: blocks are then compared "
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
    "model", cl::desc("What is predicted"), cl::init(Model::MCAPMU),
    cl::values(clEnumValN(Model::Count, "count", "Retired instructions"),
               clEnumValN(Model::MCA, "mca",
                          "And cycles, by MCA's own model of the CPU"),
               clEnumValN(Model::MCAPMU, "mca-pmu",
                          "And cycles, with the CPU file's figures, stack "
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
                   "fed to, instead of the profile's")),
    cl::cat(Category));
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
    Visits("visits", cl::init(4096),
           cl::desc("How many times events are drawn, over all windows"),
           cl::cat(Category));
static cl::opt<unsigned> Threads("threads", cl::init(0),
                                 cl::desc("0: one a core (default)"),
                                 cl::cat(Category));
static cl::opt<std::string> OutputPath("o", cl::init("-"),
                                       cl::value_desc("file"),
                                       cl::desc("Where the JSON goes"),
                                       cl::cat(Category));

/// More have no use on any machine, and their stacks need address space.
static constexpr unsigned MaxThreads = 256;

static ExitOnError ExitOnErr;

static void write(json::OStream &J, const Cycles &C) {
  J.object([&] {
    J.attribute("execution", C.Execution);
    J.attribute("front_end", C.FrontEnd);
    J.attribute("l1_miss", C.FirstLevelMiss);
    J.attribute("llc_miss", C.LLCMiss);
    J.attribute("mispredict", C.Mispredict);
    J.attribute("total", C.total());
  });
}

static json::Value orNull(std::optional<double> Value) {
  return Value ? json::Value(*Value) : nullptr;
}

static json::Value known(const KnownShare &Share) {
  return Share.All ? json::Value(Share.Known / Share.All) : nullptr;
}

namespace {

/// A function that was executed, and the sums over its blocks.
struct FunctionCost {
  const CodeFunction &Function;
  ArrayRef<CodeBlock> Blocks;
  ArrayRef<BlockCost> Costs;
  std::optional<double> StandardError = std::nullopt;
  uint64_t Entries = 0;
  double Instructions = 0, Allocation = 0;
  Cycles Total = {};
};

} // namespace

static std::vector<FunctionCost> sumUp(const Program &Code,
                                       const CostResult &R) {
  std::vector<FunctionCost> Result;
  for (auto [Index, Function] : enumerate(Code.functions())) {
    FunctionCost Sum{
        Function, Code.blocks(Function),
        ArrayRef(R.Blocks).slice(Function.FirstBlock, Function.NumBlocks)};
    if (!R.FunctionErrors.empty())
      Sum.StandardError = R.FunctionErrors[Index];
    bool IsExecuted = false;
    for (auto [Block, Cost] : zip(Sum.Blocks, Sum.Costs)) {
      if (!Cost.Executions)
        continue;
      IsExecuted = true;
      Sum.Instructions += Cost.executedInstructions();
      Sum.Allocation += Cost.Executions * Cost.Allocation;
      Sum.Total += Cost.Total;
      if (Block.IsEntry)
        Sum.Entries += Cost.Executions;
    }
    if (IsExecuted)
      Result.push_back(Sum);
  }
  return Result;
}

static void write(json::OStream &J, const FunctionCost &F, bool HasCycles) {
  J.object([&] {
    J.attribute("allocation", F.Allocation);
    J.attributeArray("blocks", [&] {
      for (auto [Block, Cost] : zip(F.Blocks, F.Costs)) {
        if (!Cost.Executions)
          continue;
        J.objectBegin();
        J.attribute("allocation", Cost.Executions * Cost.Allocation);
        if (HasCycles) {
          J.attributeBegin("cycles");
          write(J, Cost.Total);
          J.attributeEnd();
        }
        J.attribute("executions", Cost.Executions);
        J.attribute("id", Block.ID);
        J.attribute("instructions", Cost.executedInstructions());
        if (HasCycles)
          J.attribute("standard_error", orNull(Cost.StandardError));
        J.objectEnd();
      }
    });
    if (HasCycles) {
      J.attributeBegin("cycles");
      write(J, F.Total);
      J.attributeEnd();
    }
    J.attribute("entries", F.Entries);
    J.attribute("instructions", F.Instructions);
    J.attribute("name", F.Function.Name);
    if (HasCycles)
      J.attribute("standard_error", orNull(F.StandardError));
  });
}

/// The names of attributes are in order.
static void writeReport(json::OStream &J, const Program &Code,
                        const BlockHistogram &Histogram, const CostResult &R,
                        const CPUParameters *CPU, bool HasProfile) {
  bool HasCycles = CostModel != Model::Count;
  std::vector<FunctionCost> Functions = sumUp(Code, R);
  double Instructions = R.UnmappedInstructions,
         Allocation = R.UnmappedAllocation;
  Cycles Total = R.UnmappedCycles;
  for (const FunctionCost &F : Functions) {
    Instructions += F.Instructions;
    Allocation += F.Allocation;
    Total += F.Total;
  }
  J.object([&] {
    J.attributeObject("added", [&] {
      J.attribute("blocks", R.AddedBlocks);
      J.attribute("executions", R.AddedExecutions);
      J.attribute("unknown_blocks", R.UnknownBlocks);
    });
    J.attribute("allocation", Allocation);
    J.attributeObject("changed", [&] {
      J.attribute("executions", R.ChangedExecutions);
      J.attributeArray("functions", [&] {
        for (const std::string &Name : R.ChangedFunctions)
          J.value(Name);
      });
    });
    if (HasCycles) {
      J.attribute("cpu", CPU->Name);
      J.attributeBegin("cycles");
      write(J, Total);
      J.attributeEnd();
    }
    J.attribute("different_executions",
                R.DifferentExecutions ? json::Value(*R.DifferentExecutions)
                                      : nullptr);
    J.attribute("executions", R.Executions);
    J.attributeObject("foreign",
                      [&] { J.attribute("executions", R.ForeignExecutions); });
    J.attribute("format", "compiler-opt-perf/trace-cost");
    J.attributeArray("functions", [&] {
      for (const FunctionCost &F : Functions)
        write(J, F, HasCycles);
    });
    J.attribute("instructions", Instructions);
    J.attribute("model", CostModel == Model::Count ? "count"
                         : CostModel == Model::MCA ? "mca"
                                                   : "mca-pmu");
    if (HasProfile)
      J.attributeObject("profile", [&] {
        J.attribute("known_branches", known(R.Branches));
        J.attribute("known_loads", known(R.Loads));
      });
    if (HasCycles)
      J.attributeArray("sample_residuals", [&] {
        for (double Residual : R.Residuals)
          J.value(Residual);
      });
    if (HasCycles)
      J.attributeObject("simulation", [&] {
        J.attribute("covered", R.Covered);
        J.attribute("instructions", R.SimulatedInstructions);
        J.attribute("simulated_windows", R.SimulatedWindows);
        J.attribute("simulations", R.Simulations);
        J.attribute("windows", R.Windows);
      });
    if (HasCycles)
      J.attribute("standard_error", orNull(R.StandardError));
    J.attributeObject("trace", [&] {
      J.attribute("build_id", Histogram.BuildID);
      J.attribute("executions", Histogram.Total);
      J.attribute("truncated", Histogram.Truncated);
    });
    J.attributeObject("unmapped", [&] {
      J.attribute("allocation", R.UnmappedAllocation);
      J.attribute("ambiguous_executions", R.AmbiguousExecutions);
      J.attribute("blocks", R.UnmappedBlocks);
      if (HasCycles) {
        J.attributeBegin("cycles");
        write(J, R.UnmappedCycles);
        J.attributeEnd();
      }
      J.attribute("executions", R.UnmappedExecutions);
      J.attribute("instructions", R.UnmappedInstructions);
    });
    if (HasCycles)
      J.attributeObject("unsupported", [&] {
        uint64_t Executions = 0;
        for (const auto &[Opcode, Count] : R.Unsupported)
          Executions += Count;
        J.attribute("executions", Executions);
        J.attributeObject("opcodes", [&] {
          for (const auto &[Opcode, Count] : R.Unsupported)
            J.attribute(Opcode, Count);
        });
      });
    J.attribute("version", 2);
  });
}

int main(int argc, char **argv) {
  InitLLVM X(argc, argv);
  InitializeAllTargetInfos();
  InitializeAllTargetMCs();
  InitializeAllDisassemblers();
  InitializeAllTargetMCAs();
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
  if (HasCycles)
    ExitOnErr(Replay->simulate(*CPU, Rates.get(),
                               {ContextInstructions, Coverage, Visits,
                                CostModel == Model::MCA
                                    ? ModelParts::none()
                                    : ModelParts::allBut(Without.getBits()),
                                CostModel == Model::MCA}));

  std::error_code EC;
  ToolOutputFile Output(OutputPath, EC, sys::fs::OF_Text);
  if (EC)
    ExitOnErr(createFileError(OutputPath, EC));
  json::OStream J(Output.os(), /*IndentSize=*/2);
  writeReport(J, Code, Histogram, Replay->result(), CPU ? &*CPU : nullptr,
              Rates != nullptr);
  J.flush();
  Output.os() << '\n';
  Output.os().flush();
  if (Output.os().has_error()) {
    std::error_code Failure = Output.os().error();
    Output.os().clear_error();
    ExitOnErr(createFileError(OutputPath, Failure));
  }
  Output.keep();
  return 0;
}
