// SPDX-License-Identifier: Apache-2.0
// Checks that our deadlines fit the deadlines of other programs.
#include <gtest/gtest.h>

#include "src/admission/testing/manifests.h"
#include "src/base/strings.h"
#include "src/scheduler/scheduler.h"

namespace tessera::scheduler {
namespace {

// "5s".
std::chrono::seconds SecondsOf(std::string_view text) {
  EXPECT_TRUE(text.ends_with('s')) << text;
  return std::chrono::seconds(ParseInt(text.substr(0, text.size() - 1)).value());
}

TEST(DeadlinesTest, ABindingFailsBeforeKubeSchedulerStopsWaitingForIt) {
  int extenders = 0;
  for (const Json& config : admission::testing::ReadManifest("../../samples/kube-scheduler.yaml")) {
    for (const Json& extender : config.Find("extenders")->items()) {
      ++extenders;
      EXPECT_LT(kBindDeadline, SecondsOf(extender.StringAt("httpTimeout").value()));
    }
  }
  EXPECT_EQ(extenders, 1);
}

TEST(DeadlinesTest, ALeadersLastBindingEndsBeforeAnotherReplicaLeads) {
  const SchedulerOptions defaults;
  EXPECT_LT(kBindDeadline, defaults.election.lease_duration - defaults.election.renew_deadline);
}

TEST(DeadlinesTest, StopEndsBeforeThePodIsKilled) {
  constexpr std::string_view kField = "terminationGracePeriodSeconds: ";
  const std::string text = admission::testing::ManifestText("scheduler-deployment.yaml");
  const size_t at = text.find(kField);
  ASSERT_NE(at, std::string::npos);
  const std::string_view value = Split(std::string_view(text).substr(at + kField.size()), '\n')[0];
  const auto grace = std::chrono::seconds(ParseInt(value).value());
  // The EndpointSlice and the Lease are written after it.
  EXPECT_LE(kStopTimeout + std::chrono::seconds(2 + 5), grace);
}

}  // namespace
}  // namespace tessera::scheduler
