// SPDX-License-Identifier: Apache-2.0
// Parses lines of the Prometheus text format, only the forms that the agents write. Pure; any
// thread.
#pragma once

#include <optional>
#include <string_view>

namespace tessera::console {

struct MetricLine {
  std::string_view name;
  std::string_view labels;  // without braces
  double value = 0;
};
// nullopt if the line has no labels, or if its value is no number.
std::optional<MetricLine> ParseMetricLine(std::string_view line);
// The value of a label, which must contain no escapes; "" if there is no such label.
std::string_view LabelOf(std::string_view labels, std::string_view name);

}  // namespace tessera::console
