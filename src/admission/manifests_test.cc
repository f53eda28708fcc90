// SPDX-License-Identifier: Apache-2.0
// Checks that the chart and the code use the same names. apiserver_test.cc checks how an API server
// evaluates the chart's policies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "api/names.h"
#include "src/admission/server.h"
#include "src/admission/testing/manifests.h"

namespace tessera::admission {
namespace {

using ::testing::HasSubstr;
using testing::ManifestText;
using testing::ReadManifest;

TEST(AdmissionManifestsTest, ThePolicyGuardsEveryAnnotationWithAnAssignment) {
  const std::string text = ManifestText("assignments-policy.yaml");
  for (const std::string_view key :
       {names::kAnnotationAssignment, names::kAnnotationGpushareAllocation,
        names::kAnnotationGpuAssigned, names::kAnnotationGpuMemPrefix,
        names::kAnnotationPredicatePrefix}) {
    EXPECT_THAT(text, HasSubstr(fmt::format("'{}'", key)));
  }
}

TEST(AdmissionManifestsTest, AgentMayCreateEveryPodEventThatItReports) {
  const std::string text = ManifestText("agent-policies.yaml");
  for (const std::string_view reason :
       {names::kReasonCudaOutOfMemory, names::kReasonLimitChanged, names::kReasonLimitRejected,
        names::kReasonMemoryLimitBelowUse, names::kReasonLimiterBypassed}) {
    EXPECT_THAT(text, HasSubstr(fmt::format("'{}'", reason)));
  }
}

void ExpectSubResourceIsGuarded(const Json& part) {
  if (part.is_string() && part.string_value().find("request.subResource") != std::string::npos) {
    EXPECT_THAT(part.string_value(), HasSubstr("has(request.subResource)"));
  }
  if (part.is_array()) {
    for (const Json& item : part.items()) ExpectSubResourceIsGuarded(item);
  }
  if (part.is_object()) {
    for (const auto& [key, value] : part.members()) ExpectSubResourceIsGuarded(value);
  }
}

// CEL fails with "no such key" if a request has no subresource, and a failing policy denies.
TEST(AdmissionManifestsTest, PoliciesReadTheSubresourceOnlyIfTheRequestHasOne) {
  for (const char* manifest :
       {"agent-policies.yaml", "assignments-policy.yaml", "privileged-policy.yaml"}) {
    SCOPED_TRACE(manifest);
    for (const Json& object : ReadManifest(manifest)) ExpectSubResourceIsGuarded(object);
  }
}

TEST(AdmissionManifestsTest, TheWebhookReceivesEveryResourceAndAnnotation) {
  const std::string text = ManifestText("webhook.yaml");
  for (const std::string_view name :
       {names::kResourceGpu, names::kResourceMigPrefix, names::kResourceGpuMem,
        names::kResourceGpuCount, names::kAnnotationPrefix, names::kAnnotationGpuModels,
        names::kAnnotationGpuUuids, names::kAnnotationGpuUuidsExcluded, names::kAnnotationPolicy,
        names::kAnnotationVcudaCoreLimit, names::kEnvVisibleDevices}) {
    EXPECT_THAT(text, HasSubstr(fmt::format("'{}'", name)));
  }
}

TEST(AdmissionManifestsTest, AFailingWebhookBlocksNoPod) {
  int webhooks = 0;
  for (const Json& object : ReadManifest("webhook.yaml")) {
    const Json* list = object.Find("webhooks");
    if (list == nullptr) continue;
    for (const Json& webhook : list->items()) {
      ++webhooks;
      EXPECT_EQ(webhook.StringAt("failurePolicy").value(), "Ignore");
      EXPECT_EQ(webhook.StringAt("sideEffects").value(), "None");
      EXPECT_EQ(*webhook.Find("admissionReviewVersions"), Json::Strings({"v1"}));
      EXPECT_THAT(webhook.Find("namespaceSelector")->Serialize(), HasSubstr("kube-system"));
      const std::string path =
          webhook.Find("clientConfig")->Find("service")->StringAt("path").value();
      EXPECT_EQ(path, object.StringAt("kind").value() == "MutatingWebhookConfiguration"
                          ? kMutatePath
                          : kValidatePath);
    }
  }
  EXPECT_EQ(webhooks, 2);
}

TEST(AdmissionManifestsTest, RolesAllowOnlyObjectsOfTessera) {
  for (const Json& object : ReadManifest("webhook.yaml")) {
    const Json* rules = object.Find("rules");
    if (rules == nullptr) continue;
    for (const Json& rule : rules->items()) {
      EXPECT_EQ(*rule.Find("resourceNames"), Json::Strings({std::string(names::kWebhook)}));
      EXPECT_EQ(*rule.Find("verbs"), Json::Strings({"get", "patch"}));
    }
  }
}

// The scheduler may write only the Secrets of the extender's port.
TEST(SchedulerManifestsTest, TheChartNamesTheSecretsThatTheSchedulerFills) {
  const Json wanted =
      Json::Strings({std::string(names::kAuthoritySecret), std::string(names::kClientSecret)});
  std::vector<std::string> secrets;
  bool granted = false;
  for (const Json& object : ReadManifest("scheduler.yaml")) {
    if (object.StringAt("kind").value() == "Secret") {
      secrets.push_back(object.Find("metadata")->StringAt("name").value());
      EXPECT_EQ(object.Find("data"), nullptr);  // an apply would overwrite its content
    }
    const Json* rules = object.Find("rules");
    if (rules == nullptr) continue;
    for (const Json& rule : rules->items()) {
      if (rule.Find("resources")->Serialize().find("secrets") == std::string::npos) continue;
      granted = true;
      EXPECT_EQ(*rule.Find("resourceNames"), wanted);
      EXPECT_EQ(*rule.Find("verbs"), Json::Strings({"get", "patch"}));
    }
  }
  EXPECT_EQ(Json::Strings(secrets), wanted);
  EXPECT_TRUE(granted);
}

TEST(SchedulerManifestsTest, KubeSchedulerPresentsACertificate) {
  const Json sample = ReadManifest("../../samples/kube-scheduler.yaml").at(0);
  const Json& extender = sample.Find("extenders")->items().at(0);
  EXPECT_THAT(extender.StringAt("urlPrefix").value(), HasSubstr("https://"));
  EXPECT_EQ(*extender.Find("enableHTTPS"), Json::Bool(true));
  const Json* tls = extender.Find("tlsConfig");
  for (const char* field : {"caFile", "certFile", "keyFile"}) {
    EXPECT_THAT(tls->StringAt(field).value(), HasSubstr("/etc/kubernetes/tessera/"));
  }
  EXPECT_EQ(tls->StringAt("serverName").value(), "tessera-scheduler.tessera-system.svc");
  // The setting of a profile overrides the setting for all profiles.
  for (const Json& profile : sample.Find("profiles")->items()) {
    EXPECT_EQ(profile.IntAt("percentageOfNodesToScore").value(), 100);
  }
}

}  // namespace
}  // namespace tessera::admission
