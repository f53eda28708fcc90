// SPDX-License-Identifier: Apache-2.0
#include "src/certificates/certificate_keeper.h"

#include <gtest/gtest.h>

#include "src/base/log.h"
#include "src/formats/base64.h"
#include "src/kube/testing/fake_api_server.h"
#include "src/net/testing/loopback.h"

namespace tessera::certificates {
namespace {

using std::chrono::milliseconds;

constexpr char kSecret[] = "/api/v1/namespaces/ns/secrets/cert";
constexpr char kHooks[] =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/hooks";

struct Replica {
  Replica(net::IoThread& io, TaskRunner& runner, const kube::Config& config,
          CertificateKeeperOptions options)
      : client(io, runner, config, {}),
        keeper(client, std::move(options),
               [this](const net::CertificatePair& pair) { served.push_back(pair); }) {}

  std::vector<net::CertificatePair> served;
  kube::Client client;
  CertificateKeeper keeper;
};

class CertificateKeeperTest : public ::testing::Test {
 protected:
  CertificateKeeperOptions Options() const {
    return {.ns = "ns",
            .secret = "cert",
            .certificate = {.names = {"svc"}},
            .configurations = {{kube::kValidatingWebhooks, "hooks", "", ""},
                               {kube::kMutatingWebhooks, "hooks", "", ""}},
            .period = milliseconds(20)};
  }
  std::unique_ptr<Replica> Start(CertificateKeeperOptions options) {
    return std::make_unique<Replica>(io_, runner_, store_.config(), std::move(options));
  }
  void PutWebhooks(const char* bundle = "") {
    store_.Put(kHooks, ParseJson(fmt::format(
                                     R"({{"webhooks":[{{"name":"a","clientConfig":{{"url":"x"}}}},
                                {{"name":"b","clientConfig":{{"caBundle":"{}"}}}}]}})",
                                     bundle))
                           .value());
  }
  std::string SecretText(const char* key) const {
    const Json* secret = store_.Find(kSecret);
    if (secret == nullptr || secret->Find("data") == nullptr) return "";
    return Base64Decode(secret->Find("data")->StringAt(key).value_or("")).value();
  }
  // Whether every webhook has the Secret's bundle.
  bool WebhooksHaveBundle() const {
    for (const Json& hook : store_.Find(kHooks)->Find("webhooks")->items()) {
      const auto bundle = hook.Find("clientConfig")->StringAt("caBundle").value_or("");
      if (bundle.empty() || Base64Decode(bundle).value() != SecretText("ca.crt")) return false;
    }
    return true;
  }

  std::string errors_;  // logged by the replicas
  const ScopedLogSinkForTest sink_{[this](std::string_view line) {
    if (line.find("retrying") != line.npos) errors_.append(line).append("\n");
  }};
  net::testing::TestRunner runner_;
  net::IoThread io_;
  kube::testing::FakeApiServer store_{io_, runner_};
};

TEST_F(CertificateKeeperTest, CreatesASecretAndPatchesEveryWebhook) {
  PutWebhooks("cnViYmlzaA==");
  const auto replica = Start(Options());
  ASSERT_TRUE(runner_.RunUntil([&] { return !replica->served.empty() && WebhooksHaveBundle(); }))
      << errors_;
  EXPECT_EQ(replica->served[0].certificate, SecretText("tls.crt"));
  EXPECT_EQ(replica->served[0].key, SecretText("tls.key"));
  EXPECT_TRUE(net::CheckServerPair(replica->served[0], SecretText("ca.crt"), {"svc"}).ok());
  EXPECT_EQ(store_.Find(kHooks)
                ->Find("webhooks")
                ->items()[0]
                .Find("clientConfig")
                ->StringAt("url")
                .value(),
            "x");
  // Nothing is left to write.
  const int writes = store_.writes();
  runner_.RunFor(milliseconds(200));
  EXPECT_EQ(store_.writes(), writes);
  EXPECT_EQ(replica->served.size(), 1u);
}

TEST_F(CertificateKeeperTest, FillsAnEmptySecretFromTheManifests) {
  store_.Put(kSecret, ParseJson(R"({"metadata":{"name":"cert","labels":{"a":"b"}}})").value());
  const auto replica = Start(Options());
  ASSERT_TRUE(runner_.RunUntil([&] { return !replica->served.empty(); }));
  EXPECT_EQ(store_.Find(kSecret)->Find("metadata")->Find("labels")->StringAt("a").value(), "b");
  EXPECT_NE(SecretText("tls.key"), "");
}

TEST_F(CertificateKeeperTest, ReplicasThatStartTogetherShareOneCertificate) {
  PutWebhooks();
  std::vector<std::unique_ptr<Replica>> replicas;
  for (int i = 0; i < 4; ++i) replicas.push_back(Start(Options()));
  ASSERT_TRUE(runner_.RunUntil([&] {
    for (const auto& replica : replicas) {
      if (replica->served.empty()) return false;
    }
    return WebhooksHaveBundle();
  }));
  // A replica may still finish a write that it began before.
  int writes = -1;
  for (int i = 0; i < 10 && store_.writes() != writes; ++i) {
    writes = store_.writes();
    runner_.RunFor(milliseconds(300));
  }
  EXPECT_EQ(store_.writes(), writes) << "the replicas revert each other's writes";
  for (const auto& replica : replicas) {
    ASSERT_EQ(replica->served.size(), 1u);
    EXPECT_EQ(replica->served[0], replicas[0]->served[0]);
  }
  EXPECT_EQ(errors_, "");
}

TEST_F(CertificateKeeperTest, LoserOfAWriteRaceReadsTheOthersCertificate) {
  store_.Put(kSecret, ParseJson(R"({"metadata":{"name":"cert"}})").value());
  const auto other = Start(Options());
  ASSERT_TRUE(runner_.RunUntil([&] { return !other->served.empty(); }));
  const Json written = *store_.Find(kSecret);
  store_.Put(kSecret, ParseJson(R"({"metadata":{"name":"cert"}})").value());
  // Another replica writes between this replica's read and its write.
  bool raced = false;
  store_.OnRequest([&](const net::Request& request) {
    if (request.method != "PATCH" || request.path() != kSecret || raced) return;
    raced = true;
    store_.Put(kSecret, written);
  });
  const auto late = Start(Options());
  ASSERT_TRUE(runner_.RunUntil([&] { return !late->served.empty(); }));
  EXPECT_TRUE(raced);
  EXPECT_EQ(late->served[0], other->served[0]);
}

TEST_F(CertificateKeeperTest, RestoresARemovedBundle) {
  PutWebhooks();
  const auto replica = Start(Options());
  ASSERT_TRUE(runner_.RunUntil([&] { return WebhooksHaveBundle(); }));
  PutWebhooks();
  EXPECT_TRUE(runner_.RunUntil([&] { return WebhooksHaveBundle(); }));
  store_.Remove(kSecret);
  EXPECT_TRUE(
      runner_.RunUntil([&] { return replica->served.size() == 2 && WebhooksHaveBundle(); }));
}

TEST_F(CertificateKeeperTest, RotationWaitsUntilEveryWebhookTrustsTheNextAuthority) {
  PutWebhooks();
  CertificateKeeperOptions options = Options();
  // A busy machine may stop the replica for a while. The last third of the lifetime, in which the
  // certificate is replaced, must be longer than that.
  options.certificate.lifetime = std::chrono::seconds(6);
  options.certificate.overlap = milliseconds(300);
  const auto replica = Start(options);
  bool trusted = true;
  store_.OnRequest([&](const net::Request&) {
    // Checked at every observable moment.
    if (replica->served.empty() || !WebhooksHaveBundle()) return;
    for (const Json& hook : store_.Find(kHooks)->Find("webhooks")->items()) {
      const auto bundle =
          Base64Decode(hook.Find("clientConfig")->StringAt("caBundle").value()).value();
      trusted = trusted && net::CheckServerPair(replica->served.back(), bundle, {"svc"}).ok();
    }
  });
  ASSERT_TRUE(
      runner_.RunUntil([&] { return replica->served.size() == 2; }, std::chrono::seconds(30)));
  EXPECT_TRUE(trusted);
}

TEST_F(CertificateKeeperTest, UnreadableSecretIsReplaced) {
  store_.Put(kSecret, ParseJson(R"({"metadata":{"name":"cert"},
      "data":{"tls.crt":"!","tls.key":7,"ca.crt":"cnViYmlzaA==","next.crt":null}})")
                          .value());
  const auto replica = Start(Options());
  ASSERT_TRUE(runner_.RunUntil([&] { return !replica->served.empty(); }));
  EXPECT_TRUE(net::CheckServerPair(replica->served[0], SecretText("ca.crt"), {"svc"}).ok());
}

}  // namespace
}  // namespace tessera::certificates
