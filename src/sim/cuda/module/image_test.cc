// SPDX-License-Identifier: Apache-2.0
#include "src/sim/cuda/module/image.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

namespace tessera::cuda {
namespace {

constexpr int kCuda124 = 12040;

Result ReadBytes(const std::string& bytes, int cc, Image* image) {
  return ReadImage(bytes.c_str(), bytes.size(), cc, kCuda124, image);
}

TEST(ImageTest, FindsEntriesAndTheirParameters) {
  Image image;
  ASSERT_EQ(ReadPtx(R"(
      // .entry notThis(
      .version 7.5
      .target sm_70, debug
      .address_size 64
      .func helper(.param .b32 x) { ret; }
      .visible .entry _Z5saxpyifPKfPf(.param .u32 p0, .param .f32 p1,
          .param .u64 .ptr .global .align 16 p2, .param .u64 p3) .maxntid 256, 1, 1 { ret; }
      /* .entry norThis */
      .entry packed(.param .u8 a, .param .align 8 .b8 b[12], .param .f64 c) { ret; }
      .entry empty() { ret; })",
                    75, kCuda124, &image),
            Result::kSuccess);
  ASSERT_EQ(image.entries.size(), 3u);
  const Entry* saxpy = image.Find("_Z5saxpyifPKfPf");
  ASSERT_NE(saxpy, nullptr);
  ASSERT_EQ(saxpy->parameters.size(), 4u);
  EXPECT_EQ(saxpy->parameters[2].offset, 8u);
  EXPECT_EQ(saxpy->parameters[3].offset, 16u);
  const Entry* packed = image.Find("packed");
  ASSERT_NE(packed, nullptr);
  EXPECT_EQ(packed->parameters[1].offset, 8u);
  EXPECT_EQ(packed->parameters[1].size, 12u);
  EXPECT_EQ(packed->parameters[2].offset, 24u);
  EXPECT_TRUE(image.Find("empty")->parameters.empty());
  EXPECT_EQ(image.Find("notThis"), nullptr);
}

TEST(ImageTest, FindsVariablesOfPtxAndTheirInitialValues) {
  Image image;
  ASSERT_EQ(ReadPtx(R"(
      .version 7.5
      .target sm_70
      .file 1 "a file (with .global .u32 this;"
      .global .align 4 .u32 counter = 7;
      .visible .global .align 2 .u16 negative = -3;
      .global .align 8 .b8 large[8000];
      .const .align 4 .b8 lookup[16] = {1, 0, 0, 0, 2};
      .global .align 8 .u64 where = generic(counter);
      .global .u64 pair[2] = {counter+4, 0x10};
      .global .align 16 .v4 .f32 vector;
      .global .f32 floats[2][1] = {{0f3F800000}, {0fC0200000}};
      .global .b8 hexadecimal[0x2bc];
      .global .b8 octal_and_binary[010][0b11];
      .global .b8 text[] = {104, 105, 0};
      .global .attribute(.managed) .align 4 .u32 managed = 5;
      .extern .global .u32 elsewhere;
      .global .texref texture;
      .extern .shared .align 16 .b8 shared[];
      .func helper(.param .u64 .ptr .global p) { .reg .u32 %r<2>; ret; }
      .entry use() { .shared .align 4 .b8 own[64]; ret; })",
                    75, kCuda124, &image),
            Result::kSuccess);
  std::string found;
  for (const Global& global : image.globals) {
    found += global.name + " " + std::to_string(global.size) + "/" + std::to_string(global.align);
    found += "=";
    for (const char byte : global.initial) {
      found += std::to_string(static_cast<unsigned char>(byte)) + ".";
    }
    found += "\n";
  }
  EXPECT_EQ(found,
            "counter 4/4=7.0.0.0.\n"
            "negative 2/2=253.255.\n"
            "large 8000/8=\n"
            "lookup 16/4=1.0.0.0.2.\n"
            "where 8/8=0.0.0.0.0.0.0.0.\n"
            "pair 16/8=0.0.0.0.0.0.0.0.16.0.0.0.0.0.0.0.\n"
            "vector 16/16=\n"
            "floats 8/4=0.0.128.63.0.0.32.192.\n"
            "hexadecimal 700/1=\n"
            "octal_and_binary 24/1=\n"
            "text 3/1=104.105.0.\n"
            "managed 4/4=5.0.0.0.\n");
  EXPECT_EQ(image.entries.size(), 1u);
}

// Builds a cubin of the sections that a test adds, in the layout that compilers write.
class Cubin {
 public:
  explicit Cubin(unsigned flags, unsigned char abi = 7) {
    std::memcpy(header_.e_ident, ELFMAG, SELFMAG);
    header_.e_ident[EI_CLASS] = ELFCLASS64;
    header_.e_ident[EI_ABIVERSION] = abi;
    header_.e_machine = 190;
    header_.e_flags = flags;
    header_.e_shentsize = sizeof(Elf64_Shdr);
    Add("", SHT_NULL, "");
  }

  // Returns the index of the section.
  unsigned Add(const std::string& name, unsigned type, const std::string& bytes, uint64_t size = 0,
               unsigned link = 0) {
    Elf64_Shdr section{};
    section.sh_name = unsigned(names_.size());
    section.sh_type = type;
    section.sh_offset = sizeof(header_) + contents_.size();
    section.sh_size = bytes.empty() ? size : bytes.size();
    section.sh_link = link;
    section.sh_addralign = 8;
    sections_.push_back(section);
    names_ += name + '\0';
    contents_ += bytes;
    return unsigned(sections_.size() - 1);
  }

  void SetAlignment(unsigned section, uint64_t alignment) {
    sections_[section].sh_addralign = alignment;
  }

  std::string Bytes() {
    header_.e_shstrndx = uint16_t(Add(".shstrtab", SHT_STRTAB, names_ + ".shstrtab" + '\0'));
    header_.e_shnum = uint16_t(sections_.size());
    header_.e_shoff = sizeof(header_) + contents_.size();
    std::string bytes(reinterpret_cast<const char*>(&header_), sizeof(header_));
    bytes += contents_;
    for (const Elf64_Shdr& section : sections_) {
      bytes.append(reinterpret_cast<const char*>(&section), sizeof(section));
    }
    return bytes;
  }

  static std::string Symbol(unsigned name, unsigned section, uint64_t value, uint64_t size) {
    Elf64_Sym symbol{};
    symbol.st_name = name;
    symbol.st_info = ELF64_ST_INFO(STB_LOCAL, STT_OBJECT);
    symbol.st_shndx = uint16_t(section);
    symbol.st_value = value;
    symbol.st_size = size;
    return std::string(reinterpret_cast<const char*>(&symbol), sizeof(symbol));
  }

 private:
  Elf64_Ehdr header_{};
  std::vector<Elf64_Shdr> sections_;
  std::string names_, contents_;
};

// The attributes of `__global__ void fill(float* out, float value, int n)`, last parameter first.
const std::string kFillInfo(
    "\x04\x37\x04\x00\x81\x00\x00\x00\x03\x19\x14\x00"
    "\x04\x17\x0c\x00\x00\x00\x00\x00\x02\x00\x0c\x00\x00\xf0\x11\x00"
    "\x04\x17\x0c\x00\x00\x00\x00\x00\x01\x00\x08\x00\x00\xf0\x11\x00"
    "\x04\x17\x0c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xf0\x21\x00",
    60);

TEST(ImageTest, FindsParametersAndVariablesOfACubin) {
  Cubin cubin(0x500550);
  cubin.Add(".text.fill", SHT_PROGBITS, "code");
  cubin.Add(".text.empty", SHT_PROGBITS, "code");
  cubin.Add(".nv.info.fill", SHT_LOPROC, kFillInfo);
  cubin.Add(".nv.info.empty", SHT_LOPROC, "");
  const unsigned initial = cubin.Add(".nv.global.init", SHT_PROGBITS, "....\x07...");
  const unsigned zeros = cubin.Add(".nv.global", SHT_NOBITS, "", 800);
  const unsigned constants = cubin.Add(".nv.constant3", SHT_PROGBITS, "ab");
  const unsigned names =
      cubin.Add(".strtab", SHT_STRTAB, std::string("\0counter\0large\0letters\0", 23));
  cubin.Add(".symtab", SHT_SYMTAB,
            Cubin::Symbol(1, initial, 4, 4) + Cubin::Symbol(9, zeros, 0, 800) +
                Cubin::Symbol(15, constants, 0, 2),
            0, names);
  Image image;
  ASSERT_EQ(ReadBytes(cubin.Bytes(), 86, &image), Result::kSuccess);
  EXPECT_EQ(image.target, 80);
  ASSERT_EQ(image.entries.size(), 2u);
  const Entry* fill = image.Find("fill");
  ASSERT_NE(fill, nullptr);
  EXPECT_TRUE(fill->parameters_known);
  ASSERT_EQ(fill->parameters.size(), 3u);
  EXPECT_EQ(fill->parameters[0].size, 8u);
  EXPECT_EQ(fill->parameters[1].offset, 8u);
  EXPECT_EQ(fill->parameters[2].offset, 12u);
  EXPECT_EQ(fill->parameters[2].size, 4u);
  EXPECT_TRUE(image.Find("empty")->parameters_known);
  EXPECT_TRUE(image.Find("empty")->parameters.empty());
  ASSERT_EQ(image.globals.size(), 3u);
  EXPECT_EQ(image.globals[0].name, "counter");
  EXPECT_EQ(image.globals[0].initial, "\x07...");
  EXPECT_EQ(image.globals[1].size, 800u);
  EXPECT_EQ(image.globals[1].initial, "");
  EXPECT_EQ(image.globals[2].initial, "ab");
}

TEST(ImageTest, ACubinRunsOnItsMajorVersionWithTheSameOrAHigherMinor) {
  const auto load = [](unsigned flags, unsigned char abi, int cc) {
    Cubin cubin(flags, abi);
    cubin.Add(".text.x", SHT_PROGBITS, "code");
    Image image;
    return ReadBytes(cubin.Bytes(), cc, &image);
  };
  EXPECT_EQ(load(0x500550, 7, 80), Result::kSuccess);
  EXPECT_EQ(load(0x500550, 7, 86), Result::kSuccess);
  EXPECT_EQ(load(0x560556, 7, 80), Result::kNoBinaryForGpu);
  EXPECT_EQ(load(0x500550, 7, 90), Result::kNoBinaryForGpu);
  EXPECT_EQ(load(0x6007802, 8, 120), Result::kSuccess)
      << "newer compilers use more bits of the flags for the version";
  EXPECT_EQ(load(0x6007802, 8, 90), Result::kNoBinaryForGpu);
}

TEST(ImageTest, InvalidImagesAreRefused) {
  Image image;
  EXPECT_EQ(ReadBytes("hello", 80, &image), Result::kInvalidImage);
  EXPECT_EQ(ReadBytes("", 80, &image), Result::kInvalidImage);
  EXPECT_EQ(ReadBytes("\x7f"
                      "elf",
                      80, &image),
            Result::kInvalidImage);
  EXPECT_EQ(ReadBytes(".version 8.0\n", 80, &image), Result::kInvalidPtx);
  EXPECT_EQ(ReadBytes(".version 8.0\n.target sm_90\n", 80, &image), Result::kInvalidPtx);
  EXPECT_EQ(ReadBytes(".version 8.5\n.target sm_50\n", 80, &image), Result::kUnsupportedPtxVersion);
  EXPECT_EQ(ReadBytes(".version 8.4\n.target sm_50\n.entry x() {", 80, &image),
            Result::kInvalidPtx);
  EXPECT_EQ(ReadImage(nullptr, kUnknownSize, 80, kCuda124, &image), Result::kInvalidValue);
}

// Bytes directly before a page that no program may read.
class GuardedBytes {
 public:
  explicit GuardedBytes(std::string_view bytes) {
    const size_t page = size_t(sysconf(_SC_PAGESIZE));
    mapped_bytes_ = (bytes.size() + page - 1) / page * page + page;
    pages_ = static_cast<char*>(
        mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(static_cast<void*>(pages_), MAP_FAILED);
    EXPECT_EQ(mprotect(pages_ + mapped_bytes_ - page, page, PROT_NONE), 0);
    data_ = pages_ + mapped_bytes_ - page - bytes.size();
    std::memcpy(data_, bytes.data(), bytes.size());
  }
  ~GuardedBytes() { munmap(pages_, mapped_bytes_); }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  const char* data() const { return data_; }

 private:
  size_t mapped_bytes_ = 0;
  char* pages_ = nullptr;
  char* data_ = nullptr;
};

TEST(ImageTest, ACubinThatIsCutOffIsRefused) {
  Cubin cubin(0x500550);
  cubin.Add(".text.fill", SHT_PROGBITS, "code");
  cubin.Add(".nv.info.fill", SHT_LOPROC, kFillInfo);
  const std::string whole = cubin.Bytes();
  for (size_t size = 1; size < whole.size(); ++size) {
    const GuardedBytes part(std::string_view(whole).substr(0, size));
    Image image;
    EXPECT_EQ(ReadCubin(part.data(), size, 80, &image), Result::kInvalidImage) << size;
  }
  const GuardedBytes complete(whole);
  Image image;
  EXPECT_EQ(ReadCubin(complete.data(), whole.size(), 80, &image), Result::kSuccess);
}

TEST(ImageTest, ATextThatBeginsLikeACubinIsRefused) {
  const GuardedBytes text(std::string_view("\x7f\x45LF", 5));  // "\x7fELF" with its NUL
  Image image;
  EXPECT_EQ(ReadImage(text.data(), kUnknownSize, 80, kCuda124, &image), Result::kInvalidImage);
}

TEST(ImageTest, AnAlignmentOfMoreThan32BitsIsNotZero) {
  Cubin cubin(0x500550);
  const unsigned initial = cubin.Add(".nv.global.init", SHT_PROGBITS, "....");
  const unsigned names = cubin.Add(".strtab", SHT_STRTAB, std::string("\0x\0", 3));
  cubin.Add(".symtab", SHT_SYMTAB, Cubin::Symbol(1, initial, 0, 4), 0, names);
  cubin.SetAlignment(initial, uint64_t(1) << 32);
  Image image;
  ASSERT_EQ(ReadBytes(cubin.Bytes(), 80, &image), Result::kSuccess);
  ASSERT_EQ(image.globals.size(), 1u);
  EXPECT_EQ(image.globals[0].align, UINT32_MAX);
}

TEST(ImageTest, AttributesAndVariablesOutsideOfTheirSectionsAreSkipped) {
  Cubin cubin(0x500550);
  cubin.Add(".text.fill", SHT_PROGBITS, "code");
  cubin.Add(".nv.info.fill", SHT_LOPROC, kFillInfo.substr(0, 20));  // ends within an attribute
  const unsigned initial = cubin.Add(".nv.global.init", SHT_PROGBITS, "....");
  const unsigned names = cubin.Add(".strtab", SHT_STRTAB, std::string("\0large\0ok\0", 10));
  cubin.Add(".symtab", SHT_SYMTAB,
            Cubin::Symbol(1, initial, 2, 4) + Cubin::Symbol(7, initial, 0, 4) +
                Cubin::Symbol(10, initial, 0, 4),
            0, names);
  const std::string bytes = cubin.Bytes();
  Image image;
  ASSERT_EQ(ReadBytes(bytes, 80, &image), Result::kSuccess);
  EXPECT_TRUE(image.Find("fill")->parameters.empty());
  ASSERT_EQ(image.globals.size(), 1u);
  EXPECT_EQ(image.globals[0].name, "ok");
}

TEST(ImageTest, BareNameUnmanglesFunctions) {
  EXPECT_EQ(BareName("_Z9vectorAddPKfS0_Pfi"), "vectorAdd");
  EXPECT_EQ(BareName("vectorAdd"), "vectorAdd");
  EXPECT_EQ(BareName("_Z99x"), "_Z99x");
}

}  // namespace
}  // namespace tessera::cuda
