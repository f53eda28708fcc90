// SPDX-License-Identifier: Apache-2.0
#include "src/cli/command_line.h"

#include <gtest/gtest.h>

#include <vector>

namespace tessera::cli {
namespace {

CliOptions Parsed(std::vector<const char*> words) {
  CliOptions line;
  const std::optional<int> done =
      ParseCommandLine(static_cast<int>(words.size()), words.data(), &line);
  EXPECT_FALSE(done.has_value());
  return line;
}

std::optional<int> ExitOf(std::vector<const char*> words) {
  CliOptions line;
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  const auto code = ParseCommandLine(static_cast<int>(words.size()), words.data(), &line);
  ::testing::internal::GetCapturedStderr();
  ::testing::internal::GetCapturedStdout();
  return code;
}

TEST(CommandLineTest, VerbsAcceptTheirOptions) {
  const CliOptions pods = Parsed({"tessera", "pods", "-A", "-o", "wide"});
  EXPECT_EQ(pods.verb, CliVerb::kPods);
  EXPECT_TRUE(pods.all_namespaces);
  EXPECT_EQ(pods.format, OutputFormat::kWide);
  const CliOptions explain = Parsed({"/opt/bin/tessera", "explain", "nginx", "-n", "ml", "-ojson"});
  EXPECT_EQ(explain.verb, CliVerb::kExplain);
  EXPECT_EQ(explain.pod, "nginx");
  EXPECT_EQ(explain.ns, "ml");
  EXPECT_EQ(explain.format, OutputFormat::kJson);
  EXPECT_EQ(Parsed({"kubectl-tessera", "gpus", "n1"}).node, "n1");
}

TEST(CommandLineTest, ProgramNameSelectsGpusharesPlugin) {
  const CliOptions line = Parsed({"/usr/bin/kubectl-inspect-gpushare", "-d", "n1"});
  EXPECT_EQ(line.verb, CliVerb::kInspectGpushare);
  EXPECT_TRUE(line.details);
  EXPECT_EQ(line.node, "n1");
  EXPECT_EQ(Parsed({"tessera", "inspect-gpushare", "-d"}).verb, CliVerb::kInspectGpushare);
}

TEST(CommandLineTest, ErrorForAnUnknownFormatListsTheFormats) {
  CliOptions line;
  const char* const words[] = {"tessera", "nodes", "-o", "foo"};
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(ParseCommandLine(4, words, &line), 64);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("invalid format \"foo\": want table, wide, json or yaml"), std::string::npos)
      << said;
  EXPECT_EQ(Parsed({"tessera", "nodes", "-o", "YAML"}).format, OutputFormat::kYaml);
}

TEST(CommandLineTest, UsageErrorsHaveSysexitsCodes) {
  EXPECT_EQ(ExitOf({"tessera"}), 64);
  EXPECT_EQ(ExitOf({"tessera", "gpsu"}), 64);
  EXPECT_EQ(ExitOf({"tessera", "nodes", "-o", "xml"}), 64);
  EXPECT_EQ(ExitOf({"tessera", "explain"}), 64);
  EXPECT_EQ(ExitOf({"tessera", "--help"}), 0);
  EXPECT_EQ(ExitOf({"tessera", "--version"}), 0);
}

}  // namespace
}  // namespace tessera::cli
