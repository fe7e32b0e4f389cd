//===- TargetModelTest.cpp - Knowledge of x86-64 --------------------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TargetModel.h"
#include "llvm/BinaryFormat/ELF.h"
#include "llvm/Testing/Support/Error.h"
#include "gtest/gtest.h"

using namespace llvm;
using namespace llvm::tracecost;
using testing::HasSubstr;

namespace {

class X86TargetModelTest : public testing::Test {
protected:
  void SetUp() override { use("skylake"); }
  void use(StringRef CPU) {
    Expected<std::unique_ptr<TargetModel>> M =
        TargetModel::create(Triple::x86_64, CPU);
    ASSERT_THAT_EXPECTED(M, Succeeded());
    Model = std::move(*M);
  }
  DecodedInst decode(std::initializer_list<uint8_t> Bytes) {
    DecodedInst D = Model->decode(ArrayRef<uint8_t>(Bytes), 0x1000);
    EXPECT_TRUE(D.Valid);
    EXPECT_EQ(D.Size, Bytes.size());
    return D;
  }
  uint64_t content(std::initializer_list<uint8_t> Bytes) {
    return Model->contentCode(decode(Bytes).Inst);
  }

  std::unique_ptr<TargetModel> Model;
};

TEST_F(X86TargetModelTest, UnknownTargetsAndCPUsAreErrors) {
  EXPECT_THAT_EXPECTED(TargetModel::create(Triple::aarch64, "generic"),
                       FailedWithMessage(HasSubstr("aarch64")));
  EXPECT_THAT_EXPECTED(TargetModel::create(Triple::x86_64, "skylark"),
                       FailedWithMessage(HasSubstr("no CPU that LLVM knows")));
  EXPECT_THAT_EXPECTED(TargetModel::create(Triple::x86_64, "atom"),
                       FailedWithMessage(HasSubstr("no out-of-order")));
}

TEST_F(X86TargetModelTest, ContentDoesNotDependOnRegisters) {
  uint64_t Add = content({0x48, 0x01, 0xc8}); // addq %rcx, %rax
  EXPECT_NE(Add, 0u);
  EXPECT_EQ(content({0x4c, 0x01, 0xdb}), Add);             // addq %r11, %rbx
  EXPECT_EQ(content({0x48, 0x03, 0x44, 0x24, 0x08}), Add); // addq 8(%rsp), %rax
  EXPECT_EQ(content({0x48, 0x01, 0x44, 0x24, 0x08}), Add); // addq %rax, 8(%rsp)
  EXPECT_NE(content({0x01, 0xc8}), Add);                   // addl %ecx, %eax
  EXPECT_NE(content({0x48, 0x29, 0xc8}), Add);             // subq %rcx, %rax
  // testq %rax, %rax and cmpq $0, 8(%rsp).
  EXPECT_EQ(content({0x48, 0x85, 0xc0}),
            content({0x48, 0x83, 0x7c, 0x24, 0x08, 0x00}));
  // jne and je, which the order of blocks exchanges; jl.
  EXPECT_EQ(content({0x75, 0x00}), content({0x74, 0x00}));
  EXPECT_NE(content({0x75, 0x00}), content({0x7c, 0x00}));
}

TEST_F(X86TargetModelTest, WhatRegisterAllocationInsertsIsNoContent) {
  EXPECT_EQ(content({0x48, 0x89, 0xc8}), 0u);             // movq %rcx, %rax
  EXPECT_EQ(content({0x48, 0x8b, 0x44, 0x24, 0x08}), 0u); // movq 8(%rsp), %rax
  EXPECT_EQ(content({0x48, 0x89, 0x44, 0x24, 0x08}), 0u); // movq %rax, 8(%rsp)
  EXPECT_EQ(content({0x31, 0xc0}), 0u);                   // xorl %eax, %eax
  EXPECT_NE(content({0x31, 0xc8}), 0u);                   // xorl %ecx, %eax
  EXPECT_EQ(content({0x53}), 0u);                         // pushq %rbx
  EXPECT_EQ(content({0x48, 0x83, 0xec, 0x08}), 0u);       // subq $8, %rsp
  EXPECT_EQ(content({0xeb, 0x00}), 0u);                   // jmp
}

TEST_F(X86TargetModelTest, FusionFollowsConditions) {
  DecodedInst Cmp = decode({0x48, 0x39, 0xc8}),  // cmpq %rcx, %rax
      CmpMem = decode({0x48, 0x83, 0x38, 0x00}), // cmpq $0, (%rax)
      Test = decode({0x48, 0x85, 0xc0}),         // testq %rax, %rax
      Inc = decode({0x48, 0xff, 0xc0}),          // incq %rax
      Add = decode({0x48, 0x01, 0xc8}),          // addq %rcx, %rax
      Store = decode({0x48, 0x01, 0x08}),        // addq %rcx, (%rax)
      JE = decode({0x74, 0x00}), JB = decode({0x72, 0x00}),
              JP = decode({0x7a, 0x00}), JL = decode({0x7c, 0x00});
  auto Fuses = [&](const DecodedInst &First, const DecodedInst &Branch) {
    return Model->isFused(First.Inst, Branch.Inst);
  };
  EXPECT_TRUE(Fuses(Cmp, JE) && Fuses(Cmp, JB) && Fuses(Cmp, JL));
  EXPECT_FALSE(Fuses(Cmp, JP) || Fuses(CmpMem, JE));
  EXPECT_TRUE(Fuses(Test, JE) && Fuses(Test, JP));
  EXPECT_TRUE(Fuses(Inc, JE) && Fuses(Inc, JL));
  EXPECT_FALSE(Fuses(Inc, JB) || Fuses(Inc, JP));
  EXPECT_TRUE(Fuses(Add, JB));
  EXPECT_FALSE(Fuses(Store, JB) || Fuses(JE, JE) || Fuses(Cmp, Cmp));
  // Cores that fuse comparisons only, with all conditions.
  use("znver2");
  EXPECT_TRUE(Fuses(Cmp, JP) && Fuses(Test, JP));
  EXPECT_FALSE(Fuses(Inc, JE) || Fuses(Add, JE));
}

TEST_F(X86TargetModelTest, RelocatedPlaces) {
  auto Place = [&](DecodedInst D, unsigned Offset, uint32_t Type,
                   int64_t Addend) {
    Model->relocate(D, Offset, Type, {3, 100}, Addend, true);
    return D.Displacement;
  };
  // movq 0(%rip), %rax: symbol - 4, relative to the place.
  DecodedInst Load = decode({0x48, 0x8b, 0x05, 0, 0, 0, 0});
  std::optional<RegionOffset> P = Place(Load, 3, ELF::R_X86_64_PC32, -4);
  ASSERT_TRUE(P);
  EXPECT_EQ(P->In, 3u);
  EXPECT_EQ(P->Offset, 100);
  // movq $0, 0(%rip): the displacement is followed by four more bytes.
  DecodedInst Store = decode({0x48, 0xc7, 0x05, 0, 0, 0, 0, 0, 0, 0, 0});
  P = Place(Store, 3, ELF::R_X86_64_PC32, -8);
  ASSERT_TRUE(P);
  EXPECT_EQ(P->Offset, 100);
  // Its constant is no displacement.
  EXPECT_FALSE(Place(Store, 7, ELF::R_X86_64_32S, 0));
  // movq 0(,%rdx,8), %rax
  DecodedInst Indexed = decode({0x48, 0x8b, 0x04, 0xd5, 0, 0, 0, 0});
  P = Place(Indexed, 4, ELF::R_X86_64_32S, 16);
  ASSERT_TRUE(P);
  EXPECT_EQ(P->Offset, 116);
  std::optional<MemoryPlace> Memory = Model->memory(Indexed, false);
  ASSERT_TRUE(Memory);
  EXPECT_EQ(Memory->Base, NoGPR);
  EXPECT_EQ(Memory->Index, 2);
  EXPECT_EQ(Memory->Scale, 8);
  // A load from the table of addresses becomes the address.
  Model->relocate(Load, 3, ELF::R_X86_64_REX_GOTPCRELX, {3, 100}, -4, true);
  EXPECT_FALSE(Model->desc(Load.Inst).mayLoad());
}

} // namespace
