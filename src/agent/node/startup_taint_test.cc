// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/node_condition.h"

#include <gtest/gtest.h>

namespace tessera::agent {
namespace {

const TaintKeys kKeys = {"tessera.dev/not-ready", "startup-taint.example.com/gpu"};

Json NodeWith(std::string_view taints) {
  return *ParseJson(std::string(R"({"spec":{"taints":)").append(taints).append("}}"));
}

TEST(StartupTaintTest, RemovesTaintsWithTheKeysIfTheyAreUnchanged) {
  const auto patch =
      TaintPatchFor(NodeWith(R"([{"key":"tessera.dev/not-ready","effect":"NoSchedule"},)"
                             R"({"key":"nvidia.com/gpu","value":"present","effect":"NoSchedule"},)"
                             R"({"key":"startup-taint.example.com/gpu","effect":"NoExecute"}])"),
                    kKeys);
  ASSERT_TRUE(patch);
  EXPECT_EQ(patch->Serialize(), R"([{"op":"test","path":"/spec/taints/2","value":)"
                                R"({"key":"startup-taint.example.com/gpu","effect":"NoExecute"}},)"
                                R"({"op":"remove","path":"/spec/taints/2"},)"
                                R"({"op":"test","path":"/spec/taints/0","value":)"
                                R"({"key":"tessera.dev/not-ready","effect":"NoSchedule"}},)"
                                R"({"op":"remove","path":"/spec/taints/0"}])");
}

TEST(StartupTaintTest, OtherTaintsStay) {
  EXPECT_FALSE(
      TaintPatchFor(NodeWith(R"([{"key":"nvidia.com/gpu","effect":"NoSchedule"}])"), kKeys));
  EXPECT_FALSE(TaintPatchFor(NodeWith("null"), kKeys));
  EXPECT_FALSE(TaintPatchFor(*ParseJson("{}"), kKeys));
  EXPECT_FALSE(
      TaintPatchFor(NodeWith(R"([{"key":"tessera.dev/not-ready","effect":"NoSchedule"}])"), {}));
}

}  // namespace
}  // namespace tessera::agent
