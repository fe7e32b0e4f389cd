# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Predicts how many instructions a candidate retires, from the profile of another build.

docs/cost.md has the reasons. An **instance** is a function as machine code holds it: compiled by
itself, or inlined by a chain of call sites.

1. `program`: how often each block of the profiled binary ran, and so each of its instructions.
2. `placement`: which share of what each instance of the profiled binary executed happens in which
   instance of the candidate.
3. `expectation`: how often the candidate's instructions are expected to run, from those of the
   same source lines in the profiled binary.
4. `estimate`: counts of the candidate's blocks that fit these expectations, and their sums.
5. `comparison`: the candidate's cost, from the estimates of both binaries and the measured run.
"""
