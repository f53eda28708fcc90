// SPDX-License-Identifier: Apache-2.0
// Parses lines of the Prometheus text format, only the forms that Tessera's programs write. Pure;
// any thread.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace tessera {

struct MetricLine {
  std::string_view name;
  std::string_view labels;  // without braces; "" if the line has none
  double value = 0;
};
// nullopt if the value is no number.
std::optional<MetricLine> ParseMetricLine(std::string_view line);
// The lines of one metric, as views into the page.
std::vector<MetricLine> SamplesOf(std::string_view page, std::string_view metric);
// The value of a label, which must contain no escapes; "" if there is no such label.
std::string_view LabelIn(std::string_view labels, std::string_view name);

}  // namespace tessera
