// SPDX-License-Identifier: Apache-2.0
// Tests against a real API server (testing/real_api_server.h). Creates Node and ConfigMap objects
// and removes them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <optional>

#include "src/kube/binding.h"
#include "src/kube/events.h"
#include "src/kube/informer.h"
#include "src/kube/leader_election.h"
#include "src/kube/metadata_object.h"
#include "src/kube/objects.h"
#include "src/kube/testing/real_api_server.h"
#include "src/kube/type_catalog.h"
#include "src/kube/watch.h"

namespace tessera::kube {
namespace {

class ApiServerTest : public testing::RealApiServerTest, public Watch::Delegate {
 protected:
  void SetUp() override {
    RealApiServerTest::SetUp();
    name_ = fmt::format("tessera-test-{}", ::getpid());
  }
  void TearDown() override {
    if (!client_) return;
    for (const ObjectRef& object : created_) {
      (void)Wait([&](auto on_done) { return client_->Delete(object, {}, on_done); });
    }
  }
  Result<Json> CreateObject(const ObjectRef& object, const std::string& text) {
    created_.push_back(object);
    ObjectRef collection = object;
    collection.name.clear();
    return Wait([&](auto on_done) {
      return client_->Create(collection, ParseJson(text).value(), on_done);
    });
  }
  std::string NodeText() const {
    return fmt::format(R"({{"apiVersion":"v1","kind":"Node","metadata":{{"name":"{}"}}}})", name_);
  }
  Result<Json> Patch(PatchKind kind, const std::string& text, PatchOptions options = {}) {
    return Wait([&](auto on_done) {
      return client_->Patch(Node(name_), kind, ParseJson(text).value(), options, on_done);
    });
  }
  std::string LabelA() {
    const auto node = Wait([&](auto on_done) { return client_->Get(Node(name_), on_done); });
    const Json* labels = node.ok() ? node->Find("metadata")->Find("labels") : nullptr;
    return labels == nullptr ? "" : labels->StringAt("nvidia.com/a").value_or("");
  }

  void OnListBegin() override { ++lists_; }
  void OnListEnd() override { listed_ = true; }
  void OnObject(const RawObject& object) override { Note(object, false); }
  void OnDeleted(const RawObject& object) override { Note(object, true); }
  void OnError(const Status& status, Duration) override { error_ = status; }
  void Note(const RawObject& raw, bool deleted) {
    const auto object = Decode<ConfigMapObject>(raw).value();
    if (object.meta.name != name_) return;
    deleted_ = deleted;
    last_value_ = object.data.contains("k") ? object.data.at("k") : "";
  }

  std::string name_;
  std::vector<ObjectRef> created_;
  int lists_ = 0;
  bool listed_ = false;
  bool deleted_ = false;
  std::string last_value_;
  Status error_;
};

TEST_F(ApiServerTest, EveryKindOfPatchWritesALabel) {
  ASSERT_TRUE(CreateObject(Node(name_), NodeText()).ok());
  EXPECT_EQ(CreateObject(Node(name_), NodeText()).status().code(), Code::kAlreadyExists);
  EXPECT_TRUE(Patch(PatchKind::kMerge, R"({"metadata":{"labels":{"nvidia.com/a":"1"}}})").ok());
  EXPECT_EQ(LabelA(), "1");
  EXPECT_TRUE(
      Patch(PatchKind::kStrategicMerge, R"({"metadata":{"labels":{"nvidia.com/a":"2"}}})").ok());
  EXPECT_EQ(LabelA(), "2");
  EXPECT_TRUE(Patch(PatchKind::kJson,
                    R"([{"op":"replace","path":"/metadata/labels/nvidia.com~1a","value":"3"}])")
                  .ok());
  EXPECT_EQ(LabelA(), "3");
  const std::string apply =
      fmt::format(R"({{"apiVersion":"v1","kind":"Node","metadata":{{"name":"{}",)"
                  R"("labels":{{"nvidia.com/a":"4"}}}}}})",
                  name_);
  EXPECT_EQ(Patch(PatchKind::kApply, apply, {.field_manager = "m"}).status().code(),
            Code::kAborted);
  EXPECT_TRUE(Patch(PatchKind::kApply, apply, {.field_manager = "m", .force = true}).ok());
  EXPECT_EQ(LabelA(), "4");
  EXPECT_EQ(Patch(PatchKind::kMerge, R"({"metadata":{"labels":{"a b":"1"}}})").status().code(),
            Code::kInvalidArgument);
}

TEST_F(ApiServerTest, AMissingObjectIsNotFound) {
  const auto node = Wait([&](auto on_done) { return client_->Get(Node("no-such-node"), on_done); });
  EXPECT_EQ(node.status().code(), Code::kNotFound);
}

TEST_F(ApiServerTest, AnOldVersionConflicts) {
  ASSERT_TRUE(CreateObject(Node(name_), NodeText()).ok());
  const std::string old = R"({"metadata":{"resourceVersion":"1","labels":{"nvidia.com/a":"1"}}})";
  EXPECT_EQ(Patch(PatchKind::kMerge, old).status().code(), Code::kAborted);
}

TEST_F(ApiServerTest, ApplyNamesTheOtherManagerAndForceTakesOver) {
  const ObjectRef map{kConfigMaps, name_, "default", ""};
  created_.push_back(map);
  const auto apply = [&](const std::string& value, const PatchOptions& options) {
    const auto text = fmt::format(R"({{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":)"
                                  R"("{}","namespace":"default"}},"data":{{"k":"{}"}}}})",
                                  name_, value);
    const Json object = ParseJson(text).value();
    return Wait(
        [&](auto on_done) { return client_->Apply(kConfigMaps, object, options, on_done); });
  };
  const auto version = [](const Result<Json>& object) {
    return object.value().Find("metadata")->StringAt("resourceVersion").value();
  };
  const auto first = apply("1", {.field_manager = "one"});
  EXPECT_EQ(version(apply("1", {.field_manager = "one"})), version(first));
  const Status conflict = apply("2", {.field_manager = "two"}).status();
  EXPECT_EQ(conflict.code(), Code::kAborted);
  EXPECT_NE(conflict.message().find("\"one\" manages .data.k"), std::string::npos)
      << conflict.message();
  const PatchOptions dry{.field_manager = "two", .force = true, .dry_run = true};
  EXPECT_EQ(apply("2", dry).value().Find("data")->StringAt("k").value(), "2");
  EXPECT_EQ(version(apply("1", {.field_manager = "one"})), version(first));
  EXPECT_TRUE(apply("2", {.field_manager = "two", .force = true}).ok());
  EXPECT_EQ(apply("1", {.field_manager = "one"}).status().code(), Code::kAborted);
}

class MetadataCopy : public Informer<MetadataObject>::Handler {
 public:
  void OnAdded(const MetadataObject&) override {}
  void OnChanged(const MetadataObject&, const MetadataObject&) override {}
  void OnRemoved(const MetadataObject&) override {}
  void OnSynced() override {}
  void OnError(const Status& status, Duration) override { error = status; }
  Status error;
};

TEST_F(ApiServerTest, MetadataShowsAnotherManagersChangeOfAppliedFields) {
  MetadataCopy handler;
  const KeptFields kept{.manager = "one"};
  Informer<MetadataObject> maps(
      *client_, {.type = kConfigMaps, .ns = "default", .label_selector = "test=" + name_}, kept,
      handler);
  const ObjectRef map{kConfigMaps, name_, "default", ""};
  created_.push_back(map);
  Json object = ParseJson(fmt::format(
                              R"({{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{0}",
      "namespace":"default","labels":{{"test":"{0}"}},"finalizers":["example.com/f"]}},
      "data":{{"k":"1"}}}})",
                              name_))
                    .value();
  const OwnerReference owner{.api_version = "v1",
                             .kind = "Node",
                             .name = "n",
                             .uid = Uid("00000000-0000-4000-8000-000000000000")};
  SetOwner(&object, owner);
  const auto applied = Wait([&](auto on_done) {
    return client_->Apply(kConfigMaps, object, {.field_manager = "one"}, on_done);
  });
  MetadataObject answer;
  ASSERT_TRUE(DecodeObject(RawObject(applied.value()), kept, &answer).ok());
  const auto digest = [&] {
    const MetadataObject* now = maps.Find("default/" + name_);
    return now == nullptr ? 0 : now->applied_fields;
  };
  ASSERT_TRUE(runner_.RunUntil([&] { return digest() != 0; })) << handler.error.ToString();
  EXPECT_EQ(digest(), answer.applied_fields);
  EXPECT_EQ(maps.Find("default/" + name_)->finalizers, answer.finalizers);
  EXPECT_EQ(maps.Find("default/" + name_)->owners, std::vector{owner});
  EXPECT_EQ(answer.owners, std::vector{owner});
  const auto patch = [&](const Json& change) {
    const auto done = Wait(
        [&](auto on_done) { return client_->Patch(map, PatchKind::kMerge, change, {}, on_done); });
    EXPECT_TRUE(done.ok()) << done.status().ToString();
    const std::string version = done.value().Find("metadata")->StringAt("resourceVersion").value();
    EXPECT_TRUE(runner_.RunUntil(
        [&] { return maps.Find("default/" + name_)->meta.resource_version == version; }));
  };
  patch(ParseJson(R"({"data":{"other":"x"}})").value());
  EXPECT_EQ(digest(), answer.applied_fields);
  patch(ParseJson(R"({"data":{"k":"3"}})").value());
  EXPECT_NE(digest(), answer.applied_fields);
  ASSERT_TRUE(Wait([&](auto on_done) { return client_->Delete(map, {}, on_done); }).ok());
  ASSERT_TRUE(runner_.RunUntil([&] { return maps.Find("default/" + name_)->meta.deleting; }));
  const std::string now = maps.Find("default/" + name_)->meta.resource_version;
  const auto cleared = Wait([&](auto on_done) {
    return client_->Patch(map, PatchKind::kMerge, FinalizersPatch({}, now), {}, on_done);
  });
  EXPECT_TRUE(cleared.ok()) << cleared.status().ToString();
  EXPECT_TRUE(runner_.RunUntil([&] { return maps.size() == 0; }));
}

TEST_F(ApiServerTest, AppliesATypeThatOnlyDiscoveryKnows) {
  TypeCatalog types(*client_);
  const auto find = [&](const std::string& version, const std::string& kind) {
    std::optional<Result<ResourceType>> type;
    const Operation operation = types.Find(version, kind, [&](auto t) { type = t; });
    EXPECT_TRUE(runner_.RunUntil([&] { return type.has_value(); }));
    return *type;
  };
  EXPECT_EQ(find("apps/v1", "NoSuchKind").status().code(), Code::kNotFound);
  EXPECT_EQ(find("no-such.example.com/v1", "Thing").status().code(), Code::kNotFound);
  EXPECT_EQ(CollectionPath(find("v1", "Node").value(), ""), "/api/v1/nodes");
  const ResourceType definitions =
      find("apiextensions.k8s.io/v1", "CustomResourceDefinition").value();
  const std::string group = name_ + ".example.com";
  const ObjectRef definition{definitions, "things." + group, "", ""};
  created_.push_back(definition);
  const Json crd =
      ParseJson(fmt::format(
                    R"({{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
      "metadata":{{"name":"things.{0}"}},"spec":{{"group":"{0}","scope":"Namespaced",
      "names":{{"plural":"things","singular":"thing","kind":"Thing"}},"versions":[{{"name":"v1",
      "served":true,"storage":true,"subresources":{{"status":{{}}}},"schema":{{"openAPIV3Schema":
      {{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}}]}}}})",
                    group))
          .value();
  ASSERT_TRUE(Wait([&](auto on_done) {
                return client_->Apply(definitions, crd, {.field_manager = "m"}, on_done);
              }).ok());
  // The catalog has seen that the group is missing, and queries the server again.
  std::optional<Result<ResourceType>> type;
  ASSERT_TRUE(runner_.RunUntil([&] {
    type = find(group + "/v1", "Thing");
    return type->ok();
  })) << type->status().ToString();
  const auto apply = [&](const std::string& rest, const std::string& subresource) {
    const Json thing = ParseJson(fmt::format(R"({{"apiVersion":"{}/v1","kind":"Thing","metadata":)"
                                             R"({{"name":"t","namespace":"default"}},{}}})",
                                             group, rest))
                           .value();
    return Wait([&](auto on_done) {
      return client_->Apply(type->value(), thing, {.field_manager = "m"}, on_done, subresource);
    });
  };
  ASSERT_TRUE(apply(R"("spec":{"a":1})", "").ok());
  ASSERT_TRUE(apply(R"("status":{"b":2})", "status").ok());
  MetadataCopy handler;
  Informer<MetadataObject> things(*client_, {.type = type->value(), .ns = "default"}, {}, handler);
  EXPECT_TRUE(runner_.RunUntil([&] { return things.Find("default/t") != nullptr; }))
      << handler.error.ToString();
  const ObjectRef ref{type->value(), "t", "default", ""};
  const auto read = Wait([&](auto on_done) { return client_->Get(ref, on_done); });
  EXPECT_EQ(read.value().Find("spec")->IntAt("a").value(), 1);
  EXPECT_EQ(read.value().Find("status")->IntAt("b").value(), 2);
  const DeleteOptions stale{.uid = Uid("00000000-0000-4000-8000-000000000000")};
  EXPECT_EQ(
      Wait([&](auto on_done) { return client_->Delete(ref, stale, on_done); }).status().code(),
      Code::kAborted);
  const DeleteOptions background{.propagation = kBackgroundDeletion};
  EXPECT_TRUE(Wait([&](auto on_done) { return client_->Delete(ref, background, on_done); }).ok());
}

constexpr char kPodText[] = R"({{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{0}",
  "labels":{{"a":"b"}},"annotations":{{"c":"d\u00e9"}}}},"spec":{{
  "schedulingGates":[{{"name":"example.com/gate"}}],
  "nodeSelector":{{"disk":"ssd"}},
  "tolerations":[{{"key":"team","operator":"Equal","value":"ml","effect":"NoSchedule"}},
                 {{"operator":"Exists"}}],
  "affinity":{{"nodeAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":
    {{"nodeSelectorTerms":[
      {{"matchExpressions":[{{"key":"zone","operator":"In","values":["a","b"]}}],
       "matchFields":[{{"key":"metadata.name","operator":"In","values":["n1"]}}]}},
      {{"matchExpressions":[{{"key":"gpus","operator":"Gt","values":["4"]}}]}}]}}}}}},
  "initContainers":[{{"name":"i","image":"x"}},
                    {{"name":"s","image":"x","restartPolicy":"Always"}}],
  "containers":[{{"name":"m","image":"x","resources":{{"limits":
                  {{"nvidia.com/gpu":"1","cpu":"1500m","memory":"1Gi"}}}}}}]}}}})";

template <typename T>
std::map<std::string, T> ByNameAndVersion(const std::vector<T>& objects) {
  std::map<std::string, T> out;
  for (const T& object : objects) {
    const ObjectMeta& meta = object.meta;
    out[fmt::format("{}/{}@{}", meta.ns, meta.name, meta.resource_version)] = object;
  }
  return out;
}

TEST_F(ApiServerTest, BothEncodingsDecodeToEqualObjects) {
  ASSERT_TRUE(CreateObject({kPods, name_, "default", ""}, fmt::format(kPodText, name_)).ok());
  ASSERT_TRUE(CreateObject(Node(name_), NodeText()).ok());
  const auto expect_equal_objects = [&]<typename T>(T) {
    std::map<std::string, T> both[2];
    for (const Encoding encoding : {Encoding::kJson, Encoding::kProtobuf}) {
      std::vector<T> objects;
      std::optional<Status> done;
      const ListQuery query{.type = T::kType, .limit = 0, .encoding = encoding};
      const Operation operation = client_->List(query, [&](const Result<ListPage>& page) {
        done = page.status();
        for (size_t i = 0; page.ok() && i < page->items.size(); ++i) {
          EXPECT_EQ(page->items[i].json() != nullptr, encoding == Encoding::kJson);
          objects.push_back(Decode<T>(page->items[i], {.constraints = true}).value());
        }
      });
      EXPECT_TRUE(runner_.RunUntil([&] { return done.has_value(); }));
      EXPECT_TRUE(done && done->ok()) << done->ToString();
      both[static_cast<int>(encoding)] = ByNameAndVersion(objects);
    }
    int compared = 0;
    for (const auto& [key, object] : both[0]) {
      if (!both[1].contains(key)) continue;  // the object has changed in the meantime
      EXPECT_TRUE(object == both[1][key]) << key;
      ++compared;
    }
    EXPECT_GT(compared, 0) << T::kType.plural;
  };
  expect_equal_objects(PodObject());
  expect_equal_objects(NodeObject());
  expect_equal_objects(ConfigMapObject());
  expect_equal_objects(LeaseObject());
}

TEST_F(ApiServerTest, ABindingSetsNodeAndAnnotationsInOneStep) {
  const std::string text =
      fmt::format(R"({{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{}"}},"spec":{{)"
                  R"("schedulerName":"no-scheduler","containers":[{{"name":"m","image":"x"}}]}}}})",
                  name_);
  const ObjectRef pod = Pod("default", name_);
  const auto made = CreateObject(pod, text);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  ASSERT_TRUE(CreateObject(Node(name_), NodeText()).ok());
  const auto bind = [&](const Uid& uid) {
    std::optional<Status> done;
    const Operation operation = BindPod(*client_, {"default", name_, uid, name_, {{"a/b", "c"}}},
                                        [&](const Status& s) { done = s; });
    EXPECT_TRUE(runner_.RunUntil([&] { return done.has_value(); }));
    return *done;
  };
  EXPECT_EQ(bind(Uid("00000000-0000-4000-8000-000000000000")).code(), Code::kAborted);
  const Uid uid(made->Find("metadata")->StringAt("uid").value());
  EXPECT_TRUE(bind(uid).ok());
  const auto bound = Wait([&](auto on_done) { return client_->Get(pod, on_done); });
  const auto object = Decode<PodObject>(RawObject(bound.value())).value();
  EXPECT_EQ(object.node_name, name_);
  EXPECT_EQ(object.meta.annotations.at("a/b"), "c");
  EXPECT_EQ(bind(uid).code(), Code::kAborted);
}

TEST_F(ApiServerTest, ARepeatedEventIncreasesTheCount) {
  ASSERT_TRUE(CreateObject(Node(name_), NodeText()).ok());
  Status error;
  EventRecorder recorder(*client_, {.component = "tessera-test", .instance = "i"},
                         [&](const Status& s) { error = s; });
  int64_t count = 0;
  const ListQuery query{.type = kEvents,
                        .ns = "default",
                        // The node controller records Events about new nodes, too.
                        .field_selector = "reason=Tested,involvedObject.name=" + name_};
  for (int i = 0; i < 2; ++i) {
    recorder.Record({.kind = "Node", .name = name_}, EventKind::kNormal, "Tested", "words");
    runner_.RunFor(std::chrono::milliseconds(500));
  }
  // A busy server may need longer for the second request.
  for (int i = 0; i < 60 && count < 2; ++i) {
    bool listed = false;
    const Operation operation = client_->List(query, [&](const Result<ListPage>& page) {
      listed = true;
      ASSERT_TRUE(page.ok() && page->items.size() <= 1) << error.ToString();
      if (!page->items.empty()) count = page->items[0].json()->IntAt("count").value_or(0);
    });
    ASSERT_TRUE(runner_.RunUntil([&] { return listed; }));
    if (count < 2) runner_.RunFor(std::chrono::milliseconds(500));
  }
  EXPECT_EQ(count, 2) << error.ToString();
}

class Candidate : public LeaderElector::Delegate {
 public:
  Candidate(TaskRunner& runner, Client& client, const std::string& lease, const std::string& name)
      : lease_(client, "default", lease),
        elector(runner, lease_,
                {.identity = name,
                 .lease_duration = std::chrono::seconds(4),
                 .renew_deadline = std::chrono::seconds(3),
                 .retry_period = std::chrono::milliseconds(300)},
                *this) {}
  void OnStartedLeading() override { leads = true; }
  void OnStoppedLeading(const Status&) override { leads = false; }
  void OnLeader(const std::string& identity) override { leader = identity; }
  void OnError(const Status& status) override { error = status; }

 private:
  KubeLease lease_;

 public:
  LeaderElector elector;
  bool leads = false;
  std::string leader;
  Status error;
};

TEST_F(ApiServerTest, TheSecondReplicaLeadsAfterARelease) {
  // A replica that stands still with its machine for longer than the renewal deadline loses its
  // lease. Then other replicas try with another lease.
  for (int attempt = 1; attempt <= 3; ++attempt) {
    const std::string lease = fmt::format("{}-{}", name_, attempt);
    created_.push_back({kLeases, lease, "default", ""});
    Candidate a(runner_, *client_, lease, "a");
    ASSERT_TRUE(runner_.RunUntil([&] { return a.leads; })) << a.error.ToString();
    Candidate b(runner_, *client_, lease, "b");
    runner_.RunFor(std::chrono::seconds(6));  // longer than the lease duration
    if (!a.leads && attempt < 3) continue;
    EXPECT_TRUE(a.leads);
    EXPECT_FALSE(b.leads);
    EXPECT_EQ(b.leader, "a");
    EXPECT_TRUE(a.error.ok()) << a.error.ToString();
    bool released = false;
    a.elector.Release([&] { released = true; });
    EXPECT_FALSE(a.leads);
    EXPECT_TRUE(runner_.RunUntil([&] { return released && b.leads; }));
    return;
  }
}

// Each test runs with an initial list and with an initial stream, in JSON and in protobuf.
class ApiServerWatchTest : public ApiServerTest,
                           public ::testing::WithParamInterface<std::pair<bool, Encoding>> {};

INSTANTIATE_TEST_SUITE_P(
    Ways, ApiServerWatchTest,
    ::testing::Values(std::pair(false, Encoding::kJson), std::pair(true, Encoding::kJson),
                      std::pair(false, Encoding::kProtobuf), std::pair(true, Encoding::kProtobuf)),
    [](const auto& info) {
      const bool is_json = info.param.second == Encoding::kJson;
      return std::string(info.param.first ? "Stream" : "List") + (is_json ? "Json" : "Protobuf");
    });

TEST_P(ApiServerWatchTest, SeesChangesAndDeletion) {
  const auto [stream_initial, encoding] = GetParam();
  const ObjectRef map{kConfigMaps, name_, "default", ""};
  Watch watch(*client_, {.type = kConfigMaps, .ns = "default", .limit = 1, .encoding = encoding},
              *this, {.stream_initial = stream_initial});
  ASSERT_TRUE(runner_.RunUntil([&] { return listed_; })) << error_.ToString();
  const auto text = fmt::format(
      R"({{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{}"}},"data":{{"k":"1"}}}})",
      name_);
  ASSERT_TRUE(CreateObject(map, text).ok());
  EXPECT_TRUE(runner_.RunUntil([&] { return last_value_ == "1"; }));
  const Json patch = ParseJson(R"({"data":{"k":"2"}})").value();
  ASSERT_TRUE(Wait([&](auto on_done) {
                return client_->Patch(map, PatchKind::kMerge, patch, {}, on_done);
              }).ok());
  EXPECT_TRUE(runner_.RunUntil([&] { return last_value_ == "2"; }));
  ASSERT_TRUE(Wait([&](auto on_done) { return client_->Delete(map, {}, on_done); }).ok());
  EXPECT_TRUE(runner_.RunUntil([&] { return deleted_; }));
  EXPECT_EQ(lists_, 1);
  EXPECT_TRUE(error_.ok()) << error_.ToString();
}

}  // namespace
}  // namespace tessera::kube
