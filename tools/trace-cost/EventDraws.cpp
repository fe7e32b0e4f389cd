//===- EventDraws.cpp - Reproducible draws of events ----------------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EventDraws.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/xxhash.h"

using namespace llvm;
using namespace llvm::tracecost;

static uint64_t hash(ArrayRef<uint64_t> Words) {
  return xxh3_64bits(
      ArrayRef<uint8_t>(reinterpret_cast<const uint8_t *>(Words.data()),
                        Words.size() * sizeof(uint64_t)));
}

/// The fraction of the golden ratio, in units of 2^-64.
static constexpr uint64_t GoldenRatio = 0x9e3779b97f4a7c15;

static double toUnitInterval(uint64_t Bits) {
  return double(Bits >> 11) * 0x1p-53;
}

/// Permutes numbers so that each bit depends on those below it only (Laine and
/// Karras, "Stratified sampling for stochastic
/// transparency", 2011).
static uint64_t permute(uint64_t Bits, uint64_t Seed) {
  Bits += Seed;
  // Even factors, which move bits upwards.
  static constexpr uint64_t Factors[] = {0x6c50b47c3c6ef372, 0xb82f1e52daa66d2a,
                                         0xc7afe63854ff53a4,
                                         0x8d22f6e6510e527e};
  for (uint64_t Factor : Factors)
    Bits ^= Bits * Factor;
  return Bits;
}

double tracecost::drawVisit(uint64_t Key, unsigned Ordinal, DrawKind Kind,
                            unsigned Visit) {
  uint64_t Seed = hash({Key, uint64_t(Kind) << 32 | Ordinal});
  // The order of the visits is shuffled within each stretch of 2^n of them.
  // Then bits are reversed, so that a stretch has a number in each of 2^n equal
  // intervals.
  uint64_t Shuffled =
      reverseBits(permute(reverseBits(uint64_t(Visit)), Seed * GoldenRatio));
  return toUnitInterval(reverseBits(permute(Shuffled, Seed)));
}

double StratifiedDraw::operator()(unsigned BlockFromEnd, unsigned Ordinal,
                                  DrawKind Kind, unsigned Visit) const {
  uint64_t Hash =
      hash({Key, uint64_t(BlockFromEnd) << 32 | Ordinal, uint64_t(Kind)});
  // An odd factor permutes the strata, whose number is a power of two.
  unsigned Stratum =
      (Visit * (unsigned(Hash) | 1) + unsigned(Hash >> 32)) & (Visits - 1);
  return (Stratum + toUnitInterval(Hash * GoldenRatio)) / Visits;
}
