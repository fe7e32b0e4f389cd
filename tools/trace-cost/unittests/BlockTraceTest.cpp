//===- BlockTraceTest.cpp - Readers of traces and CPU files ---------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BlockTrace.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Compression.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/LEB128.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Testing/Support/Error.h"
#include "gtest/gtest.h"

using namespace llvm;
using namespace llvm::tracecost;
using testing::HasSubstr;

namespace {

constexpr uint32_t Magic = 0x184D2A5B;

/// Writes a trace.
class Writer {
public:
  void record(uint32_t Kind, StringRef Raw, uint32_t Count = 0,
              std::optional<uint32_t> RawBytes = std::nullopt) {
    SmallVector<uint8_t, 0> Payload;
    compression::zstd::compress(arrayRefFromStringRef(Raw), Payload);
    for (uint32_t Word : {Magic, 32u, Kind, 0u, uint32_t(Payload.size()),
                          RawBytes.value_or(Raw.size()), Count, 0u, 0u, 0u})
      word(Data, Word);
    Data.append(Payload.begin(), Payload.end());
  }
  void description(StringRef Format = "compiler-opt-perf/block-windows",
                   StringRef More = ", \"window\": 2") {
    record(
        1,
        ("{\"format\": \"" + Format + "\", \"version\": 1" + More + "}").str());
  }
  /// One function "f" at 64 with blocks of these ids.
  void table(ArrayRef<uint32_t> IDs, uint32_t Function = 0, uint32_t Size = 0) {
    std::string Raw;
    word(Raw, 1);
    word(Raw, IDs.size());
    Raw.append(8 * IDs.size(), '\0');
    for (size_t I = 0; I != IDs.size(); ++I)
      word(Raw, Size);
    for (uint32_t ID : IDs)
      word(Raw, ID);
    for (size_t I = 0; I != IDs.size(); ++I)
      word(Raw, Function);
    word(Raw, 64);
    word(Raw, 0);
    word(Raw, 1);
    Raw += 'f';
    record(2, Raw);
  }
  /// Windows: count and two blocks, each an index.
  void windows(ArrayRef<std::array<uint64_t, 3>> Windows) {
    std::string Raw;
    raw_string_ostream OS(Raw);
    for (auto [Count, First, Second] : Windows) {
      encodeULEB128(Count, OS);
      encodeULEB128(First << 1, OS);
      int64_t Delta = int64_t(Second) - int64_t(First);
      encodeULEB128(uint64_t(Delta) << 1 ^ uint64_t(Delta >> 63), OS);
    }
    record(5, Raw, Windows.size());
  }
  void index() { record(4, StringRef("\0\0\0\0", 4)); }

  const std::string &data() const { return Data; }

  Expected<BlockHistogram> read(unsigned Length = 2) const {
    return parseBlockHistogram("file", Data, Length);
  }

private:
  static void word(std::string &To, uint32_t Word) {
    char Bytes[4];
    support::endian::write32le(Bytes, Word);
    To.append(Bytes, 4);
  }

  std::string Data;
};

TEST(BlockTraceTest, ReadsWindows) {
  Writer W;
  W.description();
  W.table({7, 0xFFFFFFFF, 0xFFFFFFFE});
  // 3 is a gap.
  W.windows({{5, 0, 1}, {2, 3, 2}, {4, 1, 1}});
  W.index();
  Expected<BlockHistogram> H = W.read();
  ASSERT_THAT_EXPECTED(H, Succeeded());
  EXPECT_EQ(H->Total, 11u);
  ASSERT_EQ(H->Functions.size(), 1u);
  EXPECT_EQ(H->Functions[0].Name, "f");
  EXPECT_EQ(H->Functions[0].Address, 64u);
  ASSERT_EQ(H->Blocks.size(), 3u);
  EXPECT_EQ(H->Blocks[1].Function, 0u);
  EXPECT_EQ(H->Blocks[1].ID, 0xFFFFFFFFu);
  ASSERT_EQ(H->Windows.size(), 3u);
  EXPECT_EQ(H->Windows[0].Blocks, (std::vector<unsigned>{0, 1}));
  EXPECT_EQ(H->Windows[1].Blocks, (std::vector<unsigned>{1, 1}));
  EXPECT_EQ(H->Windows[2].Blocks, std::vector<unsigned>{2});
  EXPECT_FALSE(H->Truncated);
  // Shorter ones.
  H = W.read(1);
  ASSERT_THAT_EXPECTED(H, Succeeded());
  EXPECT_EQ(H->Windows[0].Blocks, std::vector<unsigned>{1});
  EXPECT_EQ(H->Windows[0].Count, 9u);
}

/// The blocks of a sample, encoded, and their number.
struct Sample {
  StringRef Blocks;
  unsigned Count;
};

const Sample OneBlock = {StringRef("\2", 1), 1};
/// Blocks 0, 1 and 0.
const Sample ThreeBlocks = {StringRef("\0\2\1", 3), 3};

/// Reads \p Samples, a record of \p Kind that tells of the last one, and a
/// record of a later version.
Expected<BlockHistogram> readSamples(ArrayRef<Sample> Samples, unsigned Kind,
                                     StringRef Raw, unsigned Count) {
  Writer W;
  W.description();
  W.table({0, 1});
  W.windows({{2, 0, 1}});
  for (const Sample &S : Samples)
    W.record(3, S.Blocks, S.Count);
  W.record(Kind, Raw, Count);
  W.record(12, "x", 1);
  W.index();
  return W.read();
}

TEST(BlockTraceTest, ReadsAccessesOfSamples) {
  auto Read = [](StringRef Accesses, unsigned Count) {
    return readSamples({ThreeBlocks, OneBlock}, 8, Accesses, Count);
  };
  // A store at 64 by the instruction at byte 5, then a load at 62 at byte 0.
  Expected<BlockHistogram> H = Read(StringRef("\0\x0b\x80\1\0\0\3", 7), 2);
  ASSERT_THAT_EXPECTED(H, Succeeded());
  ASSERT_EQ(H->Accesses.size(), 2u);
  EXPECT_TRUE(H->Accesses[0].empty());
  ASSERT_EQ(H->Accesses[1].size(), 2u);
  EXPECT_EQ(H->Accesses[1][0].Offset, 5u);
  EXPECT_TRUE(H->Accesses[1][0].Stores);
  EXPECT_EQ(H->Accesses[1][0].Address, 64u);
  EXPECT_FALSE(H->Accesses[1][1].Stores);
  EXPECT_EQ(H->Accesses[1][1].Address, 62u);
  EXPECT_THAT_EXPECTED(Read(StringRef("\1\0\0", 3), 1),
                       FailedWithMessage(HasSubstr("not in the sample of 1")));
  EXPECT_THAT_EXPECTED(Read(StringRef("\0\0\0\0", 4), 1),
                       FailedWithMessage(HasSubstr("more accesses")));
}

TEST(BlockTraceTest, ReadsMispredictedBranchesOfSamples) {
  auto Read = [](StringRef Branches, unsigned Count) {
    return readSamples({OneBlock, ThreeBlocks}, 9, Branches, Count);
  };
  // The exit of the first block, and two calls of the last.
  Expected<BlockHistogram> H = Read(StringRef("\0\5\0", 3), 3);
  ASSERT_THAT_EXPECTED(H, Succeeded());
  ASSERT_EQ(H->Mispredicted.size(), 2u);
  EXPECT_FALSE(H->Mispredicted[0].has_value());
  ASSERT_EQ(H->Mispredicted[1]->size(), 3u);
  EXPECT_EQ(H->Mispredicted[1]->front().Block, 0u);
  EXPECT_FALSE(H->Mispredicted[1]->front().IsCall);
  EXPECT_EQ(H->Mispredicted[1]->back().Block, 2u);
  EXPECT_TRUE(H->Mispredicted[1]->back().IsCall);
  H = Read("", 0);
  ASSERT_THAT_EXPECTED(H, Succeeded());
  EXPECT_TRUE(H->Mispredicted[1]->empty());
  EXPECT_THAT_EXPECTED(Read("\6", 1),
                       FailedWithMessage(HasSubstr("not in the sample of 3")));
  EXPECT_THAT_EXPECTED(Read("\1\1", 1),
                       FailedWithMessage(HasSubstr("more branches")));
}

TEST(BlockTraceTest, ReadsMissedFetchesOfSamples) {
  auto Read = [](StringRef Fetches, unsigned Count) {
    return readSamples({OneBlock, ThreeBlocks}, 11, Fetches, Count);
  };
  // The second block and the last.
  Expected<BlockHistogram> H = Read(StringRef("\1\2\1\3\1\0\0\x80\1", 9), 2);
  ASSERT_THAT_EXPECTED(H, Succeeded());
  ASSERT_EQ(H->Fetched.size(), 2u);
  EXPECT_FALSE(H->Fetched[0].has_value());
  ASSERT_EQ(H->Fetched[1]->size(), 2u);
  const MissedFetch &First = H->Fetched[1]->front(),
                    &Last = H->Fetched[1]->back();
  EXPECT_EQ(First.Block, 1u);
  EXPECT_EQ(First.Misses.Lines, 2u);
  EXPECT_EQ(First.Misses.Pages, 1u);
  EXPECT_EQ(First.Misses.Decoded, 3u);
  EXPECT_EQ(Last.Block, 2u);
  EXPECT_EQ(Last.Misses.Decoded, 128u);
  H = Read("", 0);
  ASSERT_THAT_EXPECTED(H, Succeeded());
  EXPECT_TRUE(H->Fetched[1]->empty());
  EXPECT_THAT_EXPECTED(Read(StringRef("\3\0\0\0", 4), 1),
                       FailedWithMessage(HasSubstr("not in the sample of 3")));
  EXPECT_THAT_EXPECTED(Read(StringRef("\1\0\0\0\0", 5), 1),
                       FailedWithMessage(HasSubstr("more fetches")));
}

TEST(BlockTraceTest, ReadsCode) {
  auto Read = [](StringRef Code, unsigned Count) {
    Writer W;
    W.description();
    W.table({0, 1, 2}, /*Function=*/0, /*Size=*/2);
    W.windows({{2, 0, 1}});
    W.record(10, Code, Count);
    W.index();
    return W.read();
  };
  // Of blocks 0 and 2.
  Expected<BlockHistogram> H = Read(StringRef("\0\2abcd", 6), 2);
  ASSERT_THAT_EXPECTED(H, Succeeded());
  EXPECT_EQ(H->Code[0], (std::vector<uint8_t>{'a', 'b'}));
  EXPECT_TRUE(H->Code[1].empty());
  EXPECT_EQ(H->Code[2], (std::vector<uint8_t>{'c', 'd'}));
  EXPECT_THAT_EXPECTED(Read("\3ab", 1),
                       FailedWithMessage(HasSubstr("not in the table of 3")));
  EXPECT_THAT_EXPECTED(Read("\1"
                            "a",
                            1),
                       FailedWithMessage(HasSubstr("less code")));
  EXPECT_THAT_EXPECTED(Read("\1"
                            "abc",
                            1),
                       FailedWithMessage(HasSubstr("more code")));
}

TEST(BlockTraceTest, RefusesNestedDescriptions) {
  Writer W;
  W.description("compiler-opt-perf/block-windows",
                ", \"x\": " + std::string(100000, '['));
  EXPECT_THAT_EXPECTED(W.read(),
                       FailedWithMessage(HasSubstr("nested more than 64")));
}

TEST(BlockTraceTest, RefusesWindowsOfImpossibleLength) {
  for (StringRef Length : {"0", "-1", "1025", "4294967298", "1e30"}) {
    Writer W;
    W.description("compiler-opt-perf/block-windows",
                  (", \"window\": " + Length).str());
    EXPECT_THAT_EXPECTED(W.read(),
                         FailedWithMessage(HasSubstr("must be 1 to 1024")));
  }
}

TEST(BlockTraceTest, RefusesWhatContradictsItself) {
  Writer OtherFunction, OtherBlock, Short, Large, NoTable;
  OtherFunction.description();
  OtherFunction.table({1}, /*Function=*/1);
  EXPECT_THAT_EXPECTED(OtherFunction.read(),
                       FailedWithMessage(HasSubstr("names a function")));
  OtherBlock.description();
  OtherBlock.table({1});
  OtherBlock.windows({{1, 0, 2}});
  EXPECT_THAT_EXPECTED(OtherBlock.read(),
                       FailedWithMessage(HasSubstr("not in the table of 1")));
  Short.description();
  Short.record(2, StringRef("\xff\xff\xff\xff\xff\xff\xff\xff", 8));
  EXPECT_THAT_EXPECTED(Short.read(), FailedWithMessage(HasSubstr("too short")));
  Large.description();
  Large.record(5, "x", 1, /*RawBytes=*/0xFFFFFFFF);
  EXPECT_THAT_EXPECTED(Large.read(), FailedWithMessage(HasSubstr("damaged")));
  NoTable.description();
  NoTable.index();
  EXPECT_THAT_EXPECTED(NoTable.read(),
                       FailedWithMessage(HasSubstr("before the block table")));
}

TEST(BlockTraceTest, DamagedFilesAreRefusedOrRead) {
  Writer W;
  W.description();
  W.table({1, 2});
  W.windows({{5, 0, 1}});
  W.index();
  std::string Whole = W.data();
  for (size_t I = 0; I != Whole.size(); ++I)
    for (char Byte : {'\0', '\x7f', '\xff'}) {
      std::string Damaged = Whole;
      Damaged[I] = Byte;
      // Whatever it is, nothing but an error comes of it.
      consumeError(parseBlockHistogram("file", Damaged, 2).takeError());
    }
}

} // namespace
