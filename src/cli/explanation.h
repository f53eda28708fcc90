// SPDX-License-Identifier: Apache-2.0
// Why a pod is where it is, or waits, as values; explain.cc says it. Private to this room.
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

enum class Finding : uint8_t { kEnded, kNoGpus, kUnreadable, kPlaced, kWaits };

// One node of those that the pod fits.
struct Candidate {
  std::string node;
  std::string note;  // " (cordoned)": what else there is to know
  float score = 0;
  size_t rank = 0;  // from 1; equal scores by order of nodes
  std::vector<std::pair<std::string, double>> terms;
};

// One node that it does not fit.
struct Misfit {
  std::string node;
  std::string reason;
  std::vector<std::pair<std::string, std::string>> gpus;  // name, and why not; "" where it would do
};

struct Explanation {
  Finding finding = Finding::kWaits;
  ledger::PodEntry pod;  // as it is
  std::string asks;
  std::string unreadable;          // kUnreadable: why
  std::vector<std::string> gates;  // of scheduling, that hold it back
  std::string nominated_node;      // on which kube-scheduler works on placing it
  std::string policy;
  std::vector<DeviceView> devices;  // kPlaced: those that it has; the uuids are those of `pod`

  // The cluster without this pod.
  size_t nodes = 0;  // with GPUs
  size_t fitting = 0;
  std::string summary;                // in one line
  std::vector<Candidate> candidates;  // the best first, and the node where it is
  std::vector<Misfit> nearest;        // the nearest first
  // Nodes with room that the namespace's quota refuses, and all that it says about them.
  size_t refused_by_quota = 0;
  std::set<std::string> quota_refusals;
  std::vector<QuotaLine> quota;  // where the namespace is limited
};

// As Explain (commands.h).
Explanation ExplanationOf(ledger::ClusterLedger& ledger, const FactsOf& facts,
                          const kube::PodObject& pod);

}  // namespace tessera::cli
