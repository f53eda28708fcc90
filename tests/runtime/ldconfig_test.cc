// SPDX-License-Identifier: Apache-2.0
// ldconfig and package managers in containers with GPUs. The image is a whole Debian: an overlay
// over this machine's root, whose upper layer shows what a committed image would contain.
#include <gmock/gmock.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/runtime/container_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAreArray;

class Ldconfig : public ContainerFixture {
 protected:
  void SetUp() override {
    ContainerFixture::SetUp();
    if (IsSkipped()) return;
    if (!PathExists("/usr/bin/dpkg") || !PathExists("/sbin/ldconfig")) {
      GTEST_SKIP() << "this machine does not run Debian";
    }
    fs::create_directories(path("layer"));
    ASSERT_EQ(::mount("tmpfs", path("layer").c_str(), "tmpfs", 0, "mode=0755"), 0);
    fs::create_directories(path("layer/upper"));
    fs::create_directories(path("layer/work"));
    fs::remove_all(rootfs());
    fs::create_directories(rootfs());
    const std::string layers =
        fmt::format("lowerdir=/,upperdir={0}/upper,workdir={0}/work", path("layer"));
    if (::mount("overlay", rootfs().c_str(), "overlay", 0, layers.c_str()) != 0) {
      GTEST_SKIP() << "overlays cannot be mounted here";
    }
    fs::copy(TESSERA_PROBE, rootfs() + "/usr/bin/probe");
    config().Find("root")->Set("readonly", Json::Bool(false));
    const Json capabilities = Json::Strings(
        {"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_SETUID", "CAP_SETGID"});
    Json& sets = *config().Find("process")->EnsureObject("capabilities").value();
    for (const char* set : {"bounding", "effective", "permitted"}) sets.Set(set, capabilities);
    AddMount("/tmp", "tmpfs", "tmpfs", {"mode=1777"});
    AddMount("/package", "tmpfs", "tmpfs", {});
    config().Find("process")->Set(
        "env", Json::Strings({"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "NVIDIA_VISIBLE_DEVICES=0"}));
  }

  void TearDown() override {
    ::umount2(rootfs().c_str(), MNT_DETACH);
    ::umount2(path("layer").c_str(), MNT_DETACH);
    ContainerFixture::TearDown();
  }

  SubprocessResult Shell(const std::string& script) {
    SetArgs({"/bin/sh", "-ec", script});
    return Run();
  }

  // Returns the files in the container's layer except the probe, as a commit would contain them.
  std::vector<std::string> Layer() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(path("layer/upper"))) {
      const std::string name = fs::relative(entry.path(), path("layer/upper"));
      if (!entry.is_directory() && name != "usr/bin/probe") names.push_back(name);
    }
    return names;
  }
};
INSTANTIATE_TEST_SUITE_P(LowLevel, Ldconfig, ::testing::Values("runc", "crun"),
                         [](const auto& info) { return std::string(info.param); });

// Runs the probe without any environment variable, as sshd or cron would.
constexpr const char* kProbe = "env -i /usr/bin/probe";

TEST_P(Ldconfig, SucceedsAndTheDriverIsFoundBeforeAndAfter) {
  const SubprocessResult result =
      Shell(fmt::format("{0}; rm /etc/ld.so.cache; ldconfig; echo again; {0}", kProbe));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const size_t again = result.out.find("again");
  ASSERT_NE(again, std::string::npos) << result.out;
  for (const std::string& part : {result.out.substr(0, again), result.out.substr(again)}) {
    EXPECT_THAT(part, HasSubstr("library libcuda.so.1 loaded"));
    EXPECT_THAT(part, HasSubstr("library libcuda.so loaded"));
    EXPECT_THAT(part, HasSubstr("library libnvidia-ml.so.1 loaded"));
    EXPECT_THAT(part, HasSubstr("env LD_LIBRARY_PATH=(unset)"));
  }
}

TEST_P(Ldconfig, PrefersTheDriversLibcudaToTheImagesOwn) {
  const std::string folder = rootfs() + "/usr/lib/x86_64-linux-gnu/";
  ASSERT_TRUE(
      WriteFileAtomically(folder + "libcuda.so.1", oci::MakeLibrary("libcuda.so.1"), 0755).ok());
  const SubprocessResult result = Shell("ldconfig; ldconfig -p | grep libcuda.so.1 | head -n 1");
  EXPECT_THAT(result.out, HasSubstr("=> /dev/tessera/lib/libcuda.so.1")) << result.err;
}

// tinygrad searches directories itself, without the dynamic linker.
TEST_P(Ldconfig, ProgramsThatSearchDirectoriesFindTheDriverBeforeAndAfter) {
  const std::string search =
      "for name in libcuda.so.1 libcuda.so libnvidia-ml.so.1; do "
      "readlink -e /usr/lib/x86_64-linux-gnu/$name; done";
  for (const bool read_only : {false, true}) {
    config().Find("root")->Set("readonly", Json::Bool(read_only));
    const SubprocessResult result =
        Shell(read_only ? search : fmt::format("{0}; ldconfig; {0}", search));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    const std::string found =
        "/dev/tessera/lib/libcuda.so.550.54.15\n/dev/tessera/lib/libcuda.so.550.54.15\n"
        "/dev/tessera/lib/libnvidia-ml.so.550.54.15\n";
    EXPECT_EQ(result.out, read_only ? found : found + found);
  }
}

TEST_P(Ldconfig, AptInstallsAPackageThatHasTheDriversLibraries) {
  const SubprocessResult result = Shell(
      "mkdir -p /package/x/DEBIAN /package/x/usr/lib/x86_64-linux-gnu\n"
      "printf 'Package: tessera-x\\nVersion: 1\\nArchitecture: all\\nMaintainer: x <x@localhost>\\n"
      "Description: x\\n' >/package/x/DEBIAN/control\n"
      "cp /dev/tessera/lib/libcuda.so.1 /package/x/usr/lib/x86_64-linux-gnu/libcuda.so.1\n"
      "dpkg-deb --root-owner-group -b /package/x /package/x.deb\n"
      "dpkg -i /package/x.deb\n"
      "readlink -e /usr/lib/x86_64-linux-gnu/libcuda.so.1; ldconfig");
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("\n/usr/lib/x86_64-linux-gnu/libcuda.so.1\n"));
}

TEST_P(Ldconfig, AptInstallsAPackageWhoseTriggerRunsIt) {
  const SubprocessResult result = Shell(fmt::format(
      "mkdir -p /package/x/DEBIAN /package/x/usr/lib\n"
      "printf 'Package: tessera-x\\nVersion: 1\\nArchitecture: all\\nMaintainer: x <x@localhost>\\n"
      "Description: x\\n' >/package/x/DEBIAN/control\n"
      "echo 'activate-noawait ldconfig' >/package/x/DEBIAN/triggers\n"
      "cp /dev/tessera/lib/libcuda.so.1 /package/x/usr/lib/libtessera-x.so.1\n"
      "dpkg-deb --root-owner-group -b /package/x /package/x.deb\n"
      "DEBIAN_FRONTEND=noninteractive apt-get -o APT::Sandbox::User=root install -y "
      "/package/x.deb\n"
      "{}; dpkg --audit; ldconfig -p | grep -c 'nvidia-ml.so.1.*/dev/tessera/lib'",
      kProbe));
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("Processing triggers for libc-bin"));
  EXPECT_THAT(result.out, HasSubstr("library libcuda.so.1 loaded"));
  EXPECT_THAT(result.out, Not(HasSubstr("half-configured")));
}

// Returns the paths in the layer of the links to the libraries.
std::vector<std::string> LinksInLayer() {
  std::vector<std::string> names;
  for (const char* name :
       {"libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1"}) {
    names.push_back(std::string("usr/lib/x86_64-linux-gnu/") + name);
  }
  return names;
}

TEST_P(Ldconfig, ACommittedImageHoldsTwoSmallFilesOfTheRuntimeAndLinksButNoLibrary) {
  ASSERT_EQ(Shell(kProbe).exit_code, 0);
  std::vector<std::string> names = LinksInLayer();
  names.insert(names.end(), {"etc/ld.so.cache", "etc/ld.so.conf.d/00-tessera.conf"});
  EXPECT_THAT(Layer(), UnorderedElementsAreArray(names));
  struct stat info;
  ASSERT_EQ(::stat((rootfs() + "/etc/ld.so.cache").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0644u);
  // Without a GPU, the committed image finds its own libraries, and ldconfig prints nothing.
  config().Find("process")->Set("env", Json::Strings({"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}));
  const SubprocessResult without = Shell("probe; ldconfig; probe; ldconfig -p");
  EXPECT_EQ(without.exit_code, 0) << without.err;
  EXPECT_EQ(without.err, "");
  EXPECT_THAT(without.out,
              HasSubstr("library libcuda.so.1 libcuda.so.1: cannot open shared object"));
  EXPECT_THAT(without.out, Not(HasSubstr("/dev/tessera")));
  EXPECT_THAT(Layer(), Not(::testing::Contains(HasSubstr("/libcuda.so.1")))) << "by ldconfig";
}

TEST_P(Ldconfig, ASecondStartWritesNothing) {
  ASSERT_EQ(Shell(kProbe).exit_code, 0);
  const auto before = fs::last_write_time(rootfs() + "/etc/ld.so.cache");
  struct stat first, second;
  ASSERT_EQ(::stat(path("layer/upper/etc/ld.so.cache").c_str(), &first), 0);
  ASSERT_EQ(RunAsItIs().exit_code, 0);
  ASSERT_EQ(::stat(path("layer/upper/etc/ld.so.cache").c_str(), &second), 0);
  EXPECT_EQ(first.st_ino, second.st_ino);
  EXPECT_EQ(fs::last_write_time(rootfs() + "/etc/ld.so.cache"), before);
}

TEST_P(Ldconfig, InAReadOnlyRootOnlyLinksAreMadeAndTheDriverIsFound) {
  config().Find("root")->Set("readonly", Json::Bool(true));
  const SubprocessResult result = Shell(kProbe);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("library libcuda.so.1 loaded"));
  EXPECT_THAT(Layer(), UnorderedElementsAreArray(LinksInLayer()));
}

TEST_P(Ldconfig, WithARootThatIsMountedReadOnlyTheDriverIsFound) {
  ASSERT_EQ(::mkdir((rootfs() + "/package").c_str(), 0755), 0);
  ASSERT_EQ(::mount(nullptr, rootfs().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
  const SubprocessResult result = Shell(kProbe);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("library libcuda.so.1 loaded"));
}

TEST_P(Ldconfig, AnImageWhoseLdconfigWouldNotReadOurFileIsGivenLibrariesByTheEnvironment) {
  ASSERT_TRUE(WriteFileAtomically(rootfs() + "/etc/ld.so.conf", "/usr/local/lib\n", 0644).ok());
  const SubprocessResult result = Shell(fmt::format("{0}; probe; ldconfig; probe; {0}", kProbe));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("env LD_LIBRARY_PATH=/dev/tessera/lib"));
  EXPECT_THAT(result.out, Not(HasSubstr("libcuda.so.1: cannot open")));
  EXPECT_THAT(Layer(), Not(::testing::Contains("etc/ld.so.conf.d/00-tessera.conf")));
}

}  // namespace
}  // namespace tessera
