// SPDX-License-Identifier: Apache-2.0
#include "src/agent/metrics.h"

#include <gtest/gtest.h>

namespace tessera::agent {
namespace {

using namespace std::chrono_literals;

TEST(MetricsTest, EscapesLabelValues) {
  EXPECT_EQ(MetricLabel("reason", "a \"b\"\\\n"), "reason=\"a \\\"b\\\"\\\\\\n\"");
}

TEST(MetricsTest, HistogramIsCumulativeAndCountsValuesBeyondAllBounds) {
  AgentMetrics metrics;
  metrics.kubelet.allocate.Observe(60us);
  metrics.kubelet.allocate.Observe(60us);
  metrics.kubelet.allocate.Observe(1min);
  MetricsText text;
  WriteMetrics(metrics, "nvidia.com/gpu", &text);
  const std::string page = text.Take();
  const std::string name = "tessera_allocate_duration_seconds";
  for (const std::string& line : {
           name + "_bucket{resource=\"nvidia.com/gpu\",le=\"5e-05\"} 0\n",
           name + "_bucket{resource=\"nvidia.com/gpu\",le=\"0.0001\"} 2\n",
           name + "_bucket{resource=\"nvidia.com/gpu\",le=\"1\"} 2\n",
           name + "_bucket{resource=\"nvidia.com/gpu\",le=\"+Inf\"} 3\n",
           name + "_count{resource=\"nvidia.com/gpu\"} 3\n",
           name + "_sum{resource=\"nvidia.com/gpu\"} 60.00012\n",
       }) {
    EXPECT_NE(page.find(line), std::string::npos) << line << page;
  }
}

TEST(MetricsTest, LabeledCountersCountByLabel) {
  AgentMetrics metrics;
  metrics.grants.grants.Add("OK");
  metrics.grants.grants.Add("OK");
  metrics.grants.grants.Add("PERMISSION_DENIED");
  MetricsText text;
  WriteMetrics(metrics, "nvidia.com/gpu", &text);
  const std::string page = text.Take();
  EXPECT_NE(page.find("tessera_grants_total{code=\"OK\"} 2\n"), std::string::npos);
  EXPECT_NE(page.find("# TYPE tessera_grants_total counter\n"), std::string::npos);
}

}  // namespace
}  // namespace tessera::agent
