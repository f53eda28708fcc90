// SPDX-License-Identifier: Apache-2.0
// Tests against a real API server that is restarted after a compaction. TESSERA_TEST_KUBECONFIG:
// see testing/real_api_server.h. TESSERA_TEST_RESTART is a shell command that creates a new version
// in etcd, compacts all older versions, restarts the server, and returns when the server is back.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <optional>
#include <thread>

#include "src/base/subprocess.h"
#include "src/kube/informer.h"
#include "src/net/testing/loopback.h"

namespace tessera::kube {
namespace {

class ErrorRecorder : public Informer<ConfigMapObject>::Handler {
 public:
  void OnAdded(const ConfigMapObject&) override {}
  void OnChanged(const ConfigMapObject&, const ConfigMapObject&) override {}
  void OnRemoved(const ConfigMapObject&) override { ++removed; }
  void OnSynced() override {}
  void OnError(const Status& status, Duration) override { error += status.ToString() + "\n"; }
  int removed = 0;
  std::string error;
};

TEST(ApiServerRestartTest, TheInformerFollowsAcrossRestarts) {
  const char* path = std::getenv("TESSERA_TEST_KUBECONFIG");
  const char* restart = std::getenv("TESSERA_TEST_RESTART");
  if (path == nullptr || restart == nullptr) {
    GTEST_SKIP() << "TESSERA_TEST_KUBECONFIG or TESSERA_TEST_RESTART is not set";
  }
  net::testing::TestRunner runner;
  net::IoThread io;
  Client client(io, runner, LoadKubeconfig(path).value(), ClientOptions{});
  const std::string name = fmt::format("tessera-restart-{}", ::getpid());
  const ObjectRef map{kConfigMaps, name, "default", ""};
  ErrorRecorder log;
  Informer<ConfigMapObject> maps(client, {.ns = "default"}, {}, log);
  const auto apply = [&](int value) {
    const Json body = ParseJson(fmt::format(R"({{"apiVersion":"v1","kind":"ConfigMap",)"
                                            R"("metadata":{{"name":"{}"}},"data":{{"k":"{}"}}}})",
                                            name, value))
                          .value();
    std::optional<Status> done;
    const Operation operation =
        client.Patch(map, PatchKind::kApply, body, {.field_manager = "test", .force = true},
                     [&](const Result<Json>& answer) { done = answer.status(); });
    EXPECT_TRUE(runner.RunUntil([&] { return done.has_value(); }, std::chrono::seconds(70)));
    EXPECT_TRUE(done && done->ok()) << (done ? done->ToString() : "");
  };
  const auto seen = [&](int value) {
    const ConfigMapObject* object = maps.Find("default/" + name);
    return object != nullptr && object->data.at("k") == std::to_string(value);
  };
  for (int restart_number = 0; restart_number < 2; ++restart_number) {
    apply(2 * restart_number);
    ASSERT_TRUE(runner.RunUntil([&] { return seen(2 * restart_number); })) << log.error;
    std::atomic<bool> restarted{false};
    std::thread killer([&] {
      const auto ended = RunProgram({"sh", "-c", restart}, std::chrono::minutes(2));
      EXPECT_TRUE(ended.ok() && ended->exit_code == 0) << (ended.ok() ? ended->err : "");
      restarted = true;
    });
    EXPECT_TRUE(runner.RunUntil([&] { return restarted.load(); }, std::chrono::minutes(2)));
    killer.join();
    // One write: the client waits for the server.
    apply(2 * restart_number + 1);
    EXPECT_TRUE(
        runner.RunUntil([&] { return seen(2 * restart_number + 1); }, std::chrono::seconds(60)))
        << log.error;
  }
  EXPECT_EQ(log.removed, 0);
  // The watched versions were compacted.
  EXPECT_NE(log.error.find("OUT_OF_RANGE"), std::string::npos) << log.error;
  std::optional<Status> gone;
  const Operation operation =
      client.Delete(map, {}, [&](const Result<Json>& answer) { gone = answer.status(); });
  EXPECT_TRUE(runner.RunUntil([&] { return gone && log.removed == 1; })) << log.error;
}

}  // namespace
}  // namespace tessera::kube
