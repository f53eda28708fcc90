// SPDX-License-Identifier: Apache-2.0
// The reasons why a pod is on its node or waits, as values; explain.cc formats them. Included only
// in src/cli.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/cli/quota_lines.h"
#include "src/cli/view.h"
#include "src/kube/objects.h"

namespace tessera::cli {

enum class Finding : uint8_t { kEnded, kNoGpus, kInvalidRequest, kPlaced, kWaits };

// A node that fits the pod.
struct Candidate {
  std::string node;
  // Why kube-scheduler would leave out the pod's own node now; mostly "".
  std::string exclusion_reason;
  float score = 0;
  size_t rank = 0;  // from 1; equal scores are ranked by node name
  std::vector<std::pair<std::string, double>> terms;
};

// A node that does not fit the pod.
struct Misfit {
  std::string node;
  std::string reason;
  std::vector<std::pair<std::string, std::string>> gpus;  // name and reason; "" if the GPU fits
};

struct Explanation {
  Finding finding = Finding::kWaits;
  ledger::PodEntry pod;  // in its current state
  std::string request_text;
  std::string invalid_reason;      // if kInvalidRequest
  std::vector<std::string> gates;  // scheduling gates that keep the pod from being scheduled
  std::string nominated_node;      // where kube-scheduler is placing the pod
  std::string policy;
  std::vector<DeviceView> devices;  // kPlaced: its devices; the uuids point into `pod`

  // The members below describe the cluster without this pod.
  size_t gpu_node_count = 0;          // number of nodes with GPUs
  size_t fitting_count = 0;           // number of nodes that fit the pod
  std::string summary;                // in one line
  std::vector<Candidate> candidates;  // the best nodes first, and the pod's own node
  std::vector<Misfit> nearest;        // nodes that come closest to fitting, closest first
  // Nodes with room that kube-scheduler leaves out, by reason: taints, the node selector, cordoned.
  std::map<std::string, std::vector<std::string>> left_out;
  // True: the namespace's quota rejects the pod on every node with suitable GPUs, with room or not.
  // Nodes that kube-scheduler leaves out do not count.
  bool over_quota = false;
  // Number of nodes with room on which the quota rejects the pod.
  size_t rejected_by_quota = 0;
  // Why the quota rejects the pod: on all nodes if `over_quota`, else on the nodes with room.
  std::set<std::string> quota_rejections;
  // Why further nodes with room do not fit, such as GPUs that are reserved for another pod.
  std::set<std::string> other_reasons;
  std::vector<QuotaLine> quota;  // lines that limit the namespace
};

// See Explain (commands.h).
Explanation ExplanationOf(ledger::ClusterLedger& ledger, const kube::PodObject& pod);

}  // namespace tessera::cli
