//===- EventRates.cpp - What a PMU profile knows of addresses -------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EventRates.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Analysis/PMUSampleFile.h"
#include "llvm/BinaryFormat/Dwarf.h"
#include "llvm/DebugInfo/DWARF/DWARFCompileUnit.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/Function.h"

using namespace llvm;
using namespace llvm::tracecost;

namespace {

/// Gives the sections of code of an object file, which all begin at 0, distinct
/// addresses for reading its debug info.
class SectionLayout
    : public LoadedObjectInfoHelper<SectionLayout, LoadedObjectInfo> {
public:
  explicit SectionLayout(const object::ObjectFile &Object)
      : IsRelocatable(Object.isRelocatableObject()) {}
  uint64_t getSectionLoadAddress(const object::SectionRef &S) const override {
    return S.isText() ? offset(S.getIndex()) : 0;
  }
  /// What is added to addresses in a section of code.
  uint64_t offset(uint64_t SectionIndex) const {
    return IsRelocatable ? SectionIndex << 32 : 0;
  }

private:
  bool IsRelocatable;
};

} // namespace

EventRates::EventRates(LLVMContext &Ctx,
                       std::unique_ptr<const PMUProfile> Profile,
                       const Program &Code)
    : Ctx(Ctx), OwnedProfile(std::move(Profile)), Profile(*OwnedProfile),
      Code(Code), M("candidate", Ctx), Builder(M),
      File(Builder.createFile("candidate", ".")) {
  Builder.createCompileUnit(dwarf::DW_LANG_C, File, "", false, "", 0);
  for (unsigned I = 0; I != Code.numObjects(); ++I) {
    SectionLayout Layout(Code.object(I));
    DebugInfo.push_back(DWARFContext::create(
        Code.object(I), DWARFContext::ProcessDebugRelocations::Process,
        &Layout));
  }
}

Expected<std::unique_ptr<EventRates>> EventRates::create(LLVMContext &Ctx,
                                                         const Program &Code) {
  Expected<std::unique_ptr<const PMUProfile>> Read =
      PMUProfile::read(PMUProfile::requestedPath());
  if (!Read)
    return Read.takeError();
  const PMUProfile &Profile = **Read;
  std::unique_ptr<EventRates> Result(
      new EventRates(Ctx, std::move(*Read), Code));
  static constexpr StringRef Names[] = {
      "llc-miss-probability", "l1-miss-probability", "branch-mispredict-rate",
      "indirect-mispredict-rate", "icache-miss-rate"};
  for (auto [Name, Number] : zip_equal(Names, Result->Numbers))
    Number = Profile.findRate(Name);
  auto Has = [&](RateKind Kind) { return Result->ofProgram(Kind).has_value(); };
  if (!Has(RateKind::LLCMiss) && !Has(RateKind::Mispredict) &&
      !Has(RateKind::ICacheMiss))
    return createStringError("the PMU profile has none of the rates "
                             "llc-miss-probability, branch-mispredict-rate and "
                             "icache-miss-rate; collect the events they need");
  return std::move(Result);
}

DISubprogram *EventRates::subprogram(StringRef Name, unsigned Line) {
  DISubprogram *&SP = Subprograms[{Name.str(), Line}];
  if (!SP)
    SP = Builder.createFunction(
        File, Name, "", File, Line,
        Builder.createSubroutineType(Builder.getOrCreateTypeArray({})), Line,
        DINode::FlagZero, DISubprogram::SPFlagDefinition);
  return SP;
}

DILocalScope *EventRates::scope(DISubprogram *SP, unsigned Discriminator) {
  if (!Discriminator)
    return SP;
  return DILexicalBlockFile::get(Ctx, SP, File, Discriminator);
}

/// The line that the lines of \p Function count from. A part that was split off
/// has none of its own: its code has the lines that it had in the function.
static unsigned firstLine(const DWARFDie &Function, StringRef Name) {
  unsigned Line = Function.getDeclLine();
  StringRef Origin = stripPMUPassSuffixes(Name);
  if (Line || Origin == Name)
    return Line;
  DWARFUnit *Unit = Function.getDwarfUnit();
  for (const DWARFDebugInfoEntry &Entry : Unit->dies()) {
    DWARFDie Other(Unit, &Entry);
    if (!Other.isSubprogramDIE() || !Other.getDeclLine())
      continue;
    const char *Its = Other.getSubroutineName(DINameKind::LinkageName);
    if (Its && Origin == Its)
      return Other.getDeclLine();
  }
  return 0;
}

const EventRates::Frame *EventRates::frame(unsigned Object,
                                           ArrayRef<DWARFDie> Chain) {
  const DWARFDie &Function = Chain.front();
  auto [It, Inserted] = Frames.try_emplace({Object, Function.getOffset()});
  if (!Inserted)
    return It->second.get();
  const char *Name = Function.getSubroutineName(DINameKind::LinkageName);
  if (!Name)
    return nullptr;
  auto Result = std::make_unique<Frame>(
      Frame{subprogram(Name, firstLine(Function, Name)), nullptr});
  if (Chain.size() > 1) {
    const Frame *Caller = frame(Object, Chain.drop_front());
    if (!Caller)
      return nullptr;
    uint32_t CallFile, Line, Column, Discriminator;
    Function.getCallerFrame(CallFile, Line, Column, Discriminator);
    DILocation *&Call =
        Calls[{Caller->InlinedAt, Caller->SP, Line, Discriminator, Result->SP}];
    if (!Call)
      Call = DILocation::getDistinct(Ctx, Line, Column,
                                     scope(Caller->SP, Discriminator),
                                     Caller->InlinedAt);
    Result->InlinedAt = Call;
  }
  return (Frames[{Object, Function.getOffset()}] = std::move(Result)).get();
}

const DILocation *EventRates::location(const CodeBlock &Block,
                                       uint64_t Address) {
  const CodeFunction &Function = Code.functions()[Block.Function];
  const object::ELF64LEObjectFile &Object = Code.object(Function.Object);
  Address += SectionLayout(Object).offset(Block.SectionIndex);
  DWARFContext &DWARF = *DebugInfo[Function.Object];
  DWARFCompileUnit *Unit = DWARF.getCompileUnitForCodeAddress(Address);
  SmallVector<DWARFDie, 4> Chain;
  if (Unit)
    Unit->getInlinedChainForAddress(Address, Chain);
  const Frame *Innermost =
      Chain.empty() ? nullptr : frame(Function.Object, Chain);
  if (!Innermost)
    return nullptr;
  unsigned Line = 0, Column = 0, Discriminator = 0;
  uint64_t Section = Object.isRelocatableObject()
                         ? Block.SectionIndex
                         : object::SectionedAddress::UndefSection;
  if (const DWARFDebugLine::LineTable *Table = DWARF.getLineTableForUnit(Unit))
    if (uint32_t Index = Table->lookupAddress({Address, Section});
        Index != Table->UnknownRowIndex) {
      const DWARFDebugLine::Row &Row = Table->Rows[Index];
      Line = Row.Line;
      Column = Row.Column;
      Discriminator = Row.Discriminator;
    }
  return DILocation::get(Ctx, Line, Column, scope(Innermost->SP, Discriminator),
                         Innermost->InlinedAt);
}

std::optional<double> EventRates::ofProgram(RateKind Kind) const {
  std::optional<unsigned> Number = Numbers[unsigned(Kind)];
  if (!Number)
    return std::nullopt;
  // The profile's own rate leaves out what has no location.
  const PMUProfile::Rate &Rate = Profile.rates()[*Number];
  uint64_t All = Profile.total(Rate.Denominator);
  return All ? double(Profile.total(Rate.Numerator)) / All : 0.0;
}

std::optional<uint64_t> EventRates::number(RateKind Kind) const {
  std::optional<unsigned> Number = Numbers[unsigned(Kind)];
  if (!Number)
    return std::nullopt;
  return Profile.total(Profile.rates()[*Number].Numerator);
}

std::optional<double> EventRates::at(RateKind Kind, const CodeBlock &Block,
                                     uint64_t Address) {
  std::optional<unsigned> Rate = Numbers[unsigned(Kind)];
  if (!Rate)
    return std::nullopt;
  const CodeFunction &F = Code.functions()[Block.Function];
  std::unique_ptr<PMUFunctionProfile> &Known = Functions[Block.Function];
  if (!Known) {
    llvm::Function *Declaration =
        llvm::Function::Create(FunctionType::get(Type::getVoidTy(Ctx), false),
                               GlobalValue::ExternalLinkage, F.Name, M);
    // The declaration goes: local functions of several files may share a name.
    Known = std::make_unique<PMUFunctionProfile>(Profile, *Declaration);
    Declaration->eraseFromParent();
  }
  std::tuple Place(Block.Function, Block.SectionIndex, Address);
  if (LastPlace != Place) {
    LastPlace = Place;
    LastLocation = location(Block, Address);
  }
  if (!LastLocation)
    return std::nullopt;
  PMURate Result = Known->rate(*Rate, LastLocation);
  if (Result.Hit == PMUHit::Missing)
    return std::nullopt;
  return Result.Value;
}
