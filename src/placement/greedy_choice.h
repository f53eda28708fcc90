// SPDX-License-Identifier: Apache-2.0
// Chooses GPUs on nodes that have too many for the exact search. Included only in src/placement.
#pragma once

#include <cstddef>
#include <vector>

#include "src/placement/linked_groups.h"

namespace tessera::placement {

// Starts with `required`; if it is empty, tries each position of `offered` as a start. Then always
// adds the position that adds the highest score. Returns the set with the highest score, sorted;
// between equal sets, the NUMA node and then the position decide.
// REQUIRES: `required` and `offered` are sorted, required ⊆ offered, |required| <= size <=
// |offered|.
std::vector<size_t> ChooseGreedily(const NodeLinks& links, const std::vector<size_t>& offered,
                                   const std::vector<size_t>& required, size_t size);

}  // namespace tessera::placement
