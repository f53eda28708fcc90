// SPDX-License-Identifier: Apache-2.0
// For tests: the part of each GPU that is held by bound pods, computed from the annotations in the
// API server alone. Every ledger must agree with it.
//
//   AssignedGpus assigned(pods);              // any map with PodObject values
//   EXPECT_EQ(assigned.Oversubscribed(GiB(80)), "");
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/base/units.h"
#include "src/device/assignment.h"
#include "src/kube/objects.h"

namespace tessera::ledger::testing {

// Decodes an assignment annotation; valid until the next call. Results are cached, because
// invariants read all pods at every step. REQUIRES: the annotation is valid.
const device::Assignment& DecodeCached(const std::string& text);

class AssignedGpus {
 public:
  // Skips pods that are not bound, have ended or hold nothing. Skips init containers, because the
  // pod's other containers get the same GPUs after them. REQUIRES: assignments are valid.
  template <typename Pods>
  explicit AssignedGpus(const Pods& pods) {
    for (const auto& [key, pod] : pods) Add(pod);
  }

  // The UUID of an oversubscribed GPU; "" if no GPU is oversubscribed.
  std::string Oversubscribed(Bytes memory_of_a_gpu) const {
    const std::vector<std::string> all = AllOversubscribed(memory_of_a_gpu);
    return all.empty() ? "" : all[0];
  }
  std::vector<std::string> AllOversubscribed(Bytes memory_of_a_gpu) const;
  // Held thousandths of compute by UUID, for GPUs with a holder.
  const std::map<std::string, int64_t>& milli() const { return milli_; }
  // Held bytes of device memory; a GPU that is held whole counts with all of its memory.
  int64_t bytes(const std::string& uuid, Bytes memory_of_a_gpu) const {
    const auto whole = whole_.find(uuid);
    if (whole == whole_.end()) return 0;
    return whole->second * memory_of_a_gpu.count() + bytes_.at(uuid);
  }

 private:
  void Add(const kube::PodObject& pod);

  std::map<std::string, int64_t> milli_;
  std::map<std::string, int64_t> bytes_;  // held by shares
  std::map<std::string, int> whole_;      // number of pods that hold the whole GPU
};

}  // namespace tessera::ledger::testing
