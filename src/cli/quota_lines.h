// SPDX-License-Identifier: Apache-2.0
// What namespaces have used and may still use. Private to this room.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/cli/table.h"
#include "src/formats/json.h"
#include "src/ledger/ledger.h"

namespace tessera::cli {

// In thousandths of a GPU.
struct QuotaLine {
  std::string ns;
  std::string model;  // as the quota spells it, or as the pods' GPUs are called
  int64_t used_milli = 0;
  std::optional<int64_t> limit_milli;  // none: not limited
  std::vector<std::string> pools;      // empty: any
};

// Of one namespace, or of all that are limited or use something for "".
std::vector<QuotaLine> QuotaLines(const ledger::ClusterLedger& ledger, std::string_view ns);
// Where limits are not `known`, "?" stands for those that there may be.
Table QuotaTable(const std::vector<QuotaLine>& lines, bool known = true);
Json JsonOfLine(const QuotaLine& line);

}  // namespace tessera::cli
