// SPDX-License-Identifier: Apache-2.0
// Chooses whole GPUs of one node that are well linked. A GPU is a position in a mask, so that all
// nodes with equal links share one object. Does not handle names of GPUs (chooser.h) or parts of
// GPUs.
//
// Among the sets S with must_include ⊆ S ⊆ available and |S| = size, the choice is the first by
//   1. T(S) = score(S) + the best total score into which the other available GPUs can be divided in
//      groups of `size` and one group of the rest. This is the objective of NVIDIA's "best effort"
//      policy; it preserves good groups for later requests of the same size;
//   2. score(S), the sum of the link scores of its pairs (device::ScoreOf);
//   3. the value of the remaining GPUs for requests of two, four and eight: the sum of their best
//      totals in groups of these sizes. It also decides which GPU a request for one GPU gets;
//   4. fewest NUMA nodes in S; then the remaining GPUs least scattered over NUMA nodes;
//   5. lowest positions.
// GPUs with unknown links score 0, so NUMA nodes and positions decide among them.
//
// The choice is exact for up to kMaxExactGpus GPUs. The constructor tabulates the best totals of
// all subsets (8 GPUs: 40 µs; 16 GPUs: some tens of milliseconds and 1.2 MiB, so construct it on a
// worker), and an answer is one pass over at most 12,870 candidates. With more GPUs the search is
// greedy, once from each GPU.
//
// Threads: immutable after construction; callable from any thread. LinkedGroupsCache: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "src/device/gpu.h"

namespace tessera::placement {

inline constexpr size_t kMaxExactGpus = 16;
// A mask of positions fits in one word.
inline constexpr size_t kMaxLinkedGpus = 64;

// All inputs of a choice, by position; both members have equal sizes.
struct NodeLinks {
  std::vector<std::optional<int>> numa_nodes;
  device::LinkMatrix links;

  static NodeLinks Of(const device::NodeInventory& inventory);
  size_t size() const { return numa_nodes.size(); }
  bool operator==(const NodeLinks&) const = default;
};

class LinkedGroups {
 public:
  // REQUIRES: the members of `links` have equal sizes, at most kMaxLinkedGpus. With more than
  // `max_exact` GPUs it keeps no tables and searches greedily.
  explicit LinkedGroups(NodeLinks links, size_t max_exact = kMaxExactGpus);
  ~LinkedGroups();
  LinkedGroups(const LinkedGroups&) = delete;
  LinkedGroups& operator=(const LinkedGroups&) = delete;

  const NodeLinks& links() const { return links_; }
  size_t size() const { return links_.size(); }
  bool exact() const { return tables_ != nullptr; }

  // The chosen set; 0 if no such set exists: size <= 0, fewer than `size` available, more than
  // `size` in `must_include`, or a `must_include` that is not available. A position that the node
  // does not have is not available.
  uint64_t Choose(uint64_t available, uint64_t must_include, int size) const;

  // Sum of the link scores of all pairs in `set`: 0 for one GPU, and without known links.
  int ScoreOf(uint64_t set) const;
  // The highest ScoreOf of any set of `size` GPUs among `available`, whatever remains. Searches
  // greedily if there are no tables. 0 if fewer than `size` are available.
  int BestScore(uint64_t available, int size) const;

  // Whether every pair of `set` has an NVLink, direct or through NVSwitch. False for fewer than
  // two GPUs.
  bool AllPairsLinked(uint64_t set) const;
  // Whether each GPU of `set` has an NVLink to another GPU of `set`, so that taking any GPU breaks
  // a pair. False for the empty set.
  bool EachHasPartner(uint64_t set) const;
  // Whether the set that Choose(available, 0, size) returns is AllPairsLinked. Mostly faster than
  // Choose.
  bool ChoosesAllPairsLinked(uint64_t available, int size) const;

 private:
  struct Tables;

  uint64_t AllPositions() const;

  NodeLinks links_;
  std::vector<uint64_t> nvlink_peers_;    // by position: GPUs with an NVLink to it
  std::unique_ptr<const Tables> tables_;  // null above kMaxExactGpus
};

// Shares one LinkedGroups between all nodes with equal links, so that a cluster of 5,000 nodes of
// three types holds three objects. Only broken or malicious nodes cause more than kMaxTopologies
// different objects. Further objects have no tables and are not shared.
class LinkedGroupsCache {
 public:
  static constexpr size_t kMaxTopologies = 128;

  // REQUIRES: as the constructor of LinkedGroups.
  std::shared_ptr<const LinkedGroups> Get(const NodeLinks& links);
  size_t size() const { return groups_.size(); }

 private:
  std::unordered_multimap<size_t, std::shared_ptr<const LinkedGroups>> groups_;  // by hash
};

}  // namespace tessera::placement
