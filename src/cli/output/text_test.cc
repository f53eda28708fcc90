// SPDX-License-Identifier: Apache-2.0
#include "src/cli/output/text.h"

#include <gtest/gtest.h>

#include "src/cli/output/table.h"
#include "src/formats/json.h"

namespace tessera::cli {
namespace {

TEST(PrintableTest, RemovesEverythingThatATerminalActsOn) {
  EXPECT_EQ(Printable("a\033[31mb"), "a\uFFFD[31mb");
  EXPECT_EQ(Printable("x\ny\r\tz\x7f"), "x\uFFFDy\uFFFD\uFFFDz\uFFFD");
  EXPECT_EQ(Printable("\u009b31m"), "\uFFFD31m") << "CSI as one character";
  EXPECT_EQ(Printable("\x9b"), "\uFFFD") << "CSI as one byte";
  EXPECT_EQ(Printable("a\u202Eb\u2066c\u200bd\u2028"), "a\uFFFDb\uFFFDc\uFFFDd\uFFFD");
  EXPECT_EQ(Printable("\xff\xc3"), "\uFFFD\uFFFD");
  EXPECT_EQ(Printable("größe 显存 ✓"), "größe 显存 ✓");
}

TEST(PrintableTest, PrintableJsonHasTheSameValue) {
  const Json json = Json::String(
      "a\x7f"
      "b\u009b"
      "c\033é");
  const std::string text = PrintableJson(json.Serialize());
  EXPECT_EQ(text, "\"a\\u007fb\\u009bc\\u001bé\"");
  EXPECT_EQ(ParseJson(text).value(), json);
}

TEST(TableTest, ColumnsAreAsWideAsTheirWidestCell) {
  TextTable table{{"NAME", "X", "LAST"}};
  table.rows.push_back({"显存", "1", "é"});
  table.rows.push_back({"a-name-of-some-length", "", "b"});
  TextOutput output(false);
  output.AddTable(table);
  EXPECT_EQ(output.Take(),
            "NAME                    X   LAST\n"
            "显存                    1   é\n"
            "a-name-of-some-length       b\n");
}

TEST(TableTest, ColorCodesAreOutsideOfTheCellTexts) {
  TextTable table{{"A", "B"}};
  table.rows.push_back({Cell("x\033[0m", Tone::kBad), "y"});
  TextOutput output(true);
  output.AddTable(table);
  EXPECT_EQ(output.Take(),
            "\033[1mA\033[0m       \033[1mB\033[0m\n\033[31mx\uFFFD[0m\033[0m   y\n");
}

TEST(AlignTabsTest, AlignsLikeGosTabwriter) {
  EXPECT_EQ(AlignTabs("a\tb\tc\naaa\tbbb\tccc\n"), "a    b    c\naaa  bbb  ccc\n");
  // A line without a cell ends the column.
  EXPECT_EQ(AlignTabs("aaaa\tb\n\na\tb\n"), "aaaa  b\n\na  b\n");
  EXPECT_EQ(AlignTabs("6/30 (20%)\t\n"), "6/30 (20%)  \n");
  EXPECT_EQ(AlignTabs("a\t\tb\n"), "a    b\n");
}

TEST(MemoryTextTest, UsesReadableUnits) {
  EXPECT_EQ(MemoryText(GiB(5)), "5 GiB");
  EXPECT_EQ(MemoryText(MiB(40536)), "39.6 GiB");
  EXPECT_EQ(MemoryText(MiB(256)), "256 MiB");
  EXPECT_EQ(MemoryText(Bytes(0)), "0 MiB");
  EXPECT_EQ(MemoryText(GiB(120), GiB(640)), "120/640 GiB");
  EXPECT_EQ(GpuCountText(300), "0.3");
  EXPECT_EQ(GpuCountText(3300), "3.3");
  EXPECT_EQ(GpuCountText(1000000), "1000");
}

}  // namespace
}  // namespace tessera::cli
