// SPDX-License-Identifier: Apache-2.0
// The choice on nodes with more GPUs than can be solved exactly. Private to this room.
#pragma once

#include <cstddef>
#include <vector>

#include "src/placement/linked_groups.h"

namespace tessera::placement {

// Grows a set from `required`, or from each of `offered` where nothing is required, by the position
// that adds the highest score, and gives the set with the highest score; equal ones by NUMA node,
// then by position. Sorted.
// REQUIRES: `required` and `offered` are sorted, required ⊆ offered, |required| <= size <=
// |offered|.
std::vector<size_t> ChooseGreedily(const NodeLinks& links, const std::vector<size_t>& offered,
                                   const std::vector<size_t>& required, size_t size);

}  // namespace tessera::placement
