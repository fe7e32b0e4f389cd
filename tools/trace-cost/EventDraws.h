//===- EventDraws.h - Reproducible draws of events --------------*- C++ -*-===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Numbers between 0 and 1 that decide whether an event with a probability
/// happens. They depend on the block, the place in it and the visit, and on
/// nothing that two candidates differ in (common random numbers). Those of
/// successive visits are spread evenly, so that few visits have the right share
/// of events.
///
//===----------------------------------------------------------------------===//

#ifndef TRACE_COST_EVENTDRAWS_H
#define TRACE_COST_EVENTDRAWS_H

#include <cstdint>

namespace llvm {
namespace tracecost {

/// What a number is drawn for. A load has one number for all levels of the
/// caches.
enum class DrawKind : unsigned { Load, Branch, Line };

/// Draws a number for the \p Ordinal-th place of its kind in the block that
/// \p Key identifies. Each place has an order of its own, so that the events of
/// two places are independent of one another.
double drawVisit(uint64_t Key, unsigned Ordinal, DrawKind Kind, unsigned Visit);

/// Draws for a fixed number of visits, a power of two (stratified sampling). In
/// each visit, a place gets a number in another of as many strata of equal
/// size, in an order of its own.
class StratifiedDraw {
public:
  StratifiedDraw(uint64_t Key, unsigned Visits) : Key(Key), Visits(Visits) {}

  /// \p BlockFromEnd tells the blocks of a window apart.
  double operator()(unsigned BlockFromEnd, unsigned Ordinal, DrawKind Kind,
                    unsigned Visit) const;

private:
  uint64_t Key;
  unsigned Visits;
};

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_EVENTDRAWS_H
