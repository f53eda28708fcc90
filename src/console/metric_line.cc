// SPDX-License-Identifier: Apache-2.0
#include "src/console/metric_line.h"

#include <string>

#include "src/formats/json.h"

namespace tessera::console {

std::optional<MetricLine> ParseMetricLine(std::string_view line) {
  const size_t open = line.find('{'), close = line.rfind("} ");
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) {
    return std::nullopt;
  }
  // JSON has no "NaN", so such a line is skipped.
  const Result<Json> json = ParseJson(line.substr(close + 2));
  const Result<double> value = json.ok() ? json->ToDouble() : Result<double>(json.status());
  if (!value.ok()) return std::nullopt;
  return MetricLine{line.substr(0, open), line.substr(open + 1, close - open - 1), *value};
}

std::string_view LabelOf(std::string_view labels, std::string_view name) {
  const std::string start = fmt::format("{}=\"", name);
  size_t at = labels.find(start);
  if (at != 0 && at != std::string_view::npos) at = labels.find("," + start);
  if (at == std::string_view::npos) return "";
  const size_t begin = at + start.size() + (at == 0 ? 0 : 1);
  return labels.substr(begin, labels.find('"', begin) - begin);
}

}  // namespace tessera::console
