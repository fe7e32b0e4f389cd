// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Takes the place of Abseil's header for policies compiled by TensorFlow: a
// check that fails aborts, without the message that Abseil's logging library
// would write. TensorFlow's package has no archive of that library.

#ifndef ABSL_LOG_CHECK_H_
#define ABSL_LOG_CHECK_H_

#include <cstdlib>
#include <iostream>

// A stream may follow; the comma operator leaves it the last operand.
#define CHECK(CONDITION)                                                       \
  while (!(CONDITION))                                                         \
  std::abort(), std::cerr
#define CHECK_EQ(A, B) CHECK((A) == (B))
#define CHECK_NE(A, B) CHECK((A) != (B))
#define CHECK_LT(A, B) CHECK((A) < (B))
#define CHECK_LE(A, B) CHECK((A) <= (B))
#define CHECK_GT(A, B) CHECK((A) > (B))
#define CHECK_GE(A, B) CHECK((A) >= (B))

// These are compiled, and never evaluated.
#define DCHECK(CONDITION) CHECK(true || (CONDITION))
#define DCHECK_EQ(A, B) DCHECK((A) == (B))
#define DCHECK_NE(A, B) DCHECK((A) != (B))
#define DCHECK_LT(A, B) DCHECK((A) < (B))
#define DCHECK_LE(A, B) DCHECK((A) <= (B))
#define DCHECK_GT(A, B) DCHECK((A) > (B))
#define DCHECK_GE(A, B) DCHECK((A) >= (B))

#endif // ABSL_LOG_CHECK_H_
