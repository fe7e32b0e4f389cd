//===- EventRates.h - What a PMU profile knows of addresses -----*- C++ -*-===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Looks up a PMU profile by the address of an instruction, through the debug
/// info of the object file. Debug locations are rebuilt from DWARF, so that the
/// profile is asked in the same way as by the compiler.
///
//===----------------------------------------------------------------------===//

#ifndef TRACE_COST_EVENTRATES_H
#define TRACE_COST_EVENTRATES_H

#include "Program.h"
#include "llvm/Analysis/PMUProfile.h"
#include "llvm/DebugInfo/DWARF/DWARFContext.h"
#include "llvm/IR/DIBuilder.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include <array>
#include <map>
#include <memory>

namespace llvm {
namespace tracecost {

/// What the model asks of a profile, in the order of the names in
/// EventRates.cpp.
enum class RateKind : unsigned {
  LLCMiss,
  FirstLevelMiss,
  Mispredict,
  IndirectMispredict,
  ICacheMiss
};

class EventRates {
public:
  /// Whether a profile was asked for.
  static bool isRequested() { return PMUProfile::isRequested(); }

  /// Reads the profile that was asked for. An error if it can't be read, or has
  /// none of the rates that the model uses.
  static Expected<std::unique_ptr<EventRates>> create(LLVMContext &Ctx,
                                                      const Program &Code);

  /// How often an event happens at the instruction at \p Address in \p Block: a
  /// probability, but misses of the instruction cache. Nothing if the profile
  /// doesn't know the place.
  std::optional<double> at(RateKind Kind, const CodeBlock &Block,
                           uint64_t Address);
  /// The same of the whole program. Nothing if the profile lacks the event.
  std::optional<double> ofProgram(RateKind Kind) const;
  /// How many of these events happened in the program's own code.
  std::optional<uint64_t> number(RateKind Kind) const;

private:
  /// A function, by itself or inlined.
  struct Frame {
    DISubprogram *SP;
    DILocation *InlinedAt;
  };

  EventRates(LLVMContext &Ctx, std::unique_ptr<const PMUProfile> Profile,
             const Program &Code);
  const DILocation *location(const CodeBlock &Block, uint64_t Address);
  const Frame *frame(unsigned Object, ArrayRef<DWARFDie> Chain);
  DILocalScope *scope(DISubprogram *SP, unsigned Discriminator);
  DISubprogram *subprogram(StringRef Name, unsigned Line);

  LLVMContext &Ctx;
  const std::unique_ptr<const PMUProfile> OwnedProfile;
  const PMUProfile &Profile;
  const Program &Code;
  /// The profile's number of each kind of rate; nothing where it lacks one.
  std::array<std::optional<unsigned>, 5> Numbers;
  std::vector<std::unique_ptr<DWARFContext>> DebugInfo;
  Module M;
  DIBuilder Builder;
  DIFile *File;
  std::map<std::pair<std::string, unsigned>, DISubprogram *> Subprograms;
  /// An inlined call is one place in one caller, and one callee.
  std::map<std::tuple<const DILocation *, DISubprogram *, unsigned, unsigned,
                      DISubprogram *>,
           DILocation *>
      Calls;
  /// By object and place in the debug info; null if one of a chain of frames
  /// has no name.
  std::map<std::pair<unsigned, uint64_t>, std::unique_ptr<Frame>> Frames;
  std::map<unsigned, std::unique_ptr<PMUFunctionProfile>> Functions;
  /// The rates of an instruction are asked for one after the other.
  std::optional<std::tuple<unsigned, uint64_t, uint64_t>> LastPlace;
  const DILocation *LastLocation = nullptr;
};

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_EVENTRATES_H
