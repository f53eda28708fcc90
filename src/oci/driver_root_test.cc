// SPDX-License-Identifier: Apache-2.0
#include "src/oci/driver_root.h"

#include <elf.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>

#include "src/oci/elf.h"
#include "src/oci/ld_cache.h"
#include "src/oci/testing/fake_driver.h"

namespace tessera::oci {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DriverRoot : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return JoinPath(dir_.path(), name); }
  void AddLibrary(const std::string& name, const std::string& soname) {
    fs::create_directories(DirName(path(name)));
    ASSERT_TRUE(WriteFileAtomically(path(name), MakeLibrary(soname), 0755).ok());
  }
  void AddGraphics() {
    for (const std::string name : {"libGLX_nvidia", "libEGL_nvidia"}) {
      AddLibrary("usr/lib/x86_64-linux-gnu/" + name + ".so.550.54.15", name + ".so.0");
    }
    for (const std::string name :
         {"etc/vulkan/icd.d/nvidia_icd.json", "usr/share/glvnd/egl_vendor.d/10_nvidia.json"}) {
      fs::create_directories(DirName(path(name)));
      ASSERT_TRUE(WriteFileAtomically(path(name), "{}", 0644).ok());
    }
  }
  static std::vector<std::string> Names(const Result<DriverFiles>& files) {
    std::vector<std::string> names;
    for (const DriverLibrary& library : files.value().libraries) names.push_back(library.file_name);
    return names;
  }
  void MakeDriver() { ASSERT_TRUE(MakeFakeDriver(dir_.path(), TwoGpus()).ok()); }
  TempDir dir_;
};

TEST_F(DriverRoot, FindsVersionLibrariesAndPrograms) {
  MakeDriver();
  const DriverFiles files = FindDriver(dir_.path(), kDefaultCapabilities).value();
  EXPECT_EQ(files.version, "550.54.15");
  ASSERT_EQ(files.libraries.size(), 3u);
  EXPECT_EQ(files.libraries[1].soname, "libnvidia-ml.so.1");
  EXPECT_EQ(files.libraries[0].file_name, "libcuda.so.550.54.15");
  EXPECT_EQ(files.libraries[0].host_path, path("usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15"));
  ASSERT_EQ(files.binaries.size(), 1u);
  EXPECT_EQ(files.binaries[0].name, "nvidia-smi");
}

TEST_F(DriverRoot, ReturnsOnlyFilesOfTheRequestedCapabilities) {
  MakeDriver();
  const DriverFiles files = FindDriver(dir_.path(), kUtility).value();
  ASSERT_EQ(files.libraries.size(), 1u);
  EXPECT_EQ(files.libraries[0].soname, "libnvidia-ml.so.1");
}

TEST_F(DriverRoot, ReturnsUnknownLibrariesOfTheDriversVersion) {
  MakeDriver();
  AddLibrary("usr/lib/x86_64-linux-gnu/libnvidia-brandnew.so.550.54.15", "libnvidia-brandnew.so.1");
  AddLibrary("usr/lib/x86_64-linux-gnu/libnvidia-brandnew.so.540.1.2", "libnvidia-brandnew.so.1");
  AddLibrary("usr/lib/x86_64-linux-gnu/libother.so.1.2", "libother.so.1");
  EXPECT_THAT(Names(FindDriver(dir_.path(), kUtility)),
              ElementsAre("libnvidia-brandnew.so.550.54.15", "libnvidia-ml.so.550.54.15"));
}

TEST_F(DriverRoot, ReturnsLibrariesWithTheirOwnVersion) {
  MakeDriver();
  AddLibrary("usr/lib/x86_64-linux-gnu/libnvidia-nvvm70.so.4", "libnvidia-nvvm70.so.4");
  EXPECT_THAT(Names(FindDriver(dir_.path(), kCompute)),
              ElementsAre("libcuda.so.550.54.15", "libnvidia-nvvm70.so.4",
                          "libnvidia-ptxjitcompiler.so.550.54.15"));
  EXPECT_THAT(Names(FindDriver(dir_.path(), kUtility)), ElementsAre("libnvidia-ml.so.550.54.15"));
}

TEST_F(DriverRoot, FollowsAlternativesToTheDirOfTheirVersion) {
  MakeDriver();
  fs::create_directories(path("usr/lib/x86_64-linux-gnu/nvidia"));
  fs::rename(path("usr/lib/x86_64-linux-gnu"), path("moved"));
  fs::create_directories(path("usr/lib/x86_64-linux-gnu/nvidia"));
  fs::rename(path("moved"), path("usr/lib/x86_64-linux-gnu/nvidia/tesla-550"));
  AddLibrary("usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.610.1.2", "libcuda.so.1");
  fs::create_directories(path("etc/alternatives"));
  for (const std::string name : {"libcuda.so.1", "libnvidia-ml.so.1"}) {
    fs::create_symlink("/etc/alternatives/nvidia--" + name,
                       path("usr/lib/x86_64-linux-gnu/" + name));
    fs::create_symlink("/usr/lib/x86_64-linux-gnu/nvidia/tesla-550/" + name,
                       path("etc/alternatives/nvidia--" + name));
  }
  const DriverFiles files = FindDriver(dir_.path(), kDefaultCapabilities).value();
  EXPECT_EQ(files.version, "550.54.15");
  EXPECT_EQ(files.libraries.size(), 3u);
  EXPECT_EQ(FindDriverLibrary(dir_.path(), "libnvidia-ml").value(),
            path("usr/lib/x86_64-linux-gnu/nvidia/tesla-550/libnvidia-ml.so.550.54.15"));
}

TEST_F(DriverRoot, WithoutLinksTheNewestVersionIsChosen) {
  AddLibrary("usr/lib64/libcuda.so.550.9.1", "libcuda.so.1");
  AddLibrary("usr/lib64/libcuda.so.550.54.15", "libcuda.so.1");
  AddLibrary("usr/lib64/libcuda.so.535.261.03", "libcuda.so.1");
  fs::create_symlink("/nowhere", path("usr/lib64/libcuda.so.999.1"));
  const DriverFiles files = FindDriver(dir_.path(), kCompute).value();
  EXPECT_EQ(files.version, "550.54.15");
  EXPECT_EQ(files.libraries.size(), 1u);
}

TEST_F(DriverRoot, ALibraryWithoutAVersionServesTheAgentOnly) {
  AddLibrary("usr/lib64/libnvidia-ml.so.1", "libnvidia-ml.so.1");
  EXPECT_EQ(FindDriverLibrary(dir_.path(), "libnvidia-ml").value(),
            path("usr/lib64/libnvidia-ml.so.1"));
  const auto files = FindDriver(dir_.path(), kUtility);
  EXPECT_EQ(files.status().code(), Code::kNotFound);
}

TEST_F(DriverRoot, GraphicsAreCompleteOrRejectedWithTheMissingFiles) {
  MakeDriver();
  const auto lacking = FindDriver(dir_.path(), kGraphics | kDisplay | kUtility);
  EXPECT_EQ(lacking.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(lacking.status().message(),
              HasSubstr("asks for graphics,display, but driver 550.54.15 in " + dir_.path() +
                        " lacks libGLX_nvidia, libEGL_nvidia, vulkan/icd.d/nvidia_icd.json, "
                        "glvnd/egl_vendor.d/10_nvidia.json: install"));
  EXPECT_EQ(FindDriver(dir_.path(), ParseCapabilities("all").value()).value().data_files.size(),
            0u);
  AddGraphics();
  const DriverFiles files = FindDriver(dir_.path(), kGraphics | kDisplay).value();
  ASSERT_EQ(files.data_files.size(), 2u);
  EXPECT_EQ(files.data_files[0].host_path, path("etc/vulkan/icd.d/nvidia_icd.json"));
  EXPECT_EQ(files.data_files[1].name, "glvnd/egl_vendor.d/10_nvidia.json");
  EXPECT_EQ(FindDriver(dir_.path(), kCompute).value().data_files.size(), 0u);
}

TEST_F(DriverRoot, DrmNodesBelongToTheGpu) {
  MakeDriver();
  for (const char* name : {"card1", "renderD129", "controlD65", "card1-DP-1"}) {
    fs::create_directories(path("sys/bus/pci/devices/0000:07:00.0/drm/") + name);
  }
  fs::create_directories(path("sys/bus/pci/devices/0000:0f:00.0/drm/card2"));
  EXPECT_THAT(DrmNodes(dir_.path(), "0000:07:00.0"), ElementsAre("dri/card1", "dri/renderD129"));
  EXPECT_THAT(DrmNodes(dir_.path(), "0000:0f:00.0"), ElementsAre("dri/card2"));
  EXPECT_THAT(DrmNodes(dir_.path(), "0000:aa:00.0"), ElementsAre());
}

TEST_F(DriverRoot, FindsLibrariesThatOnlyTheLinkerCacheOfTheRootKnows) {
  MakeDriver();
  fs::create_directories(path("opt/driver"));
  fs::rename(path("usr/lib/x86_64-linux-gnu"), path("opt/driver/lib"));
  LdCache cache;
  cache.entries = {{.name = "libcuda.so.1",
                    .path = "/opt/driver/lib/libcuda.so.1",
                    .flags = NativeLdCacheFlags()}};
  fs::create_directories(path("etc"));
  ASSERT_TRUE(WriteFileAtomically(path("etc/ld.so.cache"), WriteLdCache(cache), 0644).ok());
  EXPECT_EQ(FindDriver(dir_.path(), kCompute).value().version, "550.54.15");
}

TEST_F(DriverRoot, ResolvesAbsoluteLinksInsideTheRoot) {
  MakeDriver();
  fs::create_directories(path("real"));
  fs::rename(path("usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15"), path("real/libcuda"));
  fs::create_symlink("/real/libcuda", path("usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15"));
  const DriverFiles files = FindDriver(dir_.path(), kCompute).value();
  ASSERT_FALSE(files.libraries.empty());
  EXPECT_EQ(files.libraries[0].host_path, path("real/libcuda"));
}

TEST_F(DriverRoot, WithoutADriverTheErrorListsTheDirs) {
  fs::create_directories(path("usr/lib64"));
  const auto files = FindDriver(dir_.path(), kDefaultCapabilities);
  EXPECT_EQ(files.status().code(), Code::kNotFound);
  EXPECT_THAT(files.status().message(), HasSubstr(dir_.path()));
  EXPECT_THAT(files.status().message(), HasSubstr("usr/lib64"));
  EXPECT_THAT(FindDriver("/nowhere", kCompute).status().message(), HasSubstr("/nowhere"));
}

TEST_F(DriverRoot, ADamagedLibcudaIsAnErrorAndOtherDamagedLibrariesAreNotes) {
  MakeDriver();
  const std::string dir = path("usr/lib/x86_64-linux-gnu/");
  ASSERT_TRUE(
      WriteFileAtomically(dir + "libnvidia-ptxjitcompiler.so.550.54.15", "no ELF", 0755).ok());
  EXPECT_EQ(FindDriver(dir_.path(), kCompute).value().libraries.size(), 1u);
  ASSERT_TRUE(WriteFileAtomically(dir + "libcuda.so.550.54.15", "", 0755).ok());
  const auto files = FindDriver(dir_.path(), kCompute);
  EXPECT_EQ(files.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(files.status().message(), HasSubstr("libcuda.so.550.54.15"));
}

TEST_F(DriverRoot, ListsGpusInTheOrderOfTheBus) {
  MakeDriver();
  const auto gpus = ListGpus(dir_.path()).value();
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].bus_id, "0000:07:00.0");
  EXPECT_EQ(gpus[0].minor, 1);
  EXPECT_EQ(gpus[1].uuid, "GPU-22222222-2222-2222-2222-222222222222");
  EXPECT_EQ(gpus[1].model, "NVIDIA A100-SXM4-80GB");
}

TEST_F(DriverRoot, LinksThatAreRejectedAreNotFollowed) {
  fs::create_directories(path("a"));
  ASSERT_TRUE(WriteFileAtomically(path("a/file"), "x", 0644).ok());
  fs::create_symlink("a", path("link"));
  const RootedDir root = RootedDir::Open(dir_.path()).value();
  EXPECT_TRUE(root.Read("link/file", Links::kInRoot, 10).ok());
  EXPECT_EQ(root.Read("link/file", Links::kReject, 10).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(root.Read("../../../a/file", Links::kReject, 10).value_or(""), "x");
  EXPECT_FALSE(root.OpenFile("a", Links::kReject).ok());
  fs::create_symlink("/nowhere", path("dangling"));
  EXPECT_FALSE(root.IsMissing("dangling"));
  EXPECT_TRUE(root.IsMissing("nothing"));
}

class Elf : public ::testing::Test {
 protected:
  Result<ElfInfo> Read(const std::string& data) {
    const std::string path = JoinPath(dir_.path(), "lib");
    EXPECT_TRUE(WriteFileAtomically(path, data, 0644).ok());
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    return ReadElf(fd.get());
  }
  TempDir dir_;
};

TEST_F(Elf, ReadsTheSoname) {
  EXPECT_EQ(Read(MakeLibrary("libcuda.so.1")).value().soname, "libcuda.so.1");
  EXPECT_EQ(Read(MakeLibrary("")).value().soname, "");
  const Fd libc(::open("/lib/x86_64-linux-gnu/libc.so.6", O_RDONLY | O_CLOEXEC));
  if (libc.valid()) {
    EXPECT_EQ(ReadElf(libc.get()).value().soname, "libc.so.6");
  }
}

TEST_F(Elf, DamagedHeadersDoNotCrash) {
  const std::string good = MakeLibrary("libcuda.so.1");
  for (size_t length = 0; length < good.size(); length += 7)
    (void)Read(good.substr(0, length)).ok();
  for (size_t at = 0; at < 400; ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0xff);
    (void)Read(bad).ok();
  }
  EXPECT_FALSE(Read(good.substr(0, 60)).ok());
  EXPECT_FALSE(Read("#!/bin/sh\nexit 0\n# longer than an identification").ok());
}

// The library with one changed segment: 0 is PT_LOAD, 1 is PT_DYNAMIC.
std::string WithSegment(int index, const std::function<void(Elf64_Phdr*, size_t)>& change) {
  std::string data = MakeLibrary("libcuda.so.1");
  Elf64_Ehdr header;
  std::memcpy(&header, data.data(), sizeof(header));
  const size_t at = header.e_phoff + static_cast<size_t>(index) * sizeof(Elf64_Phdr);
  Elf64_Phdr segment;
  std::memcpy(&segment, data.data() + at, sizeof(segment));
  change(&segment, data.size());
  std::memcpy(data.data() + at, &segment, sizeof(segment));
  return data;
}

TEST_F(Elf, TheDynamicSectionMayEndWithTheFileButNotBeyondIt) {
  const auto read = [&](size_t bytes_behind_the_file) {
    return Read(WithSegment(1, [&](Elf64_Phdr* segment, size_t size) {
      segment->p_filesz = size - segment->p_offset + bytes_behind_the_file;
    }));
  };
  EXPECT_EQ(read(0).value().soname, "libcuda.so.1");
  EXPECT_THAT(read(1).status().message(), HasSubstr("dynamic section outside of the file"));
  const auto beyond = Read(WithSegment(1, [](Elf64_Phdr* segment, size_t size) {
    segment->p_offset = size + 1;
    segment->p_filesz = 0;
  }));
  EXPECT_THAT(beyond.status().message(), HasSubstr("dynamic section outside of the file"));
}

TEST_F(Elf, TheDynamicSectionMayBeAnywhereInTheFile) {
  const std::string data = MakeLibrary("libcuda.so.1");
  for (const size_t at : {1000, 1024, 1032, 5000}) {
    std::string dynamic;
    std::string moved = WithSegment(1, [&](Elf64_Phdr* segment, size_t) {
      dynamic = data.substr(segment->p_offset, segment->p_filesz);
      segment->p_offset = at;
    });
    moved.resize(at);
    EXPECT_EQ(Read(moved + dynamic).value().soname, "libcuda.so.1") << at;
  }
}

TEST_F(Elf, ASonameMayBeLong) {
  const std::string soname(254, 'x');
  EXPECT_EQ(Read(MakeLibrary(soname)).value().soname, soname);
}

TEST_F(Elf, TheStringTableMustBeginInsideItsSegment) {
  const std::string data = MakeLibrary("libcuda.so.1");
  const size_t strings = data.find("libcuda.so.1") - 1;
  const auto read = [&](size_t begin, size_t end) {
    return Read(WithSegment(0, [&](Elf64_Phdr* segment, size_t) {
      segment->p_offset = segment->p_vaddr = begin;
      segment->p_filesz = end - begin;
    }));
  };
  EXPECT_EQ(read(strings, data.size()).value().soname, "libcuda.so.1");
  EXPECT_EQ(read(0, strings + 1).value().soname, "libcuda.so.1");
  EXPECT_THAT(read(strings + 1, data.size()).status().message(), HasSubstr("in no segment"));
  EXPECT_THAT(read(0, strings).status().message(), HasSubstr("in no segment"));
}

TEST_F(DriverRoot, IncompleteVideoIsRejectedUnlessAllCapabilitiesAreRequested) {
  MakeDriver();
  const auto find = [&](std::string_view words) {
    return FindDriver(dir_.path(), ParseCapabilities(words).value());
  };
  const auto has = [](const DriverFiles& files, std::string_view stem) {
    return std::ranges::any_of(files.libraries, [&](const DriverLibrary& library) {
      return library.file_name.starts_with(stem);
    });
  };
  for (const char* words :
       {"video", "compute,utility,video", "compute,utility,video,graphics,display,ngx"}) {
    const auto refused = find(words);
    EXPECT_EQ(refused.status().code(), Code::kFailedPrecondition) << words;
    EXPECT_THAT(refused.status().message(), HasSubstr("lacks libnvidia-encode, libnvcuvid"));
  }
  EXPECT_TRUE(has(find("all").value(), "libcuda.so"));
  // One of two libraries is not enough.
  AddLibrary("usr/lib64/libnvcuvid.so.550.54.15", "libnvcuvid.so.1");
  EXPECT_THAT(find("video").status().message(), HasSubstr("lacks libnvidia-encode:"));
  EXPECT_TRUE(has(find("all").value(), "libnvcuvid.so"));
  AddLibrary("usr/lib64/libnvidia-encode.so.550.54.15", "libnvidia-encode.so.1");
  for (const char* words : {"all", "video"}) {
    EXPECT_TRUE(has(find(words).value(), "libnvidia-encode.so")) << words;
    EXPECT_TRUE(has(find(words).value(), "libnvcuvid.so")) << words;
  }
}

TEST_F(Elf, TheStringTableMustBeInALoadedSegment) {
  const auto other =
      Read(WithSegment(0, [](Elf64_Phdr* segment, size_t) { segment->p_type = PT_NOTE; }));
  EXPECT_THAT(other.status().message(), HasSubstr("in no segment"));
}

// The library with a changed header.
std::string WithHeader(const std::function<void(Elf64_Ehdr*)>& change) {
  std::string data = MakeLibrary("libcuda.so.1");
  Elf64_Ehdr header;
  std::memcpy(&header, data.data(), sizeof(header));
  change(&header);
  std::memcpy(data.data(), &header, sizeof(header));
  return data;
}

TEST_F(Elf, OtherProgramHeadersAndClassesAreRejected) {
  EXPECT_THAT(
      Read(WithHeader([](Elf64_Ehdr* header) { header->e_phentsize = 8; })).status().message(),
      HasSubstr("program header table"));
  EXPECT_THAT(
      Read(WithHeader([](Elf64_Ehdr* header) { header->e_phnum = 513; })).status().message(),
      HasSubstr("program header table"));
  EXPECT_THAT(
      Read(WithHeader([](Elf64_Ehdr* header) { header->e_phnum = 512; })).status().message(),
      HasSubstr("program headers outside"));
  EXPECT_THAT(Read(WithHeader([](Elf64_Ehdr* header) { header->e_ident[EI_CLASS] = 3; }))
                  .status()
                  .message(),
              HasSubstr("neither 32 nor 64 bits"));
}

TEST_F(Elf, ASonameEndsWithinItsTable) {
  std::string data = MakeLibrary("libcuda.so.1");
  // The size of the string table, which MakeLibrary sets to 256.
  const Elf64_Dyn size{.d_tag = DT_STRSZ, .d_un = {.d_val = 256}};
  const size_t at = data.find(std::string(reinterpret_cast<const char*>(&size), sizeof(size)));
  ASSERT_NE(at, std::string::npos);
  const auto read = [&](char table) {
    data[at + sizeof(size.d_tag)] = table;
    data[at + sizeof(size.d_tag) + 1] = 0;
    return Read(data);
  };
  EXPECT_EQ(read(14).value().soname, "libcuda.so.1")
      << "the name with the zero bytes before and after it";
  EXPECT_THAT(read(13).status().message(), HasSubstr("does not end"));
  EXPECT_THAT(read(1).status().message(), HasSubstr("without a string"));
}

TEST(Capabilities, ALibraryOfTheDriverHasItsVersion) {
  EXPECT_TRUE(IsDriverLibrary("libcuda.so.550.54", "550.54"));
  EXPECT_FALSE(IsDriverLibrary("libcuda.so.550.55", "550.54"));
  EXPECT_FALSE(IsDriverLibrary("libcuda.so", "550.54"));
  EXPECT_FALSE(IsDriverLibrary("libcuda", "550.54"));
  EXPECT_FALSE(IsDriverLibrary("cuda.so.550.54", "550.54"));
  EXPECT_TRUE(IsDriverLibrary("libnvidia-egl-gbm.so.1.1.2", "550.54"))
      << "has a version of its own";
}

TEST(Capabilities, RecognizesTheKeywords) {
  EXPECT_EQ(ParseCapabilities("").value(), kDefaultCapabilities);
  EXPECT_EQ(ParseCapabilities(" video , utility").value(), kVideo | kUtility);
  EXPECT_EQ(ParseCapabilities("all").value(), kAllCapabilities);
  EXPECT_EQ(RequiredCapabilities(ParseCapabilities("all").value()), kDefaultCapabilities);
  EXPECT_EQ(RequiredCapabilities(ParseCapabilities("compute,video").value()), kCompute | kVideo);
  EXPECT_EQ(CapabilitiesText(ParseCapabilities("all").value()), "all");
  EXPECT_EQ(
      CapabilitiesText(ParseCapabilities("video,utility,graphics,display,ngx,compute").value()),
      "compute,utility,video,graphics,display,ngx");
  EXPECT_EQ(ParseCapabilities("compat32").value(), 0u);
  EXPECT_THAT(ParseCapabilities("compute,cuda").status().message(), HasSubstr("\"cuda\""));
}

}  // namespace
}  // namespace tessera::oci
