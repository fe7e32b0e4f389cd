//===- Report.h - What a candidate costs, as JSON ---------------*- C++ -*-===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Writes what a replay found, in the format compiler-opt-perf/trace-cost.
///
//===----------------------------------------------------------------------===//

#ifndef TRACE_COST_REPORT_H
#define TRACE_COST_REPORT_H

#include "BlockTrace.h"
#include "CPUParameters.h"
#include "CostResult.h"
#include "Program.h"

namespace llvm {
namespace tracecost {

/// Writes the report to \p OS. \p Model is the name of the cost model. \p CPU
/// is null if the model counts no cycles.
void writeReport(raw_ostream &OS, const Program &Code,
                 const BlockHistogram &Histogram, const CostResult &R,
                 StringRef Model, const CPUParameters *CPU, bool HasProfile);

} // namespace tracecost
} // namespace llvm

#endif // TRACE_COST_REPORT_H
