// SPDX-License-Identifier: Apache-2.0
// Verbs that create no container, in front of a low-level runtime that prints how it was called.
// The result must be the same whether the program decides before or after the C library is set up.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "src/base/file.h"
#include "src/base/subprocess.h"
#include "tests/bench/step_counter.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

constexpr long kFewInstructions = 30'000;  // the C library alone takes as many, and 40 CPUIDs

class EarlyStart : public ::testing::Test {
 protected:
  void SetUp() override {
    path_variable_ = ::getenv("PATH");
    MakeRuntime("first/runc");
    MakeRuntime("second/runc");
    ::setenv("PATH", (path("empty") + ":relative:" + path("first") + ":" + path("second")).c_str(),
             1);
    WriteConfig("driver-root = \"/\"\n");
    ::setenv("TESSERA_RUNTIME_CONFIG", path("runtime.toml").c_str(), 1);
  }
  void TearDown() override {
    ::setenv("PATH", path_variable_.c_str(), 1);
    ::unsetenv("TESSERA_RUNTIME_CONFIG");
  }

  std::string path(const std::string& name) const { return JoinPath(folder_.path(), name); }
  void MakeRuntime(const std::string& name) {
    fs::create_directories(path(name).substr(0, path(name).rfind('/')));
    // "$0" of a script is the path that was executed.
    ASSERT_TRUE(WriteFileAtomically(path(name), "#!/bin/sh\necho \"$0|$*|$SEEN\"\n", 0755).ok());
  }
  void WriteConfig(const std::string& text) {
    ASSERT_TRUE(WriteFileAtomically(path("runtime.toml"), text, 0644).ok());
  }
  SubprocessResult Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), TESSERA_RUNTIME_PROGRAM);
    const auto result = RunProgram(arguments, std::chrono::seconds(10));
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.ok() ? *result : SubprocessResult{};
  }
  // Makes the bundle of a container with or without GPUs, and the description of a process to start
  // in that container.
  std::string MakeBundle(bool gpu) {
    fs::create_directories(path(gpu ? "bundle/tessera" : "bundle"));
    EXPECT_TRUE(WriteFileAtomically(path("bundle/config.json"),
                                    R"({"process":{"env":["PATH=/bin:/dev/tessera/bin"]}})", 0600)
                    .ok());
    EXPECT_TRUE(WriteFileAtomically(path("process"), R"({"env":["PATH=/bin"]})", 0600).ok());
    return path("bundle");
  }

  TempDir folder_;
  std::string path_variable_;
};

TEST_F(EarlyStart, APlainVerbExecutesTheFirstRuntimeInPath) {
  ::setenv("SEEN", "kept", 1);
  EXPECT_EQ(Run({"--root", "/r", "kill", "x y", "KILL"}).out,
            path("first/runc") + "|--root /r kill x y KILL|kept\n");
  ::unsetenv("SEEN");
}

TEST_F(EarlyStart, APlainVerbTakesFewSteps) {
  for (const std::vector<std::string>& verb :
       {std::vector<std::string>{"state", "x"},
        {"delete", "--force", "x"},
        {"--log", path("bundle/log.json"), "exec", "--process", path("process"), "x"}}) {
    std::vector<std::string> argv = {TESSERA_RUNTIME_PROGRAM};
    argv.insert(argv.end(), verb.begin(), verb.end());
    const auto count = CountSteps(argv);
    if (!count) GTEST_SKIP() << "steps cannot be counted on this machine";
    EXPECT_LT(count->instructions, kFewInstructions) << verb[0];
    EXPECT_EQ(count->cpuids, 0) << verb[0];
  }
}

// go-runc, which containerd uses, expects "runc version" in the first line. Docker reads the last
// line with the word "version".
TEST_F(EarlyStart, TheVersionFollowsThatOfTheLowLevelRuntime) {
  const SubprocessResult result = Run({"--version"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, MatchesRegex(path("first/runc") +
                                       "\\|--version\\|\ntessera-runtime: [0-9.]+[^ ]*\n"));
  EXPECT_THAT(result.out.substr(result.out.find("\ntessera-runtime")), Not(HasSubstr("version")));
  ::setenv("PATH", path("empty").c_str(), 1);
  WriteConfig("runtimes = [\"no-such-runtime\"]\n");
  const SubprocessResult none = Run({"--version"});
  EXPECT_NE(none.exit_code, 0);
  EXPECT_THAT(none.out, StartsWith("tessera-runtime: "));
  EXPECT_THAT(none.err, HasSubstr("no low-level runtime found"));
}

TEST_F(EarlyStart, AMissingConfigurationIsTheDefault) {
  fs::remove(path("runtime.toml"));
  EXPECT_EQ(Run({"state", "x"}).out, path("first/runc") + "|state x|\n");
  ::unsetenv("TESSERA_RUNTIME_CONFIG");
  EXPECT_THAT(Run({"state", "x"}).out, HasSubstr("/runc|state x|\n"));
}

TEST_F(EarlyStart, AConfigurationThatNamesRuntimesIsObeyed) {
  MakeRuntime("third/mine");
  WriteConfig("runtimes = [\"" + path("third/mine") + "\"]\n");
  EXPECT_EQ(Run({"state", "x"}).out, path("third/mine") + "|state x|\n");
  // The early code reads only the beginning of the file; the setting may follow that part.
  WriteConfig("#" + std::string(8192, '-') + "\nruntimes = [\"" + path("third/mine") + "\"]\n");
  EXPECT_EQ(Run({"state", "x"}).out, path("third/mine") + "|state x|\n");
}

TEST_F(EarlyStart, NeverExecutesItself) {
  fs::create_directories(path("empty"));
  fs::create_symlink(TESSERA_RUNTIME_PROGRAM, path("empty/runc"));
  EXPECT_EQ(Run({"state", "x"}).out, path("first/runc") + "|state x|\n");
}

TEST_F(EarlyStart, SkipsAFileThatCannotRun) {
  fs::remove(path("first/runc"));
  fs::create_directories(path("first/runc"));
  EXPECT_EQ(Run({"state", "x"}).out, path("second/runc") + "|state x|\n");
}

TEST_F(EarlyStart, ExecInAContainerWithGpusIsEdited) {
  const std::string bundle = MakeBundle(true);
  for (const char* option : {"--log=", "-log="}) {
    const std::string log = option + bundle + "/log.json";
    ASSERT_TRUE(WriteFileAtomically(path("process"), R"({"env":["PATH=/bin"]})", 0600).ok());
    Run({log, "exec", "-d", "--process=" + path("process"), "x"});
    EXPECT_EQ(ReadFile(path("process")).value(), R"({"env":["PATH=/bin:/dev/tessera/bin"]})");
  }
  ASSERT_TRUE(WriteFileAtomically(path("process"), R"({"env":["PATH=/bin"]})", 0600).ok());
  EXPECT_EQ(Run({"--log", bundle + "/log.json", "exec", "-p", path("process"), "x"}).exit_code, 0);
  EXPECT_EQ(ReadFile(path("process")).value(), R"({"env":["PATH=/bin:/dev/tessera/bin"]})");
}

TEST_F(EarlyStart, ExecInTheFolderOfABundleWithGpusIsEdited) {
  MakeBundle(true);
  const fs::path before = fs::current_path();
  fs::current_path(path("bundle"));
  Run({"exec", "--process", path("process"), "x"});
  fs::current_path(before);
  EXPECT_EQ(ReadFile(path("process")).value(), R"({"env":["PATH=/bin:/dev/tessera/bin"]})");
}

TEST_F(EarlyStart, ExecInAContainerWithoutGpusIsNotEdited) {
  const std::string bundle = MakeBundle(false);
  Run({"--log", bundle + "/log.json", "exec", "--process", path("process"), "x"});
  EXPECT_EQ(ReadFile(path("process")).value(), R"({"env":["PATH=/bin"]})");
}

TEST_F(EarlyStart, WithoutAnyRuntimeNamesTheTriedPrograms) {
  WriteConfig("runtimes = [\"no-such-runtime\"]\n");
  const SubprocessResult result = Run({"state", "x"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("tried no-such-runtime"));
}

}  // namespace
}  // namespace tessera
