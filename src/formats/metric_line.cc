// SPDX-License-Identifier: Apache-2.0
#include "src/formats/metric_line.h"

#include <algorithm>
#include <string>

#include "src/base/strings.h"
#include "src/formats/json.h"

namespace tessera {

std::optional<MetricLine> ParseMetricLine(std::string_view line) {
  const size_t open = line.find('{');
  const bool has_labels = open != std::string_view::npos;
  const size_t end = has_labels ? line.rfind("} ") : line.find(' ');
  if (end == std::string_view::npos || (has_labels && end < open)) return std::nullopt;
  // JSON has no "NaN", so such a line is skipped.
  const Result<Json> json = ParseJson(line.substr(end + (has_labels ? 2 : 1)));
  const Result<double> value = json.ok() ? json->ToDouble() : Result<double>(json.status());
  if (!value.ok()) return std::nullopt;
  const std::string_view labels = has_labels ? line.substr(open + 1, end - open - 1) : "";
  return MetricLine{line.substr(0, std::min(open, end)), labels, *value};
}

std::vector<MetricLine> SamplesOf(std::string_view page, std::string_view metric) {
  std::vector<MetricLine> samples;
  for (const std::string_view line : Split(page, '\n')) {
    if (!line.starts_with(metric)) continue;
    const auto sample = ParseMetricLine(line);
    if (sample && sample->name == metric) samples.push_back(*sample);
  }
  return samples;
}

std::string_view LabelIn(std::string_view labels, std::string_view name) {
  const std::string start = fmt::format("{}=\"", name);
  size_t at = labels.find(start);
  if (at != 0 && at != std::string_view::npos) at = labels.find("," + start);
  if (at == std::string_view::npos) return "";
  const size_t begin = at + start.size() + (at == 0 ? 0 : 1);
  return labels.substr(begin, labels.find('"', begin) - begin);
}

}  // namespace tessera
