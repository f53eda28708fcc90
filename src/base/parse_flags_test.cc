// SPDX-License-Identifier: Apache-2.0
#include "src/base/parse_flags.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <string>

#include "src/base/file.h"

namespace tessera {
namespace {

struct Outcome {
  std::optional<int> code;
  std::string out, err;
};

Outcome Parse(const char* flag) {
  CLI::App app{"Does things.", "thing"};
  app.add_flag("--known");
  const char* argv[] = {"thing", flag};
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Outcome outcome{.code = ParseFlags(&app, 2, argv)};
  outcome.err = testing::internal::GetCapturedStderr();
  outcome.out = testing::internal::GetCapturedStdout();
  return outcome;
}

TEST(ParseFlagsTest, GoodFlagsGoOn) { EXPECT_EQ(Parse("--known").code, std::nullopt); }

TEST(ParseFlagsTest, AMistakeIsToldOnStandardErrorAndEndsWithUsage) {
  const Outcome outcome = Parse("--unknown");
  EXPECT_EQ(outcome.code, 64);
  EXPECT_NE(outcome.err.find("--unknown"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.out, "");
}

TEST(ParseFlagsTest, HelpGoesToStandardOutputAndEndsWell) {
  const Outcome outcome = Parse("--help");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(outcome.out.find("--known"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.err, "");
}

TEST(ParseFlagsTest, HelpThatCannotBeWrittenIsAnError) {
  CLI::App app{"Does things.", "thing"};
  const char* argv[] = {"thing", "--help"};
  const Fd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  const Fd before(::dup(STDOUT_FILENO));
  ASSERT_GE(::dup2(full.get(), STDOUT_FILENO), 0);
  testing::internal::CaptureStderr();
  const auto code = ParseFlags(&app, 2, argv);
  ASSERT_GE(::dup2(before.get(), STDOUT_FILENO), 0);
  EXPECT_EQ(code, 75);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("No space left"), std::string::npos);
}

}  // namespace
}  // namespace tessera
