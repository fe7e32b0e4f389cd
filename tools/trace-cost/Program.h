//===- Program.h - Blocks of a candidate's machine code ---------*- C++ -*-===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Reads the object files or the binary of a candidate: its functions and the
/// machine blocks that the basic block address map (-fbasic-block-address-map)
/// lists, by block id.
///
//===----------------------------------------------------------------------===//

#ifndef TRACE_COST_PROGRAM_H
#define TRACE_COST_PROGRAM_H

#include "TargetModel.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Object/ELFTypes.h"
#include <map>
#include <string>
#include <vector>

namespace llvm {
namespace tracecost {

/// One machine block of the candidate.
struct CodeBlock {
  /// Index into Program::functions().
  unsigned Function;
  unsigned ID;
  /// What Address is relative to: a section of an object file, or 0 in a
  /// binary.
  Region In;
  uint64_t Address;
  /// A function may have blocks in several sections.
  uint64_t SectionIndex;
  ArrayRef<uint8_t> Bytes;
  bool IsEntry;
  /// Whether it is the last block of a range. The next blocks of its function
  /// are elsewhere, and it does not run into them.
  bool EndsRange;
  /// How control enters and leaves it.
  object::BBAddrMap::BBEntry::Metadata Flags;
};

struct CodeFunction {
  std::string Name;
  /// Index into Program::objects().
  unsigned Object;
  uint64_t Address;
  /// Its blocks are consecutive, in the order of the map: the first of them, an
  /// index into Program::blocks(), and how many there are.
  unsigned FirstBlock;
  unsigned NumBlocks;
};

/// The code of a candidate.
class Program {
public:
  explicit Program(const TargetModel &Model) : Model(Model) {}

  /// Adds the object file or binary \p Path. An error if it holds no code for
  /// the model's target or has no basic block address map.
  Error add(StringRef Path);
  /// Adds \p File, which was opened as \p Path.
  Error add(StringRef Path, object::OwningBinary<object::Binary> File);

  const TargetModel &model() const { return Model; }
  ArrayRef<CodeFunction> functions() const { return Functions; }
  ArrayRef<CodeBlock> blocks() const { return Blocks; }
  ArrayRef<CodeBlock> blocks(const CodeFunction &F) const {
    return blocks().slice(F.FirstBlock, F.NumBlocks);
  }
  /// The id and the index of each block of the function \p Function, by
  /// address; in an object file, in the order of the map.
  std::vector<std::pair<unsigned, unsigned>> numbered(unsigned Function) const;
  const object::ELF64LEObjectFile &object(unsigned Index) const {
    return *Objects[Index];
  }
  unsigned numObjects() const { return Objects.size(); }

  /// The functions called \p Name, in the order of the files and addresses.
  ArrayRef<unsigned> functionsNamed(StringRef Name) const;

  /// The instructions of \p Block. All files must have been added.
  std::vector<DecodedInst> decode(const CodeBlock &Block) const;

  /// Whether \p Function sets up a frame pointer.
  bool hasFramePointer(const CodeFunction &Function) const;

  /// Where \p D, an instruction of \p Block, jumps to. Nothing if it is no
  /// jump, or registers or memory say where.
  std::optional<RegionOffset> jumpTarget(const DecodedInst &D,
                                         const CodeBlock &Block) const;

  /// A hash of what the instructions of \p Block compute, whichever registers
  /// they were given and whatever their order is.
  uint64_t contentHash(const CodeBlock &Block) const;

private:
  /// What the linker fills in.
  struct Relocation {
    uint64_t Offset;
    uint32_t Type;
    /// What it refers to: a place, or the name of a global symbol.
    RegionOffset Place;
    std::string Global;
    int64_t Addend;
  };

  /// The bytes of a section of code, and where they are.
  struct Text {
    Region In;
    uint64_t Address;
    uint64_t SectionIndex;
    ArrayRef<uint8_t> Bytes;
  };
  /// A part of a function in one section, and where it begins.
  struct Range {
    const Text *In;
    uint64_t Address;
    std::vector<object::BBAddrMap::BBEntry> Blocks;
  };

  /// The section that a range is in, null if it holds no code, and its address.
  using RangePlace = std::pair<const Text *, uint64_t>;

  Error readFunctions(const object::ELF64LEObjectFile &Object);
  /// An error if blocks of the binary that is being added overlap.
  Error checkBlocks() const;
  Expected<std::vector<Text>> readText(const object::ELF64LEObjectFile &Object);
  /// The places of an address map's ranges in an object file, which the section
  /// \p Relocations says. \p TextOf has the sections of code by their indices.
  Expected<std::vector<RangePlace>>
  readPlaces(const object::ELF64LEObjectFile &Object,
             const object::SectionRef &Relocations,
             const DenseMap<uint64_t, const Text *> &TextOf);
  /// The ranges of each function of the map.
  Expected<std::vector<std::vector<Range>>>
  readRanges(const object::ELF64LEObjectFile &Object, ArrayRef<Text> Sections);
  Error readSymbols(const object::ELF64LEObjectFile &Object);
  Error readRelocations(const object::ELF64LEObjectFile &Object);
  /// The region of a section of the file that is being added.
  Region sectionRegion(uint64_t SectionIndex);
  void relocate(DecodedInst &D, const CodeBlock &Block) const;

  const TargetModel &Model;
  std::vector<object::OwningBinary<object::Binary>> Files;
  std::vector<const object::ELF64LEObjectFile *> Objects;
  std::vector<CodeFunction> Functions;
  std::vector<CodeBlock> Blocks;
  StringMap<SmallVector<unsigned, 1>> ByName;

  /// The regions of sections, by object and section.
  std::map<std::pair<unsigned, uint64_t>, Region> SectionRegions;
  /// The global symbols of object files. The first definition counts.
  struct GlobalSymbol {
    RegionOffset Place;
    bool IsDefined = false;
  };
  StringMap<GlobalSymbol> Globals;
  Region NumRegions = 0;
  /// The relocations by object and section, in the order of offsets.
  std::map<std::pair<unsigned, uint64_t>, std::vector<Relocation>> Relocations;
};

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_PROGRAM_H
