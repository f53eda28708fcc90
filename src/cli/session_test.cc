// SPDX-License-Identifier: Apache-2.0
#include "src/cli/session.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "api/names.h"
#include "src/base/file.h"
#include "src/cli/commands.h"
#include "src/kube/testing/fake_api_server.h"
#include "src/kube/testing/samples.h"
#include "src/ledger/testing/objects.h"
#include "src/net/testing/loopback.h"

namespace tessera::cli {
namespace {

using kube::testing::MessageOf;

// Runs for a session that reads the cluster once, and for a session that follows it.
class SessionTest : public ::testing::TestWithParam<bool> {
 protected:
  SessionTest() {
    kube::NodeObject node = ledger::testing::GpuNode("n1", 2);
    node.meta.resource_version = "1";
    node.internal_ip = "10.0.0.7";
    node.allocatable[std::string(names::kResourceGpuMem)] = gpu_mem_;
    SetNode(node);
    kube::PodObject pod = ledger::testing::GpuPod("train", {{names::kResourceGpuMem, "8"}});
    pod.meta.resource_version = "2";
    server_.SetCollection("pods", "Pod", {MessageOf(pod)});
    SetQuota(R"({"ns":{"quota":{"A100":1}}})", "3");
  }
  void SetQuota(const std::string& text, const std::string& version) {
    server_.SetCollection(
        "configmaps", "ConfigMap",
        {MessageOf(kube::ConfigMapObject{
            .meta = {.name = "gpuquota", .ns = "kube-system", .resource_version = version},
            .data = {{"gpu_quota", text}}})});
  }
  void SetNode(const kube::NodeObject& node) {
    server_.SetCollection("nodes", "Node", {MessageOf(node)});
  }

  Status Open(Duration timeout = std::chrono::seconds(10)) {
    std::optional<Status> ready;
    session_ = std::make_unique<Session>(io_, runner_,
                                         SessionOptions{.config = {.server = url_},
                                                        .timeout = timeout,
                                                        .follow = GetParam(),
                                                        .pods_ns = pods_ns_,
                                                        .kept_pod = "ns/train",
                                                        .node_selector = node_selector_,
                                                        .pod_selector = pod_selector_},
                                         [&](const Status& status) { ready = status; });
    EXPECT_TRUE(runner_.RunUntil([&] { return ready.has_value(); }, std::chrono::seconds(20)));
    return ready.value_or(Status(Code::kInternal, "no answer"));
  }

  const std::string gpu_mem_ = "160";
  net::testing::TestRunner runner_;
  net::IoThread io_;
  kube::testing::FakeApiServer server_{io_, runner_};
  net::Url url_ = server_.url();
  std::string pods_ns_, node_selector_, pod_selector_;
  std::unique_ptr<Session> session_;
};

TEST_P(SessionTest, HasTheSchedulersLedger) {
  ASSERT_EQ(Open().ToString(), "OK");
  EXPECT_EQ(session_->ledger().nodes().size(), 1u);
  EXPECT_EQ(session_->ledger().FindNode("n1")->internal_ip, "10.0.0.7");
  EXPECT_EQ(session_->ledger().options().gpu_mem_unit, device::MemoryUnit::kGiB);
  EXPECT_EQ(session_->ledger().quota().config().size(), 1u);
  ASSERT_NE(session_->FindPod("ns", "train"), nullptr);
  EXPECT_EQ(session_->quota_problem().ToString(), "OK");
}

TEST_P(SessionTest, TheServerSelectsByLabels) {
  node_selector_ = "zone=a";
  pod_selector_ = "app in (x,y)";
  std::vector<std::string> targets;
  server_.OnRequest([&](const net::Request& request) { targets.push_back(request.target); });
  ASSERT_EQ(Open().ToString(), "OK");
  const auto requested = [&](const std::string& collection, const std::string& selector) {
    return std::ranges::any_of(targets, [&](const std::string& target) {
      return target.starts_with(collection) && target.find(selector) != std::string::npos;
    });
  };
  EXPECT_TRUE(requested("/api/v1/nodes?", "labelSelector=zone%3Da")) << targets[0];
  EXPECT_TRUE(requested("/api/v1/pods?", "labelSelector=app%20in%20%28x%2Cy%29"));
}

TEST_P(SessionTest, ASelectorThatTheServerRejectsIsAnError) {
  node_selector_ = "bad===";
  server_.Refuse("nodes", 400);
  const Status status = Open();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_TRUE(status.message().starts_with("-l bad===: ")) << status.message();
}

TEST_P(SessionTest, ReadsMibWhereNodesOfferMib) {
  kube::NodeObject node = ledger::testing::GpuNode("n1", 2);
  node.allocatable[std::string(names::kResourceGpuMem)] = "163840";
  SetNode(node);
  ASSERT_EQ(Open().ToString(), "OK");
  EXPECT_EQ(session_->ledger().options().gpu_mem_unit, device::MemoryUnit::kMiB);
}

TEST_P(SessionTest, WithoutPermissionForTheQuotaTheRestIsRead) {
  server_.Refuse("configmaps", 403);
  ASSERT_EQ(Open().ToString(), "OK");
  EXPECT_EQ(session_->ledger().nodes().size(), 1u);
  EXPECT_EQ(session_->quota_problem().code(), Code::kPermissionDenied);
  EXPECT_NE(session_->quota_problem().message().find("refused by the test"), std::string::npos);
}

TEST_P(SessionTest, InvalidQuotaIsAnErrorOfTheCluster) {
  SetQuota("{", "4");
  ASSERT_EQ(Open().ToString(), "OK");
  EXPECT_EQ(session_->quota_problem().code(), Code::kDataLoss);
  EXPECT_NE(session_->quota_problem().message().find("kube-system/gpuquota"), std::string::npos);
}

TEST_P(SessionTest, FailsAtOnceWithoutPermission) {
  server_.Refuse("pods", 403);
  const Status status = Open();
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_TRUE(status.message().starts_with("no permission to read all pods of the cluster"))
      << status.message();
}

TEST_P(SessionTest, NamesTheServerThatDoesNotAnswer) {
  url_.address.port = 1;
  const Status status = Open();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_TRUE(status.message().starts_with("http://127.0.0.1:1 does not answer: "))
      << status.message();
}

TEST_P(SessionTest, HttpUrlOfAnHttpsServerIsAnError) {
  server_.SetFault([](const net::Request&, const net::HttpServer::Reply& reply) {
    reply(net::TextResponse(400, "Client sent an HTTP request to an HTTPS server.\n"));
    return true;
  });
  const Status status = Open();
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.ToString();
  EXPECT_TRUE(status.message().starts_with("server: " + url_.ToString() +
                                           " of the kubeconfig must begin with https://: "))
      << status.message();
}

TEST_P(SessionTest, FailsAtItsDeadline) {
  server_.SetFault([](const net::Request&, const net::HttpServer::Reply&) { return true; });
  const Status status = Open(std::chrono::seconds(1));
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.message();
}

TEST_P(SessionTest, ErrorForAnUnknownPodListsSimilarNames) {
  ASSERT_EQ(Open().ToString(), "OK");
  EXPECT_EQ(NoSuchPod(session_->ledger(), "ns", "trian").message(),
            "there is no pod \"trian\" in namespace ns: did you mean train?");
  EXPECT_EQ(NoSuchPod(session_->ledger(), "default", "train").message(),
            "there is no pod \"train\" in namespace default, but in ns: -n ns");
}

TEST_P(SessionTest, ListsThePodsOfOneNamespaceOnly) {
  pods_ns_ = "ns";
  ASSERT_EQ(Open().ToString(), "OK");
  const std::vector<std::string> paths = server_.paths();
  EXPECT_NE(std::ranges::find(paths, "/api/v1/namespaces/ns/pods"), paths.end());
  EXPECT_EQ(std::ranges::find(paths, "/api/v1/pods"), paths.end());
}

INSTANTIATE_TEST_SUITE_P(OnceOrFollowing, SessionTest, ::testing::Bool());

class ClusterConfigTest : public ::testing::Test {
 protected:
  ClusterConfigTest() {
    char name[] = "/tmp/cli_test.XXXXXX";
    dir_ = ::mkdtemp(name);
  }
  ~ClusterConfigTest() override {
    for (const std::string& file : files_) ::unlink(file.c_str());
    ::rmdir((dir_ + "/.kube").c_str());
    ::rmdir(dir_.c_str());
  }
  // `fields`: further fields of the cluster, each after a comma; `user`: fields of the user.
  std::string Write(const std::string& name, const std::string& server,
                    const std::string& fields = "", const std::string& user = "") {
    const std::string path = dir_ + "/" + name;
    EXPECT_TRUE(MakeDirs(DirName(path)).ok());
    const std::string text = fmt::format(
        "current-context: a\nclusters: [{{name: c, cluster: {{server: \"{}\"{}}}}}]\n"
        "contexts: [{{name: a, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: "
        "{{{}}}}}]\n",
        server, fields, user);
    EXPECT_TRUE(WriteFileAtomically(path, text, 0600).ok());
    files_.push_back(path);
    return path;
  }
  Result<kube::Config> Find(const std::string& flag = "", const std::string& context = "") {
    return FindClusterConfig(flag, context, [this](const char* name) -> const char* {
      const auto found = env_.find(name);
      return found == env_.end() ? nullptr : found->second.c_str();
    });
  }
  std::string dir_;
  std::map<std::string, std::string> env_;
  std::vector<std::string> files_;
};

TEST_F(ClusterConfigTest, PrefersFlagThenVariableThenHome) {
  env_["HOME"] = dir_;
  const Status none = Find().status();
  EXPECT_EQ(none.code(), Code::kFailedPrecondition);
  EXPECT_NE(none.message().find(dir_ + "/.kube/config"), std::string::npos) << none.message();
  Write(".kube/config", "http://home:1");
  EXPECT_EQ(Find()->server.address.host, "home");
  env_["KUBECONFIG"] = dir_ + "/missing:" + Write("two", "http://two:1");
  EXPECT_EQ(Find()->server.address.host, "two");
  EXPECT_EQ(Find(Write("three", "http://three:1"))->server.address.host, "three");
  EXPECT_FALSE(Find("", "no-such-context").ok());
}

TEST_F(ClusterConfigTest, AMissingKubeconfigIsAConfigurationErrorThatNamesItOnce) {
  const std::string remedy = ": no such file: give --kubeconfig FILE, or set $KUBECONFIG";
  std::vector<Status> errors = {Find("/nowhere/at/all").status()};
  env_["KUBECONFIG"] = "/nowhere/at/all";
  errors.push_back(Find().status());
  for (const Status& error : errors) {
    EXPECT_EQ(InfoOf(error.code()).exit_code, 78);
    EXPECT_TRUE(error.message().ends_with("/nowhere/at/all" + remedy)) << error.message();
    EXPECT_EQ(error.message().find("nowhere"), error.message().rfind("nowhere")) << error.message();
  }
}

TEST_F(ClusterConfigTest, AnErrorNamesItsFileOnce) {
  const std::string path = Write("config", "http://a", ", insecure-skip-tls-verify: tru");
  const std::string message = Find(path).status().message();
  EXPECT_TRUE(message.starts_with(path)) << message;
  EXPECT_EQ(message.rfind(path), 0u) << message;
}

TEST_F(ClusterConfigTest, UnusableCertificatesAreErrors) {
  const auto expect = [&](const std::string& fields, const std::string& user,
                          const std::string& message) {
    const std::string path = Write("config", "https://a", fields, user);
    const Status status = Find(path).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.ToString();
    EXPECT_TRUE(status.message().starts_with(path + ": " + message)) << status.message();
    env_["KUBECONFIG"] = path;
    EXPECT_TRUE(Find().status().message().starts_with("$KUBECONFIG: " + message))
        << Find().status().message();
  };
  expect(", certificate-authority-data: AAAA", "",
         "certificate-authority-data: TLS: CA bundle inline holds no PEM certificate");
  expect(", certificate-authority: /nowhere/ca.crt", "", "certificate-authority: TLS: /nowhere/");
  expect(", insecure-skip-tls-verify: true", "client-certificate-data: AAAA, client-key-data: AAAA",
         "client-certificate-data: TLS: certificate inline: ");
  // The certificate is unused for an http URL.
  EXPECT_TRUE(Find(Write("http", "http://a", ", certificate-authority-data: AAAA")).ok());
}

}  // namespace
}  // namespace tessera::cli
