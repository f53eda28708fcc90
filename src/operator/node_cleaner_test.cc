// SPDX-License-Identifier: Apache-2.0
#include "src/operator/node_cleaner.h"

#include <gtest/gtest.h>

namespace tessera::operators {
namespace {

TEST(NodeCleanerTest, RemovesWhatAgentsHaveWrittenAndNothingElse) {
  const Json node = ParseJson(R"({"metadata":{"name":"n",
      "labels":{"nvidia.com/gpu.present":"true","nvidia.com/gpu.count":"2","zone":"z"},
      "annotations":{"tessera.dev/devices":"x","other":"y"},
      "managedFields":[
        {"manager":"tessera-agent","fieldsV1":{"f:metadata":{"f:labels":{".":{},
          "f:nvidia.com/gpu.present":{}}}}},
        {"manager":"nvidia","fieldsV1":{"f:metadata":{"f:labels":{"f:nvidia.com/gpu.count":{}}}}}]}})")
                        .value();
  const auto patch = CleaningPatch(node);
  ASSERT_TRUE(patch.has_value());
  EXPECT_EQ(patch->Serialize(), R"({"metadata":{"labels":{"nvidia.com/gpu.present":null},)"
                                R"("annotations":{"tessera.dev/devices":null}}})");
  EXPECT_FALSE(StatusCleaningPatch(node).has_value());
  EXPECT_FALSE(CleaningPatch(ParseJson(R"({"metadata":{"labels":{"a":"b"}}})").value()));
}

TEST(NodeCleanerTest, RemovesConditionAndCount) {
  const Json node = ParseJson(R"({"status":{"conditions":[{"type":"Ready"},{"type":"GPUReady"}],
      "capacity":{"cpu":"1","aliyun.com/gpu-count":"2"}}})")
                        .value();
  EXPECT_EQ(StatusCleaningPatch(node).value().Serialize(),
            R"({"status":{"conditions":[{"$patch":"delete","type":"GPUReady"}],)"
            R"("capacity":{"aliyun.com/gpu-count":null},)"
            R"("allocatable":{"aliyun.com/gpu-count":null}}})");
}

}  // namespace
}  // namespace tessera::operators
