// SPDX-License-Identifier: Apache-2.0
#include "src/kube/objects.h"

#include <gtest/gtest.h>

#include "src/kube/testing/samples.h"
#include "src/kube/testing/wire_writer.h"

namespace tessera::kube {
namespace {

using testing::WireWriter;

template <typename T, typename Make>
void ExpectBothEncodingsGive(const Make& make) {
  Random random(7);
  for (int i = 0; i < 500; ++i) {
    const T object = make(random, i);
    const RawObject json(ParseJson(testing::JsonOf(object)).value());
    const std::string message = testing::MessageOf(object);
    const auto from_json = Decode<T>(json);
    const auto from_message = Decode<T>(RawObject(message));
    ASSERT_TRUE(from_json.ok()) << from_json.status().ToString();
    ASSERT_TRUE(from_message.ok()) << from_message.status().ToString();
    ASSERT_EQ(*from_json, object) << testing::JsonOf(object);
    ASSERT_EQ(*from_message, object) << testing::JsonOf(object);
    ASSERT_EQ(json.ResourceVersion(), object.meta.resource_version);
    ASSERT_EQ(RawObject(message).ResourceVersion(), object.meta.resource_version);
  }
}

TEST(ObjectsTest, BothEncodingsGiveEqualObjects) {
  ExpectBothEncodingsGive<PodObject>(testing::SamplePod);
  ExpectBothEncodingsGive<NodeObject>(testing::SampleNode);
  ExpectBothEncodingsGive<ConfigMapObject>(testing::SampleConfigMap);
  ExpectBothEncodingsGive<LeaseObject>(testing::SampleLease);
  ExpectBothEncodingsGive<PodDisruptionBudgetObject>(testing::SampleBudget);
}

TEST(ObjectsTest, KeepsContainerStatesOnRequest) {
  PodObject pod{.containers = {{.name = "prepare", .kind = ContainerKind::kInit},
                               {.name = "main"},
                               {.name = "not-started"}},
                .container_ids = {{"prepare", "containerd://aa"}, {"main", "containerd://bb"}},
                .ended_containers = {"prepare"}};
  const std::string message = testing::MessageOf(pod);
  const std::string json = testing::JsonOf(pod);
  const KeptFields keeps_status{.container_status = true};
  for (const RawObject& object : {RawObject(message), RawObject(ParseJson(json).value())}) {
    const auto complete = Decode<PodObject>(object, keeps_status);
    EXPECT_EQ(complete->container_ids, pod.container_ids);
    EXPECT_EQ(complete->ended_containers, pod.ended_containers);
    const auto plain = Decode<PodObject>(object);
    EXPECT_TRUE(plain->container_ids.empty());
    EXPECT_TRUE(plain->ended_containers.empty());
  }
}

// The protobuf field numbers of the constraints are checked against a real API server in
// apiserver_test.cc.
TEST(ObjectsTest, KeepsConstraintsOnRequest) {
  PodObject pod{.constraints = {.selector = {{"disk", "ssd"}}}};
  const RawObject object(ParseJson(R"({"spec":{"nodeSelector":{"disk":"ssd"}}})").value());
  EXPECT_EQ(Decode<PodObject>(object, {.constraints = true}).value(), pod);
  EXPECT_EQ(Decode<PodObject>(object).value(), PodObject());
}

TEST(ObjectsTest, KeepsTheRunSummaryOnRequest) {
  const std::string json = R"({"metadata":{"name":"p"},"status":{"phase":"Running",
      "initContainerStatuses":[{"name":"a","restartCount":1,
          "state":{"terminated":{"exitCode":0,"reason":"Completed"}}}],
      "containerStatuses":[
          {"name":"b","restartCount":0,"state":{"waiting":{"reason":"ContainerCreating"}}},
          {"name":"c","restartCount":4,"state":{"waiting":{"reason":"CrashLoopBackOff"}}},
          {"name":"d","restartCount":0,"state":{"terminated":{"exitCode":1,"reason":"Error"}}}]}})";
  const auto status = [](const char* name, uint64_t restarts, int state, const WireWriter& why) {
    return WireWriter()
        .Bytes(1, name)
        .Bytes(2, WireWriter().Bytes(state, why.text()).text())
        .Varint(5, restarts)
        .text();
  };
  const std::string message =
      WireWriter()
          .Bytes(1, WireWriter().Bytes(1, "p").text())
          .Bytes(3,
                 WireWriter()
                     .Bytes(1, "Running")
                     .Bytes(10, status("a", 1, 3, WireWriter().Varint(1, 0).Bytes(3, "Completed")))
                     .Bytes(8, status("b", 0, 1, WireWriter().Bytes(1, "ContainerCreating")))
                     .Bytes(8, status("c", 4, 1, WireWriter().Bytes(1, "CrashLoopBackOff")))
                     .Bytes(8, status("d", 0, 3, WireWriter().Varint(1, 1).Bytes(3, "Error")))
                     .text())
          .text();
  for (const RawObject& object : {RawObject(message), RawObject(ParseJson(json).value())}) {
    const auto pod = Decode<PodObject>(object, {.run_summary = true});
    ASSERT_TRUE(pod.ok()) << pod.status().ToString();
    EXPECT_EQ(pod->run_summary.restarts, 5);
    EXPECT_EQ(pod->run_summary.reason, "CrashLoopBackOff");
    EXPECT_TRUE(pod->container_ids.empty());
    EXPECT_EQ(Decode<PodObject>(object)->run_summary, PodRunSummary{});
  }
  const auto end_reason = [](int exit_code) {
    const auto pod = Decode<PodObject>(
        RawObject(ParseJson(fmt::format(R"({{"status":{{"containerStatuses":[{{"state":
            {{"terminated":{{"exitCode":{},"reason":"OOMKilled"}}}}}}]}}}})",
                                        exit_code))
                      .value()),
        {.run_summary = true});
    return pod->run_summary.reason;
  };
  const char* many = R"({"status":{"containerStatuses":[{"restartCount":2147483647},
      {"restartCount":2147483647},{"restartCount":-5}]}})";
  const auto restarted =
      Decode<PodObject>(RawObject(ParseJson(many).value()), {.run_summary = true});
  EXPECT_EQ(restarted->run_summary.restarts, 2147483647);
  EXPECT_EQ(end_reason(137), "OOMKilled (exit code 137)");
  EXPECT_EQ(end_reason(0), "");
}

TEST(ObjectsTest, DistinguishesFailedSchedulingAttempts) {
  const auto decode = [](const char* status, const char* reason, const char* text) {
    const std::string json = fmt::format(
        R"({{"status":{{"nominatedNodeName":"n1","conditions":[{{"type":"Ready","status":"False",)"
        R"("reason":"Unschedulable"}},{{"type":"PodScheduled","status":"{}","reason":"{}",)"
        R"("message":"{}"}}]}}}})",
        status, reason, text);
    const std::string condition = WireWriter()
                                      .Bytes(1, "PodScheduled")
                                      .Bytes(2, status)
                                      .Bytes(5, reason)
                                      .Bytes(6, text)
                                      .text();
    const std::string pod_status = WireWriter().Bytes(2, condition).Bytes(11, "n1").text();
    const std::string message = WireWriter().Bytes(3, pod_status).text();
    const PodObject pod = Decode<PodObject>(RawObject(ParseJson(json).value())).value();
    EXPECT_EQ(pod, Decode<PodObject>(RawObject(message)).value());
    EXPECT_EQ(pod.nominated_node, "n1");
    return pod.failed_attempt_hash;
  };
  const uint64_t one = decode("False", "Unschedulable", "0/3 nodes are available");
  EXPECT_NE(one, 0u);
  EXPECT_EQ(one, decode("False", "Unschedulable", "0/3 nodes are available"));
  EXPECT_NE(one, decode("False", "Unschedulable", "0/4 nodes are available"));
  EXPECT_NE(one, decode("False", "SchedulerError", "0/3 nodes are available"));
  EXPECT_EQ(decode("False", "SchedulingGated", "it waits for its gates"), 0u);
  EXPECT_EQ(decode("True", "", ""), 0u);
}

TEST(ObjectsTest, KeepsOnlyRequestedFields) {
  const KeptFields kept{
      .label = [](std::string_view) { return false; },
      .annotation = [](std::string_view key) { return key == "tessera.dev/a1"; },
      .resource = [](std::string_view key) { return key.starts_with("nvidia.com/"); }};
  PodObject pod{
      .meta = {.labels = {{"a", "b"}}, .annotations = {{"tessera.dev/a1", "x"}, {"other", "y"}}},
      .containers = {
          {.limits = {{"cpu", "1"}, {"nvidia.com/gpu", "2"}}, .requests = {{"cpu", "1"}}}}};
  const std::string message = testing::MessageOf(pod);
  const std::string json = testing::JsonOf(pod);
  pod.meta.labels.clear();
  pod.meta.annotations.erase("other");
  pod.containers[0].limits.erase("cpu");
  pod.containers[0].requests.clear();
  EXPECT_EQ(Decode<PodObject>(RawObject(message), kept).value(), pod);
  EXPECT_EQ(Decode<PodObject>(RawObject(ParseJson(json).value()), kept).value(), pod);
}

// Truncation or a changed byte gives an error or another object, never an out-of-bounds read.
TEST(ObjectsTest, DamagedProtobufIsAnErrorOrAnotherObject) {
  Random random(3);
  int invalid = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string message = testing::MessageOf(testing::SamplePod(random, i));
    if (i % 2 == 0) {
      message.resize(random.Below(message.size()));
    } else {
      message[random.Below(message.size())] = static_cast<char>(random.Next());
    }
    message.shrink_to_fit();
    invalid += Decode<PodObject>(RawObject(message)).ok() ? 0 : 1;
  }
  EXPECT_GT(invalid, 1000);
}

TEST(ObjectsTest, ErrorsNameTheObjectAndTheField) {
  const auto error_of = [](const char* text) {
    return Decode<PodObject>(RawObject(ParseJson(text).value())).status().message();
  };
  EXPECT_EQ(
      error_of(R"({"metadata":{"namespace":"a","name":"b"},"spec":{"nodeName":7}})").substr(0, 14),
      "pods a/b: spec");
  EXPECT_NE(error_of(R"({"spec":[]})").find("spec"), std::string::npos);
  EXPECT_NE(error_of(R"({"metadata":{"labels":{"x":[]}}})").find("labels.x"), std::string::npos);
  EXPECT_NE(error_of(R"({"metadata":{"creationTimestamp":"soon"}})").find("soon"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"spec":{"containers":[7]}})").find("containers"), std::string::npos);
}

TEST(ObjectsTest, NullFieldsAreTreatedAsMissing) {
  const char* text = R"({"metadata":{"labels":null,"creationTimestamp":null},"spec":null})";
  EXPECT_EQ(Decode<PodObject>(RawObject(ParseJson(text).value())).value(), PodObject{});
}

TEST(RawObjectTest, OpensTheEnvelope) {
  const std::string bytes = testing::Enveloped("Pod", "message");
  const Envelope envelope = OpenEnvelope(bytes).value();
  EXPECT_EQ(envelope.kind, "Pod");
  EXPECT_EQ(envelope.message, "message");
  EXPECT_FALSE(OpenEnvelope("k8s").ok());
  EXPECT_FALSE(OpenEnvelope("{}").ok());
  EXPECT_FALSE(OpenEnvelope(bytes.substr(0, bytes.size() - 1)).ok());
}

TEST(RawObjectTest, RecognizesTheEndOfTheInitialEvents) {
  const auto bookmark = [](const std::string& value) {
    return WireWriter()
        .Bytes(1, WireWriter().Bytes(6, "9").Entry(12, "k8s.io/initial-events-end", value).text())
        .text();
  };
  const std::string end = bookmark("true");
  EXPECT_TRUE(RawObject(end).EndsInitialEvents());
  const std::string other = bookmark("false");
  EXPECT_FALSE(RawObject(other).EndsInitialEvents());
  const char* json = R"({"metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}})";
  EXPECT_TRUE(RawObject(ParseJson(json).value()).EndsInitialEvents());
  EXPECT_FALSE(RawObject(Json::MakeObject()).EndsInitialEvents());
  EXPECT_FALSE(RawObject("").EndsInitialEvents());
}

TEST(RawObjectTest, ReadsAStatusInBothEncodings) {
  const std::string message = WireWriter()
                                  .Bytes(3, "slow")
                                  .Bytes(4, "TooManyRequests")
                                  .Bytes(5, WireWriter().Varint(5, 3).text())
                                  .Varint(6, 429)
                                  .text();
  const char* json = R"({"kind":"Status","message":"slow","reason":"TooManyRequests","code":429,
                         "details":{"retryAfterSeconds":3}})";
  for (const auto& status : {ReadStatusMessage(message), ReadStatus(ParseJson(json).value())}) {
    ASSERT_TRUE(status.has_value());
    EXPECT_EQ(status->message, "slow");
    EXPECT_EQ(status->reason, "TooManyRequests");
    EXPECT_EQ(status->code, 429);
    EXPECT_EQ(status->retry_after_seconds, 3);
  }
  EXPECT_FALSE(ReadStatusMessage("\xff").has_value());
  EXPECT_FALSE(ReadStatus(Json::MakeObject()).has_value());
}

TEST(RawObjectTest, RecognizesEncodingsByContentType) {
  EXPECT_EQ(EncodingOf("application/vnd.kubernetes.protobuf;stream=watch"), Encoding::kProtobuf);
  EXPECT_EQ(EncodingOf("application/json; charset=utf-8"), Encoding::kJson);
  EXPECT_EQ(EncodingOf(""), Encoding::kJson);
}

}  // namespace
}  // namespace tessera::kube
