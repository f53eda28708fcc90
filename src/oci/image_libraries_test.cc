// SPDX-License-Identifier: Apache-2.0
#include "src/oci/image_libraries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "src/formats/json.h"
#include "src/oci/testing/fake_driver.h"

namespace tessera::oci {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class ImageLibrariesTest : public ::testing::Test {
 protected:
  ImageLibrariesTest() { fs::create_directories(path("image")); }
  std::string path(const std::string& name) const { return JoinPath(dir_.path(), name); }
  void Put(const std::string& file, const std::string& soname = "libcuda.so.1") {
    fs::create_directories(DirName(path(file)));
    ASSERT_TRUE(WriteFileAtomically(path(file), MakeLibrary(soname), 0644).ok());
  }
  void Mount(const std::string& destination, const std::string& source,
             const std::string& options = "") {
    mounts_ +=
        fmt::format(R"({}{{"destination":"{}","type":"bind","source":"{}","options":["rbind"{}]}})",
                    mounts_.empty() ? "" : ",", destination, source, options);
  }
  std::vector<std::string> Found() {
    const auto document = ConfigDocument::Parse(
        fmt::format(R"({{"process":{{"env":["LD_LIBRARY_PATH={}"]}},"mounts":[{}]}})", env_,
                    mounts_),
        path("bundle"));
    std::vector<std::string> paths;
    for (const ImageLibrary& library :
         FindImageLibraries(*document, *RootedDir::Open(path("image")), cache_,
                            {"libcuda.so.1", "libnvidia-ml.so.1"})) {
      paths.push_back(library.path);
    }
    return paths;
  }

  TempDir dir_;
  std::string env_, mounts_;
  LdCache cache_;
};

TEST_F(ImageLibrariesTest, AnImageWithoutADriverHasNoLibraries) {
  Put("image/usr/lib/libc.so.6", "libc.so.6");
  Put("image/usr/lib/libcudart.so.12", "libcudart.so.12");
  EXPECT_THAT(Found(), IsEmpty());
}

TEST_F(ImageLibrariesTest, CopiesInLinkerDirsAreFoundOnceDespiteLinks) {
  Put("image/usr/lib/x86_64-linux-gnu/libcuda.so.535.1");
  fs::create_symlink("libcuda.so.535.1", path("image/usr/lib/x86_64-linux-gnu/libcuda.so.1"));
  fs::create_symlink("usr/lib", path("image/lib"));
  Put("image/usr/local/cuda-12.4/compat/libcuda.so.550.1");
  fs::create_symlink("/usr/local/cuda-12.4", path("image/usr/local/cuda"));
  Put("image/opt/mine/libcuda.so.1");
  env_ = "relative:/opt/mine";
  Put("image/srv/libnvidia-ml.so.1", "libnvidia-ml.so.1");
  cache_.entries = {{.name = "libnvidia-ml.so.1", .path = "/srv/libnvidia-ml.so.1"}};
  EXPECT_THAT(Found(), UnorderedElementsAre("/usr/lib/x86_64-linux-gnu/libcuda.so.535.1",
                                            "/usr/local/cuda-12.4/compat/libcuda.so.550.1",
                                            "/opt/mine/libcuda.so.1", "/srv/libnvidia-ml.so.1"));
}

TEST_F(ImageLibrariesTest, FilesThatOnlyHaveTheNameAreIgnored) {
  Put("image/usr/lib/libcuda.so.1", "libother.so.1");
  fs::create_directories(path("image/usr/lib64/libcuda.so.1"));
  fs::create_directories(path("image/lib"));
  ASSERT_TRUE(WriteFileAtomically(path("image/lib/libcuda.so"), "INPUT(-lcuda)", 0644).ok());
  fs::create_symlink("/nowhere", path("image/lib/libcuda.so.1"));
  EXPECT_THAT(Found(), IsEmpty());
}

TEST_F(ImageLibrariesTest, MountedDirsAndFilesAreReadOnTheHost) {
  Put("host/lib64/libcuda.so.470.1");
  Put("file");
  Mount("/usr/local/nvidia", path("host"));
  Mount("/somewhere/libcuda.so.1", path("file"));
  EXPECT_THAT(Found(),
              ElementsAre("/usr/local/nvidia/lib64/libcuda.so.470.1", "/somewhere/libcuda.so.1"));
}

TEST_F(ImageLibrariesTest, FilesHiddenByAMountAreIgnored) {
  Put("image/usr/local/nvidia/lib64/libcuda.so.1");
  fs::create_directories(path("host/lib64"));
  Put("hidden/libcuda.so.1");
  Mount("/usr/local/nvidia/lib64", path("hidden"));
  Mount("/usr/local/nvidia", path("host"));
  EXPECT_THAT(Found(), IsEmpty()) << "a mount there would make a file on the host";
  Mount("/usr/local", "tmpfs");
  EXPECT_THAT(Found(), IsEmpty());
}

TEST_F(ImageLibrariesTest, NoMountIsAddedThatTheHostWouldSee) {
  Put("host/lib64/libcuda.so.1");
  Mount("/usr/local/nvidia", path("host"), R"(,"rshared")");
  EXPECT_THAT(Found(), IsEmpty());
}

TEST_F(ImageLibrariesTest, TheNumberOfMountsIsBounded) {
  for (int i = 0; i < 100; ++i) Put(fmt::format("image/usr/lib/libcuda.so.{}", i));
  EXPECT_EQ(Found().size(), kMaxImageLibraries);
}

}  // namespace
}  // namespace tessera::oci
