// SPDX-License-Identifier: Apache-2.0
#include "src/formats/metric_line.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tessera {
namespace {

TEST(MetricLineTest, ReadsLabelsAndValue) {
  const auto line = ParseMetricLine("a_total{x=\"}1\",y=\"b\"} 2.5");
  ASSERT_TRUE(line);
  EXPECT_EQ(line->name, "a_total");
  EXPECT_EQ(LabelIn(line->labels, "x"), "}1");
  EXPECT_EQ(LabelIn(line->labels, "y"), "b");
  EXPECT_EQ(LabelIn(line->labels, "z"), "");
  EXPECT_EQ(line->value, 2.5);
}

TEST(MetricLineTest, RejectsLinesWithoutANumber) {
  for (const char* line : {"", "a", "a ", "a NaN", "a{x=\"1\"}", "a{x=\"1\"} ", "# HELP a b"}) {
    EXPECT_FALSE(ParseMetricLine(line)) << line;
  }
}

TEST(MetricLineTest, FindsTheSamplesOfAMetric) {
  const std::string page = "# HELP a_total b\na_total{x=\"1\"} 2\na_total 3\na_total_more 9\n";
  const std::vector<MetricLine> samples = SamplesOf(page, "a_total");
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(LabelIn(samples[0].labels, "x"), "1");
  EXPECT_EQ(LabelIn(samples[1].labels, "x"), "");
  EXPECT_EQ(samples[1].value, 3);
}

}  // namespace
}  // namespace tessera
