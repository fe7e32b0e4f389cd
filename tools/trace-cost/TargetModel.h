//===- TargetModel.h - What replays know of a target ------------*- C++ -*-===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Knows everything that depends on the instruction set: LLVM's MC layer for
/// one CPU, and what MC does not describe. The rest of the library knows no
/// opcode and no register. A port to another target is another subclass.
///
//===----------------------------------------------------------------------===//

#ifndef TRACE_COST_TARGETMODEL_H
#define TRACE_COST_TARGETMODEL_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/MC/MCAsmInfo.h"
#include "llvm/MC/MCContext.h"
#include "llvm/MC/MCDisassembler/MCDisassembler.h"
#include "llvm/MC/MCInst.h"
#include "llvm/MC/MCInstrAnalysis.h"
#include "llvm/MC/MCInstrInfo.h"
#include "llvm/MC/MCRegisterInfo.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/Support/Error.h"
#include "llvm/TargetParser/Triple.h"
#include <memory>
#include <optional>
#include <vector>

namespace llvm {
class Target;

namespace tracecost {

/// What the address of a memory operand is relative to: 0 stands for address 0,
/// other numbers for a section or an undefined symbol of an object file, whose
/// address only the linker chooses.
using Region = unsigned;

/// A place of a program: an offset in a region.
struct RegionOffset {
  Region In = 0;
  int64_t Offset = 0;
};

struct DecodedInst {
  MCInst Inst;
  uint64_t Address = 0;
  unsigned Size = 0;
  /// False for bytes that are no instruction of this target.
  bool Valid = false;
  /// What the linker will add to the displacement of the memory operand, which
  /// is 0 in the instruction.
  std::optional<RegionOffset> Displacement;
  /// Where it jumps to, if the linker fills that in.
  std::optional<RegionOffset> JumpTarget;
  /// The linker fills in a part of it.
  bool IsRelocated = false;
};

/// A general register, by its number in the encoding, or none.
using GPR = uint8_t;
inline constexpr GPR NoGPR = 32;
inline constexpr unsigned MaxGPRs = 32;

/// Instructions that stand for one that MCA has no model of.
struct Replacement {
  SmallVector<MCInst, 2> Insts;
  bool IsCall = false;
  /// Its target is in a register or in memory.
  bool IsIndirect = false;
};

/// The address that an instruction accesses, as a function of registers.
struct MemoryPlace {
  GPR Base = NoGPR, Index = NoGPR;
  uint8_t Scale = 1;
  /// The stack pointer, or the frame pointer of a function that has one, is the
  /// base.
  bool IsStack = false;
  /// What is added to the registers.
  RegionOffset Displacement;
  /// The bytes that are read or written.
  unsigned Size = 0;
};

/// What an instruction does to the values of registers and memory.
struct ValueEffect {
  /// The register that a whole value is loaded into or stored from.
  GPR Value = NoGPR;
  /// Register To becomes register From plus Amount.
  GPR To = NoGPR, From = NoGPR;
  int64_t Amount = 0;
};

/// What the renamer executes by itself, without a port.
enum class RenamerOperation { None, Move, VectorMove, ImmediateAddition };

class TargetModel {
public:
  /// An error if LLVM has no scheduling model of an out-of-order \p CPU of
  /// \p Arch, or replays have no knowledge of \p Arch.
  static Expected<std::unique_ptr<TargetModel>> create(Triple::ArchType Arch,
                                                       StringRef CPU);
  virtual ~TargetModel();

  Triple::ArchType arch() const { return TT.getArch(); }
  const Target &target() const { return *TheTarget; }
  const MCRegisterInfo &registers() const { return *MRI; }
  const MCInstrInfo &instructions() const { return *MCII; }
  const MCSubtargetInfo &subtarget() const { return *STI; }
  const MCSchedModel &schedModel() const { return STI->getSchedModel(); }
  const MCInstrAnalysis *analysis() const { return MCIA.get(); }
  const MCInstrDesc &desc(const MCInst &MI) const {
    return MCII->get(MI.getOpcode());
  }
  StringRef name(const MCInst &MI) const {
    return MCII->getName(MI.getOpcode());
  }

  /// Decodes the instruction at the begin of \p Bytes, which has the address
  /// \p Address.
  DecodedInst decode(ArrayRef<uint8_t> Bytes, uint64_t Address) const;

  /// Decodes all instructions in \p Bytes.
  std::vector<DecodedInst> decodeAll(ArrayRef<uint8_t> Bytes,
                                     uint64_t Address) const;

  /// Notes that the linker will add \p Target and the addend to what is at
  /// \p Offset in \p D. \p IsLinkTimeConstant says whether \p Target is defined
  /// in the same program, so that the linker needs no table of addresses for
  /// it.
  virtual void relocate(DecodedInst &D, unsigned Offset, uint32_t Type,
                        RegionOffset Target, int64_t Addend,
                        bool IsLinkTimeConstant) const = 0;

  /// A number for what \p MI computes that does not depend on register
  /// allocation. Neither the choice of registers nor the folding of a reload
  /// changes it. 0 for what register allocation inserts: copies, spills,
  /// reloads, rematerialised constants, pushes, pops and changes of the stack
  /// pointer.
  virtual uint64_t contentCode(const MCInst &MI) const = 0;

  /// The number of a general register, or of the one that it is a part of.
  GPR number(MCRegister Reg) const {
    return Reg ? GeneralRegisters[Reg] : NoGPR;
  }
  unsigned memoryOperandCount() const { return NumMemoryOperands; }
  /// The index of the first operand that is part of the address of \p MI.
  /// Nothing if it has no memory operand.
  std::optional<unsigned> memoryOperand(const MCInst &MI) const;

  /// Calls and returns as stores, loads and jumps. Nothing for others.
  virtual std::optional<Replacement> replaceCall(const MCInst &MI) const = 0;

  /// Whether \p MI is a load or store of the stack, in a function with a frame
  /// pointer if \p HasFrame.
  virtual bool accessesStack(const MCInst &MI, bool HasFrame) const = 0;
  /// The memory that \p D accesses; nothing if it accesses none, or in a way
  /// that registers alone do not tell.
  virtual std::optional<MemoryPlace> memory(const DecodedInst &D,
                                            bool HasFrame) const = 0;
  virtual ValueEffect values(const MCInst &MI) const = 0;
  /// Whether \p MI makes the frame pointer a copy of the stack pointer.
  virtual bool setsFramePointer(const MCInst &MI) const = 0;
  /// Whether a function does whose first block has these instructions.
  bool setsFramePointer(ArrayRef<DecodedInst> Entry) const;
  /// The registers that callees may change.
  virtual ArrayRef<GPR> callClobbered() const = 0;

  /// Whether the renamer knows that \p MI sets its result to zero, whatever its
  /// operands are.
  virtual bool isZeroIdiom(const MCInst &MI) const;
  virtual RenamerOperation renamerOperation(const MCInst &MI) const = 0;
  /// Whether \p First and the conditional branch \p Branch that follows it are
  /// dispatched and executed as one.
  virtual bool isFused(const MCInst &First, const MCInst &Branch) const = 0;
  /// How many micro-operations are dispatched for \p MI, of which ports execute
  /// \p Executed.
  virtual unsigned dispatchedMicroOps(const MCInst &MI,
                                      unsigned Executed) const = 0;

protected:
  TargetModel() = default;
  /// Sets what depends on \p this->MRI and \p this->MCII. An error if LLVM's
  /// description of the target lacks a register or an opcode.
  virtual Error initialize() = 0;
  Expected<MCRegister> registerNamed(StringRef Name) const;
  Expected<unsigned> opcodeNamed(StringRef Name) const;

  Triple TT;
  const Target *TheTarget = nullptr;
  MCTargetOptions Options;
  std::unique_ptr<MCRegisterInfo> MRI;
  std::unique_ptr<MCAsmInfo> MAI;
  std::unique_ptr<MCInstrInfo> MCII;
  std::unique_ptr<MCSubtargetInfo> STI;
  std::unique_ptr<MCContext> Context;
  std::unique_ptr<MCDisassembler> Disassembler;
  std::unique_ptr<MCInstrAnalysis> MCIA;
  /// The general register that each register is a part of.
  std::vector<GPR> GeneralRegisters;
  unsigned NumMemoryOperands = 0;
};

std::unique_ptr<TargetModel> createX86TargetModel();

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_TARGETMODEL_H
