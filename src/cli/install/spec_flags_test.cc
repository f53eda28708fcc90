// SPDX-License-Identifier: Apache-2.0
#include "src/cli/install/spec_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/file.h"
#include "src/formats/yaml.h"

namespace tessera::cli {
namespace {

using ::testing::HasSubstr;

std::string Assigned(const std::string& text) {
  const auto spec = ParseAssignments(text);
  return spec.ok() ? spec->Serialize() : spec.status().message();
}

TEST(SpecFlagsTest, AssignmentsHaveTheSyntaxOfHelm) {
  EXPECT_EQ(Assigned("a.b=c"), R"({"a":{"b":"c"}})");
  EXPECT_EQ(Assigned("a.b=1,a.c=true,d=null,e="), R"({"a":{"b":1,"c":true},"d":null,"e":""})");
  EXPECT_EQ(Assigned("a={x,y},b={}"), R"({"a":["x","y"],"b":[]})");
  EXPECT_EQ(Assigned(R"(labels.a\.b/c=x\,y)"), R"({"labels":{"a.b/c":"x,y"}})");
  EXPECT_EQ(Assigned("agent.extraArgs={--binding=allocate}"),
            R"({"agent":{"extraArgs":["--binding=allocate"]}})");
  EXPECT_EQ(Assigned("a=1.5"), R"({"a":"1.5"})");
  EXPECT_EQ(Assigned(R"(a="550",b={"1",2},c=\"3")"), R"({"a":"550","b":["1",2],"c":"\"3\""})");
  EXPECT_EQ(Assigned(R"(a=\{x\})"), R"({"a":"{x}"})");
}

TEST(SpecFlagsTest, RejectsInvalidAssignments) {
  EXPECT_THAT(Assigned("a"), HasSubstr("--set a: no \"=\""));
  EXPECT_THAT(Assigned("a..b=1"), HasSubstr("a part of the name is empty"));
  EXPECT_THAT(Assigned("=1"), HasSubstr("a part of the name is empty"));
  EXPECT_THAT(Assigned("a[0]=1"), HasSubstr("use -f FILE"));
}

TEST(SpecFlagsTest, LaterFilesAndAssignmentsWin) {
  TempDir dir;
  const std::string first = JoinPath(dir.path(), "a.yaml"), second = JoinPath(dir.path(), "b.yaml");
  ASSERT_TRUE(WriteFileAtomically(first, "scheduler: {replicas: 1, policy: FGD}\n", 0600).ok());
  ASSERT_TRUE(WriteFileAtomically(second, "scheduler: {replicas: 3}\n", 0600).ok());
  const auto spec = ReadSpec({first, second}, {"scheduler.policy=BestFit", "agent.devRoot=null"});
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->Serialize(),
            R"({"scheduler":{"replicas":3,"policy":"BestFit"},"agent":{"devRoot":null}})");
}

TEST(SpecFlagsTest, AFileMayContainTheTesseraResource) {
  TempDir dir;
  const std::string file = JoinPath(dir.path(), "a.yaml");
  ASSERT_TRUE(WriteFileAtomically(file,
                                  "apiVersion: tessera.dev/v1alpha1\nkind: Tessera\n"
                                  "metadata: {name: tessera}\nspec:\n  agent: {driverRoot: /d}\n",
                                  0600)
                  .ok());
  EXPECT_EQ(ReadSpec({file}, {}).value().Serialize(), R"({"agent":{"driverRoot":"/d"}})");
}

TEST(SpecFlagsTest, ErrorsNameTheFileAndTheLine) {
  TempDir dir;
  const std::string file = JoinPath(dir.path(), "a.yaml");
  ASSERT_TRUE(WriteFileAtomically(file, "agent:\n  driverRoot: x\n", 0600).ok());
  EXPECT_THAT(ReadSpec({file}, {}).status().message(),
              HasSubstr("a.yaml: line 2: agent.driverRoot: invalid value \"x\""));
  EXPECT_THAT(ReadSpec({file + "x"}, {}).status().message(), HasSubstr("a.yamlx"));
  EXPECT_THAT(ReadSpec({}, {"agent.x=1"}).status().message(),
              HasSubstr("--set agent.x=1: agent.x: unknown setting"));
}

}  // namespace
}  // namespace tessera::cli
