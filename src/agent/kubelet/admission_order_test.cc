// SPDX-License-Identifier: Apache-2.0
#include "src/agent/kubelet/admission_order.h"

#include <gtest/gtest.h>

#include "api/names.h"
#include "src/agent/kubelet/plugin_answers.h"
#include "src/agent/kubelet/testing/four_gpus.h"

namespace tessera::agent {
namespace {

const std::string kGpuResource(names::kResourceGpu);
const std::string kMemResource(names::kResourceGpuMem);

AdmissionOrder::WaitingContainer Container(const std::string& pod, int64_t gpus,
                                           std::vector<std::string> uuids) {
  AdmissionOrder::WaitingContainer waiting{.pod_uid = Uid(pod), .container = "main"};
  waiting.units[kGpuResource] = gpus;
  for (std::string& uuid : uuids) waiting.shares.push_back({.uuid = std::move(uuid)});
  return waiting;
}

TEST(AdmissionOrderTest, NextReturnsTheFirstUnallocatedContainerWithTheRequest) {
  AdmissionOrder order;
  order.Set({Container("a", 2, {}), Container("b", 1, {}), Container("c", 1, {})});
  ASSERT_EQ(order.Next(kGpuResource, 1)->pod_uid, Uid("b"));
  order.AllocateNext(kGpuResource, 1);
  EXPECT_EQ(order.Next(kGpuResource, 1)->pod_uid, Uid("c"));
  EXPECT_EQ(order.Next(kGpuResource, 2)->pod_uid, Uid("a"));
  EXPECT_FALSE(order.Next(kGpuResource, 3));
  EXPECT_FALSE(order.Next(kMemResource, 1));
}

TEST(AdmissionOrderTest, PreferredAllocationReturnsTheGpusAssignedToTheNextPod) {
  const auto set = FourGpus();
  AdmissionOrder order;
  SystemClock clock;
  const grant::TokenSigner signer(std::string(32, 'k'));
  const PluginResponder responder(kGpuResource, PluginResponder::Ids::kGpus, &signer, &clock,
                                  &order);
  const std::vector<std::string> all = {"GPU-0", "GPU-1", "GPU-2", "GPU-3"};
  order.Set({Container("a", 2, {"GPU-3", "GPU-1"}), Container("b", 2, {"GPU-0", "GPU-2"})});
  EXPECT_EQ(*responder.Prefer(*set, all, {}, 2), (std::vector<std::string>{"GPU-3", "GPU-1"}));
  ASSERT_TRUE(responder.Allocate(*set, {"GPU-3", "GPU-1"}).ok());
  EXPECT_EQ(*responder.Prefer(*set, all, {}, 2), (std::vector<std::string>{"GPU-0", "GPU-2"}));
  EXPECT_EQ(responder.Prefer(*set, {"GPU-0", "GPU-1"}, {}, 2)->size(), 2u)
      << "an unavailable ID is not preferred";
  EXPECT_EQ(responder.Prefer(*set, all, {}, 1)->size(), 1u);
}

}  // namespace
}  // namespace tessera::agent
