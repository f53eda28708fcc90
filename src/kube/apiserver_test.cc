// SPDX-License-Identifier: Apache-2.0
// Against a real API server: TESSERA_TEST_KUBECONFIG names a kubeconfig of a cluster that may be
// written to, such as `testcluster up` prints. Makes Node and ConfigMap objects of its own and
// removes them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>

#include "src/kube/watch.h"
#include "src/net/testing/loopback.h"

namespace tessera::kube {
namespace {


class ApiServerTest : public testing::Test, public Watch::Delegate {
 protected:
  void SetUp() override {
    const char* path = std::getenv("TESSERA_TEST_KUBECONFIG");
    if (path == nullptr) GTEST_SKIP() << "TESSERA_TEST_KUBECONFIG is not set";
    auto config = LoadKubeconfig(path);
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    client_ = std::make_unique<Client>(io_, runner_, *std::move(config), ClientOptions{});
    name_ = fmt::format("tessera-test-{}", ::getpid());
  }
  void TearDown() override {
    if (!client_) return;
    for (const ObjectRef& object : made_) {
      (void)Wait([&](auto f) { return client_->Delete(object, {}, f); });
    }
  }
  Result<Json> Wait(const std::function<Operation(Client::OnObject)>& start) {
    std::optional<Result<Json>> answer;
    const Operation operation = start([&](Result<Json> r) { answer = std::move(r); });
    EXPECT_TRUE(runner_.RunUntil([&] { return answer.has_value(); }, std::chrono::minutes(1)));
    return answer ? *answer : Result<Json>(Error(Code::kUnknown, "no answer"));
  }
  Result<Json> Make(const ObjectRef& object, const std::string& text) {
    made_.push_back(object);
    ObjectRef collection = object;
    collection.name.clear();
    return Wait([&](auto f) { return client_->Create(collection, ParseJson(text).value(), f); });
  }
  std::string NodeText() const {
    return fmt::format(R"({{"apiVersion":"v1","kind":"Node","metadata":{{"name":"{}"}}}})", name_);
  }
  Result<Json> Patch(PatchKind kind, const std::string& text, PatchOptions options = {}) {
    return Wait([&](auto f) {
      return client_->Patch(Node(name_), kind, ParseJson(text).value(), options, f);
    });
  }
  std::string LabelA() {
    const auto node = Wait([&](auto f) { return client_->Get(Node(name_), f); });
    const Json* labels = node.ok() ? node->Find("metadata")->Find("labels") : nullptr;
    return labels == nullptr ? "" : labels->StringAt("nvidia.com/a").value_or("");
  }

  void OnListBegin() override { ++lists_; }
  void OnListEnd() override { listed_ = true; }
  void OnObject(const Json& object) override { Note(object, false); }
  void OnDeleted(const Json& object) override { Note(object, true); }
  void OnTrouble(const Status& status, Duration) override { trouble_ = status; }
  void Note(const Json& object, bool deleted) {
    if (object.Find("metadata")->StringAt("name").value_or("") != name_) return;
    deleted_ = deleted;
    const Json* data = object.Find("data");
    seen_ = data == nullptr ? "" : data->StringAt("k").value_or("");
  }

  net::testing::TestRunner runner_;
  net::IoThread io_;
  std::unique_ptr<Client> client_;
  std::string name_;
  std::vector<ObjectRef> made_;
  int lists_ = 0;
  bool listed_ = false;
  bool deleted_ = false;
  std::string seen_;
  Status trouble_;
};

TEST_F(ApiServerTest, EveryKindOfPatchWritesALabel) {
  ASSERT_TRUE(Make(Node(name_), NodeText()).ok());
  EXPECT_EQ(Make(Node(name_), NodeText()).status().code(), Code::kAlreadyExists);
  EXPECT_TRUE(Patch(PatchKind::kMerge, R"({"metadata":{"labels":{"nvidia.com/a":"1"}}})").ok());
  EXPECT_EQ(LabelA(), "1");
  EXPECT_TRUE(
      Patch(PatchKind::kStrategicMerge, R"({"metadata":{"labels":{"nvidia.com/a":"2"}}})").ok());
  EXPECT_EQ(LabelA(), "2");
  EXPECT_TRUE(
      Patch(PatchKind::kJson,
            R"([{"op":"replace","path":"/metadata/labels/nvidia.com~1a","value":"3"}])").ok());
  EXPECT_EQ(LabelA(), "3");
  const std::string apply = fmt::format(
      R"({{"apiVersion":"v1","kind":"Node","metadata":{{"name":"{}","labels":{{"nvidia.com/a":"4"}}}}}})",
      name_);
  EXPECT_EQ(Patch(PatchKind::kApply, apply, {.field_manager = "m"}).status().code(),
            Code::kAborted);
  EXPECT_TRUE(Patch(PatchKind::kApply, apply, {.field_manager = "m", .force = true}).ok());
  EXPECT_EQ(LabelA(), "4");
  EXPECT_EQ(Patch(PatchKind::kMerge, R"({"metadata":{"labels":{"a b":"1"}}})").status().code(),
            Code::kInvalidArgument);
}

TEST_F(ApiServerTest, AMissingObjectIsNotFound) {
  const auto node = Wait([&](auto f) { return client_->Get(Node("no-such-node"), f); });
  EXPECT_EQ(node.status().code(), Code::kNotFound);
}

TEST_F(ApiServerTest, AnOldVersionConflicts) {
  ASSERT_TRUE(Make(Node(name_), NodeText()).ok());
  const std::string old = R"({"metadata":{"resourceVersion":"1","labels":{"nvidia.com/a":"1"}}})";
  EXPECT_EQ(Patch(PatchKind::kMerge, old).status().code(), Code::kAborted);
}

TEST_F(ApiServerTest, AWatchSeesChangesAndDeletion) {
  const ObjectRef map{kConfigMaps, name_, "default", ""};
  Watch watch(*client_, {.type = kConfigMaps, .ns = "default", .limit = 1}, *this, {});
  ASSERT_TRUE(runner_.RunUntil([&] { return listed_; })) << trouble_.ToString();
  const auto text = fmt::format(
      R"({{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{}"}},"data":{{"k":"1"}}}})",
      name_);
  ASSERT_TRUE(Make(map, text).ok());
  EXPECT_TRUE(runner_.RunUntil([&] { return seen_ == "1"; }));
  const Json patch = ParseJson(R"({"data":{"k":"2"}})").value();
  ASSERT_TRUE(
      Wait([&](auto f) { return client_->Patch(map, PatchKind::kMerge, patch, {}, f); }).ok());
  EXPECT_TRUE(runner_.RunUntil([&] { return seen_ == "2"; }));
  ASSERT_TRUE(Wait([&](auto f) { return client_->Delete(map, {}, f); }).ok());
  EXPECT_TRUE(runner_.RunUntil([&] { return deleted_; }));
  EXPECT_EQ(lists_, 1);
}

}  // namespace
}  // namespace tessera::kube
