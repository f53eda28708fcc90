// SPDX-License-Identifier: Apache-2.0
// Changes of one namespace's quota: their consequences, and the ConfigMap after the change. Pure,
// except that Consequences tries the change on the ledger and then restores the ledger. Threads:
// call on the ledger's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/formats/json.h"
#include "src/kube/objects.h"
#include "src/ledger/ledger.h"

namespace tessera::console {

// A namespace's entry, as in the ConfigMap: {"quota":{"A100":8},"pool":["public"]}; null: no limit.
Json JsonOfQuota(const placement::QuotaConfig& config, const std::string& ns);

// The use of models that the quota of a namespace does not list. New pods get no GPUs of these
// models.
ledger::UseByModel UnlistedOf(const ledger::UseByModel& used,
                              const std::vector<placement::QuotaLimit>& limits);

struct QuotaChange {
  std::string ns;
  Json before;  // the entry that the user saw
  Json entry;   // the new entry; null removes the old one
};
// INVALID_ARGUMENT if a member is missing or the new entry is no quota.
Result<QuotaChange> ParseQuotaChange(const Json& body);

// What the change would cause:
// {"lines":[{"model":…,"usedMilli":…,"limitMilli":…}],   limit 0: a model in use that has no line
//  "unknown":[…],                            models with a line that no GPU of the cluster has
//  "over":[{"pod":…,"model":…,"milli":…}],   running pods above a line, newest first
//  "outside":[…],                            pods on nodes of other pools
//  "waiting":[{"pod":…,"before":3,"after":0}]}   waiting pods, with the nodes that fit
// The pods of "over" and "outside" keep running.
Json Consequences(ledger::ClusterLedger& ledger, const QuotaChange& change);

// The ConfigMap with the change; other namespaces, and fields that Tessera does not know, stay.
// ABORTED if the entry is no longer what the user saw. INVALID_ARGUMENT if the quota in the map is
// invalid. `map`: null if the ConfigMap does not exist yet.
Result<Json> WithQuota(const Json* map, const kube::ObjectRef& object, std::string_view key,
                       const QuotaChange& change);

}  // namespace tessera::console
