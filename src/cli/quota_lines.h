// SPDX-License-Identifier: Apache-2.0
// Quota usage and remainder by namespace. Included only in src/cli.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/cli/output/table.h"
#include "src/formats/json.h"
#include "src/ledger/ledger.h"

namespace tessera::cli {

// The usage of one model by one namespace, in thousandths of a GPU.
struct QuotaLine {
  std::string ns;
  std::string model;  // as in the quota, else the model of the pods' GPUs
  int64_t used_milli = 0;
  std::optional<int64_t> limit_milli;  // nullopt: not limited
  std::vector<std::string> pools;      // empty: any
};

// Lines of one namespace, or of all namespaces with limits or usage if `ns` is "".
std::vector<QuotaLine> QuotaLines(const ledger::ClusterLedger& ledger, std::string_view ns);
// Shows "?" for limits unless `limits_known`.
TextTable QuotaTable(const std::vector<QuotaLine>& lines, bool limits_known = true);
Json JsonOfLine(const QuotaLine& line);

}  // namespace tessera::cli
