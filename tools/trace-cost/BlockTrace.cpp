//===- BlockTrace.cpp - Windows of executed blocks ------------------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BlockTrace.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/BoundedJSON.h"
#include "llvm/Support/Compression.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/LEB128.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/xxhash.h"
#include <map>
#include <unordered_map>

using namespace llvm;
using namespace llvm::tracecost;
using support::endian::read32le;
using support::endian::read64le;

namespace {

constexpr unsigned HeadSize = 40;
constexpr uint32_t HeadMagic = 0x184D2A5B;
constexpr uint64_t MaxRawBytes = uint64_t(64) << 20;

enum RecordKind : uint32_t {
  RecordDescription = 1,
  RecordTable = 2,
  RecordBlocks = 3,
  RecordIndex = 4,
  RecordWindows = 5,
  RecordBranches = 6,
  RecordSampleAccesses = 8,
  RecordSampleBranches = 9,
  RecordCode = 10,
  RecordSampleFetches = 11
};

struct SequenceHash {
  size_t operator()(const std::vector<unsigned> &V) const {
    return xxh3_64bits(ArrayRef<uint8_t>(
        reinterpret_cast<const uint8_t *>(V.data()), V.size() * 4));
  }
};

class Reader {
public:
  Reader(StringRef Path, StringRef Data, unsigned Length)
      : Path(Path), Data(Data), Length(Length) {}

  Expected<BlockHistogram> read();

private:
  Error error(const Twine &What) const {
    return createFileError(
        Path,
        createStringError("record at byte " + Twine(Offset) + ": " + What));
  }
  Error notIn(StringRef Place, size_t Size, uint64_t Block) const {
    return error("block " + Twine(Block) + " is not in the " + Place + " of " +
                 Twine(Size));
  }
  /// Fails unless a sample came before, of which a record tells \p What.
  Error requireSample(StringRef What) const {
    if (Result.Samples.empty())
      return error("has " + What + " before the first sample");
    return Error::success();
  }
  /// Fails unless the last sample has a block at \p Index.
  Error requireInSample(uint64_t Index) const {
    if (Index >= Result.Samples.back().size())
      return notIn("sample", Result.Samples.back().size(), Index);
    return Error::success();
  }
  /// Fails unless all of a record was read.
  Error requireEnd(const uint8_t *P, const uint8_t *End, StringRef What) const {
    if (P != End)
      return error("has more " + What + " than its head says");
    return Error::success();
  }
  Error readDescription(StringRef Raw);
  Error readTable(StringRef Raw);
  Error readBlocks(StringRef Raw, uint32_t Stream, uint32_t Count);
  Error readSample(StringRef Raw, uint32_t Count);
  Error readWindows(StringRef Raw, uint32_t Count);
  Error readBranches(StringRef Raw, uint32_t Count);
  Error readAccesses(StringRef Raw, uint32_t Count);
  Error readMispredicted(StringRef Raw, uint32_t Count);
  Error readFetches(StringRef Raw, uint32_t Count);
  Error readCode(StringRef Raw, uint32_t Count);
  Error readULEB128(const uint8_t *&P, const uint8_t *End, uint64_t &Value);
  Error readValues(const uint8_t *&P, const uint8_t *End,
                   MutableArrayRef<uint64_t> Values);
  /// Reads the difference of a block's number to the last one, \p Number.
  Error readNumber(const uint8_t *&P, const uint8_t *End, uint32_t &Number);
  void addWindow(std::vector<unsigned> Blocks, uint64_t Count) {
    Counts[std::move(Blocks)] += Count;
    Result.Total += Count;
  }

  StringRef Path;
  StringRef Data;
  unsigned Length;
  uint64_t Offset = 0;
  BlockHistogram Result;
  bool IsHistogram = false;
  /// Blocks in each window of a histogram file.
  unsigned StoredLength = 0;
  std::unordered_map<std::vector<unsigned>, uint64_t, SequenceHash> Counts;
  /// The last blocks of each stream.
  std::map<uint32_t, std::vector<unsigned>> Streams;
};

} // namespace

Error Reader::readDescription(StringRef Raw) {
  Expected<json::Value> Value = json::parseBounded(Raw);
  if (!Value)
    return error("the description is not JSON: " + toString(Value.takeError()));
  const json::Object *O = Value->getAsObject();
  StringRef Format = O ? O->getString("format").value_or("") : "";
  IsHistogram = Format == "compiler-opt-perf/block-windows";
  if (!IsHistogram && Format != "compiler-opt-perf/block-trace")
    return error("neither a block trace nor a window histogram");
  if (int64_t V = O->getInteger("version").value_or(0); V != 1)
    return error("version " + Twine(V) +
                 ", this tool reads version 1; record the trace again");
  if (IsHistogram) {
    int64_t Window = O->getInteger("window").value_or(0);
    if (Window < 1 || Window > MaxWindowLength)
      return error("'window' must be 1 to " + Twine(MaxWindowLength));
    StoredLength = Window;
  }
  if (const json::Object *P = O->getObject("program"))
    Result.BuildID = P->getString("build_id").value_or("").str();
  return Error::success();
}

Error Reader::readTable(StringRef Raw) {
  if (Raw.size() < 8)
    return error("the block table is too short");
  const char *P = Raw.data();
  uint64_t F = read32le(P), B = read32le(P + 4);
  if (Raw.size() < 8 + B * 20 + F * 12)
    return error("the block table is too short for " + Twine(B) +
                 " blocks of " + Twine(F) + " functions");
  const char *Sizes = P + 8 + B * 8, *IDs = Sizes + B * 4;
  const char *Functions = IDs + B * 4;
  const char *Addresses = Functions + B * 4, *NameEnds = Addresses + F * 8;
  StringRef Names = Raw.drop_front(8 + B * 20 + F * 12);
  uint32_t Begin = 0;
  for (uint64_t I = 0; I != F; ++I) {
    uint32_t End = read32le(NameEnds + I * 4);
    if (End < Begin || End > Names.size())
      return error("the name of function " + Twine(I) +
                   " lies outside of the block table");
    Result.Functions.push_back(
        {Names.slice(Begin, End).str(), read64le(Addresses + I * 8)});
    Begin = End;
  }
  for (uint64_t I = 0; I != B; ++I) {
    TracedBlock Block{read32le(Functions + I * 4), read32le(IDs + I * 4),
                      read64le(P + 8 + I * 8), read32le(Sizes + I * 4)};
    if (Block.Function >= F)
      return error("block " + Twine(I) + " names a function that is not there");
    Result.Blocks.push_back(Block);
  }
  return Error::success();
}

Error Reader::readULEB128(const uint8_t *&P, const uint8_t *End,
                          uint64_t &Value) {
  unsigned Size = 0;
  const char *Message = nullptr;
  Value = decodeULEB128(P, &Size, End, &Message);
  if (Message)
    return error(Message);
  P += Size;
  return Error::success();
}

Error Reader::readValues(const uint8_t *&P, const uint8_t *End,
                         MutableArrayRef<uint64_t> Values) {
  for (uint64_t &Value : Values)
    if (Error E = readULEB128(P, End, Value))
      return E;
  return Error::success();
}

Error Reader::readNumber(const uint8_t *&P, const uint8_t *End,
                         uint32_t &Number) {
  uint64_t Zigzag;
  if (Error E = readULEB128(P, End, Zigzag))
    return E;
  Number += uint32_t(Zigzag >> 1) ^ -uint32_t(Zigzag & 1);
  // One past the last block is a gap.
  if (Number > Result.Blocks.size())
    return notIn("table", Result.Blocks.size(), Number);
  return Error::success();
}

Error Reader::readBlocks(StringRef Raw, uint32_t Stream, uint32_t Count) {
  const uint8_t *P = Raw.bytes_begin(), *End = Raw.bytes_end();
  if (IsHistogram)
    return readSample(Raw, Count);
  std::vector<unsigned> &Recent = Streams[Stream];
  uint32_t Number = 0;
  for (uint32_t I = 0; I != Count; ++I) {
    if (Error E = readNumber(P, End, Number))
      return E;
    if (Number == Result.Blocks.size()) {
      Recent.clear();
      continue;
    }
    if (Recent.size() == Length)
      Recent.erase(Recent.begin());
    Recent.push_back(Number);
    ++Counts[Recent];
    ++Result.Total;
  }
  return requireEnd(P, End, "blocks");
}

Error Reader::readSample(StringRef Raw, uint32_t Count) {
  const uint8_t *P = Raw.bytes_begin(), *End = Raw.bytes_end();
  std::vector<unsigned> Blocks;
  uint32_t Number = 0;
  for (uint32_t I = 0; I != Count; ++I) {
    if (Error E = readNumber(P, End, Number))
      return E;
    if (Number != Result.Blocks.size()) {
      Blocks.push_back(Number);
      continue;
    }
    if (!Blocks.empty())
      Result.Samples.push_back(std::move(Blocks));
    Blocks.clear();
  }
  if (!Blocks.empty())
    Result.Samples.push_back(std::move(Blocks));
  return requireEnd(P, End, "blocks");
}

Error Reader::readWindows(StringRef Raw, uint32_t Count) {
  const uint8_t *P = Raw.bytes_begin(), *End = Raw.bytes_end();
  for (uint32_t I = 0; I != Count; ++I) {
    uint64_t Executions;
    if (Error E = readULEB128(P, End, Executions))
      return E;
    std::vector<unsigned> Blocks;
    uint32_t Number = 0;
    for (unsigned K = 0; K != StoredLength; ++K) {
      if (Error E = readNumber(P, End, Number))
        return E;
      if (Number == Result.Blocks.size())
        Blocks.clear();
      else
        Blocks.push_back(Number);
    }
    if (Blocks.empty())
      return error("window " + Twine(I) + " has no block");
    if (Blocks.size() > Length)
      Blocks.erase(Blocks.begin(), Blocks.end() - Length);
    addWindow(std::move(Blocks), Executions);
  }
  return requireEnd(P, End, "windows");
}

Error Reader::readBranches(StringRef Raw, uint32_t Count) {
  const uint8_t *P = Raw.bytes_begin(), *End = Raw.bytes_end();
  Result.Branches.resize(Result.Blocks.size());
  uint64_t Block = 0;
  for (uint32_t I = 0; I != Count; ++I) {
    uint64_t Values[5];
    if (Error E = readValues(P, End, Values))
      return E;
    Block += Values[0];
    if (Block >= Result.Blocks.size())
      return notIn("table", Result.Blocks.size(), Block);
    Result.Branches[Block] = {Values[1], Values[2], Values[3], Values[4]};
  }
  return requireEnd(P, End, "blocks");
}

Error Reader::readAccesses(StringRef Raw, uint32_t Count) {
  const uint8_t *P = Raw.bytes_begin(), *End = Raw.bytes_end();
  if (Error E = requireSample("accesses"))
    return E;
  Result.Accesses.resize(Result.Samples.size());
  std::vector<TracedAccess> &Accesses = Result.Accesses.back();
  uint64_t Block = 0, Address = 0;
  for (uint32_t I = 0; I != Count; ++I) {
    uint64_t Values[3];
    if (Error E = readValues(P, End, Values))
      return E;
    Block += Values[0];
    if (Error E = requireInSample(Block))
      return E;
    Address += (Values[2] >> 1) ^ -(Values[2] & 1);
    Accesses.push_back({unsigned(Block),
                        unsigned(std::min<uint64_t>(Values[1] >> 1, ~0u)),
                        bool(Values[1] & 1), Address});
  }
  return requireEnd(P, End, "accesses");
}

Error Reader::readMispredicted(StringRef Raw, uint32_t Count) {
  const uint8_t *P = Raw.bytes_begin(), *End = Raw.bytes_end();
  if (Error E = requireSample("branches"))
    return E;
  Result.Mispredicted.resize(Result.Samples.size());
  std::vector<MispredictedBranch> &Branches =
      Result.Mispredicted.back().emplace();
  uint64_t Code = 0;
  for (uint32_t I = 0; I != Count; ++I) {
    uint64_t Difference;
    if (Error E = readULEB128(P, End, Difference))
      return E;
    Code += Difference;
    if (Error E = requireInSample(Code / 2))
      return E;
    Branches.push_back({unsigned(Code / 2), bool(Code & 1)});
  }
  return requireEnd(P, End, "branches");
}

Error Reader::readFetches(StringRef Raw, uint32_t Count) {
  const uint8_t *P = Raw.bytes_begin(), *End = Raw.bytes_end();
  if (Error E = requireSample("fetches"))
    return E;
  Result.Fetched.resize(Result.Samples.size());
  std::vector<MissedFetch> &Fetches = Result.Fetched.back().emplace();
  uint64_t Block = 0;
  for (uint32_t I = 0; I != Count; ++I) {
    uint64_t Values[4];
    if (Error E = readValues(P, End, Values))
      return E;
    Block += Values[0];
    if (Error E = requireInSample(Block))
      return E;
    Fetches.push_back({unsigned(Block),
                       {unsigned(std::min<uint64_t>(Values[1], ~0u)),
                        unsigned(std::min<uint64_t>(Values[2], ~0u)),
                        unsigned(std::min<uint64_t>(Values[3], ~0u))}});
  }
  return requireEnd(P, End, "fetches");
}

Error Reader::readCode(StringRef Raw, uint32_t Count) {
  const uint8_t *P = Raw.bytes_begin(), *End = Raw.bytes_end();
  Result.Code.resize(Result.Blocks.size());
  std::vector<uint64_t> Numbers;
  uint64_t Number = 0;
  for (uint32_t I = 0; I != Count; ++I) {
    uint64_t Difference;
    if (Error E = readULEB128(P, End, Difference))
      return E;
    Number += Difference;
    if (Number >= Result.Blocks.size())
      return notIn("table", Result.Blocks.size(), Number);
    Numbers.push_back(Number);
  }
  for (uint64_t Own : Numbers) {
    unsigned Size = Result.Blocks[Own].Size;
    if (Size > size_t(End - P))
      return error("has less code than its head says");
    Result.Code[Own].assign(P, P + Size);
    P += Size;
  }
  return requireEnd(P, End, "code");
}

Expected<BlockHistogram> Reader::read() {
  if (Data.size() < 4 || read32le(Data.data()) != HeadMagic)
    return error("neither a block trace nor a window histogram");
  SmallVector<uint8_t, 0> Raw;
  bool HasIndex = false, HasDescription = false, HasTable = false;
  while (Offset < Data.size() && !HasIndex) {
    const char *Head = Data.data() + Offset;
    uint64_t Left = Data.size() - Offset;
    // What the recorder wrote last may be incomplete.
    if (Left < HeadSize || Left - HeadSize < read32le(Head + 16))
      break;
    if (read32le(Head) != HeadMagic || read32le(Head + 4) != HeadSize - 8)
      return error("damaged: no head of a record");
    uint32_t Kind = read32le(Head + 8), Stream = read32le(Head + 12),
             Payload = read32le(Head + 16), RawBytes = read32le(Head + 20),
             Count = read32le(Head + 24);
    HasIndex = Kind == RecordIndex;
    // The code of a trace is that of all blocks; only samples need any.
    bool IsKnown =
        (Kind >= RecordDescription && Kind <= RecordBranches) ||
        Kind == RecordSampleAccesses || Kind == RecordSampleBranches ||
        Kind == RecordSampleFetches || (Kind == RecordCode && IsHistogram);
    if (IsKnown && !HasIndex) {
      if (RawBytes > MaxRawBytes && Kind != RecordTable)
        return error("damaged: " + Twine(RawBytes) + " bytes in one record");
      ArrayRef<uint8_t> Frame(
          reinterpret_cast<const uint8_t *>(Head + HeadSize), Payload);
      if (Error E = compression::zstd::decompress(Frame, Raw, RawBytes))
        return error("damaged: " + toString(std::move(E)));
      if (Raw.size() != RawBytes)
        return error("damaged: not of the size its head says");
      StringRef Text(reinterpret_cast<const char *>(Raw.data()), Raw.size());
      if (Kind > RecordDescription && !HasDescription)
        return error("comes before the description");
      if (Kind > RecordTable && !HasTable)
        return error("comes before the block table");
      if (Error E = Kind == RecordDescription ? readDescription(Text)
                    : Kind == RecordTable     ? readTable(Text)
                    : Kind == RecordBlocks    ? readBlocks(Text, Stream, Count)
                    : Kind == RecordWindows   ? readWindows(Text, Count)
                    : Kind == RecordBranches  ? readBranches(Text, Count)
                    : Kind == RecordCode      ? readCode(Text, Count)
                    : Kind == RecordSampleFetches ? readFetches(Text, Count)
                    : Kind == RecordSampleAccesses
                        ? readAccesses(Text, Count)
                        : readMispredicted(Text, Count))
        return std::move(E);
      HasDescription |= Kind == RecordDescription;
      HasTable |= Kind == RecordTable;
    }
    Offset += HeadSize + Payload;
  }
  if (!HasTable)
    return error("ends before the block table; record it again");
  if (!HasIndex && IsHistogram)
    return error("the window histogram is truncated; make it again");
  Result.Truncated = !HasIndex;
  Result.Accesses.resize(Result.Samples.size());
  Result.Mispredicted.resize(Result.Samples.size());
  Result.Fetched.resize(Result.Samples.size());
  if (!Result.Total)
    return error("no block was executed");
  for (auto &[Blocks, Count] : Counts)
    Result.Windows.push_back({Blocks, Count});
  llvm::sort(Result.Windows, [](const Window &A, const Window &B) {
    return std::tie(B.Count, A.Blocks) < std::tie(A.Count, B.Blocks);
  });
  return std::move(Result);
}

Expected<BlockHistogram> tracecost::parseBlockHistogram(StringRef Path,
                                                        StringRef Contents,
                                                        unsigned Length) {
  assert(Length && Length <= MaxWindowLength && "no such windows");
  if (!compression::zstd::isAvailable())
    return createFileError(
        Path, createStringError("this LLVM was built without zstd"));
  return Reader(Path, Contents, Length).read();
}

Expected<BlockHistogram> tracecost::readBlockHistogram(StringRef Path,
                                                       unsigned Length) {
  ErrorOr<std::unique_ptr<MemoryBuffer>> Buffer =
      MemoryBuffer::getFile(Path, /*IsText=*/false,
                            /*RequiresNullTerminator=*/false);
  if (!Buffer)
    return createFileError(Path, Buffer.getError());
  return parseBlockHistogram(Path, (*Buffer)->getBuffer(), Length);
}
