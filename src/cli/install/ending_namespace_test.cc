// SPDX-License-Identifier: Apache-2.0
// An installation while the namespace of an earlier one is being deleted, against a fake API
// server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/cli/install/inventory.h"
#include "src/cli/testing/command_fixture.h"
#include "src/cli/testing/installed_cluster.h"
#include "src/formats/yaml.h"

namespace tessera::cli {
namespace {

using ::testing::HasSubstr;

class EndingNamespaceTest : public testing::CommandFixture {
 protected:
  EndingNamespaceTest() {
    testing::PutDiscovery(server_);
    server_.Put(kNamespace, ParseYaml(R"(
metadata: {name: tessera-system, deletionTimestamp: "2026-01-01T00:00:00Z"}
status:
  conditions:
  - {type: NamespaceContentRemaining, status: "True", message: pods. has 1 resource instances}
  - {type: NamespaceDeletionContentFailure, status: "False", message: All content deleted})")
                                .value());
    server_.OnRequest([this](const net::Request& request) {
      const Json* ns = server_.Find(kNamespace);
      const bool ending = ns != nullptr && ns->Find("status") != nullptr;
      const bool lock = request.path().find("/leases") != std::string::npos;
      if (ending && !lock && request.method != "GET") ++early_changes_;
      // The command has read the namespace four times before it is gone.
      const bool reads = ending && request.method == "GET" && request.path() == kNamespace;
      if (reads && deletion_ends_ && ++reads_ == 5) server_.Remove(kNamespace);
    });
  }
  static constexpr const char* kNamespace = "/api/v1/namespaces/tessera-system";
  int early_changes_ = 0;       // requests that change objects while the namespace is being deleted
  bool deletion_ends_ = false;  // true: the namespace is gone at its fifth read
  int reads_ = 0;               // of the namespace, while it is being deleted
};

TEST_F(EndingNamespaceTest, AnInstallationWaitsUntilTheNamespaceIsGone) {
  deletion_ends_ = true;
  const testing::CommandResult ran = Run({"install"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("Namespace tessera-system is being deleted: waiting"));
  EXPECT_EQ(early_changes_, 0);
  EXPECT_NE(server_.Find(testing::PathOf(InventoryId())), nullptr);
}

TEST_F(EndingNamespaceTest, TheErrorSaysWhatKeepsTheNamespace) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"install", "--timeout=1"},
                                                {"install", "--operator", "--timeout=1"}}) {
    const testing::CommandResult ran = Run(words);
    EXPECT_NE(ran.exit_code, 0);
    EXPECT_THAT(ran.err,
                HasSubstr("still being deleted after 1 s: pods. has 1 resource instances"));
    EXPECT_EQ(early_changes_, 0);
  }
}

}  // namespace
}  // namespace tessera::cli
