// SPDX-License-Identifier: Apache-2.0
#include "src/device/dialects/plugin_checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/formats/base64.h"

namespace tessera::device {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// A field of a protobuf message, shorter than 128 bytes.
std::string Field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}

std::string DeviceNode(const std::string& path) {
  return Field(3, Field(1, path) + Field(2, path) + Field(3, "rwm"));
}
std::string Variable(const std::string& name, const std::string& value) {
  return Field(1, Field(1, name) + Field(2, value));
}

std::string Entry(const std::string& uid, const std::string& container, const std::string& resource,
                  const std::string& ids, const std::string& answer) {
  return fmt::format(R"({{"PodUID":"{}","ContainerName":"{}","ResourceName":"{}","DeviceIDs":{},)"
                     R"("AllocResp":"{}"}})",
                     uid, container, resource, ids, Base64Encode(answer));
}

const std::string kGpusWithMinors1And3 =
    Variable("NVIDIA_VISIBLE_DEVICES", "GPU-a,GPU-b") + DeviceNode("/dev/nvidia1") +
    DeviceNode("/dev/nvidia3") + DeviceNode("/dev/nvidiactl") + DeviceNode("/dev/nvidia-uvm");
const std::string kGpuWithMinor2 =
    Variable("ALIYUN_COM_GPU_MEM_IDX", "2") + Variable("NVIDIA_VISIBLE_DEVICES", "2");

TEST(KubeletCheckpointTest, AnswersOfTesserasAgentAreIgnored) {
  const std::string ours = Field(4, Field(1, "tessera.dev/allocated") + Field(2, "true"));
  const std::string written_by_old_version =
      Field(4, Field(1, "tessera.dev/assignment") + Field(2, "allocated"));
  AllocatedMinors allocated;
  const Status status = AddKubeletCheckpoint(
      fmt::format(
          R"({{"Data":{{"PodDeviceEntries":[{},{}]}}}})",
          Entry("u1", "main", "tencent.com/vcuda-core", R"(["c0"])", kGpusWithMinors1And3 + ours),
          Entry("u2", "main", "aliyun.com/gpu-mem", R"(["m0"])",
                kGpuWithMinor2 + written_by_old_version)),
      &allocated);
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(allocated.empty());
}

TEST(KubeletCheckpointTest, ReadsTheGpusFromTheAnswersOfThePluginsInBothLayouts) {
  const std::string lists =
      Entry("u1", "main", "tencent.com/vcuda-core", R"(["tencent.com/vcuda-core-0"])",
            kGpusWithMinors1And3) +
      "," +
      Entry("u2", "main", "aliyun.com/gpu-mem", R"(["GPU-x-_-1","GPU-x-_-2"])", kGpuWithMinor2);
  const std::string by_numa =
      Entry("u1", "main", "tencent.com/vcuda-core", R"({"-1":["tencent.com/vcuda-core-0"]})",
            kGpusWithMinors1And3) +
      "," +
      Entry("u2", "main", "aliyun.com/gpu-mem", R"({"0":["GPU-x-_-1"],"1":[]})", kGpuWithMinor2);
  const AllocatedMinors wanted = {{{Uid("u1"), "main"}, {1, 3}}, {{Uid("u2"), "main"}, {2}}};
  for (const std::string& text :
       {fmt::format(R"({{"PodDeviceEntries":[{}],"RegisteredDevices":null,"Checksum":1}})", lists),
        fmt::format(R"({{"Data":{{"PodDeviceEntries":[{}]}},"Checksum":1}})", lists),
        fmt::format(R"({{"Data":{{"PodDeviceEntries":[{}],"RegisteredDevices":{{}}}}}})",
                    by_numa)}) {
    AllocatedMinors allocated;
    const Status status = AddKubeletCheckpoint(text, &allocated);
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(allocated, wanted) << text;
  }
}

TEST(KubeletCheckpointTest, ReadsDeviceNodesOfGpuManagerAndVariablesOfGpushare) {
  AllocatedMinors allocated;
  const std::string both = Variable("ALIYUN_COM_GPU_MEM_IDX", "2") + DeviceNode("/dev/nvidia4095");
  const Status status =
      AddKubeletCheckpoint(fmt::format(R"({{"Data":{{"PodDeviceEntries":[{},{}]}}}})",
                                       Entry("u1", "main", "tencent.com/vcuda-core", "[]", both),
                                       Entry("u2", "main", "aliyun.com/gpu-mem", "[]", both)),
                           &allocated);
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(allocated,
            (AllocatedMinors{{{Uid("u1"), "main"}, {4095}}, {{Uid("u2"), "main"}, {2}}}));
}

TEST(KubeletCheckpointTest, EntriesWithoutGpusAreIgnored) {
  AllocatedMinors allocated;
  const std::string entries =
      Entry("u1", "main", "nvidia.com/gpu", "[]", kGpusWithMinors1And3) + "," +
      Entry("u2", "main", "tencent.com/vcuda-memory", "[]", "") + "," +
      Entry("u3", "main", "aliyun.com/gpu-mem", "[]", Variable("ALIYUN_COM_GPU_MEM_IDX", "-1")) +
      "," + Entry("u4", "main", "aliyun.com/gpu-mem", "[]", DeviceNode("/dev/nvidia0")) + "," +
      R"({"PodUID":"u5","ContainerName":"c","ResourceName":"aliyun.com/gpu-mem","AllocResp":null})";
  EXPECT_TRUE(AddKubeletCheckpoint(
                  fmt::format(R"({{"Data":{{"PodDeviceEntries":[{}]}}}})", entries), &allocated)
                  .ok());
  EXPECT_TRUE(AddKubeletCheckpoint(R"({"Data":{"PodDeviceEntries":null}})", &allocated).ok());
  EXPECT_TRUE(allocated.empty());
}

TEST(KubeletCheckpointTest, NamesTheFirstInvalidEntryAndReadsTheOthers) {
  const auto ErrorOf = [](const std::string& entry) {
    AllocatedMinors allocated;
    const Status status = AddKubeletCheckpoint(
        fmt::format(R"({{"PodDeviceEntries":[{},{}]}})", entry,
                    Entry("u2", "main", "aliyun.com/gpu-mem", "[]", kGpuWithMinor2)),
        &allocated);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_EQ(allocated.size(), 1u) << entry;
    return status.message();
  };
  EXPECT_EQ(ErrorOf("7"), "PodDeviceEntries[0]: must be an object, not a number");
  EXPECT_THAT(ErrorOf("{}"), StartsWith("PodDeviceEntries[0]: \"ResourceName\""));
  EXPECT_THAT(ErrorOf(R"({"ResourceName":"aliyun.com/gpu-mem","PodUID":3})"), HasSubstr("PodUID"));
  EXPECT_THAT(ErrorOf(R"({"ResourceName":"aliyun.com/gpu-mem","PodUID":"u","ContainerName":"c",)"
                      R"("AllocResp":"!"})"),
              StartsWith("PodDeviceEntries[0]: AllocResp: not base64"));
  EXPECT_THAT(
      ErrorOf(Entry("u", "c", "tencent.com/vcuda-core", "[]", kGpusWithMinors1And3.substr(0, 60))),
      StartsWith("PodDeviceEntries[0]: AllocResp: "));
  EXPECT_THAT(ErrorOf(Entry("u", "c", "tencent.com/vcuda-core", "[]", Field(3, "\x12\x7f"))),
              StartsWith("PodDeviceEntries[0]: AllocResp: "));
  EXPECT_EQ(
      ErrorOf(Entry("u", "c", "aliyun.com/gpu-mem", "[]", Variable("ALIYUN_COM_GPU_MEM_IDX", "x"))),
      "PodDeviceEntries[0]: AllocResp: ALIYUN_COM_GPU_MEM_IDX: \"x\" is not the minor number of a "
      "GPU");
  EXPECT_EQ(ErrorOf("7,8,{}"),
            "PodDeviceEntries[0]: must be an object, not a number; 2 more entries are invalid");
}

TEST(KubeletCheckpointTest, RejectsInvalidInput) {
  AllocatedMinors allocated;
  for (const std::string text : {"", "{", "[]", "{}", R"({"Data":3})", R"({"Data":{}})",
                                 R"({"PodDeviceEntries":{}})", R"({"PodDeviceEntries":[)"}) {
    EXPECT_EQ(AddKubeletCheckpoint(text, &allocated).code(), Code::kInvalidArgument) << text;
  }
  EXPECT_EQ(AddKubeletCheckpoint(std::string(kMaxCheckpointBytes + 1, ' '), &allocated).code(),
            Code::kResourceExhausted);
}

TEST(GpuManagerCheckpointTest, NamesTheGpusByTheirDeviceNodes) {
  AllocatedMinors allocated = {{{Uid("u2"), "main"}, {7}}};
  const Status status = AddGpuManagerCheckpoint(
      R"({"PodGPUMapping":{"u1":{"main":{"Devices":["/dev/nvidia0"],"Cores":50,)"
      R"("Memory":8053063680},)"
      R"("side":{"Devices":["/dev/nvidia2","/dev/nvidia10"],"Cores":200,"Memory":0}},)"
      R"("u2":{"main":{"Devices":["/dev/nvidia1"],"Cores":100,"Memory":0}}}})",
      &allocated);
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(allocated, (AllocatedMinors{{{Uid("u1"), "main"}, {0}},
                                        {{Uid("u1"), "side"}, {2, 10}},
                                        {{Uid("u2"), "main"}, {7}}}))
      << "an entry that exists is kept";
  EXPECT_TRUE(AddGpuManagerCheckpoint(R"({"PodGPUMapping":null})", &allocated).ok());
  EXPECT_TRUE(AddGpuManagerCheckpoint(R"({"PodGPUMapping":{}})", &allocated).ok());
}

TEST(GpuManagerCheckpointTest, NamesTheFirstInvalidEntryAndReadsTheOthers) {
  const auto ErrorOf = [](const std::string& pods) {
    AllocatedMinors allocated;
    const Status status = AddGpuManagerCheckpoint(
        fmt::format(
            R"({{"PodGPUMapping":{{{},"good":{{"main":{{"Devices":["/dev/nvidia1"]}}}}}}}})", pods),
        &allocated);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_EQ(allocated.size(), 1u) << pods;
    return status.message();
  };
  EXPECT_EQ(ErrorOf(R"("u":1)"), "PodGPUMapping, pod \"u\": must be an object, not a number");
  EXPECT_EQ(ErrorOf(R"("u":{"c":[]})"),
            "PodGPUMapping, pod \"u\", container \"c\": must be an object, not an array");
  EXPECT_EQ(ErrorOf(R"("u":{"c":{"Devices":"/dev/nvidia0"}})"),
            "PodGPUMapping, pod \"u\", container \"c\": Devices must be a list");
  for (const std::string device : {R"("/dev/nvidiactl")", R"("/dev/nvidia-1")", R"("/dev/nvidia")",
                                   R"("/dev/nvidia4096")", R"("/dev/sda")", "0"}) {
    EXPECT_EQ(
        ErrorOf(fmt::format(R"("u":{{"c":{{"Devices":[{}]}}}})", device)),
        fmt::format("PodGPUMapping, pod \"u\", container \"c\": Devices: {} is not the device node "
                    "of a GPU",
                    device));
  }
  std::string many;
  for (int i = 0; i < 65; ++i) many += fmt::format(R"({}"/dev/nvidia{}")", i > 0 ? "," : "", i);
  EXPECT_THAT(ErrorOf(fmt::format(R"("u":{{"c":{{"Devices":[{}]}}}})", many)),
              HasSubstr("more than 64 GPUs"));
}

TEST(GpuManagerCheckpointTest, RejectsInvalidInput) {
  AllocatedMinors allocated;
  for (const std::string text :
       {"", "[]", "{}", R"({"PodGPUMapping":[]})", R"({"PodGPUMapping":{"u":)"}) {
    EXPECT_EQ(AddGpuManagerCheckpoint(text, &allocated).code(), Code::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace tessera::device
