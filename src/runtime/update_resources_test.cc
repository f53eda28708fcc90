// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/update_resources.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "src/base/file.h"
#include "src/runtime/command_line.h"

namespace tessera::runtime {
namespace {

TEST(UpdateResources, WithoutDeviceRulesKeepsAllOtherMembers) {
  EXPECT_EQ(
      WithoutDeviceRules(R"({"devices":[{"allow":false}],"cpu":{"shares":1.50},"x":null})").value(),
      R"({"cpu":{"shares":1.50},"x":null})");
  EXPECT_EQ(WithoutDeviceRules("{}").value(), "{}");
  for (const char* damaged : {"", "[]", "{\"devices\":"}) {
    EXPECT_FALSE(WithoutDeviceRules(damaged).ok()) << damaged;
  }
}

class StripDeviceRulesTest : public ::testing::Test {
 protected:
  StripDeviceRulesTest() : input_(::dup(STDIN_FILENO)) {}
  ~StripDeviceRulesTest() override { ::dup2(input_.get(), STDIN_FILENO); }

  // The low-level runtime's arguments, then its standard input.
  std::string Passed(std::vector<std::string> arguments) {
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    const int argc = static_cast<int>(argv.size());
    const CommandLine line = ParseCommandLine(argc, argv.data());
    if (line.resources_file == nullptr) return "no resources";
    const Status status = StripDeviceRules(line.resources_file, argc, argv.data());
    EXPECT_TRUE(status.ok()) << status.ToString();
    std::string passed;
    for (const char* argument : argv) passed += std::string(argument) + ' ';
    return passed + ReadFd(STDIN_FILENO).value();
  }
  std::string File(const std::string& text) {
    EXPECT_TRUE(WriteFileAtomically(dir_.path() + "/r", text, 0600).ok());
    return dir_.path() + "/r";
  }

  TempDir dir_;
  Fd input_;
};

TEST_F(StripDeviceRulesTest, FileIsReplacedByStandardInput) {
  const std::string file = File(R"({"devices":[],"pids":{"limit":1}})");
  EXPECT_EQ(Passed({"rt", "--root", "/r", "update", "--resources", file, "id"}),
            R"(rt --root /r update --resources - id {"pids":{"limit":1}})");
  EXPECT_EQ(Passed({"rt", "update", "id", "--resources=" + file}),
            R"(rt update id --resources=- {"pids":{"limit":1}})");
  EXPECT_EQ(Passed({"rt", "update", "-r", file, "id"}),
            R"(rt update -r - id {"pids":{"limit":1}})");
}

TEST_F(StripDeviceRulesTest, StandardInputIsReplaced) {
  const Fd file(::open(File(R"({"devices":[1],"cpu":{}})").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_GE(::dup2(file.get(), STDIN_FILENO), 0);
  EXPECT_EQ(Passed({"rt", "update", "--resources=-", "id"}),
            R"(rt update --resources=- id {"cpu":{}})");
}

TEST_F(StripDeviceRulesTest, InvalidResourcesArePassedOnUnchanged) {
  EXPECT_EQ(Passed({"rt", "update", "--resources", File("{ broken"), "id"}),
            "rt update --resources - id { broken");
  EXPECT_EQ(Passed({"rt", "update", "--memory", "64M", "id"}), "no resources");
  EXPECT_EQ(Passed({"rt", "state", "update"}), "no resources");
}

}  // namespace
}  // namespace tessera::runtime
