// SPDX-License-Identifier: Apache-2.0
#include "src/kube/metadata_object.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/kube/informer.h"
#include "src/kube/testing/fake_api_server.h"
#include "src/net/testing/loopback.h"

namespace tessera::kube {
namespace {

constexpr ResourceType kThings{"example.com", "v1", "things", true};
constexpr char kThingPath[] = "/apis/example.com/v1/namespaces/ns/things/t";

Json Thing(const std::string& labels, const std::string& spec) {
  return ParseJson(fmt::format(R"({{"apiVersion":"example.com/v1","kind":"Thing","metadata":{{)"
                               R"("name":"t","namespace":"ns","labels":{}}},"spec":{}}})",
                               labels, spec))
      .value();
}

template <typename T>
class Recorder : public Informer<T>::Handler {
 public:
  void OnAdded(const T& now) override { log.push_back("added " + now.meta.name); }
  void OnChanged(const T&, const T& now) override { log.push_back("changed " + now.meta.name); }
  void OnRemoved(const T& last) override { log.push_back("removed " + last.meta.name); }
  void OnSynced() override { log.emplace_back("synced"); }
  void OnError(const Status& status, Duration) override { log.push_back(status.ToString()); }
  std::vector<std::string> log;
};

class MetadataObjectTest : public ::testing::Test {
 protected:
  net::testing::TestRunner runner_;
  net::IoThread io_;
  testing::FakeApiServer server_{io_, runner_};
  Client client_{io_, runner_, server_.config(), {.max_attempts = 1}};
};

TEST_F(MetadataObjectTest, AnInformerFollowsATypeKnownAtRunTime) {
  server_.Put(kThingPath, Thing(R"({"a":"b"})", "{}"));
  server_.Put("/apis/example.com/v1/namespaces/other/things/t", Thing(R"({"a":"b"})", "{}"));
  Recorder<JsonObject> recorder;
  const Informer<JsonObject> things(client_, {.type = kThings, .ns = "ns", .label_selector = "a=b"},
                                    {}, recorder);
  ASSERT_TRUE(runner_.RunUntil([&] { return things.synced(); }));
  server_.Put(kThingPath, Thing(R"({"a":"b"})", R"({"x":1})"));
  ASSERT_TRUE(runner_.RunUntil([&] { return recorder.log.size() == 3; }));
  EXPECT_EQ(things.Find("ns/t")->value.Find("spec")->IntAt("x").value(), 1);
  server_.Remove(kThingPath);
  ASSERT_TRUE(runner_.RunUntil([&] { return recorder.log.size() == 4; }));
  EXPECT_EQ(recorder.log,
            (std::vector<std::string>{"added t", "synced", "changed t", "removed t"}));
}

TEST_F(MetadataObjectTest, DigestCoversOnlyTheAppliedFieldsOfTheManager) {
  const auto digest = [](const char* managed) {
    const std::string text =
        fmt::format(R"({{"metadata":{{"name":"t","managedFields":[{}]}}}})", managed);
    MetadataObject object;
    EXPECT_TRUE(DecodeObject(RawObject(ParseJson(text).value()), {.manager = "m"}, &object).ok());
    return object.applied_fields;
  };
  const uint64_t one =
      digest(R"({"manager":"m","operation":"Apply","fieldsV1":{"f:a":{}},"time":"t1"})");
  EXPECT_NE(one, 0u);
  EXPECT_EQ(digest(R"({"manager":"m","operation":"Apply","fieldsV1":{"f:a":{}},"time":"t2"},
                      {"manager":"x","operation":"Update","fieldsV1":{"f:b":{}}})"),
            one);
  EXPECT_NE(digest(R"({"manager":"m","operation":"Apply","fieldsV1":{"f:b":{}}})"), one);
  EXPECT_EQ(digest(R"({"manager":"m","operation":"Update","fieldsV1":{"f:a":{}}})"), 0u);
  EXPECT_EQ(digest(R"({"manager":"m","operation":"Apply","subresource":"status",
                       "fieldsV1":{"f:a":{}}})"),
            0u);
}

TEST_F(MetadataObjectTest, AnOwnerIsSetOnce) {
  Json object = Thing("{}", "{}");
  OwnerReference owner{.api_version = "v1", .kind = "Node", .name = "n", .uid = Uid("u")};
  SetOwner(&object, owner);
  owner.controller = true;
  SetOwner(&object, owner);
  MetadataObject read;
  ASSERT_TRUE(DecodeObject(RawObject(object), {}, &read).ok());
  EXPECT_EQ(read.owners, std::vector{owner});
}

TEST_F(MetadataObjectTest, FinalizersAreSetOnlyIfTheObjectIsUnchanged) {
  EXPECT_EQ(FinalizersPatch({"a/b"}, "7").Serialize(),
            R"({"metadata":{"resourceVersion":"7","finalizers":["a/b"]}})");
}

}  // namespace
}  // namespace tessera::kube
