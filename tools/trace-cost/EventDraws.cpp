//===- EventDraws.cpp - Reproducible draws of events ----------------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EventDraws.h"
#include "llvm/ADT/ArrayRef.h"
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

double tracecost::drawVisit(uint64_t Key, unsigned Ordinal, DrawKind Kind,
                            unsigned Visit) {
  return toUnitInterval(hash({Key, uint64_t(Kind) << 32 | Ordinal}) +
                        Visit * GoldenRatio);
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
