//===- TargetModel.cpp - What replays know of a target --------------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TargetModel.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/MC/MCTargetOptions.h"
#include "llvm/MC/TargetRegistry.h"

using namespace llvm;
using namespace llvm::tracecost;

TargetModel::~TargetModel() = default;

Expected<std::unique_ptr<TargetModel>>
TargetModel::create(Triple::ArchType Arch, StringRef CPU) {
  std::unique_ptr<TargetModel> Result;
  if (Arch == Triple::x86_64)
    Result = createX86TargetModel();
  else
    return createStringError("replays know nothing of " +
                             Triple::getArchTypeName(Arch));
  TargetModel &M = *Result;
  M.TT = Triple(Triple::getArchTypeName(Arch), "unknown", "linux", "gnu");
  std::string Message;
  M.TheTarget = TargetRegistry::lookupTarget(M.TT, Message);
  if (!M.TheTarget)
    return createStringError(Message);
  const Target &T = *M.TheTarget;
  M.MRI.reset(T.createMCRegInfo(M.TT));
  M.MAI.reset(T.createMCAsmInfo(*M.MRI, M.TT, M.Options));
  M.MCII.reset(T.createMCInstrInfo());
  // An unknown CPU would only be warned about, so ask the generic one first.
  M.STI.reset(T.createMCSubtargetInfo(M.TT, "", ""));
  if (!M.STI->isCPUStringValid(CPU))
    return createStringError("'" + CPU +
                             "' is no CPU that LLVM knows (clang "
                             "--target=" +
                             M.TT.getArchName() + " --print-supported-cpus)");
  M.STI.reset(T.createMCSubtargetInfo(M.TT, CPU, ""));
  const MCSchedModel &SM = M.schedModel();
  if (!SM.hasInstrSchedModel() || !SM.isOutOfOrder())
    return createStringError("LLVM has no out-of-order scheduling model of '" +
                             CPU + "'; name a similar CPU as \"mcpu\"");
  M.Context =
      std::make_unique<MCContext>(M.TT, M.MAI.get(), M.MRI.get(), M.STI.get());
  M.Disassembler.reset(T.createMCDisassembler(*M.STI, *M.Context));
  M.MCIA.reset(T.createMCInstrAnalysis(M.MCII.get()));
  if (Error E = M.initialize())
    return std::move(E);
  return std::move(Result);
}

DecodedInst TargetModel::decode(ArrayRef<uint8_t> Bytes,
                                uint64_t Address) const {
  DecodedInst D;
  D.Address = Address;
  uint64_t Size = 0;
  D.Valid = Disassembler->getInstruction(D.Inst, Size, Bytes, Address,
                                         nulls()) == MCDisassembler::Success;
  D.Size = std::clamp<uint64_t>(Size, 1, Bytes.size());
  return D;
}

std::vector<DecodedInst> TargetModel::decodeAll(ArrayRef<uint8_t> Bytes,
                                                uint64_t Address) const {
  std::vector<DecodedInst> Result;
  for (uint64_t Offset = 0; Offset < Bytes.size();) {
    Result.push_back(decode(Bytes.slice(Offset), Address + Offset));
    Offset += Result.back().Size;
  }
  return Result;
}

bool TargetModel::setsFramePointer(ArrayRef<DecodedInst> Entry) const {
  return any_of(Entry, [&](const DecodedInst &D) {
    return D.Valid && setsFramePointer(D.Inst);
  });
}

Expected<MCRegister> TargetModel::registerNamed(StringRef Name) const {
  for (unsigned Reg = 1, E = MRI->getNumRegs(); Reg != E; ++Reg)
    if (Name == MRI->getName(Reg))
      return MCRegister(Reg);
  return createStringError("LLVM's description of " + TT.getArchName() +
                           " has no register " + Name);
}

Expected<unsigned> TargetModel::opcodeNamed(StringRef Name) const {
  for (unsigned Op = 0, E = MCII->getNumOpcodes(); Op != E; ++Op)
    if (Name == MCII->getName(Op))
      return Op;
  return createStringError("LLVM's description of " + TT.getArchName() +
                           " has no instruction " + Name);
}

std::optional<unsigned> TargetModel::memoryOperand(const MCInst &MI) const {
  for (auto [Index, Operand] : enumerate(desc(MI).operands()))
    if (Operand.OperandType == MCOI::OPERAND_MEMORY)
      return Index + NumMemoryOperands <= MI.getNumOperands()
                 ? std::optional<unsigned>(Index)
                 : std::nullopt;
  return std::nullopt;
}

bool TargetModel::isZeroIdiom(const MCInst &MI) const {
  APInt Mask;
  return MCIA && MCIA->isZeroIdiom(MI, Mask, schedModel().getProcessorID());
}
