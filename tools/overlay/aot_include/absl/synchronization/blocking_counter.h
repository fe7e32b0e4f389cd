// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Takes the place of Abseil's header for policies compiled by TensorFlow. They
// wait for products of matrices, which run in the same thread: a compiler gives
// them no pool of threads. Abseil's own counter needs its library, which
// TensorFlow's package has no archive of.

#ifndef ABSL_SYNCHRONIZATION_BLOCKING_COUNTER_H_
#define ABSL_SYNCHRONIZATION_BLOCKING_COUNTER_H_

#include "absl/base/config.h"

#include <atomic>
#include <thread>

namespace absl {
ABSL_NAMESPACE_BEGIN
class BlockingCounter {
public:
  explicit BlockingCounter(int Count) : Left(Count) {}

  bool DecrementCount() { return --Left == 0; }
  void Wait() {
    while (Left)
      std::this_thread::yield();
  }

private:
  std::atomic<int> Left;
};
ABSL_NAMESPACE_END
} // namespace absl

#endif // ABSL_SYNCHRONIZATION_BLOCKING_COUNTER_H_
