// SPDX-License-Identifier: Apache-2.0
// Two commands that change an installation at the same time, against a fake API server.
#include "src/cli/install/install_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/cli/testing/command_fixture.h"
#include "src/cli/testing/installed_cluster.h"
#include "src/formats/yaml.h"
#include "src/kube/times.h"

namespace tessera::cli {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

class InstallLockTest : public testing::CommandFixture {
 protected:
  InstallLockTest() { testing::PutDiscovery(server_); }
  // The Lease of another command, which renewed it `age` ago.
  void PutLease(Duration age) {
    const std::string renewed = kube::Rfc3339Micros(runner_.clock().WallNow() - age);
    server_.Put(kLease,
                ParseYaml(fmt::format("{{metadata: {{name: tessera-installation, namespace: "
                                      "kube-system}}, spec: {{holderIdentity: 'tessera upgrade by "
                                      "ann@laptop, process 7', leaseDurationSeconds: 60, "
                                      "acquireTime: '{0}', renewTime: '{0}'}}}}",
                                      renewed))
                    .value());
  }
  static constexpr const char* kLease =
      "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/tessera-installation";
  const std::string agents_ = "/apis/apps/v1/namespaces/tessera-system/daemonsets/tessera-agent";
};

TEST_F(InstallLockTest, HoldsTheLockWhileItAppliesObjects) {
  std::string holder;
  server_.OnRequest([&](const net::Request& request) {
    if (request.method != "PATCH" || request.path() != agents_) return;
    const Json* lease = server_.Find(kLease);
    if (lease != nullptr) holder = lease->Find("spec")->StringAt("holderIdentity").value();
  });
  const testing::CommandResult ran = Run({"install"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(holder, HasSubstr("tessera install by "));
  EXPECT_EQ(server_.Find(kLease), nullptr);
}

TEST_F(InstallLockTest, ASecondCommandNamesTheFirstAndChangesNothing) {
  PutLease(10s);
  for (const std::vector<std::string>& words : {std::vector<std::string>{"install"},
                                                {"install", "--operator"},
                                                {"install", "--force"},
                                                {"upgrade"},
                                                {"uninstall"}}) {
    const testing::CommandResult ran = Run(words);
    EXPECT_EQ(ran.exit_code, 78) << words[0];
    EXPECT_THAT(ran.err, HasSubstr("tessera upgrade by ann@laptop, process 7"));
    EXPECT_THAT(ran.err, HasSubstr("expires in "));
  }
  EXPECT_EQ(server_.writes(), 0);
  // A dry run changes nothing, so it needs no lock.
  EXPECT_THAT(Run({"uninstall", "--dry-run"}).err, Not(HasSubstr("ann@laptop")));
}

TEST_F(InstallLockTest, TheLockOfAKilledCommandExpires) {
  PutLease(61s);
  const testing::CommandResult ran = Run({"install"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_NE(server_.Find(agents_), nullptr);
  EXPECT_EQ(server_.Find(kLease), nullptr);
}

TEST_F(InstallLockTest, ACommandThatLostTheLockStops) {
  server_.OnRequest([&](const net::Request& request) {
    if (request.method == "GET" && request.path() == kLease) PutLease(0s);
  });
  Status acquired, renewed;
  std::atomic<bool> ended = false;
  std::thread command([&] {
    ClusterClient api(server_.config(), 5s);
    InstallLock lock(api, 0s);
    acquired = lock.Acquire("tessera install");
    renewed = lock.Renew();
    lock.Release();
    ended = true;
  });
  EXPECT_TRUE(runner_.RunUntil([&] { return ended.load(); }, 10s));
  command.join();
  EXPECT_TRUE(acquired.ok()) << acquired.ToString();
  EXPECT_EQ(renewed.code(), Code::kAborted);
  EXPECT_THAT(renewed.message(), HasSubstr("ann@laptop"));
  EXPECT_NE(server_.Find(kLease), nullptr) << "the lock of the other command stays";
}

TEST_F(InstallLockTest, ACommandThatStalledDoesNotReleaseTheLockOfAnother) {
  std::atomic<bool> ended = false;
  std::thread command([&] {
    ClusterClient api(server_.config(), 5s);
    InstallLock lock(api);
    EXPECT_TRUE(lock.Acquire("tessera install").ok());
    runner_.Post([this] { PutLease(0s); });
    lock.Release();
    ended = true;
  });
  EXPECT_TRUE(runner_.RunUntil([&] { return ended.load(); }, 10s));
  command.join();
  EXPECT_NE(server_.Find(kLease), nullptr);
}

TEST_F(InstallLockTest, TheErrorNamesAWrongClock) {
  PutLease(-1h);
  const testing::CommandResult ran = Run({"install"});
  EXPECT_EQ(ran.exit_code, 78);
  EXPECT_THAT(ran.err, HasSubstr("was renewed in the future: set the clocks"));
}

}  // namespace
}  // namespace tessera::cli
