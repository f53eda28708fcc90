// SPDX-License-Identifier: Apache-2.0
#include "src/oci/env_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::oci {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(EnvList, TheLastEntryOfANameCounts) {
  const Json json = ParseJson(R"(["A=1","AB=2","A=3","C",7,"D="])").value();
  const EnvView env(&json);
  EXPECT_EQ(env.Get("A"), "3");
  EXPECT_EQ(env.Get("D"), "");
  EXPECT_EQ(env.Get("C"), std::nullopt);
  EXPECT_EQ(env.Get(""), std::nullopt);
  EXPECT_THAT(env.FindByPrefix("A"), ElementsAre(Pair("A", "1"), Pair("AB", "2"), Pair("A", "3")));
}

TEST(EnvList, AValueThatIsNotAListIsEmpty) {
  const Json json = Json::Int(3);
  EXPECT_EQ(EnvView(&json).Get("A"), std::nullopt);
  EXPECT_TRUE(EnvView(nullptr).FindByPrefix("").empty());
}

TEST(EnvList, SetLeavesOneEntryInThePlaceOfTheFirst) {
  Json json = ParseJson(R"(["A=1","AB=2","A=3"])").value();
  EnvList env(&json);
  env.Set("A", "4");
  env.Set("Z", "");
  EXPECT_EQ(json.Serialize(), R"(["A=4","AB=2","Z="])");
  EXPECT_EQ(env.Get("A"), "4");
}

TEST(EnvList, FilesBelowADirAreRemovedFromALoaderList) {
  Json json =
      ParseJson(R"(["P=/x/real/a:/y/b /x/./real//c:","Q=/x/really/a b","R=/x/real/a"])").value();
  EnvList env(&json);
  for (const std::string_view name : {"P", "Q", "R", "S"}) env.RemoveFilesBelow(name, "/x/real");
  EXPECT_EQ(json.Serialize(), R"(["P=/y/b:","Q=/x/really/a b","R="])");
}

TEST(EnvList, ADirIsAppendedOnce) {
  Json json = ParseJson(R"(["PATH=/bin:/dev/x","EMPTY="])").value();
  EnvList env(&json);
  for (int i = 0; i < 2; ++i) {
    env.AppendDir("PATH", "/dev/x", "/unused");
    env.AppendDir("PATH", "/dev/xy");
    env.AppendDir("EMPTY", "/a");
    env.AppendDir("NEW", "/b", "/usr/bin");
  }
  EXPECT_EQ(json.Serialize(), R"(["PATH=/bin:/dev/x:/dev/xy","EMPTY=/a","NEW=/usr/bin:/b"])");
}

}  // namespace
}  // namespace tessera::oci
