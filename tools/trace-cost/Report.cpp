//===- Report.cpp - What a candidate costs, as JSON -----------------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Report.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/JSON.h"

using namespace llvm;
using namespace llvm::tracecost;

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

/// The sums over the blocks of a function that was executed.
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
        if (HasCycles && Cost.FailedForwards)
          J.attributeArray("failed_forwards", [&] {
            for (auto [Offset, Share] : *Cost.FailedForwards)
              J.value(json::Array{Offset, Share});
          });
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

void tracecost::writeReport(raw_ostream &OS, const Program &Code,
                            const BlockHistogram &Histogram,
                            const CostResult &R, StringRef Model,
                            const CPUParameters *CPU, bool HasProfile) {
  bool HasCycles = CPU != nullptr;
  std::vector<FunctionCost> Functions = sumUp(Code, R);
  double Instructions = R.UnmappedInstructions,
         Allocation = R.UnmappedAllocation;
  Cycles Total = R.UnmappedCycles;
  for (const FunctionCost &F : Functions) {
    Instructions += F.Instructions;
    Allocation += F.Allocation;
    Total += F.Total;
  }
  // Attributes come in the order of their names.
  json::OStream J(OS, /*IndentSize=*/2);
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
    J.attribute("model", Model);
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
  J.flush();
  OS << '\n';
}
