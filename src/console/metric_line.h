// SPDX-License-Identifier: Apache-2.0
// Lines of Prometheus' text format, as far as the agents write them. Pure; any thread.
#pragma once

#include <optional>
#include <string_view>

namespace tessera::console {

struct MetricLine {
  std::string_view name;
  std::string_view labels;  // without braces
  double value = 0;
};
// nullopt for a line without labels, or whose value is no number.
std::optional<MetricLine> ParseMetricLine(std::string_view line);
// The value of a label without escapes; "" without it.
std::string_view LabelOf(std::string_view labels, std::string_view name);

}  // namespace tessera::console
