// SPDX-License-Identifier: Apache-2.0
#include "src/kube/informer.h"

#include <gtest/gtest.h>

#include <map>

#include "src/kube/testing/fake_api_server.h"
#include "src/kube/testing/faulty_api_server.h"
#include "src/kube/testing/samples.h"

namespace tessera::kube {
namespace {

using std::chrono::milliseconds;
using testing::FaultyApiServer;

// Divides all waits by forty, so that thousands of faults fit into seconds.
class HastyRunner : public net::testing::TestRunner {
 public:
  static constexpr int kHaste = 40;
  void Post(Task task) override { TestRunner::PostDelayed(Duration::zero(), std::move(task)); }
  void PostDelayed(Duration delay, Task task) override {
    TestRunner::PostDelayed(delay / kHaste, std::move(task));
  }
  const Clock& clock() const override { return hasty_; }

 private:
  struct HastyClock : public SystemClock {
    MonotonicTime Now() const override { return begin + (SystemClock::Now() - begin) * kHaste; }
    MonotonicTime begin = SystemClock().Now();
  };
  HastyClock hasty_;
};

// Compares the callbacks with the informer's store.
class Mirror : public Informer<PodObject>::Handler {
 public:
  void OnAdded(const PodObject& now) override {
    EXPECT_TRUE(objects.emplace(KeyOf(now.meta), now).second) << now.meta.name;
  }
  void OnChanged(const PodObject& before, const PodObject& now) override {
    EXPECT_EQ(objects[KeyOf(now.meta)], before);
    objects[KeyOf(now.meta)] = now;
  }
  void OnRemoved(const PodObject& last) override {
    EXPECT_EQ(objects[KeyOf(last.meta)], last);
    objects.erase(KeyOf(last.meta));
    if (on_removed) on_removed();
  }
  void OnSynced() override { ++synced; }
  void OnError(const Status& status, Duration) override { error += status.ToString() + "\n"; }

  std::map<std::string, PodObject> objects;
  std::function<void()> on_removed;
  int synced = 0;
  std::string error;
};

class InformerTest : public ::testing::Test {
 protected:
  // For tests with faults, in real time: short enough to detect a stall soon, long enough for a
  // response under load.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static constexpr milliseconds kPatience{3000};
#else
  static constexpr milliseconds kPatience{1000};
#endif

  void Start(uint64_t seed, bool stream_initial = true) {
    server_ = std::make_unique<FaultyApiServer>(seed);
    // Connections use real time, and the client's queue uses the runner's.
    client_ = std::make_unique<Client>(
        io_, runner_, Config{.server = server_->url()},
        ClientOptions{.max_attempts = 2, .deadline = patience_ * HastyRunner::kHaste});
    stream_initial_ = stream_initial;
  }
  void Follow() {
    informer_ = std::make_unique<Informer<PodObject>>(
        *client_, ListQuery{.limit = 7}, KeptFields{}, mirror_,
        Watch::Options{
            .stall_timeout = patience_, .max_event = 64 << 10, .stream_initial = stream_initial_});
  }
  bool WaitUntilEqual() {
    const bool equal = runner_.RunUntil([&] { return mirror_.objects == server_->Objects(); },
                                        std::chrono::seconds(60));
    EXPECT_TRUE(equal) << mirror_.error;
    EXPECT_EQ(informer_->size(), mirror_.objects.size());
    informer_->ForEach(
        [&](const PodObject& pod) { EXPECT_EQ(mirror_.objects[KeyOf(pod.meta)], pod); });
    return equal;
  }

  HastyRunner runner_;
  net::IoThread io_;
  Mirror mirror_;
  Duration patience_ = std::chrono::seconds(20);  // without faults
  bool stream_initial_ = true;
  std::unique_ptr<FaultyApiServer> server_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Informer<PodObject>> informer_;
};

TEST_F(InformerTest, FollowsAddedChangedAndRemovedObjects) {
  Start(1);
  PodObject pod{.meta = {.name = "a", .ns = "n", .uid = Uid("1")}};
  server_->Put(pod);
  Follow();
  ASSERT_TRUE(runner_.RunUntil([&] { return mirror_.synced == 1; })) << mirror_.error;
  EXPECT_TRUE(informer_->synced());
  ASSERT_NE(informer_->Find("n/a"), nullptr);
  pod.node_name = "node";
  server_->Put(pod);
  WaitUntilEqual();
  EXPECT_EQ(informer_->Find("n/a")->node_name, "node");
  server_->Remove("n/a");
  WaitUntilEqual();
  EXPECT_EQ(informer_->Find("n/a"), nullptr);
  EXPECT_EQ(mirror_.error, "");
}

TEST_F(InformerTest, AnObjectWithAnotherUidReplacesTheObjectOfTheSameName) {
  Start(1);
  PodObject pod{.meta = {.name = "a", .ns = "n", .uid = Uid("1")}};
  server_->Put(pod);
  Follow();
  WaitUntilEqual();
  int removed = 0;
  mirror_.on_removed = [&] { ++removed; };
  pod.meta.uid = Uid("2");
  server_->Put(pod);
  WaitUntilEqual();
  EXPECT_EQ(removed, 1);
}

// Pods without a node are kept as outlines.
class OutlineMirror : public Mirror {
 public:
  void OnOutline(const PodObject& now) override { names[now.meta.uid] = KeyOf(now.meta); }
  void OnOutlineRemoved(const Uid& uid) override {
    EXPECT_EQ(std::erase_if(names, [&](const auto& name) { return name.first == uid; }), 1u);
  }
  std::map<Uid, std::string> names;  // names of outlines
};

TEST_F(InformerTest, OutlinesAreReportedAndNotStored) {
  Start(1);
  PodObject pod{.meta = {.name = "a", .ns = "n", .uid = Uid("1")}};
  server_->Put(pod);
  server_->Put({.meta = {.name = "no-namespace", .uid = Uid("7")}});
  OutlineMirror mirror;
  Informer<PodObject> informer(*client_, ListQuery{.limit = 7}, KeptFields{}, mirror,
                               Watch::Options{},
                               [](const PodObject& object) { return object.node_name.empty(); });
  using Outlines = std::map<Uid, std::string>;
  const auto until = [&](const Outlines& expected) {
    return runner_.RunUntil([&] { return mirror.names == expected; });
  };
  EXPECT_TRUE(until({{Uid("1"), "n/a"}, {Uid("7"), "no-namespace"}}));
  EXPECT_EQ(informer.Find("n/a"), nullptr);
  EXPECT_EQ(informer.size(), 2u);
  server_->Remove("n/a");
  pod.meta.uid = Uid("2");  // another pod
  server_->Put(pod);
  EXPECT_TRUE(until({{Uid("2"), "n/a"}, {Uid("7"), "no-namespace"}}));
  server_->Remove("no-namespace");
  EXPECT_TRUE(until({{Uid("2"), "n/a"}}));
  pod.node_name = "node";  // no longer an outline
  server_->Put(pod);
  EXPECT_TRUE(runner_.RunUntil([&] { return mirror.objects.contains("n/a"); }));
  EXPECT_TRUE(mirror.names.empty());
  ASSERT_NE(informer.Find("n/a"), nullptr);
  pod.node_name.clear();
  server_->Put(pod);
  EXPECT_TRUE(until({{Uid("2"), "n/a"}}));
  EXPECT_TRUE(mirror.objects.empty());
  EXPECT_EQ(mirror.error, "");
}

TEST_F(InformerTest, OutlinesMissingFromAListAreRemoved) {
  testing::FakeApiServer server(io_, runner_);
  const auto set = [&](const std::vector<std::string>& uids) {
    std::vector<std::string> messages;
    for (const std::string& uid : uids) {
      messages.push_back(
          testing::MessageOf(PodObject{.meta = {.name = "p" + uid, .uid = Uid(uid)}}));
    }
    server.SetCollection("pods", "Pod", std::move(messages));
  };
  set({"1", "2"});
  Client client(io_, runner_, Config{.server = server.url()}, ClientOptions{});
  OutlineMirror mirror;
  const Informer<PodObject> informer(client, ListQuery{}, KeptFields{}, mirror, Watch::Options{},
                                     [](const PodObject&) { return true; });
  const auto until = [&](const std::map<Uid, std::string>& expected) {
    return runner_.RunUntil([&] { return mirror.names == expected; });
  };
  EXPECT_TRUE(until({{Uid("1"), "p1"}, {Uid("2"), "p2"}}));
  set({"2", "3"});
  server.Refuse("pods", 410);  // its version is too old
  server.EndWatches();
  EXPECT_TRUE(
      runner_.RunUntil([&] { return mirror.error.find("OUT_OF_RANGE") != std::string::npos; }));
  server.Allow("pods");
  EXPECT_TRUE(until({{Uid("2"), "p2"}, {Uid("3"), "p3"}}));
  EXPECT_EQ(informer.size(), 2u);
}

TEST_F(InformerTest, AHandlerMayDestroyTheInformer) {
  Start(1);
  server_->Put({.meta = {.name = "a", .uid = Uid("1")}});
  server_->Put({.meta = {.name = "b", .uid = Uid("2")}});
  Follow();
  WaitUntilEqual();
  mirror_.on_removed = [&] { informer_.reset(); };
  server_->Remove("a");
  ASSERT_TRUE(runner_.RunUntil([&] { return informer_ == nullptr; }));
  runner_.RunFor(milliseconds(20));
}

// Makes random changes under all faults. Afterwards the store equals the server's objects, and so
// does the sum of all callbacks.
class FaultsTest : public InformerTest, public ::testing::WithParamInterface<int> {};

TEST_P(FaultsTest, TheStoreEqualsTheServersObjectsAfterAllFaults) {
  patience_ = kPatience;
  Start(static_cast<uint64_t>(GetParam()), GetParam() % 2 == 0);
  Random random(static_cast<uint64_t>(GetParam()));
  server_->SetFaults(15);
  for (int i = 0; i < 40; ++i) server_->Put(testing::SamplePod(random, i));
  Follow();
  const auto faults = [&] {
    int sum = 0;
    for (const auto& [kind, count] : server_->counts()) sum += count;
    return sum;
  };
  const auto change = [&] {
    PodObject pod = testing::SamplePod(random, static_cast<int>(random.Below(60)));
    if (random.Below(3) == 0) {
      server_->Remove(KeyOf(pod.meta));
    } else {
      server_->Put(std::move(pod));
    }
  };
  for (int i = 0; i < 150; ++i) {
    change();
    runner_.RunFor(milliseconds(random.Below(12)));
  }
  // The number of faults for each change depends on the machine's speed. Changes are made one at a
  // time, because thousands of late changes would take too long to send byte by byte.
  for (int i = 0; i < 1000 && faults() < 6; ++i) {
    change();
    runner_.RunUntil([&] { return mirror_.objects == server_->Objects(); }, milliseconds(500));
  }
  server_->SetFaults(0);
  WaitUntilEqual();
  // Events alone may make the store equal before a list is complete.
  runner_.RunUntil([&] { return mirror_.synced >= 1; }, std::chrono::seconds(10));
  EXPECT_GE(mirror_.synced, 1);
  EXPECT_FALSE(mirror_.objects.contains("x/never-whole"));
  EXPECT_GT(faults(), 5);
}

INSTANTIATE_TEST_SUITE_P(Seeds, FaultsTest, ::testing::Range(1, 9));

}  // namespace
}  // namespace tessera::kube
