// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/extender_certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/file.h"
#include "src/base/log.h"
#include "src/formats/base64.h"
#include "src/kube/testing/fake_api_server.h"
#include "src/net/http_client.h"
#include "src/net/testing/loopback.h"
#include "src/scheduler/scheduler.h"

namespace tessera::scheduler {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr char kService[] = "/api/v1/namespaces/ns/services/tessera-scheduler";

std::string SecretPath(const char* name) {
  return fmt::format("/api/v1/namespaces/ns/secrets/{}", name);
}

struct Replica : ExtenderCertificates::Delegate {
  Replica(net::IoThread& io, TaskRunner& runner, const kube::Config& config,
          ExtenderCertificateOptions options)
      : client(io, runner, config, {}), keeper(client, std::move(options), *this) {}
  void OnTls(const net::TlsOptions& tls) override { served.push_back(tls); }
  void OnCertificateProgress(const std::string& what) override { progress.push_back(what); }
  void OnCertificateError(const Status& status) override { errors.push_back(status); }

  std::vector<net::TlsOptions> served;
  std::vector<std::string> progress;
  std::vector<Status> errors;
  kube::Client client;
  ExtenderCertificates keeper;
};

class ExtenderCertificatesTest : public ::testing::Test {
 protected:
  std::unique_ptr<Replica> Start(const std::string& address) {
    return std::make_unique<Replica>(io_, runner_, store_.config(),
                                     ExtenderCertificateOptions{.ns = "ns",
                                                                .service = "tessera-scheduler",
                                                                .extra_addresses = {address},
                                                                .authority_secret = "authority",
                                                                .client_secret = "client",
                                                                .period = milliseconds(20)});
  }
  std::string Text(const char* secret, const char* key) const {
    const Json* found = store_.Find(SecretPath(secret));
    if (found == nullptr || found->Find("data") == nullptr) return "";
    return Base64Decode(found->Find("data")->StringAt(key).value_or("")).value();
  }
  net::TlsOptions ClientTls(const char* secret = "client") const {
    return {.ca = {.text = Text(secret, "ca.crt")},
            .certificate = {.text = Text(secret, "tls.crt")},
            .key = {.text = Text(secret, "tls.key")}};
  }
  void PutService(const char* address) {
    store_.Put(kService,
               ParseJson(fmt::format(R"({{"metadata":{{"name":"tessera-scheduler"}},"spec":{{
                           "clusterIPs":["{}"]}}}})",
                                     address))
                   .value());
  }
  static Status Serves(const net::TlsOptions& tls, const std::vector<std::string>& names) {
    return net::CheckServerPair({tls.certificate.text, tls.key.text}, tls.ca.text, names);
  }

  net::testing::TestRunner runner_;
  net::IoThread io_;
  kube::testing::FakeApiServer store_{io_, runner_};
};

TEST_F(ExtenderCertificatesTest, ReplicasShareAuthoritiesAndServeTheirOwnAddresses) {
  PutService("10.0.0.7");
  const auto a = Start("10.1.0.1");
  const auto b = Start("10.1.0.2");
  ASSERT_TRUE(runner_.RunUntil([&] {
    return !a->served.empty() && !b->served.empty() && !Text("client", "tls.key").empty();
  }));
  EXPECT_EQ(a->served.back().ca.text, b->served.back().ca.text);
  EXPECT_EQ(a->served.back().ca.text, Text("client", "ca.crt"));
  const Status checked = Serves(
      a->served.back(), {"10.1.0.1", "10.0.0.7", "tessera-scheduler", "tessera-scheduler.ns.svc"});
  EXPECT_TRUE(checked.ok()) << checked.ToString();
  EXPECT_TRUE(Serves(b->served.back(), {"10.1.0.2"}).ok());
  EXPECT_FALSE(Serves(b->served.back(), {"10.1.0.1"}).ok());
  EXPECT_TRUE(net::CheckServerPair({Text("client", "tls.crt"), Text("client", "tls.key")},
                                   Text("client", "ca.crt"), {})
                  .ok());
  // kube-scheduler's Secret has no key to sign with.
  EXPECT_EQ(Text("client", "ca.key"), "");
  EXPECT_NE(Text("authority", "ca.key"), "");
  // When nothing is due, nothing is written. A replica may still finish what it began before.
  int writes = -1;
  for (int i = 0; i < 10 && store_.writes() != writes; ++i) {
    writes = store_.writes();
    runner_.RunFor(milliseconds(200));
  }
  EXPECT_EQ(store_.writes(), writes);
  EXPECT_EQ(a->served.size(), 1u);
  EXPECT_TRUE(a->errors.empty()) << a->errors[0].ToString();
}

TEST_F(ExtenderCertificatesTest, AMissingServiceOrAServiceWithoutAddressIsNoError) {
  for (const char* service : {"", R"({"metadata":{"name":"tessera-scheduler"}})",
                              R"({"metadata":{"name":"tessera-scheduler"},"spec":{}})"}) {
    if (*service != 0) store_.Put(kService, ParseJson(service).value());
    const auto replica = Start("10.1.0.1");
    ASSERT_TRUE(runner_.RunUntil([&] { return !replica->served.empty(); })) << service;
    EXPECT_TRUE(Serves(replica->served.back(), {"tessera-scheduler.ns.svc", "10.1.0.1"}).ok());
    runner_.RunFor(milliseconds(50));
    EXPECT_TRUE(replica->errors.empty()) << replica->errors[0].ToString();
  }
}

TEST_F(ExtenderCertificatesTest, FollowsAnEmptiedSecretAndANewServiceAddress) {
  PutService("10.0.0.7");
  const auto replica = Start("10.1.0.1");
  ASSERT_TRUE(runner_.RunUntil([&] { return !Text("client", "tls.key").empty(); }));
  const std::string before = Text("client", "tls.crt");
  PutService("10.0.0.8");
  ASSERT_TRUE(runner_.RunUntil([&] { return Serves(replica->served.back(), {"10.0.0.8"}).ok(); }));
  EXPECT_EQ(replica->served.back().ca.text, replica->served.front().ca.text);
  EXPECT_EQ(Text("client", "tls.crt"), before);
  // An administrator does this after a key was stolen.
  const std::string empty = R"({"metadata":{"name":"x"}})";
  store_.Put(SecretPath("authority"), ParseJson(empty).value());
  ASSERT_TRUE(runner_.RunUntil([&] {
    return !Text("authority", "ca.crt").empty() &&
           Text("client", "ca.crt") == Text("authority", "ca.crt");
  }));
  EXPECT_NE(Text("client", "tls.crt"), before);
  EXPECT_FALSE(net::CheckServerPair({before, ""}, replica->served.back().ca.text, {}).ok());
  EXPECT_TRUE(Serves(replica->served.back(), {"10.0.0.8"}).ok());
}

// Tests which callers the port of the whole program accepts.
class ExtenderPortTest : public ExtenderCertificatesTest {
 protected:
  void Start(SchedulerOptions options) {
    ASSERT_TRUE(WriteFileAtomically(
                    kubeconfig_,
                    fmt::format("apiVersion: v1\nkind: Config\ncurrent-context: c\n"
                                "clusters: [{{name: c, cluster: {{server: 'http://{}'}}}}]\n"
                                "contexts: [{{name: c, context: {{cluster: c, namespace: ns}}}}]\n",
                                store_.config().server.address.ToString()),
                    0600)
                    .ok());
    options.kubeconfig = kubeconfig_;
    options.address = "127.0.0.1:0";
    scheduler_ = std::make_unique<Scheduler>(&runner_, &io_, std::move(options));
    const Status status = scheduler_->Start();
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  Result<net::Response> Send(const net::HttpClient::Options& to, net::Request request) {
    net::HttpClient client(io_, runner_, to);
    std::optional<Result<net::Response>> answer;
    const net::HttpCall call = client.Send(std::move(request), {},
                                           [&](Result<net::Response> r) { answer = std::move(r); });
    EXPECT_TRUE(runner_.RunUntil([&] { return answer.has_value(); }));
    return *answer;
  }
  Result<net::Response> Bind(const net::HttpClient::Options& to) { return Send(to, Binding()); }
  Result<net::Response> SendOverTls(net::TlsOptions tls, net::Request request) {
    tls.server_name = "tessera-scheduler.ns.svc";
    return Send({.server = {.tls = true, .address = scheduler_->address()}, .tls = std::move(tls)},
                std::move(request));
  }
  Result<net::Response> BindOverTls(net::TlsOptions tls) {
    return SendOverTls(std::move(tls), Binding());
  }
  static net::Request Binding() {
    return {.method = "POST",
            .target = "/v1/extender/bind",
            .body = R"({"PodName":"a","PodNamespace":"ns","PodUID":"u","Node":"n1"})"};
  }

  TempDir dir_;
  const std::string kubeconfig_ = dir_.path() + "/kubeconfig";
  std::unique_ptr<Scheduler> scheduler_;
};

TEST_F(ExtenderPortTest, OnlyTheClientOfTheSecretIsAnswered) {
  std::vector<std::string> logged;
  const ScopedLogSinkForTest sink([&](std::string_view line) { logged.emplace_back(line); });
  store_.Refuse("nodes", 503);  // a scheduler without the cluster's state makes no decisions
  Start({});
  // Before the first certificate all callers are rejected.
  EXPECT_FALSE(BindOverTls({.skip_verify = true}).ok());
  const auto has_client = [&] { return !Text("tessera-scheduler-client", "tls.key").empty(); };
  ASSERT_TRUE(runner_.RunUntil(has_client));
  const net::TlsOptions client = ClientTls("tessera-scheduler-client");
  const auto answer = BindOverTls(client);
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ(answer->status, 503);  // it makes no decisions
  EXPECT_FALSE(BindOverTls({.ca = client.ca}).ok());
  const net::testing::TestCa stranger;
  const auto other = stranger.Issue("kube-scheduler", {});
  EXPECT_FALSE(
      BindOverTls(
          {.ca = client.ca, .certificate = {.text = other.certificate}, .key = {.text = other.key}})
          .ok());
  // The certificate is valid for long: no warning is logged, and the metrics page has its end.
  const std::string page = SendOverTls(client, {.method = "GET", .target = "/metrics"})->body;
  EXPECT_THAT(page, HasSubstr("tessera_scheduler_client_certificate_expiration_timestamp_seconds"));
  EXPECT_THAT(logged, ::testing::Not(::testing::Contains(HasSubstr("certificate expires soon"))));
  // A plain HTTP caller is rejected with the reason.
  const auto plain = Bind({.server = {.address = scheduler_->address()}});
  ASSERT_TRUE(plain.ok()) << plain.status().ToString();
  EXPECT_EQ(plain->status, 400);
  EXPECT_THAT(plain->body, HasSubstr("this port serves HTTPS only"));
}

TEST_F(ExtenderPortTest, ServesPlainHttpIfConfigured) {
  SchedulerOptions options;
  options.plain_http = true;
  Start(std::move(options));
  EXPECT_EQ(Bind({.server = {.address = scheduler_->address()}})->status, 503);
  runner_.RunFor(milliseconds(50));
  EXPECT_EQ(store_.Find(SecretPath("tessera-scheduler-client")), nullptr);
}

}  // namespace
}  // namespace tessera::scheduler
