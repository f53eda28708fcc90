// SPDX-License-Identifier: Apache-2.0
// The output of `tessera nodes|gpus|pods|quota|explain` and `kubectl inspect gpushare` for a
// cluster's ledger. Rows are sorted, so equal clusters give equal text. JSON has the exact numbers:
// bytes and thousandths.
//
// Threads: the ledger's. Errors: NOT_FOUND for an unknown node or pod, with similar names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/cli/output/listing.h"
#include "src/cli/pod_warnings.h"
#include "src/cli/view.h"
#include "src/formats/json.h"
#include "src/kube/objects.h"

namespace tessera::cli {

struct ClusterUses;

// Shows the nodes with these names, or all nodes with GPUs if `names` is empty. `selector` is the
// label selector by which `view` was read; the message for an empty table names it.
Result<std::string> ShowNodes(const ClusterView& view, const Style& style,
                              const std::vector<std::string>& names = {},
                              std::string_view selector = "");
// Shows one node, or all nodes if `node` is "". `selector` as for ShowNodes.
Result<std::string> ShowGpus(const ClusterView& view, std::string_view node, const Style& style,
                             std::string_view selector = "");
// The message for an empty table: `text_without_selector`, or with a selector, that no node with
// GPUs matches it.
std::string NoNodesText(std::string_view selector, std::string_view text_without_selector);
// Shows the pods with these names in namespace `ns`, or in all namespaces if `ns` is "". If `names`
// is empty, shows all pods that request GPUs.
Result<std::string> ShowPods(const ClusterView& view, std::string_view ns, const Style& style,
                             const std::vector<std::string>& names = {});
// Shows one namespace, or all namespaces with limits or usage if `ns` is "". If limits are unknown,
// `problem` is the reason, and is shown in place of the limits.
Result<std::string> ShowQuota(const ClusterView& view, std::string_view ns, const Status& problem,
                              const Style& style);

// Explains why the pod is on its node, or why it waits. Queries the ledger as the scheduler does. A
// placed pod is removed from the ledger for the query, and added again afterwards. `uses`: the GPU
// usage of its containers; null if it was not read. `warnings`: those of pod_warnings.h.
Result<std::string> Explain(ledger::ClusterLedger& ledger, const kube::PodObject& pod,
                            const Style& style, const Result<ClusterUses>* uses = nullptr,
                            const std::vector<PodWarning>& warnings = {});

struct InspectOptions {
  bool details = false;
  std::string node;  // "": all
};
// Prints in the format of Alibaba's gpushare plugin for kubectl, with sorted rows.
Result<std::string> InspectGpushare(const ClusterView& view, const InspectOptions& options);

}  // namespace tessera::cli
