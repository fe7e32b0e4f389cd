// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Takes the place of Abseil's header for policies compiled by TensorFlow. Their
// headers fill such a map and never look into it. Abseil's own map needs its
// library, which TensorFlow's package has no archive of.

#ifndef ABSL_CONTAINER_FLAT_HASH_MAP_H_
#define ABSL_CONTAINER_FLAT_HASH_MAP_H_

#include "absl/base/config.h"

#include <unordered_map>

namespace absl {
ABSL_NAMESPACE_BEGIN
template <typename Key, typename Value>
using flat_hash_map = std::unordered_map<Key, Value>;
ABSL_NAMESPACE_END
} // namespace absl

#endif // ABSL_CONTAINER_FLAT_HASH_MAP_H_
