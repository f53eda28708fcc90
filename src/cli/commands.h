// SPDX-License-Identifier: Apache-2.0
// What `tessera nodes|gpus|pods|quota|explain` and `kubectl inspect gpushare` print, from the
// account of a cluster. Rows are sorted, equal clusters give equal text. JSON has the exact
// numbers: bytes and thousandths.
//
// Threads: as the ledger. Errors: NOT_FOUND for a node or pod that there is not, naming the
// nearest.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/cli/view.h"
#include "src/formats/json.h"
#include "src/kube/objects.h"

namespace tessera::cli {

enum class Format : uint8_t { kTable, kWide, kJson, kYaml };

struct Style {
  Format format = Format::kTable;
  bool colour = false;

  bool wide() const { return format == Format::kWide; }
  bool for_machines() const { return format == Format::kJson || format == Format::kYaml; }
};

// As JSON or YAML. REQUIRES: style.for_machines().
std::string Serialize(const Json& json, Style style);

std::string ShowNodes(const View& view, Style style);
// Of one node, or of all for "".
Result<std::string> ShowGpus(const View& view, std::string_view node, Style style);
// Of one namespace, or of all for "".
std::string ShowPods(const View& view, std::string_view ns, Style style);
// Of one namespace, or of all that are limited or have used something for "". With a `problem`, why
// limits are not known, it says so instead of showing none.
std::string ShowQuota(const View& view, std::string_view ns, const Status& problem, Style style);

// Why the pod is where it is, or why it waits. Asks the ledger as the scheduler does: about a pod
// that is placed, as if it were not. The ledger is as before afterwards.
// `uses`: what its containers use of their GPUs; null where that is not asked for.
struct ClusterUses;
std::string Explain(ledger::ClusterLedger& ledger, const FactsOf& facts, const kube::PodObject& pod,
                    Style style, const Result<ClusterUses>* uses = nullptr);

struct InspectOptions {
  bool details = false;
  std::string node;  // "": all
};
// As Alibaba's gpushare plugin for kubectl printed it, rows sorted.
Result<std::string> InspectGpushare(const View& view, const InspectOptions& options);

}  // namespace tessera::cli
