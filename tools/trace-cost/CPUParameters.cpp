//===- CPUParameters.cpp - What MCA doesn't know of a CPU -----------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CPUParameters.h"
#include "llvm/Support/BoundedJSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include <cmath>
#include <map>

using namespace llvm;
using namespace llvm::tracecost;

namespace {

struct Parameter {
  double Value;
};

bool fromJSON(const json::Value &V, Parameter &Result, json::Path P) {
  json::ObjectMapper O(V, P);
  return O && O.map("value", Result.Value);
}

struct CPUFile {
  std::string Format;
  int64_t Version;
  std::string Name;
  std::string SchedModel;
  std::map<std::string, Parameter> Parameters;
};

bool fromJSON(const json::Value &V, CPUFile &File, json::Path P) {
  json::ObjectMapper O(V, P);
  return O && O.map("format", File.Format) && O.map("version", File.Version) &&
         O.map("name", File.Name) && O.map("mcpu", File.SchedModel) &&
         O.map("parameters", File.Parameters);
}

} // namespace

Expected<CPUParameters> tracecost::readCPUParameters(StringRef Path) {
  ErrorOr<std::unique_ptr<MemoryBuffer>> Buffer = MemoryBuffer::getFile(Path);
  if (!Buffer)
    return createFileError(Path, Buffer.getError());
  return parseCPUParameters(Path, (*Buffer)->getBuffer());
}

Expected<CPUParameters> tracecost::parseCPUParameters(StringRef Path,
                                                      StringRef Contents) {
  Expected<json::Value> Value = json::parseBounded(Contents);
  if (!Value)
    return createFileError(Path, Value.takeError());
  CPUFile File;
  json::Path::Root Root;
  if (!fromJSON(*Value, File, Root))
    return createFileError(Path, Root.getError());
  if (File.Format != "compiler-opt-perf/cpu")
    return createFileError(Path, createStringError("not a CPU file"));
  if (File.Version != 1)
    return createFileError(Path,
                           createStringError("version " + Twine(File.Version) +
                                             ", this tool reads version 1"));

  CPUParameters Result;
  Result.Name = File.Name;
  Result.SchedModel = File.SchedModel;
  unsigned MoveElimination, ImmediateAddition, OtherForward;
  // No CPU has it.
  constexpr unsigned NoOtherForward = 101;
  struct {
    StringRef Name;
    unsigned *Place;
    unsigned Low, High;
    /// Of files that don't have the parameter.
    std::optional<unsigned> Default = {};
  } Table[] = {
      {"l2_latency", &Result.L2Latency, 0, 1000, 14},
      {"outstanding_misses", &Result.OutstandingMisses, 0, 10000, 0},
      {"move_elimination", &MoveElimination, 0, 1, 0},
      {"immediate_addition", &ImmediateAddition, 0, 1, 0},
      {"memory_latency", &Result.MemoryLatency, 1, 10000},
      {"store_forward_latency", &Result.StoreForwardLatency, 0, 100},
      {"other_forward_latency", &OtherForward, 0, 100, NoOtherForward},
      {"failed_forward_latency", &Result.FailedForwardLatency, 0, 100, 14},
      {"alias_4k_latency", &Result.Alias4KLatency, 0, 100, 0},
      {"mispredict_penalty", &Result.MispredictPenalty, 0, 1000},
      {"icache_miss_penalty", &Result.ICacheMissPenalty, 0, 1000},
      {"itlb_miss_penalty", &Result.ITLBMissPenalty, 0, 1000, 7},
      {"fetch_bytes", &Result.FetchBytes, 1, 1024, 16},
      {"dispatch_width", &Result.DispatchWidth, 1, 64}};
  for (const auto &[Name, Place, Low, High, Default] : Table) {
    auto It = File.Parameters.find(Name.str());
    if (It == File.Parameters.end() && Default) {
      *Place = *Default;
      continue;
    }
    if (It == File.Parameters.end())
      return createFileError(
          Path, createStringError("parameters." + Name + " is missing"));
    // The pipeline knows whole cycles only.
    double Value = std::round(It->second.Value);
    if (!(Value >= Low && Value <= High))
      return createFileError(Path, createStringError("parameters." + Name +
                                                     " must be " + Twine(Low) +
                                                     " to " + Twine(High)));
    *Place = Value;
  }
  Result.MoveElimination = MoveElimination;
  Result.ImmediateAddition = ImmediateAddition;
  if (OtherForward != NoOtherForward)
    Result.OtherForwardLatency = OtherForward;
  return Result;
}
