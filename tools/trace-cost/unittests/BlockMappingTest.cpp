//===- BlockMappingTest.cpp - Blocks of a trace in a candidate
//-------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BlockMapping.h"
#include "llvm/ObjectYAML/yaml2obj.h"
#include "llvm/Support/YAMLTraits.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Testing/Support/Error.h"
#include "gtest/gtest.h"

using namespace llvm;
using namespace llvm::tracecost;
using testing::HasSubstr;

namespace {

// addq %rcx, %rax; the same with other registers; subq %rcx, %rax.
constexpr StringLiteral Add = "4801c8", OtherAdd = "4c01db", Sub = "4829c8";

struct TestBlock {
  uint32_t ID;
  StringRef Code;
};
struct TestFunction {
  StringRef Name;
  std::vector<TestBlock> Blocks;
};

class BlockMappingTest : public testing::Test {
protected:
  void SetUp() override {
    Expected<std::unique_ptr<TargetModel>> M =
        TargetModel::create(Triple::x86_64, "x86-64");
    ASSERT_THAT_EXPECTED(M, Succeeded());
    Model = std::move(*M);
  }

  /// A program of these functions, one after the other from 0x1000.
  std::unique_ptr<Program> program(ArrayRef<TestFunction> Functions) {
    std::string Code, Map, Symbols, YAML;
    raw_string_ostream MapOS(Map), SymbolsOS(Symbols), OS(YAML);
    for (auto [Index, F] : enumerate(Functions)) {
      uint64_t Address = 0x1000 + Code.size() / 2;
      MapOS
          << "      - Version: 2\n        BBRanges:\n          - BaseAddress: "
          << Address << "\n            BBEntries:\n";
      for (const TestBlock &B : F.Blocks) {
        MapOS << "              - {ID: " << B.ID
              << ", AddressOffset: 0, Size: " << B.Code.size() / 2
              << ", Metadata: 0}\n";
        Code += B.Code;
      }
      // yaml2obj leaves the number out.
      SymbolsOS << "  - {Name: '" << F.Name << " (" << Index
                << ")', Type: STT_FUNC, Section: .text, Value: " << Address
                << "}\n";
    }
    OS << "--- !ELF\nFileHeader:\n  Class: ELFCLASS64\n  Data: ELFDATA2LSB\n"
          "  Type: ET_EXEC\n  Machine: EM_X86_64\nSections:\n"
          "  - Name: .text\n    Type: SHT_PROGBITS\n"
          "    Flags: [SHF_ALLOC, SHF_EXECINSTR]\n    Address: 0x1000\n"
          "    Content: '"
       << Code
       << "'\n  - Name: .llvm_bb_addr_map\n    Type: SHT_LLVM_BB_ADDR_MAP\n"
          "    Link: .text\n    Entries:\n"
       << Map << "Symbols:\n"
       << Symbols;
    SmallString<0> Storage;
    raw_svector_ostream Out(Storage);
    yaml::Input In(YAML);
    auto Result = std::make_unique<Program>(*Model);
    bool IsMade = yaml::convertYAML(
        In, Out, [](const Twine &Message) { ADD_FAILURE() << Message.str(); });
    if (!IsMade)
      return nullptr;
    std::unique_ptr<MemoryBuffer> Buffer =
        MemoryBuffer::getMemBufferCopy(Storage, "file");
    Expected<std::unique_ptr<object::Binary>> Binary =
        object::createBinary(*Buffer);
    EXPECT_THAT_EXPECTED(Binary, Succeeded());
    EXPECT_THAT_ERROR(
        Result->add("file", {std::move(*Binary), std::move(Buffer)}),
        Succeeded());
    return Result;
  }

  /// The table of a trace of program(Functions).
  BlockHistogram trace(ArrayRef<TestFunction> Functions) {
    BlockHistogram H;
    uint64_t Address = 0x1000;
    for (auto [Index, F] : enumerate(Functions)) {
      TracedFunction &Traced = H.Functions.emplace_back();
      Traced.Name = F.Name.str();
      Traced.Address = Address;
      for (const TestBlock &B : F.Blocks) {
        H.Blocks.push_back({unsigned(Index), B.ID});
        Address += B.Code.size() / 2;
      }
    }
    return H;
  }

  BlockMapping map(ArrayRef<TestFunction> Candidate,
                   ArrayRef<TestFunction> Traced, bool WithProgram = false) {
    Code = program(Candidate);
    Original = program(Traced);
    BlockHistogram H = trace(Traced);
    Expected<BlockMapping> M =
        mapBlocks(*Code, H, WithProgram ? Original.get() : nullptr);
    EXPECT_THAT_EXPECTED(M, Succeeded());
    return std::move(*M);
  }

  std::unique_ptr<TargetModel> Model;
  std::unique_ptr<Program> Code, Original;
};

TEST_F(BlockMappingTest, BlocksAreFoundByTheirIDs) {
  BlockMapping M =
      map({{"g", {{0, Add}}}, {"f", {{2, Add}, {0, Sub}}}},
          {{"f", {{0, Add}, {1, Add}, {2, Add}}}, {"h", {{0, Add}}}});
  EXPECT_EQ(M.of(0), 2u);
  EXPECT_EQ(M.Matches[1], Match::Missing);
  EXPECT_EQ(M.of(2), 1u);
  EXPECT_EQ(M.Matches[3], Match::Foreign);
  EXPECT_EQ(M.Changed, std::set<unsigned>{0});
  EXPECT_EQ(M.Different, std::nullopt);
}

TEST_F(BlockMappingTest, IDsMayBeAnyNumbers) {
  // Those that hash tables give a meaning of their own.
  BlockMapping M = map({{"f", {{0, Add}, {0xFFFFFFFF, Add}}}},
                       {{"f", {{0xFFFFFFFE, Add}, {0xFFFFFFFF, Add}}}});
  EXPECT_EQ(M.Matches[0], Match::Missing);
  EXPECT_EQ(M.of(1), 1u);
}

TEST_F(BlockMappingTest, BlocksOfOneIDAreInOrder) {
  BlockMapping M =
      map({{"f", {{0, Add}, {0, Add}}}, {"g", {{0, Add}}}},
          {{"f", {{0, Add}, {0, Add}, {0, Add}}}, {"g", {{0, Add}}}});
  EXPECT_EQ(M.of(0), 0u);
  EXPECT_EQ(M.of(1), 1u);
  EXPECT_EQ(M.Matches[2], Match::Missing);
  EXPECT_EQ(M.of(3), 2u);
  EXPECT_EQ(M.Changed, std::set<unsigned>{0});
}

TEST_F(BlockMappingTest, FunctionsOfOneNameAreToldByTheirIDs) {
  BlockMapping M =
      map({{"f", {{0, Add}, {2, Add}}}},
          {{"f", {{0, Add}, {1, Add}}}, {"f", {{0, Add}, {2, Add}}}});
  EXPECT_EQ(M.Matches[0], Match::Foreign);
  EXPECT_EQ(M.of(2), 0u);
  EXPECT_EQ(M.of(3), 1u);
}

TEST_F(BlockMappingTest, WhatCannotBeToldIsAmbiguous) {
  BlockMapping M =
      map({{"f", {{0, Add}}}, {"f", {{0, Add}}}}, {{"f", {{0, Add}}}});
  EXPECT_EQ(M.Matches[0], Match::Ambiguous);
  M = map({{"f", {{0, Add}}}}, {{"f", {{0, Add}}}, {"f", {{0, Add}}}});
  EXPECT_EQ(M.Matches[0], Match::Ambiguous);
  EXPECT_EQ(M.Matches[1], Match::Ambiguous);
}

TEST_F(BlockMappingTest, FunctionsOfOneNameAreToldByContent) {
  std::vector<TestFunction> Traced{{"f", {{0, Add}}}, {"f", {{0, Sub}}}};
  BlockMapping M =
      map({{"f", {{0, Sub}}}, {"f", {{0, OtherAdd}}}}, Traced, true);
  EXPECT_EQ(M.of(0), 1u);
  EXPECT_EQ(M.of(1), 0u);
  EXPECT_TRUE(M.Different->empty());
  M = map({{"f", {{0, OtherAdd}}}}, Traced, true);
  EXPECT_EQ(M.of(0), 0u);
  EXPECT_EQ(M.Matches[1], Match::Foreign);
}

TEST_F(BlockMappingTest, BlocksThatComputeSomethingElseAreNamed) {
  BlockMapping M = map({{"f", {{0, OtherAdd}, {1, Sub}}}},
                       {{"f", {{0, Add}, {1, Add}}}}, true);
  EXPECT_EQ(M.of(1), 1u);
  EXPECT_EQ(M.Different, std::set<unsigned>{1});
}

TEST_F(BlockMappingTest, TheTracedProgramMustBeTheTraced) {
  Code = program({{"f", {{0, Add}}}});
  Original = program({{"f", {{1, Add}}}});
  EXPECT_THAT_EXPECTED(
      mapBlocks(*Code, trace({{"f", {{0, Add}}}}), Original.get()),
      FailedWithMessage(HasSubstr("give the binary that was traced")));
}

} // namespace
