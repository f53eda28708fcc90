// SPDX-License-Identifier: Apache-2.0
#include "src/base/subprocess.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(SubprocessTest, ReturnsOutputErrorOutputAndExitCode) {
  const auto result = RunProgram({"sh", "-c", "echo out; echo err >&2; exit 3"}, seconds(10));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->out, "out\n");
  EXPECT_EQ(result->err, "err\n");
  EXPECT_EQ(result->exit_code, 3);
}

TEST(SubprocessTest, ExitCodeOfASignalIs128PlusItsNumber) {
  EXPECT_EQ(RunProgram({"sh", "-c", "kill -9 $$"}, seconds(10))->exit_code, 137);
}

TEST(SubprocessTest, ExtraVariablesOverrideTheEnvironment) {
  const auto result =
      RunProgram({"sh", "-c", "echo $A-$HOME-${PATH:+path}"}, seconds(10), {"A=1 2", "HOME=/h"});
  EXPECT_EQ(result->out, "1 2-/h-path\n");
}

TEST(SubprocessTest, ProgramIsKilledAtTheDeadline) {
  const auto result = RunProgram({"sleep", "60"}, milliseconds(50));
  EXPECT_EQ(result.status().code(), Code::kDeadlineExceeded);
}

TEST(SubprocessTest, AProgramThatClosesItsOutputIsKilledAtTheDeadline) {
  const auto result = RunProgram({"sh", "-c", "exec sleep 60 >&- 2>&-"}, milliseconds(50));
  EXPECT_EQ(result.status().code(), Code::kDeadlineExceeded);
}

TEST(SubprocessTest, AProgramMayEndAfterItClosesItsOutput) {
  const auto result = RunProgram({"sh", "-c", "exec >&- 2>&-; sleep 0.1; exit 3"}, seconds(10));
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->exit_code, 3);
}

TEST(SubprocessTest, AMissingProgramIsNotFound) {
  EXPECT_EQ(RunProgram({"no-such-program"}, seconds(30)).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace tessera
