// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "src/base/random.h"
#include "src/formats/yaml.h"

namespace tessera {
namespace {

TEST(WriteYamlTest, WritesBlocksAndQuotesTextsIfNecessary) {
  const Json json = ParseJson(R"({"name":"n1","count":8,"share":0.30,"ok":true,"none":null,
    "ids":["0","true","no","a b","x: y","- z","",null],"empty":{},"list":[],
    "inner":{"line\n":"tab\t\u001b[31m","utf8":"é"}})")
                        .value();
  EXPECT_EQ(WriteYaml(json), R"yaml(name: n1
count: 8
share: 0.30
ok: true
none: null
ids:
- "0"
- "true"
- "no"
- a b
- "x: y"
- "- z"
- ""
- null
empty: {}
list: []
inner:
  ? "line\n"
  : "tab\t\e[31m"
  utf8: "é"
)yaml");
}

Json AnyJson(Random& random, int depth) {
  const auto text = [&] {
    static constexpr std::string_view kParts[] = {"a",  "1", " ",    "#", ":", "-", "\n", "\t",
                                                  "\"", "'", "\x1b", "é", "{", "]", "~",  "null"};
    std::string made;
    for (uint64_t i = random.Below(5); i > 0; --i) made += kParts[random.Below(std::size(kParts))];
    return made;
  };
  switch (random.Below(depth > 3 ? 4 : 6)) {
    case 0:
      return {};
    case 1:
      return Json::Bool(random.Below(2) == 0);
    case 2:
      return Json::Int(static_cast<int64_t>(random.Below(1000)) - 500);
    case 3:
      return Json::String(text());
    case 4: {
      Json array = Json::MakeArray();
      for (uint64_t i = random.Below(4); i > 0; --i) array.Append(AnyJson(random, depth + 1));
      return array;
    }
    default: {
      Json object = Json::MakeObject();
      for (uint64_t i = random.Below(4); i > 0; --i) object.Set(text(), AnyJson(random, depth + 1));
      return object;
    }
  }
}

TEST(WriteYamlTest, IsReadBackAsTheSameValue) {
  Random random(7);
  for (int i = 0; i < 2000; ++i) {
    const Json json = AnyJson(random, 0);
    const std::string text = WriteYaml(json);
    const Result<Json> read = ParseYaml(text);
    ASSERT_TRUE(read.ok()) << read.status().ToString() << "\n" << text;
    ASSERT_EQ(*read, json) << text << json.Serialize();
  }
}

}  // namespace
}  // namespace tessera
