// SPDX-License-Identifier: Apache-2.0
#include "src/oci/injection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <map>

#include "src/oci/shared_tree.h"
#include "src/oci/testing/injection_fixture.h"

namespace tessera::oci {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(InjectionTest, DriverFilesGoIntoATmpfsAtDevOrOtherwiseAtRun) {
  EXPECT_EQ(DriverDirFor(PrivateDev()).value(), "/dev/tessera");
  EXPECT_EQ(DriverDirFor({{"/dev/", "tmpfs", "x"}, {"/run", "tmpfs", "x"}}).value(),
            "/dev/tessera");
  EXPECT_EQ(DriverDirFor({{"/dev", "bind", "/dev"}, {"/run", "tmpfs", "x"}}).value(),
            "/run/tessera");
  EXPECT_EQ(DriverDirFor({{"/run", "tmpfs", "x"}}).value(), "/run/tessera");
  // The container sees the last mount over a path; names that only share a prefix do not match.
  EXPECT_EQ(DriverDirFor({{"/dev", "tmpfs", "x"}, {"/dev", "bind", "/dev"}, {"/run", "tmpfs", "x"}})
                .value(),
            "/run/tessera");
  EXPECT_EQ(
      DriverDirFor({{"/dev", "tmpfs", "x"}, {"/dev/tessera", "bind", "/x"}, {"/run", "tmpfs", "x"}})
          .value(),
      "/run/tessera");
  EXPECT_EQ(
      DriverDirFor({{"/dev", "tmpfs", "x"}, {"/dev/tess", "bind", "/x"}, {"/device", "bind", "/x"}})
          .value(),
      "/dev/tessera");
}

TEST_F(InjectionTest, WithoutATmpfsTheContainerIsRejected) {
  for (const Mounts& mounts :
       {Mounts{}, Mounts{{"/", "tmpfs", "x"}}, Mounts{{"/dev", "bind", "/dev"}}}) {
    const auto driver_dir = DriverDirFor(mounts);
    EXPECT_EQ(driver_dir.status().code(), Code::kFailedPrecondition);
    EXPECT_THAT(driver_dir.status().message(), HasSubstr("mount a tmpfs at /run"));
  }
}

TEST_F(InjectionTest, LinksInTheImageAreRejected) {
  fs::create_symlink("/tmp", rootfs() + "/dev");
  EXPECT_THAT(DriverDirFor(PrivateDev()).status().message(),
              HasSubstr("the image has /dev as a symbolic link"));
  fs::remove(rootfs() + "/dev");
  fs::create_symlink("/tmp", rootfs() + "/run");
  EXPECT_EQ(DriverDirFor(PrivateDev()).value(), "/dev/tessera") << "/run is not used";
  EXPECT_THAT(DriverDirFor({{"/run", "tmpfs", "x"}}).status().message(),
              HasSubstr("/run as a symbolic link"));
}

TEST_F(InjectionTest, MountsOfAnEarlierStartDoNotCount) {
  const std::string trees = path("trees");
  EXPECT_EQ(
      DriverDirFor({{"/dev", "tmpfs", "x"}, {"/dev/tessera", "bind", trees + "/trees/1"}}, trees)
          .value(),
      "/dev/tessera");
  EXPECT_EQ(
      DriverDirFor({{"/dev", "tmpfs", "x"}, {"/dev/tessera", "bind", path("bundle/tessera/tree")}})
          .value(),
      "/dev/tessera");
  EXPECT_EQ(
      DriverDirFor({{"/run", "tmpfs", "x"}, {"/run/tessera", "bind", trees + "/trees/1"}}, trees)
          .value(),
      "/run/tessera");
  // Elsewhere, or from a directory that only shares a prefix, the mount is the user's.
  EXPECT_FALSE(
      DriverDirFor({{"/dev", "tmpfs", "x"}, {"/dev/tessera", "bind", trees + "2/x"}}, trees).ok());
  EXPECT_FALSE(
      DriverDirFor({{"/dev", "tmpfs", "x"}, {"/dev/tessera", "bind", path("bundle/tessera2")}})
          .ok());
  EXPECT_FALSE(DriverDirFor({{"/dev", "tmpfs", "x"}, {"/dev", "bind", trees + "/x"}}, trees).ok());
  EXPECT_FALSE(
      DriverDirFor({{"/dev", "tmpfs", "x"}, {"/dev/tessera", "bind", "relative"}}, trees).ok());
}

TEST_F(InjectionTest, TheLinkersFilesAreWrittenIntoAWritableRoot) {
  AddImageCache();
  const ConfigDocument document = Injected(Document(PrivateDev()));
  EXPECT_THAT(Destinations(document), Not(Contains("/etc/ld.so.cache")));
  EXPECT_FALSE(document.env().Get("LD_LIBRARY_PATH").has_value());
  const LdCache cache = ParseLdCache(ReadFile(rootfs() + "/etc/ld.so.cache").value()).value();
  std::vector<std::string> paths;
  for (const LdCacheEntry& entry : cache.entries) paths.push_back(entry.path);
  EXPECT_THAT(paths, Contains("/dev/tessera/lib/libcuda.so.1"));
  EXPECT_THAT(paths, Contains("/lib/libc.so.6"));
  EXPECT_THAT(paths, Not(Contains("/opt/libcuda.so.1")));
  EXPECT_THAT(ReadFile(rootfs() + "/etc/ld.so.conf.d/00-tessera.conf").value(),
              HasSubstr("\n/dev/tessera/lib\n"));
}

TEST_F(InjectionTest, EntriesOfAnEarlierDriverAreRemovedFromTheCache) {
  AddImageCache();
  LdCache cache;
  for (const char* old :
       {"/dev/tessera/lib/libnvidia-old.so.1", "/run/tessera/lib/libnvidia-old.so.1",
        "/dev/tesseract/libnvidia-old.so.1"}) {
    cache.entries.push_back(
        {.name = "libnvidia-old.so.1", .path = old, .flags = NativeLdCacheFlags()});
  }
  Write("etc/ld.so.cache", WriteLdCache(cache));
  Injected(Document(PrivateDev()));
  const LdCache now = ParseLdCache(ReadFile(rootfs() + "/etc/ld.so.cache").value()).value();
  std::vector<std::string> old;
  for (const LdCacheEntry& entry : now.entries) {
    if (entry.name == "libnvidia-old.so.1") old.push_back(entry.path);
  }
  EXPECT_THAT(old, ElementsAre("/dev/tesseract/libnvidia-old.so.1"));
}

TEST_F(InjectionTest, MergedCacheIsMountedOverTheCacheOfAReadOnlyRoot) {
  AddImageCache();
  const std::string before = ReadFile(rootfs() + "/etc/ld.so.cache").value();
  const ConfigDocument document = Injected(Document(PrivateDev(), true));
  EXPECT_THAT(Destinations(document), Contains("/etc/ld.so.cache"));
  EXPECT_EQ(ReadFile(rootfs() + "/etc/ld.so.cache").value(), before);
  EXPECT_FALSE(PathExists(rootfs() + "/etc/ld.so.conf.d/00-tessera.conf"));
}

TEST_F(InjectionTest, AReadOnlyRootNeedsACacheAndNoLdSoConf) {
  AddImageCache("/usr/lib\n");
  EXPECT_THAT(Destinations(Injected(Document(PrivateDev(), true))), Contains("/etc/ld.so.cache"));
  fs::remove(rootfs() + "/etc/ld.so.cache");
  const ConfigDocument document = Injected(Document(PrivateDev(), true));
  EXPECT_THAT(Destinations(document), Not(Contains("/etc/ld.so.cache")));
  EXPECT_EQ(document.env().Get("LD_LIBRARY_PATH"), "/dev/tessera/lib");
}

TEST_F(InjectionTest, WithoutAUsableCacheLibrariesAreFoundThroughTheEnvironment) {
  const auto by_environment = [&](const Mounts& mounts) {
    const ConfigDocument document = Injected(Document(mounts));
    EXPECT_FALSE(PathExists(rootfs() + "/etc/ld.so.conf.d/00-tessera.conf"));
    return document.env().Get("LD_LIBRARY_PATH") == "/dev/tessera/lib";
  };
  EXPECT_TRUE(by_environment(PrivateDev())) << "the image has no cache";
  AddImageCache();
  fs::remove(rootfs() + "/etc/ld.so.cache");
  EXPECT_TRUE(by_environment(PrivateDev()))
      << "the image has no cache, although ldconfig would find the libraries";
  for (const char* conf : {"/usr/lib\n", "# include ld.so.conf.d/*.conf\n",
                           "include /etc/other/*.conf\n", "include ld.so.conf.d/*.conf more\n"}) {
    AddImageCache(conf);
    EXPECT_TRUE(by_environment(PrivateDev())) << conf;
  }
  AddImageCache();
  for (const char* over : {"/etc", "/etc/ld.so.cache"}) {
    EXPECT_TRUE(by_environment({{"/dev", "tmpfs", "x"}, {over, "bind", "/x"}})) << over;
  }
  fs::remove(rootfs() + "/etc/ld.so.conf.d");
  EXPECT_TRUE(by_environment(PrivateDev())) << "the image has no ld.so.conf.d";
}

TEST_F(InjectionTest, LdSoConfMayNameItsDirByARelativeOrAnAbsolutePath) {
  for (const char* conf :
       {"include ld.so.conf.d/*.conf\n", "\tinclude\t/etc/ld.so.conf.d/*.conf # all\n"}) {
    AddImageCache(conf);
    EXPECT_FALSE(Injected(Document(PrivateDev())).env().Get("LD_LIBRARY_PATH").has_value()) << conf;
    fs::remove(rootfs() + "/etc/ld.so.conf.d/00-tessera.conf");
  }
}

TEST_F(InjectionTest, NodesAreCreatedOnlyInAPrivateDev) {
  injection_.devices = {
      {.path = "/dev/nvidia0", .major_number = 1, .minor_number = 3, .mode = 0660, .gid = 44}};
  const ConfigDocument document = Injected(Document(PrivateDev()));
  const Json* devices = document.json().Find("linux")->Find("devices");
  ASSERT_NE(devices, nullptr);
  EXPECT_EQ(devices->items().size(), 1u);
  EXPECT_EQ(document.json().Find("process")->Find("user")->Find("additionalGids")->Serialize(),
            "[44]");

  // In the host's /dev the node must exist with the same device number.
  ConfigDocument bound = Document({{"/dev", "bind", path("hostdev")}, {"/run", "tmpfs", "x"}});
  const InjectionTarget target = FindInjectionTarget(bound, "").value();
  const auto refused = Inject(injection_, target, &bound);
  EXPECT_THAT(refused.status().message(),
              HasSubstr("the container's /dev is " + path("hostdev") + " of the host"));
  fs::create_directories(path("hostdev"));
  if (::mknod(path("hostdev/nvidia0").c_str(), S_IFCHR | 0600, makedev(1, 5)) != 0) {
    GTEST_SKIP() << "needs CAP_MKNOD";
  }
  EXPECT_FALSE(Inject(injection_, target, &bound).ok()) << "another device";
  fs::remove(path("hostdev/nvidia0"));
  ASSERT_EQ(::mknod(path("hostdev/nvidia0").c_str(), S_IFCHR | 0600, makedev(1, 3)), 0);
  const auto given = Inject(injection_, target, &bound);
  EXPECT_TRUE(given.ok()) << given.status().message();
  EXPECT_EQ(bound.json().Find("linux")->Find("devices"), nullptr)
      << "no node is created in the host's /dev";
}

TEST_F(InjectionTest, NoNodeIsCreatedInADevDirectoryOfTheImage) {
  injection_.devices = {{.path = "/dev/nvidia0", .major_number = 1, .minor_number = 3}};
  ConfigDocument document = Document({{"/run", "tmpfs", "x"}});
  const auto refused = Inject(injection_, FindInjectionTarget(document, "").value(), &document);
  EXPECT_THAT(refused.status().message(), HasSubstr("/dev is in its root file system"));
}

TEST_F(InjectionTest, AGroupIsAddedOnlyIfTheNodeNeedsIt) {
  injection_.devices = {{.path = "/dev/a", .mode = 0666, .gid = 44},
                        {.path = "/dev/b", .mode = 0660, .gid = 0}};
  const ConfigDocument document = Injected(Document(PrivateDev()));
  EXPECT_EQ(document.json().Find("process")->Find("user"), nullptr);
}

TEST_F(InjectionTest, GrantedMountsMoveWithTheDriversDir) {
  ASSERT_TRUE(WriteFileAtomically(path("limits"), "x", 0644).ok());
  injection_.mounts = {{"/dev/tessera/limits", "bind", path("limits"), {}},
                       {"/dev/tessera/folder", "bind", dir_.path(), {}},
                       {"/opt/x", "bind", "/nowhere", {}}};
  const ConfigDocument document = Injected(Document({{"/run", "tmpfs", "x"}}));
  EXPECT_THAT(Destinations(document), Contains("/run/tessera/limits"));
  EXPECT_THAT(Destinations(document), Contains("/opt/x"));
  EXPECT_TRUE(fs::is_regular_file(path("bundle/tessera/tree/limits")));
  EXPECT_TRUE(fs::is_directory(path("bundle/tessera/tree/folder")));
  EXPECT_FALSE(PathExists(path("bundle/tessera/tree/x")));

  injection_.mounts = {{"/dev/tessera/gone", "bind", path("gone"), {}}};
  ConfigDocument again = Document(PrivateDev());
  EXPECT_EQ(Inject(injection_, FindInjectionTarget(again, "").value(), &again).status().code(),
            Code::kNotFound);
}

TEST_F(InjectionTest, ProgramsAndLinksComeWithTheLibraries) {
  const ConfigDocument document = Injected(Document(PrivateDev()));
  EXPECT_EQ(document.env().Get("PATH"), "/bin:/dev/tessera/bin");
  EXPECT_EQ(fs::read_symlink(path("bundle/tessera/tree/lib/libcuda.so.1")), "libcuda.so.550.54.15");
  EXPECT_EQ(fs::read_symlink(path("bundle/tessera/tree/lib/libcuda.so")), "libcuda.so.550.54.15");
  EXPECT_FALSE(PathExists(path("bundle/tessera/tree/lib/gbm")));
  EXPECT_FALSE(document.env().Get("XDG_DATA_DIRS").has_value());
}

TEST_F(InjectionTest, SocketsOfTheDriverAreMountedOnlyIntoAPrivateDir) {
  injection_.driver.sockets = {{path("socket"), "/run/nvidia-persistenced/socket"}};
  EXPECT_THAT(Destinations(Injected(Document(PrivateDev()))),
              Not(Contains("/run/nvidia-persistenced/socket")));
  EXPECT_THAT(Destinations(Injected(Document({{"/dev", "tmpfs", "x"}, {"/run", "tmpfs", "x"}}))),
              Contains("/run/nvidia-persistenced/socket"));
}

TEST_F(InjectionTest, StagedFilesHaveTheContainersSelinuxLabel) {
  AddImageCache();
  ConfigDocument plain = Document(PrivateDev(), true);
  Json json = plain.json();
  const std::string label = "system_u:object_r:container_file_t:s0:c15,c300";
  json.Find("linux")->Set("mountLabel", Json::String(label));
  Injected(ConfigDocument::Parse(json.Serialize(), path("bundle")).value());
  for (const char* name : {"tree", "tree/lib", "tree/lib/libcuda.so.1", "ld.so.cache"}) {
    std::array<char, 256> value{};
    const std::string file = path("bundle/tessera/") + name;
    const ssize_t size = ::lgetxattr(file.c_str(), "security.selinux", value.data(), value.size());
    if (size < 0 && errno == ENOTSUP) GTEST_SKIP() << "no security attributes here";
    EXPECT_EQ(std::string(value.data()), label) << name;
  }
  Injected(plain);
  EXPECT_LT(::lgetxattr(path("bundle/tessera/tree").c_str(), "security.selinux", nullptr, 0), 0);
}

TEST_F(InjectionTest, WithoutASharedTreeEachFileOfTheDriverIsMountedReadOnly) {
  const ConfigDocument document = Injected(Document(PrivateDev()));
  std::map<std::string, Mount> mounts;
  for (const Mount& mount : document.Mounts()) mounts[mount.destination] = mount;
  ASSERT_EQ(mounts.size(), 6u) << "/dev, the tree, three libraries and a program";
  EXPECT_EQ(mounts["/dev/tessera"].source, path("bundle/tessera/tree"));
  const Mount& cuda = mounts["/dev/tessera/lib/libcuda.so.550.54.15"];
  EXPECT_EQ(cuda.source, path("driver/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15"));
  EXPECT_THAT(cuda.options, ElementsAre("ro", "nosuid", "nodev", "bind", "rprivate"));
}

TEST_F(InjectionTest, NoVariableLoadsTheDriverBeforeTheLimiter) {
  ConfigDocument document = Document(PrivateDev());
  document.MutableEnv()->Set("LD_PRELOAD", "/lib/mine.so:/dev/tessera/real/libcuda");
  document.MutableEnv()->Set("LD_AUDIT", "/run/tessera/real/libcuda");
  document = Injected(std::move(document));
  EXPECT_EQ(document.env().Get("LD_PRELOAD"), "/lib/mine.so");
  EXPECT_EQ(document.env().Get("LD_AUDIT"), "");
}

TEST_F(InjectionTest, ALimitedContainerGetsTheLimiterInPlaceOfTheDriversLibraries) {
  injection_.limiter = Limiter{.library_dir = "/opt/tessera/lib", .limits_dir = path("limits")};
  ConfigDocument document = Injected(Document(PrivateDev()));
  const auto mounts_of = [](const ConfigDocument& document) {
    std::map<std::string, Mount> mounts;
    for (const Mount& mount : document.Mounts()) mounts[mount.destination] = mount;
    return mounts;
  };
  auto mounts = mounts_of(document);
  EXPECT_EQ(mounts["/dev/tessera/lib/libcuda.so.550.54.15"].source,
            "/opt/tessera/lib/libtessera-cuda-dev.so");
  EXPECT_EQ(mounts["/dev/tessera/real/libcuda"].source,
            path("driver/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15"));
  EXPECT_EQ(fs::read_symlink(path("bundle/tessera/tree/lib/libcuda.so.1")), "libcuda.so.550.54.15");
  EXPECT_EQ(mounts["/dev/tessera/lib/libnvidia-ml.so.550.54.15"].source,
            "/opt/tessera/lib/libtessera-nvml-dev.so");
  EXPECT_EQ(mounts["/dev/tessera/real/libnvidia-ml"].source,
            path("driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.54.15"));
  EXPECT_EQ(mounts["/dev/tessera/limits"].source, path("limits"));
  EXPECT_THAT(mounts["/dev/tessera/limits"].options, Contains("ro"));
  EXPECT_EQ(mounts["/dev/tessera/usage"].type, "tmpfs")
      << "nothing of the host is writable in the container";
  EXPECT_THAT(mounts["/dev/tessera/usage"].options, Contains("size=8m"));

  fs::create_directories(rootfs() + "/usr/local/cuda-12.4/compat");
  const std::string compat = "/usr/local/cuda-12.4/compat/libcuda.so.550.90";
  Write(compat, MakeLibrary("libcuda.so.1"));
  document = Injected(Document(PrivateDev(), true));
  EXPECT_EQ(mounts_of(document)[compat].source, "/opt/tessera/lib/libtessera-cuda-dev.so");
  EXPECT_THAT(Destinations(Injected(document)),
              ::testing::UnorderedElementsAreArray(Destinations(document)))
      << "the second start of a bundle adds no mount";

  document = Injected(Document({{"/run", "tmpfs", "x"}}));
  mounts = mounts_of(document);
  EXPECT_EQ(mounts["/run/tessera/lib/libcuda.so.550.54.15"].source,
            "/opt/tessera/lib/libtessera-cuda-run.so");
  EXPECT_EQ(mounts["/run/tessera/limits"].source, path("limits"));
}

TEST_F(InjectionTest, TheDriverFilesOfASharedTreeAreOneMount) {
  // The namespace ends with the process.
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    GTEST_SKIP() << "mounts need root";
  }
  injection_.tree_dir = path("trees");
  ConfigDocument document = Document(PrivateDev());
  const auto summary =
      Inject(injection_, FindInjectionTarget(document, path("trees")).value(), &document);
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  if (!summary->starts_with("driver files by one mount")) GTEST_SKIP() << *summary;
  EXPECT_THAT(Destinations(document), ElementsAre("/dev", "/dev/tessera"));
  EXPECT_TRUE(DropSharedTrees(path("trees")).ok());
}

TEST_F(InjectionTest, TreesWithAndWithoutTheLimiterAreKeptSideBySide) {
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    GTEST_SKIP() << "mounts need root";
  }
  injection_.tree_dir = path("trees");
  fs::create_directories(path("limits"));
  for (const char* name : {"limits/limits", "libtessera-cuda-dev.so", "libtessera-cuda-run.so",
                           "libtessera-nvml-dev.so", "libtessera-nvml-run.so"}) {
    ASSERT_TRUE(WriteFileAtomically(path(name), "x", 0644).ok());
  }
  const auto tree = [&] {
    ConfigDocument document = Document(PrivateDev());
    const auto summary =
        Inject(injection_, FindInjectionTarget(document, path("trees")).value(), &document);
    EXPECT_TRUE(summary.ok()) << summary.status().message();
    for (const Mount& mount : document.Mounts()) {
      if (mount.destination == "/dev/tessera") return mount.source;
    }
    return std::string();
  };
  const std::string plain = tree();
  injection_.limiter = Limiter{.library_dir = dir_.path(), .limits_dir = path("limits")};
  const std::string limited = tree();
  injection_.limiter.reset();
  EXPECT_NE(plain, limited);
  EXPECT_EQ(tree(), plain);
  EXPECT_TRUE(PathExists(limited + "/real/libcuda")) << "a container may be starting with it";
  EXPECT_TRUE(DropSharedTrees(path("trees")).ok());
}

TEST_F(InjectionTest, TheMemoryLimitOfTheKernelIsSetOnlyIfThereIsOne) {
  const auto unified = [](const ConfigDocument& document) {
    const Json* resources = document.json().Find("linux")->Find("resources");
    const Json* found = resources == nullptr ? nullptr : resources->Find("unified");
    return found == nullptr ? "none" : found->Serialize();
  };
  EXPECT_EQ(unified(Injected(Document(PrivateDev()))), "none");
  injection_.dmem_max = "drm/0000:03:00.0/vram0 9663676416";
  const ConfigDocument document = Injected(Document(PrivateDev()));
  EXPECT_EQ(unified(document), R"({"dmem.max":"drm/0000:03:00.0/vram0 9663676416"})");
  EXPECT_EQ(unified(Injected(document)), unified(document)) << "a bundle that starts again";
}

}  // namespace
}  // namespace tessera::oci
