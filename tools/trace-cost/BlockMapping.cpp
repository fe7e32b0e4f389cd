//===- BlockMapping.cpp - Traced blocks in a candidate --------------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BlockMapping.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <map>

using namespace llvm;
using namespace llvm::tracecost;

namespace {

/// Identifies a block of a function. Ids may be any numbers. Clones of a block
/// share its id: the first traced one is then the candidate's first one.
struct NumberedBlock {
  unsigned ID;
  /// The number among the blocks with this id, by address.
  unsigned Ordinal;

  bool operator<(const NumberedBlock &Other) const {
    return std::tie(ID, Ordinal) < std::tie(Other.ID, Other.Ordinal);
  }
  bool operator==(const NumberedBlock &Other) const {
    return ID == Other.ID && Ordinal == Other.Ordinal;
  }
};

using NumberedBlocks = std::map<NumberedBlock, unsigned>;

class Mapper {
public:
  Mapper(const Program &Code, const BlockHistogram &Histogram,
         const Program *Traced)
      : Code(Code), Histogram(Histogram), Traced(Traced) {}

  Expected<BlockMapping> map();

private:
  /// How alike a traced function and one of the candidate are, from 0 to 1.
  double similarity(unsigned TracedFunction, unsigned Candidate);
  /// Pairs the functions of one name.
  void pair(ArrayRef<unsigned> Originals, ArrayRef<unsigned> Candidates);
  void mapFunction(unsigned TracedFunction, unsigned Candidate);
  uint64_t candidateHash(unsigned Block);

  const Program &Code;
  const BlockHistogram &Histogram;
  const Program *Traced;
  /// One element for each traced function.
  std::vector<NumberedBlocks> TracedBlocks;
  std::map<unsigned, NumberedBlocks> CandidateBlocks;
  /// One element for each block of the trace.
  std::vector<uint64_t> TracedHashes;
  std::map<unsigned, uint64_t> CandidateHashes;
  BlockMapping Result;
};

} // namespace

static NumberedBlocks number(ArrayRef<std::pair<unsigned, unsigned>> Blocks) {
  std::map<unsigned, unsigned> Seen;
  NumberedBlocks Result;
  for (auto [ID, Index] : Blocks)
    Result[{ID, Seen[ID]++}] = Index;
  return Result;
}

static bool haveSameIDs(const NumberedBlocks &A, const NumberedBlocks &B) {
  return A.size() == B.size() && std::equal(A.begin(), A.end(), B.begin(),
                                            [](const auto &X, const auto &Y) {
                                              return X.first == Y.first;
                                            });
}

uint64_t Mapper::candidateHash(unsigned Block) {
  auto [It, Inserted] = CandidateHashes.try_emplace(Block);
  if (Inserted)
    It->second = Code.contentHash(Code.blocks()[Block]);
  return It->second;
}

double Mapper::similarity(unsigned TracedFunction, unsigned Candidate) {
  const NumberedBlocks &Blocks = TracedBlocks[TracedFunction],
                       &Others = CandidateBlocks[Candidate];
  if (!Traced)
    return haveSameIDs(Blocks, Others);
  unsigned Same = 0;
  for (auto [Key, Block] : Blocks)
    if (auto It = Others.find(Key); It != Others.end())
      Same += TracedHashes[Block] == candidateHash(It->second);
  return double(Same) / std::max<size_t>({Blocks.size(), Others.size(), 1});
}

void Mapper::mapFunction(unsigned TracedFunction, unsigned Candidate) {
  const NumberedBlocks &Blocks = TracedBlocks[TracedFunction],
                       &Others = CandidateBlocks[Candidate];
  if (!haveSameIDs(Blocks, Others))
    Result.Changed.insert(TracedFunction);
  for (auto [Key, Block] : Blocks) {
    auto It = Others.find(Key);
    Result.Matches[Block] = It == Others.end() ? Match::Missing : Match::Mapped;
    if (It == Others.end())
      continue;
    Result.Blocks[Block] = It->second;
    if (Traced && TracedHashes[Block] != candidateHash(It->second))
      Result.Different->insert(Block);
  }
}

void Mapper::pair(ArrayRef<unsigned> Originals, ArrayRef<unsigned> Candidates) {
  std::vector<unsigned> Left(Originals), Right(Candidates);
  bool IsSameNumber = Left.size() == Right.size();
  // Local functions of several files may share a name. Two belong together if
  // each is the most similar one to the other.
  if (Left.size() > 1 || Right.size() > 1) {
    std::vector<std::vector<double>> Alike;
    for (unsigned O : Left) {
      std::vector<double> &Row = Alike.emplace_back();
      for (unsigned C : Right)
        Row.push_back(similarity(O, C));
    }
    auto IsBest = [&](unsigned O, unsigned C) {
      for (unsigned Other = 0; Other != Right.size(); ++Other)
        if (Other != C && Alike[O][Other] >= Alike[O][C])
          return false;
      for (unsigned Other = 0; Other != Left.size(); ++Other)
        if (Other != O && Alike[Other][C] >= Alike[O][C])
          return false;
      return Alike[O][C] >= 0.5;
    };
    std::vector<unsigned> RestLeft, RestRight;
    std::vector<bool> IsTaken(Right.size());
    for (unsigned O = 0; O != Left.size(); ++O) {
      unsigned C = 0;
      while (C != Right.size() && !IsBest(O, C))
        ++C;
      if (C == Right.size()) {
        RestLeft.push_back(Left[O]);
        continue;
      }
      mapFunction(Left[O], Right[C]);
      IsTaken[C] = true;
    }
    for (unsigned C = 0; C != Right.size(); ++C)
      if (!IsTaken[C])
        RestRight.push_back(Right[C]);
    Left = RestLeft;
    Right = RestRight;
  }
  // If both programs have as many functions of the name, the others are in the
  // same order.
  if (IsSameNumber) {
    for (auto [O, C] : zip(Left, Right))
      mapFunction(O, C);
    return;
  }
  // If each function of the candidate has been paired, the other traced ones
  // belong to other modules.
  if (Right.empty())
    return;
  for (unsigned O : Left)
    for (auto [Key, Block] : TracedBlocks[O])
      Result.Matches[Block] = Match::Ambiguous;
}

Expected<BlockMapping> Mapper::map() {
  size_t NumBlocks = Histogram.Blocks.size();
  Result.Matches.assign(NumBlocks, Match::Foreign);
  Result.Blocks.resize(NumBlocks);

  std::vector<std::vector<std::pair<unsigned, unsigned>>> ByFunction(
      Histogram.Functions.size());
  for (auto [Index, Block] : enumerate(Histogram.Blocks))
    ByFunction[Block.Function].push_back({Block.ID, Index});
  for (ArrayRef<std::pair<unsigned, unsigned>> Blocks : ByFunction)
    TracedBlocks.push_back(number(Blocks));

  if (Traced) {
    Result.Different.emplace();
    TracedHashes.resize(NumBlocks);
    std::map<std::pair<StringRef, uint64_t>, unsigned> Functions;
    for (auto [Index, F] : enumerate(Traced->functions()))
      Functions[{F.Name, F.Address}] = Index;
    for (auto [Index, F] : enumerate(Histogram.Functions)) {
      auto It = Functions.find({F.Name, F.Address});
      NumberedBlocks Own;
      if (It != Functions.end())
        Own = number(Traced->numbered(It->second));
      if (!haveSameIDs(Own, TracedBlocks[Index]))
        return createStringError(
            "the program given as the traced one has no function " + F.Name +
            " of these blocks; give the binary that was traced");
      for (auto [Key, Block] : TracedBlocks[Index])
        TracedHashes[Block] = Traced->contentHash(Traced->blocks()[Own[Key]]);
    }
  }

  std::map<StringRef, std::vector<unsigned>> ByName;
  for (auto [Index, F] : enumerate(Histogram.Functions))
    ByName[F.Name].push_back(Index);
  for (const auto &[Name, Originals] : ByName) {
    ArrayRef<unsigned> Candidates = Code.functionsNamed(Name);
    if (Candidates.empty())
      continue;
    for (unsigned C : Candidates)
      CandidateBlocks[C] = number(Code.numbered(C));
    pair(Originals, Candidates);
  }
  return std::move(Result);
}

Expected<BlockMapping> tracecost::mapBlocks(const Program &Code,
                                            const BlockHistogram &Histogram,
                                            const Program *Traced) {
  return Mapper(Code, Histogram, Traced).map();
}
