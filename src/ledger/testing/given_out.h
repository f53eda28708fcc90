// SPDX-License-Identifier: Apache-2.0
// For tests: what bound pods hold of each GPU by the annotations that the API server has, which is
// the truth that every ledger is held to.
//
//   GivenOut given(pods);              // any map with PodObject values
//   EXPECT_EQ(given.Oversold(GiB(80)), "");
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/base/units.h"
#include "src/device/assignment.h"
#include "src/kube/objects.h"

namespace tessera::ledger::testing {

// What the annotation says; valid until the next call. A text that was read before is not read
// again: invariants look at all pods at every step.
// REQUIRES: it is well-formed.
const device::Assignment& DecodedOnce(const std::string& text);

class GivenOut {
 public:
  // Pods that are not bound, have ended or hold nothing do not count, nor do init containers: what
  // they have is what the pod's other containers get after them.
  // REQUIRES: assignments are well-formed.
  template <typename Pods>
  explicit GivenOut(const Pods& pods) {
    for (const auto& [key, pod] : pods) Add(pod);
  }

  // The UUID of a GPU of which more is given out than there is, "" where there is none.
  std::string Oversold(Bytes memory_of_a_gpu) const {
    const std::vector<std::string> all = AllOversold(memory_of_a_gpu);
    return all.empty() ? "" : all[0];
  }
  std::vector<std::string> AllOversold(Bytes memory_of_a_gpu) const;
  // Thousandths of compute, by UUID, of those that somebody holds.
  const std::map<std::string, int64_t>& milli() const { return milli_; }
  // Of its memory, where a GPU that somebody has to himself is given out with all of it.
  int64_t bytes(const std::string& uuid, Bytes memory_of_a_gpu) const {
    const auto whole = whole_.find(uuid);
    if (whole == whole_.end()) return 0;
    return whole->second * memory_of_a_gpu.count() + bytes_.at(uuid);
  }

 private:
  void Add(const kube::PodObject& pod);

  std::map<std::string, int64_t> milli_;
  std::map<std::string, int64_t> bytes_;  // of shares
  std::map<std::string, int> whole_;      // holders of all of it
};

}  // namespace tessera::ledger::testing
