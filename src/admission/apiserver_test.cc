// SPDX-License-Identifier: Apache-2.0
// Tests the webhook and the policies of the chart with a real API server, which must reach this
// program's ports on 127.0.0.1. TESSERA_TEST_WEBHOOK_KUBECONFIG names a kubeconfig of an
// administrator. Creates and removes a namespace, and the objects of the manifests under unique
// names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>

#include "api/names.h"
#include "src/admission/server.h"
#include "src/admission/testing/manifests.h"
#include "src/admission/testing/reviews.h"
#include "src/base/strings.h"
#include "src/kube/config.h"
#include "src/net/http_client.h"
#include "src/net/testing/loopback.h"

namespace tessera::admission {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::PodJson;

constexpr char kRegistration[] = "/apis/admissionregistration.k8s.io/v1";
constexpr char kScheduler[] = "system:serviceaccount:tessera-system:tessera-scheduler";
constexpr char kAgent[] = "system:serviceaccount:tessera-system:tessera-agent";

struct User {
  std::string name;
  std::string node;  // of a token that is bound to a node
};

struct Answer {
  int status = 0;
  std::string text;  // body and warnings
};

class AdmissionApiServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* path = std::getenv("TESSERA_TEST_WEBHOOK_KUBECONFIG");
    if (path == nullptr) GTEST_SKIP() << "TESSERA_TEST_WEBHOOK_KUBECONFIG is not set";
    config_ = kube::LoadKubeconfig(path).value();
    client_ = std::make_unique<kube::Client>(io_, runner_, *config_, kube::ClientOptions{});
    http_ = std::make_unique<net::HttpClient>(
        io_, runner_, net::HttpClient::Options{.server = config_->server, .tls = config_->tls});
    // Deleting a namespace takes a while, so each test uses a new one.
    static int count = 0;
    ns_ = fmt::format("tessera-test-{}-{}", ::getpid(), ++count);
    ExpectSuccess("POST", "/api/v1/namespaces", MetaOf("v1", "Namespace", ns_));
    // The controller manager creates it too, but too late.
    (void)Send("POST", fmt::format("/api/v1/namespaces/{}/serviceaccounts", ns_),
               MetaOf("v1", "ServiceAccount", "default").Serialize());
    Install("assignments-policy.yaml");
  }

  void TearDown() override {
    server_.reset();
    for (auto path = created_.rbegin(); path != created_.rend(); ++path)
      (void)Send("DELETE", *path, "");
    if (!ns_.empty()) (void)Send("DELETE", "/api/v1/namespaces/" + ns_, "");
  }

  static Json MetaOf(const char* version, const char* kind, const std::string& name) {
    return Json::MakeObject({{"apiVersion", Json::String(version)},
                             {"kind", Json::String(kind)},
                             {"metadata", Json::MakeObject({{"name", Json::String(name)}})}});
  }

  Answer Send(const std::string& method, const std::string& target, std::string body,
              const User& user = {}, const char* type = "application/json") {
    net::Request request{.method = method, .target = target, .body = std::move(body)};
    request.headers.Set("Content-Type", type);
    if (!config_->token.empty()) request.headers.Set("Authorization", "Bearer " + config_->token);
    if (!user.name.empty()) {
      request.headers.Set("Impersonate-User", user.name);
      request.headers.Set("Impersonate-Group", "system:masters");
    }
    if (!user.node.empty()) {
      request.headers.Set("Impersonate-Extra-authentication.kubernetes.io%2fnode-name", user.node);
    }
    std::optional<Result<net::Response>> answer;
    const net::HttpCall call =
        http_->Send(request, {}, [&](Result<net::Response> r) { answer = std::move(r); });
    EXPECT_TRUE(runner_.RunUntil([&] { return answer.has_value(); }, std::chrono::minutes(1)));
    if (!answer || !answer->ok()) return {0, answer ? answer->status().ToString() : "no answer"};
    Answer out{(*answer)->status, (*answer)->body};
    for (const auto& [name, value] : (*answer)->headers) {
      if (ToLower(name) == "warning") out.text += "\nwarning: " + value;
    }
    return out;
  }
  void ExpectSuccess(const std::string& method, const std::string& target, const Json& body) {
    const Answer answer = Send(method, target, body.Serialize());
    ASSERT_TRUE(answer.status == 200 || answer.status == 201) << target << ": " << answer.text;
  }

  // Creates the cluster-wide objects of a manifest, with the namespace as suffix of their names.
  void Install(const std::string& manifest) {
    for (Json object : testing::ReadManifest(manifest)) {
      const std::string kind = object.StringAt("kind").value();
      if (object.StringAt("apiVersion").value() != "admissionregistration.k8s.io/v1") continue;
      Json& name = *object.Find("metadata")->Find("name");
      name = Json::String(fmt::format("{}-{}", name.string_value(), ns_));
      if (Json* webhooks = object.Find("webhooks")) PointAtThisServer(webhooks);
      if (Json* spec = object.Find("spec")) {
        if (Json* policy_name = spec->Find("policyName")) {
          *policy_name = Json::String(fmt::format("{}-{}", policy_name->string_value(), ns_));
        }
      }
      const bool is_policy = kind.ends_with("Policy");
      const std::string plural = fmt::format(
          "{}/{}", kRegistration,
          ToLower(is_policy ? kind.substr(0, kind.size() - 1) : kind) + (is_policy ? "ies" : "s"));
      ExpectSuccess("POST", plural, object);
      created_.push_back(plural + "/" + name.string_value());
    }
  }
  void PointAtThisServer(Json* webhooks) {
    for (Json& webhook : webhooks->items()) {
      Json* client = webhook.Find("clientConfig");
      const std::string path = client->Find("service")->StringAt("path").value();
      client->Erase("service");
      client->Set("url", Json::String(
                             fmt::format("https://127.0.0.1:{}{}", server_->address().port, path)));
    }
  }

  // Returns once the API server calls both paths.
  void StartWebhook(Duration lifetime, Duration overlap) {
    const std::string name = fmt::format("{}-{}", names::kWebhook, ns_);
    AdmissionServerOptions options{
        .address = {.host = "127.0.0.1"},
        .admission = {.runtime_class = ""},
        .certificates = {.ns = ns_,
                         .secret = std::string(names::kWebhook),
                         .certificate = {.names = certificates::ServiceNames("tessera-webhook", ns_,
                                                                             {"127.0.0.1"}),
                                         .lifetime = lifetime,
                                         .overlap = overlap},
                         .configurations = {{kube::kMutatingWebhooks, name, "", ""},
                                            {kube::kValidatingWebhooks, name, "", ""}},
                         .period = milliseconds(100)}};
    server_ = AdmissionServer::Start(io_, *client_, options, [] { return nullptr; }).value();
    Install("webhook.yaml");
    // The cluster may have a deployed webhook as well, so a response does not prove that this one
    // was called.
    const auto both = [this] {
      const int64_t before = server_->counts().allowed;
      (void)DryRun(PodJson({{"nvidia.com/gpu", "1"}}));
      return server_->counts().allowed >= before + 2;
    };
    bool called = both();
    for (int i = 0; i < 100 && !called; ++i) {
      runner_.RunFor(milliseconds(200));
      called = both();
    }
    ASSERT_TRUE(called) << "the API server does not call both webhooks";
  }

  std::string PodsPath() const { return fmt::format("/api/v1/namespaces/{}/pods", ns_); }
  static Json InvalidPod() {
    return PodJson({{"tencent.com/vcuda-core", "150"}, {"tencent.com/vcuda-memory", "1"}});
  }
  // A pod that is never scheduled.
  static Json NeverScheduled(Json pod, const std::string& name) {
    pod.Find("metadata")->Set("name", Json::String(name));
    pod.Find("spec")->Set("schedulerName", Json::String("no-scheduler"));
    return pod;
  }
  Answer DryRun(const Json& pod, const User& user = {"alice", ""}) {
    return Send("POST", PodsPath() + "?dryRun=All", pod.Serialize(), user);
  }
  Answer Create(const Json& pod, const User& user = {"alice", ""}) {
    return Send("POST", PodsPath(), pod.Serialize(), user);
  }
  Answer Annotate(const std::string& pod, const StringMap& annotations,
                  const User& user = {"alice", ""}, const std::string& subresource = "") {
    Json map = Json::MakeObject();
    for (const auto& [key, value] : annotations) {
      map.Set(key, value.empty() ? Json() : Json::String(value));
    }
    const Json patch =
        Json::MakeObject({{"metadata", Json::MakeObject({{"annotations", std::move(map)}})}});
    return Send("PATCH", PodsPath() + "/" + pod + subresource, patch.Serialize(), user,
                "application/merge-patch+json");
  }
  Answer Bind(const std::string& pod, const User& user, const std::string& path) {
    Json binding = MetaOf("v1", "Binding", pod);
    binding.Find("metadata")
        ->Set("annotations",
              Json::MakeObject({{std::string(names::kAnnotationAssignment), Json::String("x")}}));
    binding.Set("target", Json::MakeObject({{"apiVersion", Json::String("v1")},
                                            {"kind", Json::String("Node")},
                                            {"name", Json::String("n1")}}));
    return Send("POST", path, binding.Serialize(), user);
  }

  net::testing::TestRunner runner_;
  net::IoThread io_;
  std::optional<kube::Config> config_;
  std::unique_ptr<kube::Client> client_;
  std::unique_ptr<net::HttpClient> http_;
  std::unique_ptr<AdmissionServer> server_;
  std::string ns_;
  std::vector<std::string> created_;
};

TEST_F(AdmissionApiServerTest, WebhookRejectsPodsAndRemovesForgedAnnotations) {
  StartWebhook(std::chrono::hours(24), std::chrono::minutes(1));
  const Answer rejected = DryRun(InvalidPod());
  EXPECT_EQ(rejected.status, 422);
  EXPECT_THAT(rejected.text, AllOf(HasSubstr("validate.pods.tessera.dev"),
                                   HasSubstr("150 is neither 1 to 99 nor a multiple of 100")));
  EXPECT_EQ(DryRun(PodJson({{"nvidia.com/gpu", "1"}, {"aliyun.com/gpu-mem", "1"}})).status, 422);
  EXPECT_EQ(DryRun(PodJson({{"nvidia.com/gpu", "2"}})).status, 201);

  const Answer forged = Create(
      NeverScheduled(PodJson({{"nvidia.com/gpu", "1"}}, {{"tessera.dev/assignment", "x"},
                                                         {"ALIYUN_COM_GPU_MEM_IDX", "0"},
                                                         {"tencent.com/predicate-gpu-idx-0", "0"},
                                                         {"mine/own", "stays"}}),
                     "forged"));
  EXPECT_EQ(forged.status, 201) << forged.text;
  EXPECT_THAT(forged.text,
              AllOf(HasSubstr("mine/own"), HasSubstr("removed: ALIYUN_COM_GPU_MEM_IDX")));
  const Answer kept = Send("GET", PodsPath() + "/forged", "");
  const Json annotations = *ParseJson(kept.text)->Find("metadata")->Find("annotations");
  EXPECT_EQ(annotations.Serialize(), R"({"mine/own":"stays"})");
  // A later change of the request within the rules is allowed.
  EXPECT_EQ(Annotate("forged", {{"tessera.dev/policy", "spread"}}).status, 200);
  EXPECT_EQ(Annotate("forged", {{"tessera.dev/policy", "best"}}).status, 422);
}

TEST_F(AdmissionApiServerTest, WebhookIsNotCalledForPodsWithoutGpus) {
  StartWebhook(std::chrono::hours(24), std::chrono::minutes(1));
  const AdmissionCounts before = server_->counts();
  EXPECT_EQ(Create(NeverScheduled(PodJson({{"cpu", "1"}}, {{"mine/own", "x"}}), "plain")).status,
            201);
  EXPECT_EQ(Annotate("plain", {{"mine/own", "y"}}).status, 200);
  EXPECT_EQ(server_->counts().allowed, before.allowed);
  EXPECT_EQ(Create(NeverScheduled(PodJson({{"nvidia.com/gpu", "1"}}), "gpu")).status, 201);
  EXPECT_EQ(server_->counts().allowed, before.allowed + 2);
  EXPECT_EQ(Annotate("gpu", {{"mine/own", "y"}}).status, 200);
  EXPECT_EQ(server_->counts().allowed, before.allowed + 2);
  // The webhook is not called for kube-system either.
  EXPECT_EQ(Send("POST", "/api/v1/namespaces/kube-system/pods?dryRun=All", InvalidPod().Serialize())
                .status,
            201);
}

TEST_F(AdmissionApiServerTest, WithoutTheWebhookForgeriesAreStillRejected) {
  const Answer made = Create(NeverScheduled(PodJson({{"nvidia.com/gpu", "1"}}), "p"));
  ASSERT_EQ(made.status, 201) << made.text;
  // Policies take effect some time after their creation.
  const StringMap forged{{"tessera.dev/assignment", "x"}};
  for (int i = 0; i < 100 && DryRun(PodJson({}, forged)).status == 201; ++i) {
    runner_.RunFor(milliseconds(200));
  }
  const char* keys[] = {"tessera.dev/assignment", "scheduler.framework.gpushare.allocation",
                        "ALIYUN_COM_GPU_MEM_IDX", "tencent.com/predicate-node",
                        "tencent.com/gpu-assigned"};
  for (const char* key : keys) {
    const Answer created = DryRun(PodJson({}, {{key, "x"}}));
    EXPECT_THAT(created.text, HasSubstr("are written only by Tessera: " + std::string(key)));
    EXPECT_EQ(created.status, 403);
    EXPECT_EQ(Annotate("p", {{key, "x"}}).status, 403) << key;
    EXPECT_EQ(Annotate("p", {{key, "x"}}, {"alice", ""}, "/status").status, 403) << key;
  }
  EXPECT_EQ(Annotate("p", {{"mine/own", "x"}}).status, 200);
  // A kubelet may write the status of its pods, but not these annotations.
  EXPECT_EQ(Annotate("p", forged, {"system:node:n1", ""}, "/status").status, 403);
  EXPECT_EQ(Annotate("p", forged, {kAgent, "n1"}).status, 403) << "the pod is not on a node yet";
}

TEST_F(AdmissionApiServerTest, OnlyTheSchedulerBindsWithAnAssignment) {
  for (const char* name : {"p", "q"}) {
    ASSERT_EQ(Create(NeverScheduled(PodJson({{"nvidia.com/gpu", "1"}}), name)).status, 201);
  }
  const StringMap forged{{"tessera.dev/assignment", "x"}};
  for (int i = 0; i < 100 && DryRun(PodJson({}, forged)).status == 201; ++i) {
    runner_.RunFor(milliseconds(200));
  }
  const std::string binding = PodsPath() + "/p/binding";
  const std::string legacy = fmt::format("/api/v1/namespaces/{}/bindings", ns_);
  EXPECT_EQ(Bind("p", {"alice", ""}, binding).status, 403);
  EXPECT_EQ(Bind("p", {"system:kube-scheduler", ""}, binding).status, 403);
  EXPECT_EQ(Bind("q", {"alice", ""}, legacy).status, 403);
  const Answer bound = Bind("p", {kScheduler, ""}, binding);
  EXPECT_EQ(bound.status, 201) << bound.text;
  // From now on only the agent of that node may correct it; others may not even remove it.
  EXPECT_EQ(Annotate("p", {{"tessera.dev/assignment", "y"}}).status, 403);
  EXPECT_EQ(Annotate("p", {{"tessera.dev/assignment", ""}}).status, 403);
  EXPECT_EQ(Annotate("p", {{"tessera.dev/assignment", "y"}}, {kAgent, "n2"}).status, 403);
  EXPECT_EQ(Annotate("p", {{"tessera.dev/assignment", "y"}}, {kAgent, ""}).status, 403);
  const Answer corrected = Annotate("p", {{"tessera.dev/assignment", "y"}}, {kAgent, "n1"});
  EXPECT_EQ(corrected.status, 200) << corrected.text;
}

TEST_F(AdmissionApiServerTest, NoPodBypassesTheWebhookWhileCertificatesRotateUnderLoad) {
  constexpr Duration kOverlap = milliseconds(800);
  StartWebhook(std::chrono::seconds(6), kOverlap);
  const auto serving = [&] {
    return Send("GET", fmt::format("/api/v1/namespaces/{}/secrets/{}", ns_, names::kWebhook), "")
        .text;
  };
  ASSERT_EQ(DryRun(InvalidPod()).status, 422);
  int called = 0, bypassed = 0;
  std::set<std::string> certificates;
  // On a machine that stands still for the time of the overlap, the API server learns too late of a
  // certificate. A request shows this by its own time, and then the test begins again.
  Duration slowest = kOverlap;
  for (int attempt = 0; attempt < 3 && (attempt == 0 || bypassed > 0) && slowest > kOverlap / 2;
       ++attempt) {
    called = bypassed = 0;
    certificates.clear();
    slowest = {};
    const auto end = runner_.clock().Now() + std::chrono::minutes(1);
    while (runner_.clock().Now() < end && (certificates.size() < 5 || called <= 100)) {
      // An untrusted webhook is skipped (failurePolicy: Ignore) and the pod is created, unless a
      // deployed webhook rejects it too. So the test counts this webhook's rejections.
      for (int i = 0; i < 10; ++i, ++called) {
        const int64_t rejected = server_->counts().rejected;
        const auto start = runner_.clock().Now();
        const int status = DryRun(InvalidPod()).status;
        slowest = std::max<Duration>(slowest, runner_.clock().Now() - start);
        bypassed += status != 422 || server_->counts().rejected == rejected ? 1 : 0;
      }
      const Json secret = ParseJson(serving()).value();
      certificates.insert(secret.Find("data")->StringAt("tls.crt").value());
    }
  }
  EXPECT_EQ(bypassed, 0) << "of " << called;
  EXPECT_GE(certificates.size(), 5u);
  EXPECT_GT(called, 100);
  RecordProperty("called", called);
  RecordProperty("certificates", static_cast<int>(certificates.size()));
}

}  // namespace
}  // namespace tessera::admission
