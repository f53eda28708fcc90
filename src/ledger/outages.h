// SPDX-License-Identifier: Apache-2.0
// Which watches of a ClusterFeed fail, and since when. For programs that show the cluster's last
// known state during an outage.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "src/base/clock.h"
#include "src/base/status.h"

namespace tessera::ledger {

// Why the ledger does not follow the cluster: the API server rejects the client or is unreachable.
struct Outage {
  Status status;
  WallTime since;
};

class Outages {
 public:
  // Begins the outage of `what` (ClusterFeed::Delegate::OnError), or changes its status.
  void Set(std::string_view what, const Status& status, WallTime now) {
    outages_.try_emplace(std::string(what), Outage{{}, now}).first->second.status = status;
  }
  // Returns false if there is no outage of `what`.
  bool End(std::string_view what) { return outages_.erase(std::string(what)) != 0; }
  void Clear() { outages_.clear(); }
  bool empty() const { return outages_.empty(); }
  // The longest outage; nullopt while the ledger follows the cluster.
  std::optional<Outage> Longest() const {
    std::optional<Outage> longest;
    for (const auto& [what, outage] : outages_) {
      if (!longest || outage.since < longest->since) longest = outage;
    }
    return longest;
  }

 private:
  std::map<std::string, Outage, std::less<>> outages_;
};

}  // namespace tessera::ledger
