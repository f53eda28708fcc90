// SPDX-License-Identifier: Apache-2.0
#include "src/agent/holdings.h"

namespace tessera::agent {
namespace {

// "containerd://<id>": the part that cgroups are named by.
std::string EngineIdOf(const Pods* pods, const ContainerRef& who) {
  if (pods == nullptr) return "";
  const auto pod = pods->pods().find(who.pod_uid);
  if (pod == pods->pods().end()) return "";
  const auto id = pod->second->container_ids.find(who.container);
  if (id == pod->second->container_ids.end()) return "";
  const size_t scheme = id->second.find("://");
  return scheme == std::string::npos ? id->second : id->second.substr(scheme + 3);
}

}  // namespace

Holdings HoldingsOf(const GrantLedger& ledger, const Pods* pods) {
  Holdings holdings{.containers = {}, .accounts = ledger.Accounts()};
  for (const auto& [key, entry] : ledger.entries()) {
    holdings.containers.push_back({entry.holder, entry.shares, EngineIdOf(pods, entry.holder)});
  }
  return holdings;
}

}  // namespace tessera::agent
