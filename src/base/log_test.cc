// SPDX-License-Identifier: Apache-2.0
#include "src/base/log.h"

#include <gtest/gtest.h>

#include <vector>

namespace tessera {
namespace {

TEST(LogTest, TextQuotesValuesWithSpaces) {
  EXPECT_EQ(FormatLogLine(LogFormat::kText, Severity::kInfo, "1121 11:00:00.000000", "registered",
                          {{"resource", "nvidia.com/gpu"}, {"reason", "a b"}, {"count", 8}}),
            "I1121 11:00:00.000000 registered resource=nvidia.com/gpu reason=\"a b\" count=8");
}

TEST(LogTest, JsonEscapesControlCharacters) {
  EXPECT_EQ(FormatLogLine(LogFormat::kJson, Severity::kError, "t", "line\nbreak", {{"k", "\"v\""}}),
            R"({"ts":"t","level":"error","msg":"line\nbreak","k":"\"v\""})");
}

TEST(LogTest, DebugIsSilentByDefault) {
  std::vector<std::string> lines;
  const ScopedLogSinkForTest sink([&](std::string_view line) { lines.emplace_back(line); });
  Log(Severity::kDebug, "quiet");
  Log(Severity::kWarning, "loud");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("loud"), std::string::npos);
}

}  // namespace
}  // namespace tessera
