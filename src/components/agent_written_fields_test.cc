// SPDX-License-Identifier: Apache-2.0
#include "src/components/agent_written_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/formats/yaml.h"

namespace tessera::components {
namespace {

using ::testing::ElementsAre;

AgentWrittenFields AgentWrittenFieldsIn(std::string_view yaml) {
  return AgentWrittenFieldsOf(ParseYaml(yaml).value());
}

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

TEST(AgentWrittenFieldsTest, FieldsOfOtherWritersStay) {
  const AgentWrittenFields fields = AgentWrittenFieldsIn(kNode);
  EXPECT_THAT(fields.labels, ElementsAre("nvidia.com/gpu.count"));
  EXPECT_THAT(fields.annotations, ElementsAre("tessera.dev/devices"));
  EXPECT_THAT(fields.conditions, ElementsAre("GPUReady"));
  EXPECT_THAT(fields.resources, ElementsAre("aliyun.com/gpu-count"));
  EXPECT_EQ(NodeCleanupPatch(fields)->Serialize(),
            R"({"metadata":{"labels":{"nvidia.com/gpu.count":null},)"
            R"("annotations":{"tessera.dev/devices":null}}})");
  EXPECT_EQ(NodeStatusCleanupPatch(fields)->Serialize(),
            R"({"status":{"capacity":{"aliyun.com/gpu-count":null},)"
            R"("allocatable":{"aliyun.com/gpu-count":null},)"
            R"("conditions":[{"$patch":"delete","type":"GPUReady"}]}})");
}

TEST(AgentWrittenFieldsTest, ANodeWithoutAnAgentIsLeftAlone) {
  const AgentWrittenFields fields = AgentWrittenFieldsIn("metadata: {name: n}\n");
  EXPECT_TRUE(fields.empty());
  EXPECT_FALSE(NodeCleanupPatch(fields).has_value() || NodeStatusCleanupPatch(fields).has_value());
}

TEST(AgentWrittenFieldsTest, AnnotationsWithTesserasPrefixAreFoundForEveryWriter) {
  const AgentWrittenFields fields =
      AgentWrittenFieldsIn("metadata: {annotations: {tessera.dev/devices: x, other: y}}\n");
  EXPECT_THAT(fields.annotations, ElementsAre("tessera.dev/devices"));
}

TEST(AgentWrittenFieldsTest, MalformedManagedFieldsAreIgnored) {
  EXPECT_TRUE(
      AgentWrittenFieldsIn("metadata: {managedFields: [{manager: tessera-agent, fieldsV1: 3}]}\n")
          .empty());
  EXPECT_TRUE(AgentWrittenFieldsIn("metadata: {managedFields: [{manager: tessera-agent,"
                                   " fieldsV1: {f:metadata: {f:labels: x}}}]}\n")
                  .empty());
}

}  // namespace
}  // namespace tessera::components
