//===- Program.cpp - Blocks of a candidate's machine code -----------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Program.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <algorithm>

using namespace llvm;
using namespace llvm::object;
using namespace llvm::tracecost;

namespace {

struct RelocationEntry {
  uint64_t Offset;
  uint32_t Type;
  int64_t Addend;
  std::optional<ELFSymbolRef> Symbol;
};

} // namespace

/// Reads relocations. The iterators of ELFObjectFile would end the process
/// where a file is damaged.
static Expected<std::vector<RelocationEntry>>
readEntries(const ELF64LEObjectFile &Object, const SectionRef &Section) {
  const ELF64LEFile &File = Object.getELFFile();
  const ELF64LEFile::Elf_Shdr &Header =
      *Object.getSection(Section.getRawDataRefImpl());
  std::vector<ELF64LEFile::Elf_Rela> Relas;
  if (Header.sh_type == ELF::SHT_CREL) {
    auto Read = File.crels(Header);
    if (!Read)
      return Read.takeError();
    Relas = std::move(Read->second);
  } else {
    auto Read = File.relas(Header);
    if (!Read)
      return Read.takeError();
    Relas.assign(Read->begin(), Read->end());
  }
  auto Symbols = File.getSection(Header.sh_link);
  if (!Symbols)
    return Symbols.takeError();
  std::vector<RelocationEntry> Result;
  for (const ELF64LEFile::Elf_Rela &R : Relas) {
    uint32_t Index = R.getSymbol(/*isMips64EL=*/false);
    RelocationEntry &Entry = Result.emplace_back();
    Entry.Offset = R.r_offset;
    Entry.Type = R.getType(/*isMips64EL=*/false);
    Entry.Addend = R.r_addend;
    if (!Index)
      continue;
    if (auto Symbol = File.getEntry<ELF64LEFile::Elf_Sym>(**Symbols, Index);
        !Symbol)
      return Symbol.takeError();
    Entry.Symbol = Object.toSymbolRef(*Symbols, Index);
  }
  return std::move(Result);
}

Error Program::add(StringRef Path) {
  Expected<OwningBinary<Binary>> File = createBinary(Path);
  if (!File)
    return createFileError(Path, File.takeError());
  return add(Path, std::move(*File));
}

Error Program::add(StringRef Path, OwningBinary<Binary> File) {
  const auto *Object = dyn_cast<ELF64LEObjectFile>(File.getBinary());
  if (!Object || Object->getArch() != Model.arch())
    return createFileError(
        Path, createStringError("not an ELF file of code for " +
                                Triple::getArchTypeName(Model.arch())));
  if (Error E = readFunctions(*Object))
    return createFileError(Path, std::move(E));
  if (Object->isRelocatableObject()) {
    if (Error E = readSymbols(*Object))
      return createFileError(Path, std::move(E));
    if (Error E = readRelocations(*Object))
      return createFileError(Path, std::move(E));
  }
  Objects.push_back(Object);
  Files.push_back(std::move(File));
  return Error::success();
}

Expected<std::vector<Program::Text>>
Program::readText(const ELF64LEObjectFile &Object) {
  std::vector<Text> Result;
  for (const SectionRef &Section : Object.sections()) {
    if (!Section.isText())
      continue;
    Expected<StringRef> Contents = Section.getContents();
    if (!Contents)
      return Contents.takeError();
    bool IsRelocatable = Object.isRelocatableObject();
    Result.push_back({IsRelocatable ? sectionRegion(Section.getIndex()) : 0,
                      IsRelocatable ? 0 : Section.getAddress(),
                      Section.getIndex(), arrayRefFromStringRef(*Contents)});
  }
  return std::move(Result);
}

/// The linker changes code, but not the map.
static constexpr char OrChanged[] =
    ", or the linker has changed the code (--optimize-bb-jumps)";

static Error damagedMap(const Twine &What) {
  return createStringError(What + "; the basic block address map is damaged");
}

Expected<std::vector<Program::RangePlace>>
Program::readPlaces(const ELF64LEObjectFile &Object,
                    const SectionRef &Relocations,
                    const DenseMap<uint64_t, const Text *> &TextOf) {
  Expected<std::vector<RelocationEntry>> Entries =
      readEntries(Object, Relocations);
  if (!Entries)
    return Entries.takeError();
  llvm::stable_sort(*Entries, [](const auto &A, const auto &B) {
    return A.Offset < B.Offset;
  });
  std::vector<RangePlace> Result;
  for (const RelocationEntry &R : *Entries) {
    if (!R.Symbol)
      return damagedMap("a range of blocks is relocated without a symbol");
    Expected<section_iterator> In = R.Symbol->getSection();
    Expected<uint64_t> Value = R.Symbol->getValue();
    if (!In || !Value)
      return joinErrors(In.takeError(), Value.takeError());
    const Text *Own = *In == Object.section_end()
                          ? nullptr
                          : TextOf.lookup((*In)->getIndex());
    Result.push_back({Own, *Value + R.Addend});
  }
  return std::move(Result);
}

Expected<std::vector<std::vector<Program::Range>>>
Program::readRanges(const ELF64LEObjectFile &Object, ArrayRef<Text> Sections) {
  // In an object file, relocations say which section each range is in. Only the
  // addresses of ranges have any.
  std::map<uint64_t, SectionRef> RelocationsOf;
  bool IsRelocatable = Object.isRelocatableObject();
  for (const SectionRef &Section : Object.sections()) {
    if (!IsRelocatable)
      break;
    Expected<section_iterator> Target = Section.getRelocatedSection();
    if (!Target)
      return Target.takeError();
    if (*Target != Object.section_end())
      RelocationsOf.try_emplace((*Target)->getIndex(), Section);
  }
  DenseMap<uint64_t, const Text *> TextOf;
  for (const Text &T : Sections)
    TextOf[T.SectionIndex] = &T;

  std::vector<std::vector<Range>> Result;
  for (const SectionRef &Section : Object.sections()) {
    if (ELFSectionRef(Section).getType() != ELF::SHT_LLVM_BB_ADDR_MAP)
      continue;
    auto Own = RelocationsOf.find(Section.getIndex());
    bool IsRelocated = Own != RelocationsOf.end();
    std::vector<RangePlace> Places;
    const ELF64LEFile::Elf_Shdr *Relocations = nullptr;
    if (IsRelocated) {
      Expected<std::vector<RangePlace>> Read =
          readPlaces(Object, Own->second, TextOf);
      if (!Read)
        return Read.takeError();
      Places = std::move(*Read);
      Relocations = Object.getSection(Own->second.getRawDataRefImpl());
    }
    Expected<std::vector<BBAddrMap>> Maps = Object.getELFFile().decodeBBAddrMap(
        *Object.getSection(Section.getRawDataRefImpl()), Relocations);
    if (!Maps)
      return createStringError("unable to read SHT_LLVM_BB_ADDR_MAP section "
                               "with index " +
                               Twine(Section.getIndex()) + ": " +
                               toString(Maps.takeError()));
    size_t Next = 0;
    for (BBAddrMap &Map : *Maps) {
      std::vector<Range> &Ranges = Result.emplace_back();
      for (BBAddrMap::BBRangeEntry &R : Map.BBRanges) {
        Range Own{nullptr, R.BaseAddress, std::move(R.BBEntries)};
        if (IsRelocated) {
          if (Next == Places.size())
            return damagedMap("a range of blocks has no relocation");
          std::tie(Own.In, Own.Address) = Places[Next++];
        } else {
          // The last function of a section may be empty.
          for (const Text &T : Sections)
            if (Own.Address >= T.Address &&
                Own.Address - T.Address <= T.Bytes.size() &&
                (!Own.In || Own.Address == T.Address))
              Own.In = &T;
        }
        Ranges.push_back(std::move(Own));
      }
      // The linker sets the address of what it has dropped to 0.
      if (!IsRelocated &&
          any_of(Ranges, [](const Range &R) { return !R.In && !R.Address; }))
        Result.pop_back();
    }
    if (Next != Places.size())
      return damagedMap("has relocations that belong to no range of blocks");
  }
  return std::move(Result);
}

Error Program::readFunctions(const ELF64LEObjectFile &Object) {
  // A function has the name of its symbol. Of several symbols at one address, a
  // global one counts, and of these the first by name.
  std::map<std::pair<uint64_t, uint64_t>, std::pair<bool, std::string>> Names;
  for (const ELFSymbolRef Symbol : Object.symbols()) {
    Expected<SymbolRef::Type> Type = Symbol.getType();
    Expected<uint64_t> Value = Symbol.getValue();
    Expected<StringRef> Name = Symbol.getName();
    Expected<section_iterator> Section = Symbol.getSection();
    if (!Type || !Value || !Name || !Section)
      return joinErrors(joinErrors(Type.takeError(), Value.takeError()),
                        joinErrors(Name.takeError(), Section.takeError()));
    if (*Type != SymbolRef::ST_Function || *Section == Object.section_end())
      continue;
    bool IsLocal = Symbol.getBinding() == ELF::STB_LOCAL;
    std::pair<bool, std::string> Candidate(IsLocal, Name->str());
    uint64_t In = Object.isRelocatableObject() ? (*Section)->getIndex() : 0;
    auto [It, Inserted] = Names.try_emplace({In, *Value}, Candidate);
    if (!Inserted)
      It->second = std::min(It->second, Candidate);
  }

  Expected<std::vector<Text>> Sections = readText(Object);
  if (!Sections)
    return Sections.takeError();
  Expected<std::vector<std::vector<Range>>> Map = readRanges(Object, *Sections);
  if (!Map)
    return Map.takeError();
  if (Map->empty())
    return createStringError("no basic block address map; compile with "
                             "-fbasic-block-address-map");
  for (ArrayRef<Range> Ranges : *Map)
    for (const Range &R : Ranges)
      if (!R.In || R.Address < R.In->Address ||
          R.Address - R.In->Address > R.In->Bytes.size())
        return damagedMap("blocks at 0x" + Twine::utohexstr(R.Address) +
                          " are in no section of code");
  llvm::stable_sort(*Map, [](ArrayRef<Range> A, ArrayRef<Range> B) {
    return std::pair(A[0].In, A[0].Address) < std::pair(B[0].In, B[0].Address);
  });

  for (ArrayRef<Range> Ranges : *Map) {
    uint64_t In = Object.isRelocatableObject() ? Ranges[0].In->SectionIndex : 0;
    auto Name = Names.find({In, Ranges[0].Address});
    if (Name == Names.end())
      return createStringError("no symbol for the function at 0x" +
                               Twine::utohexstr(Ranges[0].Address) +
                               "; give a file that is not stripped");
    unsigned Index = Functions.size();
    CodeFunction &F = Functions.emplace_back();
    F.Name = Name->second.second;
    F.Object = Objects.size();
    F.Address = Ranges[0].Address;
    F.FirstBlock = Blocks.size();
    ByName[F.Name].push_back(Index);
    for (const Range &R : Ranges) {
      const Text &In = *R.In;
      for (const BBAddrMap::BBEntry &Entry : R.Blocks) {
        uint64_t Offset = R.Address - In.Address + Entry.Offset;
        if (Offset > In.Bytes.size() || Entry.Size > In.Bytes.size() - Offset)
          return damagedMap("block " + Twine(Entry.ID) + " of " + F.Name +
                            " lies outside of its section" +
                            (Object.isRelocatableObject() ? "" : OrChanged));
        uint64_t Address = In.Address + Offset;
        bool IsEntry = &R == Ranges.begin() && Address == F.Address;
        Blocks.push_back({Index, Entry.ID, In.In, Address, In.SectionIndex,
                          In.Bytes.slice(Offset, Entry.Size), IsEntry,
                          &Entry == &R.Blocks.back(), Entry.MD});
      }
    }
    F.NumBlocks = Blocks.size() - F.FirstBlock;
  }
  return Object.isRelocatableObject() ? Error::success() : checkBlocks();
}

Error Program::checkBlocks() const {
  std::vector<const CodeBlock *> Sorted;
  for (const CodeBlock &Block : Blocks)
    if (Functions[Block.Function].Object == Objects.size() &&
        !Block.Bytes.empty())
      Sorted.push_back(&Block);
  llvm::stable_sort(Sorted, [](const CodeBlock *A, const CodeBlock *B) {
    return A->Address < B->Address;
  });
  // Identical functions, which the linker has merged, begin at one place.
  for (size_t I = 1; I < Sorted.size(); ++I) {
    const CodeBlock &A = *Sorted[I - 1], &B = *Sorted[I];
    if (A.Address != B.Address && A.Address + A.Bytes.size() > B.Address)
      return damagedMap("block " + Twine(A.ID) + " of " +
                        Functions[A.Function].Name + " runs into block " +
                        Twine(B.ID) + " of " + Functions[B.Function].Name +
                        OrChanged);
  }
  return Error::success();
}

Region Program::sectionRegion(uint64_t SectionIndex) {
  Region &R = SectionRegions[{Objects.size(), SectionIndex}];
  if (!R)
    R = ++NumRegions;
  return R;
}

Error Program::readSymbols(const ELF64LEObjectFile &Object) {
  for (const ELFSymbolRef Symbol : Object.symbols()) {
    if (Symbol.getBinding() == ELF::STB_LOCAL)
      continue;
    Expected<StringRef> Name = Symbol.getName();
    Expected<uint32_t> Flags = Symbol.getFlags();
    Expected<section_iterator> Section = Symbol.getSection();
    if (!Name || !Flags || !Section)
      return joinErrors(joinErrors(Name.takeError(), Flags.takeError()),
                        Section.takeError());
    GlobalSymbol &Global = Globals[*Name];
    if (Global.IsDefined)
      continue;
    bool IsCommon = *Flags & SymbolRef::SF_Common;
    if (*Section != Object.section_end() && !IsCommon) {
      Expected<uint64_t> Value = Symbol.getValue();
      if (!Value)
        return Value.takeError();
      Global.Place = {sectionRegion((*Section)->getIndex()), int64_t(*Value)};
      Global.IsDefined = true;
      continue;
    }
    // The linker gives common symbols a place, and undefined ones that of
    // another file.
    Global.IsDefined = IsCommon;
    if (!Global.Place.In)
      Global.Place = {++NumRegions, 0};
  }
  return Error::success();
}

Error Program::readRelocations(const ELF64LEObjectFile &Object) {
  for (const SectionRef &Section : Object.sections()) {
    Expected<section_iterator> Target = Section.getRelocatedSection();
    if (!Target)
      return Target.takeError();
    if (*Target == Object.section_end() || !(*Target)->isText())
      continue;
    std::vector<Relocation> &List =
        Relocations[{Objects.size(), (*Target)->getIndex()}];
    Expected<std::vector<RelocationEntry>> Entries =
        readEntries(Object, Section);
    if (!Entries)
      return Entries.takeError();
    for (const RelocationEntry &R : *Entries) {
      if (!R.Symbol)
        continue;
      Expected<section_iterator> In = R.Symbol->getSection();
      Expected<StringRef> Name = R.Symbol->getName();
      Expected<uint64_t> Value = R.Symbol->getValue();
      if (!In || !Name || !Value)
        return joinErrors(In.takeError(),
                          joinErrors(Name.takeError(), Value.takeError()));
      Relocation Result{R.Offset, R.Type, {}, "", R.Addend};
      if (R.Symbol->getBinding() != ELF::STB_LOCAL)
        Result.Global = Name->str();
      else if (*In != Object.section_end())
        Result.Place = {sectionRegion((*In)->getIndex()), int64_t(*Value)};
      List.push_back(std::move(Result));
    }
    llvm::stable_sort(List, [](const Relocation &A, const Relocation &B) {
      return A.Offset < B.Offset;
    });
  }
  return Error::success();
}

ArrayRef<unsigned> Program::functionsNamed(StringRef Name) const {
  auto It = ByName.find(Name);
  return It == ByName.end() ? ArrayRef<unsigned>() : It->second;
}

std::vector<std::pair<unsigned, unsigned>>
Program::numbered(unsigned Function) const {
  const CodeFunction &F = Functions[Function];
  std::vector<std::pair<unsigned, unsigned>> Result;
  for (unsigned I = 0; I != F.NumBlocks; ++I)
    Result.push_back({Blocks[F.FirstBlock + I].ID, F.FirstBlock + I});
  // Sections of an object file have no addresses yet.
  llvm::stable_sort(Result, [&](const auto &A, const auto &B) {
    const CodeBlock &First = Blocks[A.second], &Second = Blocks[B.second];
    return !First.In && First.Address < Second.Address;
  });
  return Result;
}

void Program::relocate(DecodedInst &D, const CodeBlock &Block) const {
  auto List =
      Relocations.find({Functions[Block.Function].Object, Block.SectionIndex});
  if (List == Relocations.end())
    return;
  uint64_t Begin = D.Address;
  auto It = llvm::lower_bound(
      List->second, Begin,
      [](const Relocation &R, uint64_t Offset) { return R.Offset < Offset; });
  for (; It != List->second.end() && It->Offset < Begin + D.Size; ++It) {
    D.IsRelocated = true;
    GlobalSymbol Target{It->Place, true};
    if (!It->Global.empty())
      Target = Globals.lookup(It->Global);
    Model.relocate(D, It->Offset - Begin, It->Type, Target.Place, It->Addend,
                   Target.IsDefined);
  }
}

std::vector<DecodedInst> Program::decode(const CodeBlock &Block) const {
  std::vector<DecodedInst> Result = Model.decodeAll(Block.Bytes, Block.Address);
  for (DecodedInst &D : Result)
    if (D.Valid)
      relocate(D, Block);
  return Result;
}

bool Program::hasFramePointer(const CodeFunction &Function) const {
  return any_of(blocks(Function), [&](const CodeBlock &Block) {
    return Block.IsEntry && Model.setsFramePointer(decode(Block));
  });
}

std::optional<RegionOffset> Program::jumpTarget(const DecodedInst &D,
                                                const CodeBlock &Block) const {
  if (!D.Valid || !Model.desc(D.Inst).isBranch())
    return std::nullopt;
  uint64_t Target;
  if (D.IsRelocated ||
      !Model.analysis()->evaluateBranch(D.Inst, D.Address, D.Size, Target))
    return D.JumpTarget;
  return RegionOffset{Block.In, int64_t(Target)};
}

uint64_t Program::contentHash(const CodeBlock &Block) const {
  // A sum does not depend on the order, which schedulers change.
  uint64_t Hash = 0;
  for (const DecodedInst &D : decode(Block))
    Hash += D.Valid ? Model.contentCode(D.Inst) : 1;
  return Hash;
}
