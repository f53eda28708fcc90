// SPDX-License-Identifier: Apache-2.0
// Containers outside Kubernetes, run to their end by real low-level runtimes.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "src/base/version.h"
#include "src/oci/config_document.h"
#include "tests/runtime/container_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class Container : public ContainerFixture {};
INSTANTIATE_TEST_SUITE_P(LowLevel, Container, ::testing::Values("runc", "crun"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Container, WithoutARequestIsUntouched) {
  const std::string text = config().Pretty();
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("node /dev/nvidia0: No such file"));
  EXPECT_THAT(result.out, HasSubstr("nvidia-smi missing"));
  EXPECT_EQ(ReadFile(bundle() + "/config.json").value(), text);
  EXPECT_FALSE(PathExists(bundle() + "/tessera"));
}

TEST_P(Container, GetsTheGpuOfAnIndexThroughTheLinkerCache) {
  AddLinkerCache();
  AddEnv("NVIDIA_VISIBLE_DEVICES=0");
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  // The first GPU of the bus has minor 1.
  EXPECT_THAT(result.out, HasSubstr("node /dev/nvidia1 195:1 mode 666 allowed"));
  EXPECT_THAT(result.out, HasSubstr("node /dev/nvidia0: No such file"));
  EXPECT_THAT(result.out, HasSubstr("library libcuda.so.1 loaded"));
  EXPECT_THAT(result.out, HasSubstr("library libcuda.so loaded"));
  EXPECT_THAT(result.out, HasSubstr("library libnvidia-ml.so.1 loaded"));
  EXPECT_THAT(result.out, HasSubstr("env LD_LIBRARY_PATH=(unset)"));
  EXPECT_THAT(result.out, HasSubstr("env PATH=/usr/bin:/bin:/dev/tessera/bin\n"));
  EXPECT_THAT(result.out, HasSubstr("nvidia-smi there"));
  EXPECT_THAT(result.out, HasSubstr("driver folder read only"));
  EXPECT_THAT(result.out,
              HasSubstr("env NVIDIA_VISIBLE_DEVICES=GPU-11111111-1111-1111-1111-111111111111\n"));
}

TEST_P(Container, FindsLibrariesWithoutALinkerCacheInTheImage) {
  AddEnv("NVIDIA_VISIBLE_DEVICES=all");
  AddEnv("LD_LIBRARY_PATH=/opt/mine");
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("library libcuda.so.1 loaded"));
  EXPECT_THAT(result.out, HasSubstr("env LD_LIBRARY_PATH=/opt/mine:/dev/tessera/lib\n"));
  EXPECT_THAT(result.out, HasSubstr("node /dev/nvidia0 195:0 mode 666 allowed"));
  EXPECT_THAT(result.out, HasSubstr("node /dev/nvidia1 195:1 mode 666 allowed"));
}

TEST_P(Container, LeavesAMuslImageUnchanged) {
  ASSERT_TRUE(WriteFileAtomically(rootfs() + "/etc/ld-musl-x86_64.path", "/lib\n", 0644).ok());
  config().Find("root")->Set("readonly", Json::Bool(false));
  AddEnv("NVIDIA_VISIBLE_DEVICES=0");
  SetArgs({"/bin/probe-static"});
  const auto image = Tree(rootfs());
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("env LD_LIBRARY_PATH=/dev/tessera/lib\n"));
  EXPECT_EQ(Tree(rootfs()), image);
}

TEST_P(Container, GivesAStaticProgramItsNodes) {
  AddEnv("NVIDIA_VISIBLE_DEVICES=GPU-22222222-2222-2222-2222-222222222222");
  SetArgs({"/bin/probe-static", "/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"});
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("node /dev/nvidia0 195:0 mode 666 allowed"));
  EXPECT_THAT(result.out, HasSubstr("node /dev/nvidiactl 195:255 mode 666 allowed"));
  EXPECT_THAT(result.out, HasSubstr("node /dev/nvidia-uvm 508:0 mode 666 allowed"));
}

TEST_P(Container, CannotOpenAGpuThatItWasNotGiven) {
  AddEnv("NVIDIA_VISIBLE_DEVICES=0");
  // A bind mount brings the device node of the other GPU into the container.
  AddMount("/tmp", "bind", path("driver/dev"), {"bind", "ro"});
  SetArgs({"/bin/probe", "/tmp/nvidia1", "/tmp/nvidia0"});
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("node /tmp/nvidia1 195:1 mode 666 allowed"));
  EXPECT_THAT(result.out, HasSubstr("node /tmp/nvidia0 195:0 mode 666 forbidden"));
}

TEST_P(Container, LeavesOnlyTheLinkersFilesInAWritableImage) {
  AddLinkerCache();
  config().Find("root")->Set("readonly", Json::Bool(false));
  AddEnv("NVIDIA_VISIBLE_DEVICES=all");
  const std::string cache = rootfs() + "/etc/ld.so.cache";
  const std::string conf = rootfs() + "/etc/ld.so.conf.d/00-tessera.conf";
  auto image = Tree(rootfs());
  const auto driver = Tree(path("driver"));
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("library libcuda.so.1 loaded"));
  auto after = Tree(rootfs());
  EXPECT_NE(after[cache], image[cache]);
  EXPECT_THAT(ReadFile(conf).value(), HasSubstr("\n/dev/tessera/lib\n"));
  image.erase(cache);
  after.erase(cache);
  after.erase(conf);
  EXPECT_EQ(after, image);
  EXPECT_EQ(Tree(path("driver")), driver);
}

TEST_P(Container, GetsDriverFilesButNoGpuIfItRequestsNone) {
  AddEnv("NVIDIA_VISIBLE_DEVICES=none");
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("library libcuda.so.1 loaded"));
  EXPECT_THAT(result.out, HasSubstr("node /dev/nvidia0: No such file"));
}

TEST_P(Container, StartsAgainFromTheSameBundle) {
  AddLinkerCache();
  AddEnv("NVIDIA_VISIBLE_DEVICES=0");
  const SubprocessResult first = Run();
  const std::string edited = ReadFile(bundle() + "/config.json").value();
  const SubprocessResult second = RunAsItIs();
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(second.out, first.out);
  EXPECT_EQ(ReadFile(bundle() + "/config.json").value(), edited);
}

// Returns the number of mounts in the edited config.json whose source is below `dir`.
int CountMountsFrom(const std::string& bundle, const std::string& dir) {
  const auto document = oci::ConfigDocument::Load(bundle);
  if (!document.ok()) return -1;
  const auto mounts = document->Mounts();
  return static_cast<int>(std::count_if(mounts.begin(), mounts.end(), [&](const oci::Mount& mount) {
    return mount.source.starts_with(dir);
  }));
}

TEST_P(Container, GetsAllDriverFilesByOneMount) {
  AddEnv("NVIDIA_VISIBLE_DEVICES=0");
  WriteRuntimeToml(fmt::format("log = \"{}\"\n", path("runtime.log")));
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("library libcuda.so.1 loaded"));
  EXPECT_THAT(result.out, HasSubstr("driver folder read only"));
  EXPECT_THAT(result.out, HasSubstr("driver file Read-only file system"));
  EXPECT_EQ(CountMountsFrom(bundle(), path("trees")), 1);
  EXPECT_EQ(CountMountsFrom(bundle(), path("driver/usr")), 0);
  EXPECT_THAT(ReadFile(path("runtime.log")).value(), HasSubstr("driver files by one mount of"));
}

TEST_P(Container, GetsAMountForEachDriverFileWhereTheyCannotBeShared) {
  AddLinkerCache();
  AddEnv("NVIDIA_VISIBLE_DEVICES=0");
  const SubprocessResult shared = Run();
  for (const std::string& dir : {std::string(), path("runtime.toml/trees")}) {
    UseTreeDir(dir);
    WriteRuntimeToml(fmt::format("log = \"{}\"\n", path("runtime.log")));
    const SubprocessResult result = Run();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, shared.out);
    EXPECT_EQ(CountMountsFrom(bundle(), path("driver/usr")), 4);
    EXPECT_THAT(ReadFile(path("runtime.log")).value(), HasSubstr("driver files by a mount each: "));
    EXPECT_EQ(RunAsItIs().out, shared.out);
  }
}

TEST_P(Container, GetsTheFilesOfADriverThatWasReplaced) {
  AddEnv("NVIDIA_VISIBLE_DEVICES=0");
  EXPECT_EQ(Run().exit_code, 0);
  fs::remove_all(path("driver"));
  oci::FakeDriverOptions driver = oci::TwoGpus();
  driver.version = "560.1.2";
  ASSERT_TRUE(oci::MakeFakeDriver(path("driver"), driver).ok());
  ASSERT_TRUE(oci::MakeFakeNodes(path("driver"), driver).ok());
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("library libcuda.so.1 loaded"));
  EXPECT_EQ(CountMountsFrom(bundle(), path("trees")), 1);
}

TEST_P(Container, IsRejectedWhereTheDriverIsTooOld) {
  AddEnv("NVIDIA_VISIBLE_DEVICES=0");
  AddEnv("NVIDIA_REQUIRE_CUDA=cuda>=13.0 brand=tesla,driver>=535");
  const SubprocessResult result = Run();
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("cuda>=13.0 (found cuda 12.4)"));
  const std::string log_text = ReadFile(log()).value();
  EXPECT_THAT(log_text, HasSubstr("\"level\":\"error\""));
  EXPECT_THAT(log_text, HasSubstr("found cuda 12.4"));
}

TEST_P(Container, IsRejectedForAnUnknownGpuWithAListOfTheGpus) {
  AddEnv("NVIDIA_VISIBLE_DEVICES=7");
  const SubprocessResult result = Run();
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("\"7\": no such GPU"));
  EXPECT_THAT(result.err, HasSubstr("1 GPU-22222222-2222-2222-2222-222222222222"));
}

TEST_P(Container, IsRejectedWhereTheDriverRootHoldsNoLibraries) {
  fs::remove_all(path("driver/usr/lib"));
  AddEnv("NVIDIA_VISIBLE_DEVICES=0");
  const SubprocessResult result = Run();
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("driver root " + path("driver") + " holds no driver"));
  EXPECT_THAT(result.err, HasSubstr("libcuda.so.<version>"));
}

TEST_P(Container, GetsGraphicsOfItsOwnGpuAlone) {
  AddLinkerCache();
  const auto library = [&](const std::string& name, const std::string& soname) {
    const std::string file = path("driver/usr/lib/x86_64-linux-gnu/") + name + ".so.550.54.15";
    ASSERT_TRUE(WriteFileAtomically(file, oci::MakeLibrary(soname), 0755).ok());
  };
  library("libGLX_nvidia", "libGLX_nvidia.so.0");
  library("libEGL_nvidia", "libEGL_nvidia.so.0");
  library("libnvidia-allocator", "libnvidia-allocator.so.1");
  for (const char* name : {"vulkan/icd.d/nvidia_icd.json", "glvnd/egl_vendor.d/10_nvidia.json"}) {
    const std::string file = path("driver/usr/share/") + name;
    fs::create_directories(DirName(file));
    ASSERT_TRUE(WriteFileAtomically(file, "{}", 0644).ok());
  }
  fs::create_directories(path("driver/dev/dri"));
  const auto drm = [&](const char* bus, const char* name, unsigned minor) {
    fs::create_directories(path("driver/sys/bus/pci/devices/") + bus + "/drm/" + name);
    const std::string node = path("driver/dev/dri/") + name;
    ASSERT_EQ(::mknod(node.c_str(), S_IFCHR | 0660, makedev(226, minor)), 0);
    ASSERT_EQ(::chmod(node.c_str(), 0660), 0);
    ASSERT_EQ(::chown(node.c_str(), 0, 44), 0);
  };
  drm("0000:07:00.0", "renderD128", 128);
  drm("0000:0f:00.0", "renderD129", 129);
  AddEnv("NVIDIA_VISIBLE_DEVICES=0");
  AddEnv("NVIDIA_DRIVER_CAPABILITIES=graphics");
  AddEnv("XDG_DATA_DIRS=/opt/share");
  SetArgs({"/bin/probe", "/dev/dri/renderD128", "/dev/dri/renderD129"});
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("node /dev/dri/renderD128 226:128 mode 660 allowed"));
  EXPECT_THAT(result.out, HasSubstr("node /dev/dri/renderD129: No such file"));
  EXPECT_THAT(result.out, HasSubstr("library libGLX_nvidia.so.0 loaded"));
  EXPECT_THAT(result.out, HasSubstr("library libcuda.so.1 libcuda.so.1: cannot open"));
  EXPECT_THAT(result.out, HasSubstr("env XDG_DATA_DIRS=/dev/tessera/share:/opt/share\n"));
  EXPECT_THAT(result.out, HasSubstr("env __EGL_VENDOR_LIBRARY_DIRS=/dev/tessera/share/glvnd/"
                                    "egl_vendor.d:/etc/glvnd/egl_vendor.d:/usr/share/glvnd/"));
  EXPECT_THAT(result.out, HasSubstr("env GBM_BACKENDS_PATH=/dev/tessera/lib/gbm:/usr/lib/"));
  EXPECT_THAT(result.out, HasSubstr("vulkan driver there"));
  EXPECT_THAT(result.out, HasSubstr("gbm driver there"));
  // A second start changes nothing.
  EXPECT_EQ(RunAsItIs().out, result.out);
}

TEST_P(Container, IsRejectedWhereTheDriverCannotDrawOrEncode) {
  AddEnv("NVIDIA_VISIBLE_DEVICES=0");
  AddEnv("NVIDIA_DRIVER_CAPABILITIES=compute,video");
  const SubprocessResult result = Run();
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("asks for video, but driver 550.54.15"));
  EXPECT_THAT(result.err, HasSubstr("lacks libnvidia-encode, libnvcuvid"));
}

TEST_P(Container, GetsEveryCapabilityOfTheDriverIfItRequestsAll) {
  AddEnv("NVIDIA_VISIBLE_DEVICES=0");
  AddEnv("NVIDIA_DRIVER_CAPABILITIES=all");
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("node /dev/nvidia1 195:1 mode 666 allowed"));
  EXPECT_THAT(result.out, HasSubstr("library libcuda.so.1 loaded"));
  EXPECT_THAT(result.out, HasSubstr("nvidia-smi there"));
}

TEST_P(Container, IsRejectedForADisplayWithoutTheModesetModule) {
  const std::string file = path("driver/usr/lib/x86_64-linux-gnu/libGLX_nvidia.so.550.54.15");
  ASSERT_TRUE(WriteFileAtomically(file, oci::MakeLibrary("libGLX_nvidia.so.0"), 0755).ok());
  AddEnv("NVIDIA_VISIBLE_DEVICES=0");
  AddEnv("NVIDIA_DRIVER_CAPABILITIES=display");
  const SubprocessResult result = Run();
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("/dev/nvidia-modeset"));
  EXPECT_THAT(result.err, HasSubstr("modprobe nvidia-modeset"));
}

TEST_P(Container, IsRejectedWithAdviceWhereUvmIsMissing) {
  fs::remove(path("driver/dev/nvidia-uvm"));
  AddEnv("NVIDIA_VISIBLE_DEVICES=0");
  const SubprocessResult result = Run();
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("nvidia-uvm"));
  EXPECT_THAT(result.err, HasSubstr("nvidia-modprobe -u -c=0"));
}

TEST_P(Container, OtherVerbsWorkWithADamagedConfiguration) {
  WriteRuntimeToml("this is = = not toml\n");
  EXPECT_THAT(RunTessera({"state", "absent"}).err, Not(HasSubstr("runtime.toml")));
  AddEnv("NVIDIA_VISIBLE_DEVICES=0");
  const SubprocessResult result = Run();
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr(path("runtime.toml") + ":7"));
}

TEST_P(Container, ADamagedConfigurationConcernsOnlyContainersWithGpus) {
  WriteRuntimeToml("this is = = not toml\n");
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST_P(Container, ExplainPrintsWhatTheContainerWouldGetAndChangesNothing) {
  AddEnv("NVIDIA_VISIBLE_DEVICES=0");
  fs::create_directories(rootfs() + "/usr/lib64");
  const std::string file = bundle() + "/config.json";
  const std::string text = config().Pretty();
  ASSERT_TRUE(WriteFileAtomically(file, text, 0600).ok());
  const SubprocessResult result = RunOwn({"explain", "--bundle", bundle()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("device     /dev/nvidia1 195:1\n"));
  EXPECT_THAT(result.out, HasSubstr("library    /dev/tessera/lib/libcuda.so.1"));
  EXPECT_THAT(result.out, HasSubstr("links to the libraries are made in /usr/lib64\n"));
  EXPECT_TRUE(fs::is_empty(rootfs() + "/usr/lib64"));
  EXPECT_EQ(ReadFile(file).value(), text);
  EXPECT_FALSE(PathExists(bundle() + "/tessera"));
  EXPECT_FALSE(PathExists(path("trees")));
}

TEST_P(Container, HelpNamesOurCommandsAndDashDashHelpGoesToTheLowLevelRuntime) {
  const SubprocessResult help = RunOwn({"help"});
  EXPECT_EQ(help.exit_code, 0) << help.err;
  EXPECT_THAT(help.out, HasSubstr("tessera-runtime configure "));
  EXPECT_THAT(help.out, HasSubstr("tessera-runtime explain "));
  // Standard output is a pipe here, so the caller is a program and not a person.
  EXPECT_THAT(RunOwn({"--help"}).out, Not(HasSubstr("tessera-runtime")));
}

TEST_P(Container, EachOwnCommandPrintsTheVersion) {
  const std::string version = fmt::format("tessera-runtime: {}\n", kTesseraVersion);
  EXPECT_THAT(RunOwn({"--version"}).out, HasSubstr(version));
  for (const char* command : {"explain", "configure"}) {
    const SubprocessResult shown = RunOwn({command, "--version"});
    EXPECT_EQ(shown.exit_code, 0) << command;
    EXPECT_EQ(shown.out, version) << command;
  }
}

TEST_P(Container, ExplainHasHelpAndRejectsWhatItDoesNotKnow) {
  WriteRuntimeToml("this is = = not toml\n");
  const SubprocessResult help = RunOwn({"explain", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("Usage: tessera-runtime explain [OPTIONS]"));
  EXPECT_THAT(help.out, HasSubstr("-b,--bundle DIR"));
  EXPECT_EQ(help.err, "");
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"explain", "--bundel", "/x"}, {"explain", "here"}}) {
    const SubprocessResult result = RunOwn(wrong);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr("explain: unknown argument \"" + wrong[1] + "\""));
  }
  EXPECT_THAT(RunOwn({"explain", "--bundle"}).err, HasSubstr("needs a directory"));
}

}  // namespace
}  // namespace tessera
