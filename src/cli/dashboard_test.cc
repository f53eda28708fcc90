// SPDX-License-Identifier: Apache-2.0
#include "src/cli/dashboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "src/base/file.h"

namespace tessera::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DashboardTest, ListensOnLoopbackWithTheUsersKubeconfig) {
  const TempDir home;
  std::map<std::string, std::string> environment = {{"HOME", home.path()}};
  const kube::GetEnv getenv = [&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  };
  EXPECT_THAT(DashboardArguments({}, getenv), ElementsAre("--dashboard", "--listen=127.0.0.1:0"));
  ASSERT_TRUE(MakeDirs(JoinPath(home.path(), ".kube"), 0700).ok());
  const std::string file = JoinPath(home.path(), ".kube/config");
  ASSERT_TRUE(WriteFileAtomically(file, "x", 0600).ok());
  EXPECT_THAT(
      DashboardArguments({.port = 8090, .context = "b"}, getenv),
      ElementsAre("--dashboard", "--listen=127.0.0.1:8090", "--kubeconfig=" + file, "--context=b"));
  environment["KUBECONFIG"] = "/a:/b";
  EXPECT_EQ(DashboardArguments({}, getenv).back(), "--kubeconfig=/a:/b");
  EXPECT_EQ(DashboardArguments({.kubeconfig = "/c"}, getenv).back(), "--kubeconfig=/c");
}

TEST(DashboardTest, PrefersTheConsoleBesideTheProgramToThePath) {
  const TempDir beside, other;
  const auto path = other.path() + ":/nowhere";
  const auto make = [](const TempDir& dir) {
    std::string file = JoinPath(dir.path(), "tessera-console");
    EXPECT_TRUE(WriteFileAtomically(file, "", 0755).ok());
    return file;
  };
  EXPECT_THAT(FindConsole(beside.path(), path).status().message(), HasSubstr("install it"));
  EXPECT_EQ(FindConsole(beside.path(), path).status().code(), Code::kNotFound);
  const std::string in_path = make(other);
  EXPECT_EQ(FindConsole(beside.path(), path).value(), in_path);
  const std::string first = make(beside);
  EXPECT_EQ(FindConsole(beside.path(), path).value(), first);
}

}  // namespace
}  // namespace tessera::cli
