// SPDX-License-Identifier: Apache-2.0
// Which whole GPUs of one node go together: by position, as masks, so that all nodes with equal
// links share one object. Not for names of GPUs (chooser.h), nor for parts of GPUs.
//
// The set S that is chosen (must_include ⊆ S ⊆ available, |S| = size) is first by
//   1. T(S) = score(S) + the best total score into which the other available GPUs can be divided in
//      groups of `size` and one group of what is left over. This is the objective of NVIDIA's
//      "best effort" policy, so groups for later requests of the same size stay good;
//   2. score(S), the sum of the link scores of its pairs (device::ScoreOf);
//   3. what the GPUs left over are still worth to requests of two, four and eight: the sum of their
//      best totals in groups of these sizes. Also decides which GPU a request of one breaks off;
//   4. fewest NUMA nodes in S; then the rest least scattered over NUMA nodes;
//   5. lowest positions.
// GPUs whose links nobody knows score 0, so among them NUMA nodes and positions decide.
//
// Exact for up to kMaxExactGpus GPUs: best totals of all subsets are tabulated when it is made (16
// GPUs: some tens of milliseconds and 1.2 MiB, so make it on a worker; 8 GPUs: 40 µs), so an answer
// is one pass over at most 12,870 candidates. Above that a greedy search, from every start.
//
// Threads: immutable after construction; any thread may ask. LinkedGroupsCache: one thread.
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
// A mask of positions fits one word.
inline constexpr size_t kMaxLinkedGpus = 64;

// All that a choice depends on, by position; both members are of one size.
struct NodeLinks {
  std::vector<std::optional<int>> numa_nodes;
  device::LinkMatrix links;

  static NodeLinks Of(const device::NodeInventory& inventory);
  size_t size() const { return numa_nodes.size(); }
  bool operator==(const NodeLinks&) const = default;
};

class LinkedGroups {
 public:
  // REQUIRES: the members of `links` are of one size, at most kMaxLinkedGpus. With more than
  // `max_exact` GPUs it keeps no tables and searches greedily.
  explicit LinkedGroups(NodeLinks links, size_t max_exact = kMaxExactGpus);
  ~LinkedGroups();
  LinkedGroups(const LinkedGroups&) = delete;
  LinkedGroups& operator=(const LinkedGroups&) = delete;

  const NodeLinks& links() const { return links_; }
  size_t size() const { return links_.size(); }
  bool exact() const { return tables_ != nullptr; }

  // 0 where there is no such set: size 0 or below, fewer available than `size`, more in
  // `must_include` than `size`, or one of them not available. Positions above size() count as not
  // available.
  uint64_t Choose(uint64_t available, uint64_t must_include, int size) const;

  // Points (device::ScoreOf) of all pairs in `set`: 0 for one GPU, and where no link is known.
  int ScoreOf(uint64_t set) const;
  // Points of the best linked `size` GPUs among `available`, whatever becomes of the others: what
  // to compare nodes by. Greedy where Choose is. 0 where there are not so many.
  int BestScore(uint64_t available, int size) const;

  // Whether every pair of `set` has an NVLink, direct or through NVSwitch. Not for one GPU or none.
  bool Joined(uint64_t set) const;
  // Whether there are GPUs in `set`, and each has an NVLink to another: who takes one breaks a
  // pair.
  bool EachHasPartner(uint64_t set) const;
  // Joined of Choose(available, 0, size), mostly without choosing.
  bool ChoosesJoined(uint64_t available, int size) const;

 private:
  struct Tables;

  uint64_t everything() const;

  NodeLinks links_;
  std::vector<uint64_t> joined_;          // by position: those with an NVLink to it
  std::unique_ptr<const Tables> tables_;  // null above kMaxExactGpus
};

// One LinkedGroups for all nodes with equal links, so that a cluster of 5,000 nodes of three kinds
// holds three. Bounded: when kMaxKinds different ones are in use, which only broken or lying nodes
// can bring about, further ones are made without tables and not shared.
class LinkedGroupsCache {
 public:
  static constexpr size_t kMaxKinds = 128;

  // REQUIRES: as the constructor of LinkedGroups.
  std::shared_ptr<const LinkedGroups> Get(const NodeLinks& links);
  size_t size() const { return groups_.size(); }

 private:
  std::unordered_multimap<size_t, std::shared_ptr<const LinkedGroups>> groups_;  // by hash
};

}  // namespace tessera::placement
