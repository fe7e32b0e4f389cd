//===- ld.lld.cpp - The linker for ELF alone ------------------------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// lld's own main program refers to the linkers for all object file formats;
/// this one spares their compilation. It answers as ld.lld or, with
/// "-flavor gnu", as lld.
///
//===----------------------------------------------------------------------===//

#include "lld/Common/Driver.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"

LLD_HAS_DRIVER(elf)

namespace lld {
// Without the crash recovery that a linker inside another program needs.
extern int unsafeLldMain(llvm::ArrayRef<const char *> Args,
                         llvm::raw_ostream &StdoutOS,
                         llvm::raw_ostream &StderrOS,
                         llvm::ArrayRef<DriverDef> Drivers, bool ExitEarly);
} // namespace lld

int main(int Argc, char **Argv) {
  llvm::InitLLVM X(Argc, Argv);
  llvm::sys::Process::UseANSIEscapeCodes(true);
  return lld::unsafeLldMain({Argv, Argv + Argc}, llvm::outs(), llvm::errs(),
                            {{lld::Gnu, &lld::elf::link}}, /*ExitEarly=*/true);
}
