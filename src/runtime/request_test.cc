// SPDX-License-Identifier: Apache-2.0
// Tests of the inputs from engines and images: argv, annotations, environment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/runtime/command_line.h"
#include "src/runtime/decision.h"
#include "src/runtime/env_protocol.h"
#include "src/runtime/runtime.h"

namespace tessera::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = VisibleDevices::Kind;

CommandLine Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "tessera-runtime");
  return ParseCommandLine(static_cast<int>(arguments.size()), arguments.data());
}

TEST(CommandLine, ParsesContainerdsCommandLine) {
  const CommandLine line = Parse({"--root", "/run/x", "--log", "/l.json", "--log-format", "json",
                                  "create", "--bundle", "/b", "--pid-file", "/p", "id"});
  EXPECT_STREQ(line.verb, "create");
  EXPECT_STREQ(line.bundle, "/b");
  EXPECT_STREQ(line.log_file, "/l.json");
  EXPECT_TRUE(line.log_json);
  EXPECT_TRUE(line.creates_container());
}

TEST(CommandLine, AcceptsEverySpellingOfBundle) {
  EXPECT_STREQ(Parse({"create", "--bundle=/b", "id"}).bundle, "/b");
  EXPECT_STREQ(Parse({"create", "-b", "/b", "id"}).bundle, "/b");
  EXPECT_STREQ(Parse({"create", "-bundle", "/b", "id"}).bundle, "/b");
  EXPECT_STREQ(Parse({"run", "id", "--bundle", "create"}).bundle, "create");
  EXPECT_EQ(Parse({"create", "id"}).bundle, nullptr);
}

TEST(CommandLine, ValueNamedCreateIsNotTheVerb) {
  EXPECT_FALSE(Parse({"--root", "create", "state", "id"}).creates_container());
  EXPECT_FALSE(Parse({"delete", "create"}).creates_container());
  EXPECT_FALSE(Parse({"exec", "id", "create", "--bundle", "x"}).creates_container());
  EXPECT_FALSE(Parse({"--version"}).creates_container());
  EXPECT_FALSE(Parse({}).creates_container());
}

oci::ConfigDocument Document(const std::string& json) {
  return oci::ConfigDocument::Parse(json, "/bundle").value();
}

oci::ConfigDocument WithEnv(const std::vector<std::string>& env) {
  Json json = ParseJson(R"({"process":{}})").value();
  json.Find("process")->Set("env", Json::Strings(env));
  return Document(json.Serialize());
}

TEST(ContainerIdentity, ReadsContainerdsAnnotations) {
  const auto identity = FindContainerIdentity(Document(
      R"({"annotations":{"io.kubernetes.cri.container-type":"container",)"
      R"("io.kubernetes.cri.sandbox-uid":"u","io.kubernetes.cri.sandbox-name":"p",)"
      R"("io.kubernetes.cri.sandbox-namespace":"n","io.kubernetes.cri.container-name":"c"}})"));
  ASSERT_TRUE(identity);
  EXPECT_FALSE(identity->is_sandbox);
  EXPECT_EQ(identity->pod_uid, Uid("u"));
  EXPECT_EQ(identity->pod_name, "p");
  EXPECT_EQ(identity->pod_namespace, "n");
  EXPECT_EQ(identity->container, "c");
}

TEST(ContainerIdentity, ReadsCriosAnnotationsOfASandbox) {
  const auto identity = FindContainerIdentity(
      Document(R"({"annotations":{"io.kubernetes.cri-o.ContainerType":"sandbox",)"
               R"("io.kubernetes.pod.uid":"u","io.kubernetes.container.name":"c"}})"));
  ASSERT_TRUE(identity);
  EXPECT_TRUE(identity->is_sandbox);
  EXPECT_EQ(identity->pod_uid, Uid("u"));
  EXPECT_EQ(identity->container, "c");
}

TEST(ContainerIdentity, PodmanWithCriosAnnotationsIsNotKubernetes) {
  EXPECT_FALSE(FindContainerIdentity(
      Document(R"({"annotations":{"io.container.manager":"libpod",)"
               R"("io.kubernetes.cri-o.Created":"2022","io.kubernetes.cri-o.TTY":"false"}})")));
  EXPECT_TRUE(FindContainerIdentity(
      Document(R"({"annotations":{"io.kubernetes.cri-o.TTY":"false",)"
               R"("io.kubernetes.cri-o.Name":"x","io.container.manager":"libpod"}})")));
}

TEST(ContainerIdentity, ReadsThePodUidFromTheCgroupForOldEngines) {
  const std::string uid = "0f5a1c86-1c4f-4d0e-9b3c-0d6f6a9b1a11";
  const auto uid_at = [](const std::string& path) {
    const auto identity =
        FindContainerIdentity(Document(R"({"linux":{"cgroupsPath":")" + path + R"("}})"));
    return identity ? identity->pod_uid.str() : "no pod";
  };
  EXPECT_EQ(uid_at("/kubepods/burstable/pod" + uid + "/abc"), uid);
  EXPECT_EQ(uid_at("kubepods-besteffort-pod0f5a1c86_1c4f_4d0e_9b3c_0d6f6a9b1a11.slice:"
                   "cri-containerd:abc"),
            uid);
  EXPECT_EQ(uid_at("/kubepods/podx/abc"), "");
  EXPECT_EQ(uid_at("/user/pod" + uid), "no pod");
  EXPECT_TRUE(FindContainerIdentity(Document(R"({"linux":{"cgroupsPath":"/kubepods/x"}})")));
  EXPECT_FALSE(FindContainerIdentity(Document(R"({"linux":{"cgroupsPath":"/docker/x"}})")));
}

TEST(VisibleDevices, ParsesEveryKeyword) {
  const auto kind = [](const std::string& value) {
    return ReadVisibleDevices(WithEnv({"NVIDIA_VISIBLE_DEVICES=" + value})).kind;
  };
  EXPECT_EQ(ReadVisibleDevices(WithEnv({})).kind, Kind::kNothing);
  EXPECT_EQ(kind(""), Kind::kNothing);
  EXPECT_EQ(kind(" , "), Kind::kNothing);
  EXPECT_EQ(kind("void"), Kind::kNothing);
  EXPECT_EQ(kind("0,void"), Kind::kNothing);
  EXPECT_EQ(kind("none"), Kind::kDriverOnly);
  EXPECT_EQ(kind("all"), Kind::kAll);
  EXPECT_EQ(kind("0,all"), Kind::kAll);
  EXPECT_EQ(kind("none,all"), Kind::kDriverOnly);
  const auto listed = ReadVisibleDevices(WithEnv({"NVIDIA_VISIBLE_DEVICES= 0 ,,GPU-x"}));
  EXPECT_EQ(listed.kind, Kind::kListed);
  EXPECT_THAT(listed.items, ElementsAre("0", "GPU-x"));
}

TEST(VisibleDevices, LegacyCudaImageGetsAllGpusAndCapabilities) {
  const auto old = WithEnv({"CUDA_VERSION=9.0.176"});
  EXPECT_EQ(ReadVisibleDevices(old).kind, Kind::kAll);
  EXPECT_EQ(ReadCapabilities(old).value(), oci::kAllCapabilities);
  EXPECT_THAT(ReadRequirements(old), ElementsAre(std::pair("CUDA_VERSION", "cuda>=9.0")));
  const auto modern = WithEnv({"CUDA_VERSION=12.4.1", "NVIDIA_REQUIRE_CUDA=cuda>=12.4"});
  EXPECT_EQ(ReadVisibleDevices(modern).kind, Kind::kNothing);
  EXPECT_EQ(ReadRequirements(modern).size(), 1u);
}

TEST(VisibleDevices, RequirementsCanBeDisabled) {
  EXPECT_TRUE(
      ReadRequirements(WithEnv({"NVIDIA_REQUIRE_X=cuda>=99", "NVIDIA_DISABLE_REQUIRE=true"}))
          .empty());
  EXPECT_EQ(ReadRequirements(WithEnv({"NVIDIA_REQUIRE_X=a", "NVIDIA_DISABLE_REQUIRE=0"})).size(),
            1u);
  EXPECT_TRUE(ReadRequirements(WithEnv({"NVIDIA_REQUIRE_JETPACK=csv-mounts=all"})).empty());
}

TEST(SelectGpus, SelectsByIndexAndUuidEachOnce) {
  const std::vector<oci::ProcGpu> gpus = {{"07", "GPU-a", "", 1}, {"0f", "GPU-b", "", 0}};
  const auto select = [&](std::vector<std::string> items) {
    return SelectGpus({Kind::kListed, std::move(items)}, gpus);
  };
  EXPECT_EQ(select({"1"}).value()[0].uuid, "GPU-b");
  EXPECT_EQ(select({"GPU-b", "0", "1"}).value().size(), 2u);
  EXPECT_EQ(SelectGpus({Kind::kAll, {}}, gpus).value().size(), 2u);
  EXPECT_EQ(select({"2"}).status().code(), Code::kNotFound);
  EXPECT_THAT(select({"GPU-c"}).status().message(), HasSubstr("0 GPU-a, 1 GPU-b"));
  EXPECT_EQ(select({"0:1"}).status().code(), Code::kUnimplemented);
  EXPECT_EQ(select({"MIG-x"}).status().code(), Code::kUnimplemented);
  EXPECT_EQ(select({"nvidia.com/gpu=0"}).status().code(), Code::kUnimplemented);
}

TEST(LogLine, WritesLinesInRuncsFormat) {
  EXPECT_EQ(LogLine(true, "error", "a \"b\"\n", "T"),
            "{\"level\":\"error\",\"msg\":\"a \\\"b\\\"\\n\",\"time\":\"T\"}\n");
  EXPECT_EQ(LogLine(false, "error", "x", "T"), "time=\"T\" level=error msg=\"x\"\n");
}

}  // namespace
}  // namespace tessera::runtime
