// SPDX-License-Identifier: Apache-2.0
#include "src/cli/output/listing.h"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

Listing Things() {
  Listing list{.kind = "Thing", .columns = {"NAME", "SIZE"}, .empty_text = "No things."};
  for (const auto& [name, size] :
       std::vector<std::pair<std::string, int>>{{"n10", 3}, {"n2", 20}, {"n1", 100}}) {
    list.rows.push_back(
        {Json::MakeObject({{"metadata", MetadataOf("", name)}, {"size", Json::Int(size)}}),
         {name, std::to_string(size)}});
  }
  return list;
}

std::string Printed(const StyleOptions& options) {
  const Result<Style> style = MakeStyle(options, false);
  if (!style.ok()) return std::string(style.status().message());
  const Result<std::string> text = Print(Things(), *style);
  return text.ok() ? *text : std::string(text.status().message());
}

TEST(ListingTest, AllFormatsShowTheSameRows) {
  EXPECT_EQ(Printed({}), "NAME   SIZE\nn10    3\nn2     20\nn1     100\n");
  EXPECT_EQ(Printed({.no_headers = true}), "n10   3\nn2    20\nn1    100\n");
  EXPECT_EQ(Printed({.output = "name"}), "thing/n10\nthing/n2\nthing/n1\n");
  EXPECT_EQ(Printed({.output = "jsonpath={.items[*].size}"}), "3 20 100");
  EXPECT_EQ(Printed({.output = "custom-columns=N:.metadata.name,X:.missing"}),
            "N     X\nn10   <none>\nn2    <none>\nn1    <none>\n");
  const Json json = ParseJson(Printed({.output = "json"})).value();
  EXPECT_EQ(json.StringAt("kind").value(), "ThingList");
  EXPECT_EQ(json.Find("items")->items().size(), 3u);
  EXPECT_TRUE(Printed({.output = "YAML"}).starts_with("kind: ThingList\n"));
}

TEST(ListingTest, SortsNumbersByValue) {
  EXPECT_EQ(Printed({.output = "name", .sort_by = "{.metadata.name}"}),
            "thing/n1\nthing/n10\nthing/n2\n");
  EXPECT_EQ(Printed({.output = "name", .sort_by = ".size"}), "thing/n10\nthing/n2\nthing/n1\n");
  EXPECT_EQ(Printed({.sort_by = "nope"}),
            "--sort-by: no item has the field nope: -o json shows the fields");
}

TEST(ListingTest, SelectsByFields) {
  EXPECT_EQ(Printed({.output = "name", .field_selector = "size=20"}), "thing/n2\n");
  EXPECT_EQ(Printed({.output = "name", .field_selector = "metadata.name!=n1,size!=3"}),
            "thing/n2\n");
  EXPECT_EQ(Printed({.field_selector = "size=7"}), "No things.\n");
  EXPECT_EQ(Printed({.field_selector = "nope=7"}),
            "--field-selector: no item has the field nope: -o json shows the fields");
}

TEST(ListingTest, ErrorsNameTheOptionAndTheRemedy) {
  EXPECT_TRUE(Printed({.output = "xml"}).starts_with("invalid format \"xml\": want table, wide"));
  EXPECT_EQ(Printed({.output = "jsonpath"}), "-o jsonpath needs a value: -o jsonpath=…");
  EXPECT_TRUE(Printed({.output = "custom-columns=NAME"}).starts_with("-o custom-columns: invalid"));
  EXPECT_TRUE(Printed({.field_selector = "x"}).starts_with("--field-selector: invalid condition"));
  EXPECT_TRUE(Printed({.output = "custom-columns-file=/nope"})
                  .starts_with("-o custom-columns-file: /nope"));
}

TEST(ListingTest, HostileTextsDoNotReachTheTerminal) {
  Listing list{.kind = "Thing"};
  list.rows.push_back({Json::MakeObject({{"metadata", MetadataOf("", "\033[2Jx")}}), {}});
  for (const char* output : {"name", "json", "yaml", "jsonpath={.items[0].metadata.name}",
                             "custom-columns=N:.metadata.name"}) {
    const Style style = MakeStyle({.output = output}, false).value();
    EXPECT_EQ(Print(list, style)->find('\033'), std::string::npos) << output;
  }
}

TEST(ListingTest, DocumentsAreNoLists) {
  const Json document = ParseJson(R"({"a":1})").value();
  EXPECT_EQ(PrintDocument(document, "text", MakeStyle({}, false).value()).value(), "text");
  EXPECT_EQ(
      PrintDocument(document, "", MakeStyle({.output = "jsonpath={.a}"}, false).value()).value(),
      "1");
  EXPECT_EQ(
      PrintDocument(document, "", MakeStyle({.output = "name"}, false).value()).status().code(),
      Code::kInvalidArgument);
}

}  // namespace
}  // namespace tessera::cli
