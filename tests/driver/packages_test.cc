// SPDX-License-Identifier: Apache-2.0
// Debian's packages of NVIDIA's driver: agent and runtime find the same driver, in the folders of
// the packages and through the links of update-alternatives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "src/base/file.h"
#include "src/gpu/nvml_library.h"
#include "src/oci/driver_root.h"
#include "tests/driver/driver_packages.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using ::tessera::testing::Generation;
using ::tessera::testing::kLibraryDir;

class DriverPackages : public ::testing::TestWithParam<Generation> {
 protected:
  void SetUp() override {
    const auto packages = ::tessera::testing::FetchDriverPackages(GetParam());
    if (!packages.ok()) {
      GTEST_SKIP() << "NVIDIA's packages cannot be downloaded: " << packages.status().message();
    }
    fs::copy(*packages, root(), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  }

  std::string root() const { return dir_.path() + "/root"; }
  std::string driver_dir() const {
    return fmt::format("{}/nvidia/{}", kLibraryDir, GetParam().folder);
  }

  // Adds the links that the triggers of the packages make, which are absolute:
  // name -> /etc/alternatives/… -> the driver's folder.
  void AddAlternative(const std::string& link, const std::string& target) {
    const std::string between = "etc/alternatives/nvidia--" + BaseName(link);
    fs::create_directories(JoinPath(root(), "etc/alternatives"));
    fs::create_directories(JoinPath(root(), DirName(link)));
    fs::create_symlink("/" + target, JoinPath(root(), between));
    fs::create_symlink("/" + between, JoinPath(root(), link));
  }
  void AddAlternatives() {
    for (const char* name : {"libcuda.so.1", "libnvidia-ml.so.1"}) {
      AddAlternative(JoinPath(kLibraryDir, name), JoinPath(driver_dir(), name));
    }
    AddAlternative("usr/bin/nvidia-smi",
                   fmt::format("usr/lib/nvidia/{}/nvidia-smi", GetParam().folder));
  }

  void ExpectFound() {
    const auto files = oci::FindDriver(root(), oci::kDefaultCapabilities);
    ASSERT_TRUE(files.ok()) << files.status().message();
    EXPECT_THAT(files->version, StartsWith(std::string(GetParam().name) + "."));
    std::string nvml;
    for (const oci::DriverLibrary& library : files->libraries) {
      EXPECT_TRUE(library.file_name.ends_with(".so." + files->version)) << library.file_name;
      if (library.soname == "libnvidia-ml.so.1") nvml = library.host_path;
    }
    ASSERT_EQ(files->libraries.size(), 2u);
    EXPECT_EQ(files->libraries[0].soname, "libcuda.so.1");
    ASSERT_EQ(files->binaries.size(), 1u);
    EXPECT_THAT(files->binaries[0].host_path, HasSubstr("/usr/lib/nvidia/"));
    // The agent opens the file that containers get. Its nvmlInit fails, because there is no GPU.
    gpu::NvmlLibraryLoader loader(root());
    EXPECT_EQ(loader.FindLibrary(), nvml);
    const auto loaded = loader.Load();
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    const Status started = (*loaded)->Init();
    EXPECT_FALSE(started.ok());
    EXPECT_THAT(started.message(), HasSubstr("nvmlInit"));
  }

  const ::tessera::testing::NoNewDeviceNodes no_new_device_nodes_;
  TempDir dir_;
};
INSTANTIATE_TEST_SUITE_P(Debian, DriverPackages,
                         ::testing::ValuesIn(::tessera::testing::kGenerations),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(DriverPackages, AreFoundThroughAlternatives) {
  AddAlternatives();
  ExpectFound();
}

TEST_P(DriverPackages, AreFoundWithoutAlternatives) { ExpectFound(); }

TEST_P(DriverPackages, GiveTheFilesOfGraphicsOrTheReason) {
  const auto files = oci::FindDriver(root(), oci::kGraphics);
  if (PathExists(JoinPath(root(), "usr/share/vulkan"))) {
    ASSERT_TRUE(files.ok()) << files.status().message();
    std::vector<std::string> names;
    for (const oci::FoundFile& file : files->data_files) names.push_back(file.name);
    EXPECT_THAT(names, ::testing::ElementsAre("vulkan/icd.d/nvidia_icd.json",
                                              "vulkan/implicit_layer.d/nvidia_layers.json",
                                              "glvnd/egl_vendor.d/10_nvidia.json"));
  } else {
    EXPECT_EQ(files.status().code(), Code::kFailedPrecondition);
    EXPECT_THAT(files.status().message(), HasSubstr("lacks libGLX_nvidia, libEGL_nvidia, vulkan/"));
  }
  const auto video = oci::FindDriver(root(), oci::kVideo | oci::kCompute);
  EXPECT_THAT(video.status().message(), HasSubstr("asks for video, but driver "));
  EXPECT_TRUE(oci::FindDriver(root(), oci::kAllCapabilities).ok());
}

}  // namespace
}  // namespace tessera
