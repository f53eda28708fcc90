// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/memory/image_size.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <string.h>

#include <string>

namespace tessera::limiter {
namespace {

uint64_t OfText(const std::string& text) { return VariableBytesOf(text.c_str(), SIZE_MAX); }

TEST(ImageSizeTest, TheVariablesOfPtxAreItsGlobalStatements) {
  const std::string head = ".version 7.0\n.target sm_70\n.address_size 64\n";
  EXPECT_EQ(OfText(head), 0u);
  EXPECT_EQ(OfText(head + ".visible .global .align 4 .b8 big[1073741824];"), 1u << 30);
  EXPECT_EQ(OfText(head + ".global .f32 a, b[3][4];\n.global\t.align 16 .v4 .f32 c[2];"),
            4u + 48 + 32);
  EXPECT_EQ(OfText(head + ".global .b64 p[2] = {1, 2};.global .f16x2 h[0x10];"), 16u + 64);
  EXPECT_EQ(OfText(head + ".extern .global .b8 other[100];.global .u16 own;"), 2u);
  EXPECT_EQ(OfText(head + ".visible .entry k() { ld.global.b8 %r1, [%r2]; ret; }"), 0u);
  EXPECT_EQ(OfText(head + "// .global .b8 x[9];\n/* .global .b8 y[9]; */ .shared .b8 z[9];"), 0u);
  EXPECT_EQ(OfText(head + ".global .attribute(.managed) .b32 m[4];"), 16u);
  EXPECT_EQ(OfText(head + ".global .b8 a[99999999999][99999999999];"), uint64_t(1) << 48);
  EXPECT_EQ(OfText(head + ".global .b8 open["), 0u);
  EXPECT_EQ(OfText(""), 0u);
  const std::string cut = head + ".global .b8 x[8];";
  EXPECT_EQ(VariableBytesOf(cut.data(), cut.size() - 2), 8u) << "a file need not end in a zero";
}

TEST(ImageSizeTest, TheVariablesOfACubinAreItsGlobalSections) {
  constexpr char kNames[] = "\0.text.k\0.nv.global\0.nv.global.init\0.shstrtab";
  struct {
    Elf64_Ehdr header;
    Elf64_Shdr sections[5];
    char names[sizeof(kNames)];
  } image = {};
  memcpy(image.header.e_ident, ELFMAG, SELFMAG);
  image.header.e_ident[EI_CLASS] = ELFCLASS64;
  image.header.e_shoff = offsetof(decltype(image), sections);
  image.header.e_shentsize = sizeof(Elf64_Shdr);
  image.header.e_shnum = 5;
  image.header.e_shstrndx = 4;
  const auto set = [&](int i, unsigned name, uint64_t size) {
    image.sections[i].sh_name = name;
    image.sections[i].sh_size = size;
  };
  set(1, 1, 5000);
  set(2, 9, 1 << 20);
  set(3, 20, 100);
  set(4, 36, sizeof(kNames));
  image.sections[4].sh_offset = offsetof(decltype(image), names);
  memcpy(image.names, kNames, sizeof(kNames));
  EXPECT_EQ(VariableBytesOf(&image, SIZE_MAX), (1u << 20) + 100);
  EXPECT_EQ(VariableBytesOf(&image, sizeof(image.header)), 0u) << "cut";
  image.header.e_shstrndx = 9;
  EXPECT_EQ(VariableBytesOf(&image, SIZE_MAX), 0u);
}

TEST(ImageSizeTest, TheVariablesOfAFatBinaryAreUnknown) {
  const uint32_t wrapper[8] = {0x466243b1, 1}, binary[8] = {0xba55ed50, 1};
  EXPECT_EQ(VariableBytesOf(wrapper, SIZE_MAX), 0u);
  EXPECT_EQ(VariableBytesOf(binary, SIZE_MAX), 0u);
  EXPECT_EQ(VariableBytesOf(nullptr, SIZE_MAX), 0u);
}

}  // namespace
}  // namespace tessera::limiter
