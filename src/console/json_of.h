// SPDX-License-Identifier: Apache-2.0
// Nodes and pods of a ledger as the JSON that the page reads. Amounts are bytes and thousandths of
// a GPU. docs/tasks/console.md describes the fields. Threads: call on the ledger's thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "src/device/dialects.h"
#include "src/formats/json.h"
#include "src/ledger/ledger.h"

namespace tessera::console {

// What a user sees of pods in namespaces whose pods the user may not list.
enum class OtherTenantsDetail {
  kNamespaces,  // each share of a GPU, with the namespace
  kShares,      // each share of a GPU
  kSums,        // how much of each GPU is in use
};
// "namespaces", "shares", "sums"; nullopt for another name.
std::string_view NameOf(OtherTenantsDetail others);
std::optional<OtherTenantsDetail> OtherTenantsDetailOf(std::string_view name);

struct ViewerRights {
  // Empty: sees the pods of all namespaces.
  std::function<bool(const std::string& ns)> sees_namespace;
  OtherTenantsDetail other_tenants = OtherTenantsDetail::kShares;
};

// A node with its GPUs, or MIG slices instead of a GPU in MIG mode. Holders are named by the UID of
// the pod. To keep the text of a large cluster short, a GPU's field is omitted if it is 0,
// "healthy", or the same model as the node's.
std::string NodeJson(const ledger::ClusterLedger& ledger, const ledger::NodeEntry& node,
                     const ViewerRights& rights);
// The names of the links between all pairs of GPUs, row by row below the diagonal.
Json JsonOfLinks(const device::NodeInventory& inventory);

struct PodRunState {
  bool running = false;  // phase Running
  kube::PodRunSummary containers;
};
// `why`: why the pod waits; "" if it does not wait.
std::string PodJson(const ledger::PodEntry& pod, device::MemoryUnit unit, std::string_view why,
                    const PodRunState& run);

}  // namespace tessera::console
