//===- X86TargetModel.cpp - What replays know of x86-64 -------------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TargetModel.h"
#include "X86Opcodes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/BinaryFormat/ELF.h"
#include "llvm/MC/MCInstPrinter.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"

using namespace llvm;
using namespace llvm::tracecost;
using namespace llvm::tracecost::x86;

namespace {

/// Base, scale, index, displacement and segment.
constexpr unsigned MemoryOperands = 5;

class X86TargetModel : public TargetModel {
public:
  void relocate(DecodedInst &D, unsigned Offset, uint32_t Type,
                RegionOffset Target, int64_t Addend,
                bool IsLinkTimeConstant) const override;
  uint64_t contentCode(const MCInst &MI) const override;
  std::optional<Replacement> replaceCall(const MCInst &MI) const override;
  bool accessesStack(const MCInst &MI, bool HasFrame) const override;
  std::optional<MemoryPlace> memory(const DecodedInst &D,
                                    bool HasFrame) const override;
  ValueEffect values(const MCInst &MI) const override;
  using TargetModel::setsFramePointer;
  bool setsFramePointer(const MCInst &MI) const override;
  ArrayRef<GPR> callClobbered() const override {
    // RAX, RCX, RDX, RSI, RDI and R8 to R11.
    static constexpr GPR Numbers[] = {0, 1, 2, 6, 7, 8, 9, 10, 11};
    return Numbers;
  }
  bool isZeroIdiom(const MCInst &MI) const override;
  RenamerOperation renamerOperation(const MCInst &MI) const override;
  bool isFused(const MCInst &First, const MCInst &Branch) const override;
  unsigned dispatchedMicroOps(const MCInst &MI,
                              unsigned Executed) const override;

protected:
  Error initialize() override;

private:
  const OpcodeInfo &info(const MCInst &MI) const {
    return Opcodes[MI.getOpcode()];
  }
  /// Whether \p MI has the register \p Reg as its operand \p Index.
  static bool has(const MCInst &MI, unsigned Index, MCRegister Reg) {
    return Index < MI.getNumOperands() && MI.getOperand(Index).isReg() &&
           MI.getOperand(Index).getReg() == Reg;
  }
  GPR stackPointer() const { return number(StackPointer); }
  /// The bytes that \p MI reads or writes in memory; 0 if unknown.
  unsigned accessSize(const MCInst &MI) const;

  std::vector<OpcodeInfo> Opcodes;
  /// Writes instructions in Intel's syntax, which names sizes of memory.
  std::unique_ptr<MCInstPrinter> Printer;
  MCRegister StackPointer, FramePointer, InstructionPointer;
  unsigned LoadAddress = 0, LoadValue = 0;
  MCRegister Scratch;
  unsigned PushImmediate = 0, PopRegister = 0, JumpMemory = 0, JumpRegister = 0,
           Jump = 0;
  bool HasMacroFusion = false, HasBranchFusion = false;
};

} // namespace

std::unique_ptr<TargetModel> tracecost::createX86TargetModel() {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86Disassembler();
  LLVMInitializeX86TargetMCA();
  return std::make_unique<X86TargetModel>();
}

Error X86TargetModel::initialize() {
  struct {
    StringRef Name;
    MCRegister &Place;
  } Registers[] = {
      {"RSP", StackPointer},
      {"RBP", FramePointer},
      {"RIP", InstructionPointer},
      // The last register of APX, which other code does not use.
      {"R31", Scratch},
  };
  for (auto &[Name, Place] : Registers) {
    Expected<MCRegister> Reg = registerNamed(Name);
    if (!Reg)
      return Reg.takeError();
    Place = *Reg;
  }
  struct {
    StringRef Name;
    unsigned &Place;
  } Instructions[] = {
      {"LEA64r", LoadAddress},
      {"MOV64rm", LoadValue},
      {"PUSH64i32", PushImmediate},
      {"POP64r", PopRegister},
      {"JMP64m", JumpMemory},
      {"JMP64r", JumpRegister},
      {"JMP_1", Jump},
  };
  for (auto &[Name, Place] : Instructions) {
    Expected<unsigned> Opcode = opcodeNamed(Name);
    if (!Opcode)
      return Opcode.takeError();
    Place = *Opcode;
  }
  for (unsigned Op = 0, E = MCII->getNumOpcodes(); Op != E; ++Op)
    Opcodes.push_back(classify(MCII->getName(Op)));
  NumMemoryOperands = MemoryOperands;
  GeneralRegisters.assign(MRI->getNumRegs(), NoGPR);
  for (StringRef Name :
       {"RAX", "RCX", "RDX", "RBX", "RSP", "RBP", "RSI", "RDI", "R8", "R9",
        "R10", "R11", "R12", "R13", "R14", "R15"}) {
    Expected<MCRegister> Whole = registerNamed(Name);
    if (!Whole)
      return Whole.takeError();
    for (MCPhysReg Part : MRI->subregs_inclusive(*Whole))
      GeneralRegisters[Part] = MRI->getEncodingValue(*Whole);
  }
  Printer.reset(TheTarget->createMCInstPrinter(TT, /*SyntaxVariant=*/1, *MAI,
                                               *MCII, *MRI));
  HasMacroFusion = STI->checkFeatures("+macrofusion");
  HasBranchFusion = STI->checkFeatures("+branchfusion");
  return Error::success();
}

void X86TargetModel::relocate(DecodedInst &D, unsigned Offset, uint32_t Type,
                              RegionOffset Target, int64_t Addend,
                              bool IsLinkTimeConstant) const {
  // Relocations are relative to their place; jumps and displacements are
  // relative to the next instruction.
  RegionOffset Relative{Target.In,
                        Target.Offset + Addend + int64_t(D.Size - Offset)};
  std::optional<unsigned> Memory = memoryOperand(D.Inst);
  if (!Memory) {
    if (desc(D.Inst).isBranch() &&
        (Type == ELF::R_X86_64_PC32 || Type == ELF::R_X86_64_PLT32))
      D.JumpTarget = Relative;
    return;
  }
  switch (Type) {
  case ELF::R_X86_64_REX_GOTPCRELX:
    // The linker replaces the load of an address by its computation.
    if (IsLinkTimeConstant && D.Inst.getOpcode() == LoadValue) {
      D.Inst.setOpcode(LoadAddress);
      break;
    }
    [[fallthrough]];
  case ELF::R_X86_64_GOTPCRELX:
  case ELF::R_X86_64_GOTPCREL:
  case ELF::R_X86_64_GOTTPOFF:
    // It refers to an entry of a table. No code of the program stores there,
    // and each symbol has an entry of its own.
    D.Displacement = RegionOffset{~Target.In, Target.Offset};
    return;
  case ELF::R_X86_64_PC32:
  case ELF::R_X86_64_PLT32:
    break;
  case ELF::R_X86_64_32:
  case ELF::R_X86_64_32S: {
    // A constant operand comes after the displacement.
    unsigned Last = D.Inst.getNumOperands() - 1;
    bool HasConstant =
        Last >= *Memory + MemoryOperands && !D.Inst.getOperand(Last).isReg();
    if (HasConstant && Offset + 4 == D.Size)
      return;
    D.Displacement = RegionOffset{Target.In, Target.Offset + Addend};
    return;
  }
  default:
    return;
  }
  D.Displacement = Relative;
}

uint64_t X86TargetModel::contentCode(const MCInst &MI) const {
  const OpcodeInfo &Info = info(MI);
  if (!Info.Content)
    return 0;
  // Zeroing a register is a constant.
  if (Info.K == ZeroIdiom && MI.getNumOperands() > 2 &&
      MI.getOperand(1).getReg() == MI.getOperand(2).getReg())
    return 0;
  if (desc(MI).getNumDefs() && has(MI, 0, StackPointer))
    return 0;
  // An address that can be computed anew anywhere is a constant.
  if (std::optional<unsigned> Memory = memoryOperand(MI);
      Memory && name(MI).starts_with("LEA") &&
      (has(MI, *Memory, InstructionPointer) || has(MI, *Memory, StackPointer)))
    return 0;
  // The condition of a branch is its operand. The order of the blocks decides
  // whether it is inverted, which is the lowest bit.
  uint64_t Condition = 0;
  if (Info.K == ConditionalJump && MI.getNumOperands() > 1 &&
      MI.getOperand(1).isImm())
    Condition = MI.getOperand(1).getImm() / 2 + 1;
  return Info.Content + Condition * 0x9e3779b97f4a7c15;
}

std::optional<Replacement> X86TargetModel::replaceCall(const MCInst &MI) const {
  const MCInstrDesc &Desc = desc(MI);
  if (!Desc.isCall() && !Desc.isReturn())
    return std::nullopt;
  std::optional<unsigned> Memory = memoryOperand(MI);
  bool IsRegister = !Memory && MI.getNumOperands() &&
                    MI.getOperand(0).isReg() && MI.getOperand(0).getReg();
  bool IsCall = Desc.isCall() && !Desc.isReturn();
  bool IsReturn = Desc.isReturn() && !Desc.isCall();
  MCOperand Zero = MCOperand::createImm(0);
  MCOperand Temporary = MCOperand::createReg(Scratch);

  Replacement Result;
  Result.IsCall = IsCall;
  Result.IsIndirect = !IsReturn && (Memory || IsRegister);
  // Push or pop the return address. Seen from its block, a call leaves the
  // stack as it was.
  if (IsCall || IsReturn) {
    MCInst &Inst = Result.Insts.emplace_back();
    Inst.setOpcode(IsCall ? PushImmediate : PopRegister);
    Inst.addOperand(IsCall ? Zero : Temporary);
  }
  MCInst &Inst = Result.Insts.emplace_back();
  Inst.setOpcode(Memory                   ? JumpMemory
                 : IsReturn || IsRegister ? JumpRegister
                                          : Jump);
  if (IsReturn)
    Inst.addOperand(Temporary);
  else if (Memory)
    for (unsigned I = 0; I != MemoryOperands; ++I)
      Inst.addOperand(MI.getOperand(*Memory + I));
  else
    Inst.addOperand(IsRegister ? MI.getOperand(0) : Zero);
  return Result;
}

bool X86TargetModel::accessesStack(const MCInst &MI, bool HasFrame) const {
  if (Kind K = info(MI).K; K == Push || K == Pop)
    return true;
  std::optional<unsigned> Memory = memoryOperand(MI);
  return Memory && (has(MI, *Memory, StackPointer) ||
                    (HasFrame && has(MI, *Memory, FramePointer)));
}

std::optional<MemoryPlace> X86TargetModel::memory(const DecodedInst &D,
                                                  bool HasFrame) const {
  const MCInst &MI = D.Inst;
  const MCInstrDesc &Desc = desc(MI);
  MemoryPlace Place;
  if (Kind K = info(MI).K; K == Push || K == Pop) {
    // The stack pointer moves before the store, and after the load.
    Place.Base = stackPointer();
    Place.IsStack = true;
    Place.Size = 8;
    Place.Displacement.Offset = K == Push ? -8 : 0;
    return Place;
  }
  if (!Desc.mayLoad() && !Desc.mayStore())
    return std::nullopt;
  std::optional<unsigned> Memory = memoryOperand(MI);
  if (!Memory)
    return std::nullopt;
  const MCOperand &Base = MI.getOperand(*Memory),
                  &Index = MI.getOperand(*Memory + 2),
                  &Displacement = MI.getOperand(*Memory + 3),
                  &Segment = MI.getOperand(*Memory + 4);
  if (!Base.isReg() || !Index.isReg() || !Displacement.isImm() ||
      Segment.getReg())
    return std::nullopt;
  Place.IsStack = accessesStack(MI, HasFrame);
  Place.Displacement.Offset = Displacement.getImm();
  bool IsRelative = Base.getReg() == InstructionPointer;
  if (D.Displacement)
    Place.Displacement = *D.Displacement;
  else if (IsRelative)
    Place.Displacement.Offset += D.Address + D.Size;
  Place.Base = number(Base.getReg());
  Place.Index = number(Index.getReg());
  if ((Base.getReg() && !IsRelative && Place.Base == NoGPR) ||
      (Index.getReg() && Place.Index == NoGPR))
    return std::nullopt;
  Place.Scale = MI.getOperand(*Memory + 1).getImm();
  Place.Size = accessSize(MI);
  if (!Place.Size)
    return std::nullopt;
  return Place;
}

unsigned X86TargetModel::accessSize(const MCInst &MI) const {
  std::string Text;
  raw_string_ostream OS(Text);
  Printer->printInst(&MI, 0, "", *STI, OS);
  // The first word before "ptr".
  StringRef Size = StringRef(Text).split(" ptr [").first;
  Size = Size.substr(Size.find_last_of("\t ,{") + 1);
  return StringSwitch<unsigned>(Size)
      .Case("byte", 1)
      .Case("word", 2)
      .Case("dword", 4)
      .Case("qword", 8)
      .Case("tbyte", 10)
      .Case("xmmword", 16)
      .Case("ymmword", 32)
      .Case("zmmword", 64)
      .Default(0);
}

ValueEffect X86TargetModel::values(const MCInst &MI) const {
  auto Number = [&](unsigned I) {
    return MI.getOperand(I).isReg() ? number(MI.getOperand(I).getReg()) : NoGPR;
  };
  ValueEffect Result;
  auto Set = [&](GPR To, GPR From, int64_t Amount) {
    Result.To = To;
    Result.From = From;
    Result.Amount = Amount;
  };
  switch (Kind K = info(MI).K) {
  case Push:
  case Pop:
    Result.Value = Number(0);
    Set(stackPointer(), stackPointer(), K == Push ? -8 : 8);
    break;
  case Addition:
  case Subtraction:
    if (MI.getOperand(2).isImm())
      Set(Number(0), Number(1),
          (K == Addition ? 1 : -1) * MI.getOperand(2).getImm());
    break;
  case Increment:
  case Decrement:
    Set(Number(0), Number(1), K == Increment ? 1 : -1);
    break;
  case Lea:
    if (!MI.getOperand(3).getReg() && MI.getOperand(4).isImm())
      Set(Number(0), Number(1), MI.getOperand(4).getImm());
    break;
  case Move:
    // The upper half of the register is cleared.
    if (!name(MI).starts_with("MOV32"))
      Set(Number(0), Number(1), 0);
    break;
  case Load:
    Result.Value = Number(0);
    break;
  case Store:
    Result.Value = Number(MemoryOperands);
    break;
  default:
    break;
  }
  return Result;
}

bool X86TargetModel::setsFramePointer(const MCInst &MI) const {
  return info(MI).K == Move && has(MI, 0, FramePointer) &&
         has(MI, 1, StackPointer);
}

bool X86TargetModel::isZeroIdiom(const MCInst &MI) const {
  // LLVM's models know zero idioms of some CPUs only; all renamers do.
  return TargetModel::isZeroIdiom(MI) ||
         (info(MI).K == ZeroIdiom && MI.getNumOperands() > 2 &&
          MI.getOperand(1).getReg() == MI.getOperand(2).getReg());
}

RenamerOperation X86TargetModel::renamerOperation(const MCInst &MI) const {
  switch (info(MI).K) {
  case Move:
    return RenamerOperation::Move;
  case VectorMove:
    return RenamerOperation::VectorMove;
  case Addition:
  case Subtraction:
    // The constant must fit in a byte.
    return name(MI).ends_with("8") ? RenamerOperation::ImmediateAddition
                                   : RenamerOperation::None;
  case Increment:
  case Decrement:
    return RenamerOperation::ImmediateAddition;
  default:
    return RenamerOperation::None;
  }
}

bool X86TargetModel::isFused(const MCInst &First, const MCInst &Branch) const {
  if (info(Branch).K != ConditionalJump || Branch.getNumOperands() < 2 ||
      !Branch.getOperand(1).isImm())
    return false;
  Fusion F = info(First).F;
  // By their encoding, conditions 2, 3, 6 and 7 read the carry flag. 4, 5 and
  // 12 to 15 compare for equality or as signed numbers. The others test
  // overflow, sign and parity.
  unsigned Condition = Branch.getOperand(1).getImm();
  bool IsCarry = (Condition & 10) == 2;
  bool IsSigned = (Condition & 14) == 4 || (Condition & 12) == 12;
  if (HasBranchFusion)
    return F == Tests ? !name(First).starts_with("AND") : F == Compares;
  if (!HasMacroFusion)
    return false;
  switch (F) {
  case NotFused:
    return false;
  case Tests:
    return true;
  case Compares:
  case Arithmetics:
    return IsCarry || IsSigned;
  case Counts:
    return IsSigned;
  }
  llvm_unreachable("all kinds are handled above");
}

unsigned X86TargetModel::dispatchedMicroOps(const MCInst &MI,
                                            unsigned Executed) const {
  // A load and what uses its value, and the address and the data of a store,
  // are dispatched as one.
  const MCInstrDesc &Desc = desc(MI);
  if (info(MI).K == Push)
    return std::min(Executed, 1u);
  if (Desc.mayLoad() && Desc.mayStore())
    return std::min(Executed, 2u);
  if ((Desc.mayLoad() || Desc.mayStore()) && Executed > 1)
    return Executed - 1;
  return Executed;
}
