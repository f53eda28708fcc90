// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/formats/json.h"

namespace tessera::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::string_view kPod =
    R"({"metadata":{"name":"a","namespace":"ns","uid":"u1"},"spec":{"containers":[{"name":"main",)"
    R"("resources":{"limits":{"nvidia.com/gpu":"2"}}}]}})";

std::string Body(std::string_view rest) {
  return "{\"Pod\":" + std::string(kPod) + "," + std::string(rest) + "}";
}

TEST(WireTest, ReadsNamesInAnyCaseOfKeys) {
  for (const char* key : {"NodeNames", "nodeNames", "nodenames", "NODENAMES"}) {
    ExtenderArgs args;
    const std::string body = Body("\"Nodes\":null,\"" + std::string(key) + "\":[\"n1\",\"n2\"]");
    ASSERT_TRUE(ParseExtenderArgs(body, &args).ok());
    EXPECT_THAT(args.node_names, ElementsAre("n1", "n2"));
    EXPECT_FALSE(args.has_nodes);
    EXPECT_EQ(args.pod.meta.uid, Uid("u1"));
    EXPECT_EQ(args.pod.containers.at(0).limits.at("nvidia.com/gpu"), "2");
  }
}

TEST(WireTest, AnObjectIsReusedForTheNextRequest) {
  const auto body = [](std::string_view uid, std::string_view more, std::string_view rest) {
    return fmt::format(R"({{"Pod":{{"metadata":{{"name":"a","uid":"{}"{}}}}},{}}})", uid, more,
                       rest);
  };
  ExtenderArgs args;
  const std::string first = body("u1", R"(,"annotations":{"tessera.dev/policy":"spread"})",
                                 R"("Nodes":{"items":[{"metadata":{"name":"n\u0039"}}]})");
  ASSERT_TRUE(ParseExtenderArgs(first, &args).ok());
  EXPECT_TRUE(args.has_nodes);
  EXPECT_THAT(args.node_names, ElementsAre("n9"));
  EXPECT_THAT(args.pod.meta.annotations, ::testing::SizeIs(1));
  const std::string second = body("u2", "", R"("NodeNames":["n1"])");
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(ParseExtenderArgs(second, &args).ok());
    EXPECT_EQ(args.pod.meta.uid, Uid("u2"));
    EXPECT_THAT(args.pod.meta.annotations, IsEmpty());
    EXPECT_THAT(args.node_names, ElementsAre("n1"));
    EXPECT_THAT(args.quoted_names, ElementsAre("\"n1\""));
    EXPECT_THAT(args.node_texts, IsEmpty());
    EXPECT_FALSE(args.has_nodes);
  }
  // An invalid pod is not reused.
  EXPECT_FALSE(
      ParseExtenderArgs(R"({"Pod":{"metadata":{"name":"b"}},"NodeNames":[]})", &args).ok());
  ASSERT_TRUE(ParseExtenderArgs(second, &args).ok());
  EXPECT_EQ(args.pod.meta.uid, Uid("u2"));
}

TEST(WireTest, NamesAreReturnedUnchanged) {
  ExtenderArgs args;
  const std::string body = Body(R"("NodeNames":["a","b", "c","d\u0031","e","f"])");
  ASSERT_TRUE(ParseExtenderArgs(body, &args).ok());
  FilterResult result;
  result.fitting = {0, 1, 2, 3, 5};
  EXPECT_THAT(Serialize(args, result), HasSubstr(R"("NodeNames":["a","b","c","d\u0031","f"],)"));
}

TEST(WireTest, PassesWholeNodesThrough) {
  const std::string node1 = R"({"kind":"Node","metadata":{"labels":{"name":"x"},"name":"n1"}})";
  const std::string node2 = R"({"metadata":{"name":"n\u0032"},"spec":{"a":[1,{}]}})";
  ExtenderArgs args;
  const std::string body = Body("\"NodeNames\":null,\"Nodes\":{\"metadata\":{},\"items\":[" +
                                node1 + "," + node2 + "]}");
  ASSERT_TRUE(ParseExtenderArgs(body, &args).ok());
  EXPECT_THAT(args.node_names, ElementsAre("n1", "n2"));
  FilterResult result;
  result.fitting = {1};
  result.failed = {{0, "no \"room\""}};
  const Result<Json> answer = ParseJson(Serialize(args, result));
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ(answer->Find("Nodes")->Find("items")->items().at(0), *ParseJson(node2));
  EXPECT_EQ(answer->Find("NodeNames")->Serialize(), R"(["n2"])");
  EXPECT_EQ(answer->Find("FailedNodes")->Serialize(), R"({"n1":"no \"room\""})");
}

TEST(WireTest, AnswersWithCapitalizedKeysAndOnlyNames) {
  ExtenderArgs args;
  const std::string body = Body(R"("NodeNames":["n1","n2","n3"])");
  ASSERT_TRUE(ParseExtenderArgs(body, &args).ok());
  FilterResult result;
  result.fitting = {2};
  result.failed = {{0, "busy"}};
  result.unresolvable = {{1, "no GPU"}};
  EXPECT_EQ(Serialize(args, result),
            R"({"Nodes":null,"NodeNames":["n3"],"FailedNodes":{"n1":"busy"},)"
            R"("FailedAndUnresolvableNodes":{"n2":"no GPU"},"Error":""})");
  EXPECT_EQ(SerializePriorities(args, {0, 10, 3}),
            R"([{"Host":"n1","Score":0},{"Host":"n2","Score":10},{"Host":"n3","Score":3}])");
}

TEST(WireTest, DistinguishesKeysOfEqualLength) {
  ExtenderArgs args;
  const std::string body = Body(R"("NodeNamez":["no"],"Nodez":7,"NodeNames":["n1"])");
  ASSERT_TRUE(ParseExtenderArgs(body, &args).ok());
  EXPECT_THAT(args.node_names, ElementsAre("n1"));
}

TEST(WireTest, NodeNamesTakePrecedenceOverNodes) {
  const std::string names = R"("NodeNames":["n1"])";
  const std::string nodes = R"("Nodes":{"items":[{"metadata":{"name":"n2"}}]})";
  for (const std::string& body : {Body(names + "," + nodes), Body(nodes + "," + names)}) {
    ExtenderArgs args;
    ASSERT_TRUE(ParseExtenderArgs(body, &args).ok());
    EXPECT_THAT(args.node_names, ElementsAre("n1"));
    EXPECT_THAT(args.node_texts, IsEmpty());
    EXPECT_FALSE(args.has_nodes);
  }
}

TEST(WireTest, AListOfNodesWithoutItemsIsEmpty) {
  for (const char* list : {R"({})", R"({"items":null})", R"({"items":[]})"}) {
    ExtenderArgs args;
    ASSERT_TRUE(ParseExtenderArgs(Body("\"Nodes\":" + std::string(list)), &args).ok()) << list;
    EXPECT_TRUE(args.has_nodes);
    EXPECT_EQ(ParseJson(Serialize(args, {}))->Find("Nodes")->Serialize(),
              R"({"metadata":{},"items":[]})");
  }
}

TEST(WireTest, RejectsMoreNodesThanKubernetesCanHave) {
  const auto list = [](std::string_view item, size_t count) {
    std::string text = "[";
    for (size_t i = 0; i < count; ++i) text.append(i == 0 ? "" : ",").append(item);
    return text + "]";
  };
  ExtenderArgs args;
  const std::string names = Body("\"NodeNames\":" + list("\"n\"", kMaxNodes));
  EXPECT_TRUE(ParseExtenderArgs(names, &args).ok());
  EXPECT_EQ(args.node_names.size(), kMaxNodes);
  const std::string node = R"({"metadata":{"name":"n"}})";
  const std::string nodes = Body("\"Nodes\":{\"items\":" + list(node, kMaxNodes) + "}");
  EXPECT_TRUE(ParseExtenderArgs(nodes, &args).ok());
  for (const std::string& body :
       {Body("\"NodeNames\":" + list("\"n\"", kMaxNodes + 1)),
        Body("\"Nodes\":{\"items\":" + list(node, kMaxNodes + 1) + "}")}) {
    EXPECT_THAT(ParseExtenderArgs(body, &args).message(), HasSubstr("more than 50000 nodes"));
  }
}

TEST(WireTest, ALongPodIsDecodedForEveryRequest) {
  const auto body = [](const std::string& uid) {
    return fmt::format(R"({{"Pod":{{"metadata":{{"uid":"{}","labels":{{"a":"{}"}}}}}}}})", uid,
                       std::string(300 << 10, 'x'));
  };
  ExtenderArgs args;
  ASSERT_TRUE(ParseExtenderArgs(body("u1"), &args).ok());
  EXPECT_TRUE(args.pod_text.empty());
  ASSERT_TRUE(ParseExtenderArgs(body("u2"), &args).ok());
  EXPECT_EQ(args.pod.meta.uid, Uid("u2"));
}

TEST(WireTest, NamesThePositionOfANodeWithoutAName) {
  ExtenderArgs args;
  const Status status = ParseExtenderArgs(
      Body(R"("Nodes":{"items":[{"metadata":{"name":"n1"}},{"metadata":{}}]})"), &args);
  EXPECT_THAT(status.message(), HasSubstr("Nodes.items[1]: metadata.name is missing"));
}

TEST(WireTest, EachReasonGoesToItsNodes) {
  ExtenderArgs args;
  const std::string body = Body(R"("NodeNames":["n1","n2","n3","n4"])");
  ASSERT_TRUE(ParseExtenderArgs(body, &args).ok());
  // Adjacent and overlapping reasons.
  alignas(64) static constexpr char kText[] = "busyfull";
  const std::string_view whole = kText, begin = whole.substr(0, 4), end = whole.substr(4);
  FilterResult result;
  result.failed = {{0, begin}, {1, end}, {2, whole}, {3, begin}};
  EXPECT_THAT(Serialize(args, result),
              HasSubstr(R"("FailedNodes":{"n1":"busy","n2":"full","n3":"busyfull","n4":"busy"})"));
}

// kube-scheduler interprets null as no answer and an empty list as no node.
TEST(WireTest, NoFittingNodeIsAnEmptyList) {
  ExtenderArgs args;
  ASSERT_TRUE(ParseExtenderArgs(Body(R"("NodeNames":[])"), &args).ok());
  EXPECT_THAT(Serialize(args, {}), HasSubstr(R"("NodeNames":[],)"));
}

TEST(WireTest, RejectsUnreadableRequests) {
  for (const std::string& body :
       {std::string(), std::string("[]"), std::string("{}"), std::string(R"({"Pod":null})"),
        std::string(R"({"Pod":{"metadata":{"name":"a"}}})"), Body("\"NodeNames\":\"n1\""),
        Body("\"NodeNames\":[1]"), Body("\"Nodes\":{\"items\":[{\"metadata\":{}}]}"),
        Body("\"Nodes\":{\"items\":[7]}"), Body("\"NodeNames\":[\"n1\"") + "x",
        std::string(200'000, '{'), std::string(R"({"Pod":{"metadata":[]},"NodeNames":[]})")}) {
    ExtenderArgs args;
    EXPECT_FALSE(ParseExtenderArgs(body, &args).ok()) << body.substr(0, 80);
  }
}

TEST(WireTest, ReadsBindings) {
  const auto args = ParseBindingArgs(
      R"({"PodName":"a","podnamespace":"ns","PodUID":"u1","Node":"n1","More":{}})");
  ASSERT_TRUE(args.ok());
  EXPECT_EQ(args->pod, "a");
  EXPECT_EQ(args->ns, "ns");
  EXPECT_EQ(args->uid, Uid("u1"));
  EXPECT_EQ(args->node, "n1");
  const auto missing = ParseBindingArgs(R"({"PodName":"a","PodNamespace":"ns","Node":"n1"})");
  EXPECT_THAT(missing.status().message(), HasSubstr("PodUID"));
  EXPECT_EQ(SerializeBindingResult(""), R"({"Error":""})");
}

TEST(WireTest, ReadsVictimsInBothForms) {
  const std::string expected =
      R"({"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":"v1"},{"UID":"v2"}],"NumPDBViolations":1},)"
      R"("n2":{"Pods":[],"NumPDBViolations":0}}})";
  for (
      const char* text :
      {R"("NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":"v1"},{"UID":"v2"}],"NumPDBViolations":1},)"
       R"("n2":{"Pods":null,"NumPDBViolations":0}})",
       R"("NodeNameToMetaVictims":null,"NodeNameToVictims":{"n1":{"Pods":[{"metadata":{"name":"x",)"
       R"("uid":"v1"},"spec":{"UID":"no"}},{"metadata":{"uid":"v2"}}],"NumPDBViolations":1},)"
       R"("n2":null})"}) {
    const auto args = ParsePreemptionArgs(Body(text));
    ASSERT_TRUE(args.ok()) << args.status().ToString();
    EXPECT_EQ(SerializeVictims(args->victims), expected);
  }
}

TEST(WireTest, ReadsOnlyTheUidsOfVictims) {
  const auto args = ParsePreemptionArgs(
      Body(R"("NodeNameToVictims":{"n1":{"Podz":[{"UID":"no"}],"Pods":[{"spec":{"uid":"no"},)"
           R"("metadata":{"name":"no","uid":"v1","labels":{"uid":"no"}}}]}})"));
  ASSERT_TRUE(args.ok()) << args.status().ToString();
  EXPECT_EQ(args->pod.meta.uid, Uid("u1"));
  EXPECT_THAT(args->victims.at("n1").uids, ElementsAre(Uid("v1")));
  EXPECT_FALSE(ParsePreemptionArgs(R"({"NodeNameToVictims":{}})").ok());
}

}  // namespace
}  // namespace tessera::scheduler
