// SPDX-License-Identifier: Apache-2.0
// Which GPUs of one node to take for a request of `size` whole GPUs. Pure: no clock, no I/O.
// Not for choosing nodes, nor for parts of GPUs.
//
// The answer S (must_include ⊆ S ⊆ available, |S| = size) is the one that is first by
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
// Exact for up to kMaxExactGpus GPUs: best totals of all subsets are tabulated when the chooser is
// made (16 GPUs: some tens of milliseconds and 1.2 MiB, so make it on a worker; 8 GPUs: 40 µs), so an answer
// is one pass over at most 12,870 candidates. Above that a greedy search, from every start.
//
// Threads: immutable after construction; any thread may ask.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/device/gpu.h"

namespace tessera::placement {

inline constexpr size_t kMaxExactGpus = 16;

// What a choice depends on; the chooser stays right for as long as this stays equal.
struct Topology {
  std::vector<std::string> ids;                 // by position; each once
  std::vector<std::optional<int>> numa_nodes;   // by position
  device::LinkMatrix links;                     // of size ids.size()

  static Topology Of(const device::NodeInventory& inventory);
  bool operator==(const Topology&) const = default;
};

class Chooser {
 public:
  // REQUIRES: the three members of `topology` are of one size.
  explicit Chooser(Topology topology);
  ~Chooser();
  Chooser(Chooser&&) noexcept;
  Chooser& operator=(Chooser&&) noexcept;

  const Topology& topology() const { return topology_; }

  // The chosen ids by position. Empty, as with NVIDIA's plugin, where there is no such set: size 0
  // or below, fewer available than `size`, more in `must_include` than `size`, or one of them not
  // available. An id that the topology does not have is NOT_FOUND; one given twice counts once.
  Result<std::vector<std::string>> ChooseDevices(const std::vector<std::string>& available,
                                                 const std::vector<std::string>& must_include,
                                                 int size) const;

 private:
  struct Tables;

  // Sorted, each once.
  Result<std::vector<size_t>> PositionsOf(const std::vector<std::string>& ids) const;

  Topology topology_;
  std::map<std::string, size_t, std::less<>> positions_;
  std::unique_ptr<const Tables> tables_;  // null above kMaxExactGpus
};

}  // namespace tessera::placement
