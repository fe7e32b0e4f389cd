//===- X86Opcodes.cpp - What x86-64 opcodes are ---------------------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "X86Opcodes.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/xxhash.h"

using namespace llvm;
using namespace llvm::tracecost;
using namespace llvm::tracecost::x86;

/// The part of an opcode's name that says what it computes: "ADD64" for
/// ADD64rr, ADD64rm and ADD64mr. Register allocation may fold the TEST of a
/// register with itself to the CMP of a spill slot with zero. An addition whose
/// result has another register is an LEA.
static StringRef operation(StringRef Name) {
  StringRef Stem =
      Name.take_until([](char C) { return isLower(C) || C == '_'; });
  StringRef Form = Name.drop_front(Stem.size());
  bool IsByConstant = Form.starts_with("ri") || Form.starts_with("mi");
  if (Stem == "LEA64" || Stem == "LEA32" || Stem == "INC64" ||
      Stem == "INC32" || Stem == "DEC64" || Stem == "DEC32" ||
      ((Stem == "SUB64" || Stem == "SUB32") && IsByConstant))
    return Stem.ends_with("64") && !Form.starts_with("_32") ? "ADD64" : "ADD32";
  return Stem.starts_with("TEST") || Stem.starts_with("CMP")
             ? (Stem.ends_with("64")   ? "COMPARE64"
                : Stem.ends_with("32") ? "COMPARE32"
                                       : "COMPARE")
             : Stem;
}

OpcodeInfo x86::classify(StringRef Name) {
  OpcodeInfo Result;
  Result.K =
      StringSwitch<Kind>(Name)
          .Cases({"MOV64rr", "MOV64rr_REV", "MOV32rr", "MOV32rr_REV"}, Move)
          .Case("MOV64rm", Load)
          .Case("MOV64mr", Store)
          .Cases({"ADD64ri8", "ADD64ri32"}, Addition)
          .Cases({"SUB64ri8", "SUB64ri32"}, Subtraction)
          .Case("INC64r", Increment)
          .Case("DEC64r", Decrement)
          .Case("LEA64r", Lea)
          .Cases({"XOR32rr", "XOR64rr", "SUB32rr", "SUB64rr"}, ZeroIdiom)
          .Cases({"PXORrr", "XORPSrr", "XORPDrr"}, ZeroIdiom)
          .Cases({"VPXORrr", "VXORPSrr", "VXORPDrr", "VPXORYrr", "VXORPSYrr"},
                 ZeroIdiom)
          .Cases({"MOVAPSrr", "MOVAPDrr", "MOVDQArr"}, VectorMove)
          .Cases({"VMOVAPSrr", "VMOVAPDrr", "VMOVDQArr"}, VectorMove)
          .Cases({"VMOVAPSYrr", "VMOVAPDYrr", "VMOVDQAYrr"}, VectorMove)
          .Case("JCC_1", ConditionalJump)
          .Case("JCC_4", ConditionalJump)
          .StartsWith("PUSH", Push)
          .StartsWith("POP64", Pop)
          .Default(Other);

  // A comparison of memory with a constant does not fuse, nor does what stores.
  StringRef Form = Name.drop_until([](char C) { return isLower(C); });
  bool IsRead = Form.starts_with("r") || Form.starts_with("i");
  auto Is = [&](StringRef Stem) {
    StringRef Rest = Name;
    return Rest.consume_front(Stem) && !Rest.empty() && isDigit(Rest[0]);
  };
  if (Is("TEST") || (Is("AND") && IsRead))
    Result.F = Form.starts_with("mi") ? NotFused : Tests;
  else if (Is("CMP") && !Form.starts_with("mi"))
    Result.F = Compares;
  else if ((Is("ADD") || Is("SUB")) && IsRead)
    Result.F = Arithmetics;
  else if ((Is("INC") || Is("DEC")) && IsRead)
    Result.F = Counts;

  // What register allocation inserts: copies and constants.
  bool IsMove = Name.starts_with("MOV") && !Name.starts_with("MOVSX") &&
                !Name.starts_with("MOVZX") && !Name.starts_with("MOVBE");
  // What follows from the order of the blocks: jumps, and padding.
  bool IsLayout = Name.starts_with("JMP_") || Name.starts_with("NOOP");
  if (Result.K != Push && Result.K != Pop && !IsMove && !IsLayout &&
      !Name.starts_with("VMOV") && !Name.starts_with("LEAVE"))
    Result.Content = xxh3_64bits(operation(Name)) | 1;
  return Result;
}
