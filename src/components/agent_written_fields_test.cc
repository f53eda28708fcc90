// SPDX-License-Identifier: Apache-2.0
#include "src/components/node_marks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/formats/yaml.h"

namespace tessera::components {
namespace {

using ::testing::ElementsAre;

NodeMarks MarksIn(std::string_view yaml) { return MarksOfTessera(ParseYaml(yaml).value()); }

constexpr const char* kNode = R"(
metadata:
  managedFields:
  - manager: tessera-agent
    fieldsV1:
      f:metadata:
        f:annotations: {f:tessera.dev/devices: {}}
        f:labels: {f:nvidia.com/gpu.count: {}, f:nvidia.com/gpu.product: {}, ".": {}}
  - manager: tessera-agent
    subresource: status
    fieldsV1:
      f:status:
        f:capacity: {f:aliyun.com/gpu-count: {}}
        f:conditions:
          'k:{"type":"GPUReady"}': {".": {}, f:status: {}}
  - manager: gpu-feature-discovery
    fieldsV1: {f:metadata: {f:labels: {f:nvidia.com/gpu.product: {}, f:nvidia.com/other: {}}}}
  - manager: kubelet
    fieldsV1: {f:status: {f:conditions: {'k:{"type":"Ready"}': {}}}}
)";

TEST(NodeMarksTest, AreWhatTheAgentAloneWrote) {
  const NodeMarks marks = MarksIn(kNode);
  EXPECT_THAT(marks.labels, ElementsAre("nvidia.com/gpu.count"));
  EXPECT_THAT(marks.annotations, ElementsAre("tessera.dev/devices"));
  EXPECT_THAT(marks.conditions, ElementsAre("GPUReady"));
  EXPECT_THAT(marks.resources, ElementsAre("aliyun.com/gpu-count"));
  EXPECT_EQ(NodePatch(marks)->Serialize(), R"({"metadata":{"labels":{"nvidia.com/gpu.count":null},)"
                                           R"("annotations":{"tessera.dev/devices":null}}})");
  EXPECT_EQ(NodeStatusPatch(marks)->Serialize(),
            R"({"status":{"capacity":{"aliyun.com/gpu-count":null},)"
            R"("allocatable":{"aliyun.com/gpu-count":null},)"
            R"("conditions":[{"$patch":"delete","type":"GPUReady"}]}})");
}

TEST(NodeMarksTest, ANodeWithoutAnAgentIsLeftAlone) {
  const NodeMarks marks = MarksIn("metadata: {name: n}\n");
  EXPECT_TRUE(marks.empty());
  EXPECT_FALSE(NodePatch(marks).has_value() || NodeStatusPatch(marks).has_value());
}

TEST(NodeMarksTest, AnnotationsWithTesserasPrefixAreFoundForEveryWriter) {
  const NodeMarks marks = MarksIn("metadata: {annotations: {tessera.dev/devices: x, other: y}}\n");
  EXPECT_THAT(marks.annotations, ElementsAre("tessera.dev/devices"));
}

TEST(NodeMarksTest, OddFieldsAreNoFields) {
  EXPECT_TRUE(
      MarksIn("metadata: {managedFields: [{manager: tessera-agent, fieldsV1: 3}]}\n").empty());
  EXPECT_TRUE(MarksIn("metadata: {managedFields: [{manager: tessera-agent,"
                      " fieldsV1: {f:metadata: {f:labels: x}}}]}\n")
                  .empty());
}

}  // namespace
}  // namespace tessera::components
