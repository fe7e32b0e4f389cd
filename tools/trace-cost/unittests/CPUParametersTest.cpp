//===- CPUParametersTest.cpp - Readers of CPU files -----------------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CPUParameters.h"
#include "llvm/Testing/Support/Error.h"
#include "gtest/gtest.h"

using namespace llvm;
using namespace llvm::tracecost;
using testing::HasSubstr;

namespace {

std::string file(StringRef Latency = "\"memory_latency\": {\"value\": 205.4},",
                 StringRef Version = "1") {
  return ("{\"format\": \"compiler-opt-perf/cpu\", \"version\": " + Version +
          ", \"name\": \"test\", \"mcpu\": \"skylake\", \"parameters\": {" +
          Latency +
          "\"store_forward_latency\": {\"value\": 5},"
          "\"mispredict_penalty\": {\"value\": 16},"
          "\"icache_miss_penalty\": {\"value\": 14},"
          "\"stack_engine\": {\"value\": 1},"
          "\"dispatch_width\": {\"value\": 4}}}")
      .str();
}

TEST(CPUParametersTest, ReadsFiguresAndDefaults) {
  Expected<CPUParameters> CPU = parseCPUParameters("file", file());
  ASSERT_THAT_EXPECTED(CPU, Succeeded());
  EXPECT_EQ(CPU->SchedModel, "skylake");
  EXPECT_EQ(CPU->MemoryLatency, 205u);
  EXPECT_EQ(CPU->L2Latency, 14u);
  EXPECT_EQ(CPU->ITLBMissPenalty, 7u);
  EXPECT_EQ(CPU->FetchBytes, 16u);
  EXPECT_FALSE(CPU->MoveElimination);
}

TEST(CPUParametersTest, RefusesWhatIsNoFigure) {
  auto Read = [](StringRef Latency) {
    return parseCPUParameters("file", file(Latency));
  };
  EXPECT_THAT_EXPECTED(
      Read(""), FailedWithMessage(HasSubstr("memory_latency is missing")));
  EXPECT_THAT_EXPECTED(Read("\"memory_latency\": {\"value\": 1e300},"),
                       FailedWithMessage(HasSubstr("must be 1 to 10000")));
  EXPECT_THAT_EXPECTED(Read("\"memory_latency\": {\"value\": 205},"
                            "\"fetch_bytes\": {\"value\": 0},"),
                       FailedWithMessage(HasSubstr("must be 1 to 1024")));
  EXPECT_THAT_EXPECTED(Read("\"memory_latency\": {\"value\": \"7\"},"),
                       Failed());
  EXPECT_THAT_EXPECTED(parseCPUParameters("file", file("", "2")),
                       FailedWithMessage(HasSubstr("reads version 1")));
  EXPECT_THAT_EXPECTED(
      parseCPUParameters("file",
                         "{\"parameters\": " + std::string(100000, '[')),
      FailedWithMessage(HasSubstr("nested more than 64 levels deep")));
}

} // namespace
