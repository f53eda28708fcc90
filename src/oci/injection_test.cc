// SPDX-License-Identifier: Apache-2.0
#include "src/oci/injection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <map>

#include "src/oci/replace_file.h"
#include "src/oci/shared_tree.h"
#include "src/oci/testing/fake_driver.h"

namespace tessera::oci {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class InjectionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(MakeFakeDriver(path("driver"), TwoGpus()).ok());
    fs::create_directories(path("bundle/rootfs/etc/ld.so.conf.d"));
    injection_.driver = FindDriver(path("driver"), kDefaultCapabilities).value();
  }

  std::string path(const std::string& name) const { return JoinPath(dir_.path(), name); }
  std::string rootfs() const { return path("bundle/rootfs"); }

  void AddImageCache(const std::string& conf = "include /etc/ld.so.conf.d/*.conf\n") {
    LdCache cache;
    cache.entries = {
        {.name = "libc.so.6", .path = "/lib/libc.so.6", .flags = NativeLdCacheFlags()},
        {.name = "libcuda.so.1", .path = "/opt/libcuda.so.1", .flags = NativeLdCacheFlags()}};
    Write("etc/ld.so.cache", WriteLdCache(cache));
    Write("etc/ld.so.conf", conf);
  }
  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomically(JoinPath(rootfs(), name), text, 0644).ok());
  }

  // `mounts`: destination, type and source of each mount.
  using Mounts = std::vector<std::array<std::string, 3>>;
  ConfigDocument Document(const Mounts& mounts, bool read_only = false) {
    Json json =
        ParseJson(R"({"process":{"env":["PATH=/bin"]},"root":{"path":"rootfs"},"linux":{}})")
            .value();
    json.Find("root")->Set("readonly", Json::Bool(read_only));
    Json list = Json::MakeArray();
    for (const auto& [destination, type, source] : mounts) {
      Json mount = Json::MakeObject();
      mount.Set("destination", Json::String(destination));
      mount.Set("type", Json::String(type));
      mount.Set("source", Json::String(source));
      list.Append(std::move(mount));
    }
    json.Set("mounts", std::move(list));
    return ConfigDocument::Parse(json.Serialize(), path("bundle")).value();
  }
  static Mounts OwnDev() { return {{"/dev", "tmpfs", "tmpfs"}}; }

  Result<std::string> Place(const Mounts& mounts, const std::string& tree_dir = "") {
    ASSIGN_OR_RETURN(const InjectionTarget target, FindInjectionTarget(Document(mounts), tree_dir));
    return target.driver_dir;
  }

  // The document with the mounts that a start would add.
  ConfigDocument Injected(ConfigDocument document) {
    const Result<InjectionTarget> target = FindInjectionTarget(document, "");
    EXPECT_TRUE(target.ok()) << target.status().message();
    const auto summary = Inject(injection_, *target, &document);
    EXPECT_TRUE(summary.ok()) << summary.status().message();
    return document;
  }
  static std::vector<std::string> Destinations(const ConfigDocument& document) {
    std::vector<std::string> all;
    for (const Mount& mount : document.Mounts()) all.push_back(mount.destination);
    return all;
  }

  TempDir dir_;
  Injection injection_;
};

TEST_F(InjectionTest, DriverFilesGoIntoATmpfsAtDevElseAtRun) {
  EXPECT_EQ(Place(OwnDev()).value(), "/dev/tessera");
  EXPECT_EQ(Place({{"/dev/", "tmpfs", "x"}, {"/run", "tmpfs", "x"}}).value(), "/dev/tessera");
  EXPECT_EQ(Place({{"/dev", "bind", "/dev"}, {"/run", "tmpfs", "x"}}).value(), "/run/tessera");
  EXPECT_EQ(Place({{"/run", "tmpfs", "x"}}).value(), "/run/tessera");
  // The container sees the last mount over a path; names that only share a prefix do not match.
  EXPECT_EQ(
      Place({{"/dev", "tmpfs", "x"}, {"/dev", "bind", "/dev"}, {"/run", "tmpfs", "x"}}).value(),
      "/run/tessera");
  EXPECT_EQ(Place({{"/dev", "tmpfs", "x"}, {"/dev/tessera", "bind", "/x"}, {"/run", "tmpfs", "x"}})
                .value(),
            "/run/tessera");
  EXPECT_EQ(Place({{"/dev", "tmpfs", "x"}, {"/dev/tess", "bind", "/x"}, {"/device", "bind", "/x"}})
                .value(),
            "/dev/tessera");
}

TEST_F(InjectionTest, WithoutATmpfsTheContainerIsRejected) {
  for (const Mounts& mounts :
       {Mounts{}, Mounts{{"/", "tmpfs", "x"}}, Mounts{{"/dev", "bind", "/dev"}}}) {
    const auto place = Place(mounts);
    EXPECT_EQ(place.status().code(), Code::kFailedPrecondition);
    EXPECT_THAT(place.status().message(), HasSubstr("mount a tmpfs at /run"));
  }
}

TEST_F(InjectionTest, LinksInTheImageAreRejected) {
  fs::create_symlink("/tmp", rootfs() + "/dev");
  EXPECT_THAT(Place(OwnDev()).status().message(),
              HasSubstr("the image has /dev as a symbolic link"));
  fs::remove(rootfs() + "/dev");
  fs::create_symlink("/tmp", rootfs() + "/run");
  EXPECT_EQ(Place(OwnDev()).value(), "/dev/tessera") << "/run is not used";
  EXPECT_THAT(Place({{"/run", "tmpfs", "x"}}).status().message(),
              HasSubstr("/run as a symbolic link"));
}

TEST_F(InjectionTest, MountsOfAnEarlierStartDoNotCount) {
  const std::string trees = path("trees");
  EXPECT_EQ(
      Place({{"/dev", "tmpfs", "x"}, {"/dev/tessera", "bind", trees + "/trees/1"}}, trees).value(),
      "/dev/tessera");
  EXPECT_EQ(Place({{"/dev", "tmpfs", "x"}, {"/dev/tessera", "bind", path("bundle/tessera/tree")}})
                .value(),
            "/dev/tessera");
  EXPECT_EQ(
      Place({{"/run", "tmpfs", "x"}, {"/run/tessera", "bind", trees + "/trees/1"}}, trees).value(),
      "/run/tessera");
  // Elsewhere, or from a directory that only shares a prefix, the mount is the user's.
  EXPECT_FALSE(
      Place({{"/dev", "tmpfs", "x"}, {"/dev/tessera", "bind", trees + "2/x"}}, trees).ok());
  EXPECT_FALSE(
      Place({{"/dev", "tmpfs", "x"}, {"/dev/tessera", "bind", path("bundle/tessera2")}}).ok());
  EXPECT_FALSE(Place({{"/dev", "tmpfs", "x"}, {"/dev", "bind", trees + "/x"}}, trees).ok());
  EXPECT_FALSE(Place({{"/dev", "tmpfs", "x"}, {"/dev/tessera", "bind", "relative"}}, trees).ok());
}

TEST_F(InjectionTest, TheLinkersFilesAreWrittenIntoAWritableRoot) {
  AddImageCache();
  const ConfigDocument document = Injected(Document(OwnDev()));
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

TEST_F(InjectionTest, EntriesOfAnEarlierDriverLeaveTheCache) {
  AddImageCache();
  LdCache cache;
  for (const char* old :
       {"/dev/tessera/lib/libnvidia-old.so.1", "/run/tessera/lib/libnvidia-old.so.1",
        "/dev/tesseract/libnvidia-old.so.1"}) {
    cache.entries.push_back(
        {.name = "libnvidia-old.so.1", .path = old, .flags = NativeLdCacheFlags()});
  }
  Write("etc/ld.so.cache", WriteLdCache(cache));
  Injected(Document(OwnDev()));
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
  const ConfigDocument document = Injected(Document(OwnDev(), true));
  EXPECT_THAT(Destinations(document), Contains("/etc/ld.so.cache"));
  EXPECT_EQ(ReadFile(rootfs() + "/etc/ld.so.cache").value(), before);
  EXPECT_FALSE(PathExists(rootfs() + "/etc/ld.so.conf.d/00-tessera.conf"));
}

TEST_F(InjectionTest, AReadOnlyRootNeedsACacheAndNoLdSoConf) {
  AddImageCache("/usr/lib\n");
  EXPECT_THAT(Destinations(Injected(Document(OwnDev(), true))), Contains("/etc/ld.so.cache"));
  fs::remove(rootfs() + "/etc/ld.so.cache");
  const ConfigDocument document = Injected(Document(OwnDev(), true));
  EXPECT_THAT(Destinations(document), Not(Contains("/etc/ld.so.cache")));
  EXPECT_EQ(document.env().Get("LD_LIBRARY_PATH"), "/dev/tessera/lib");
}

TEST_F(InjectionTest, WithoutAUsableCacheLibrariesAreFoundThroughTheEnvironment) {
  const auto by_environment = [&](const Mounts& mounts) {
    const ConfigDocument document = Injected(Document(mounts));
    EXPECT_FALSE(PathExists(rootfs() + "/etc/ld.so.conf.d/00-tessera.conf"));
    return document.env().Get("LD_LIBRARY_PATH") == "/dev/tessera/lib";
  };
  EXPECT_TRUE(by_environment(OwnDev())) << "the image has no cache";
  AddImageCache();
  fs::remove(rootfs() + "/etc/ld.so.cache");
  EXPECT_TRUE(by_environment(OwnDev()))
      << "the image has no cache, although ldconfig would find the libraries";
  for (const char* conf : {"/usr/lib\n", "# include ld.so.conf.d/*.conf\n",
                           "include /etc/other/*.conf\n", "include ld.so.conf.d/*.conf more\n"}) {
    AddImageCache(conf);
    EXPECT_TRUE(by_environment(OwnDev())) << conf;
  }
  AddImageCache();
  for (const char* over : {"/etc", "/etc/ld.so.cache"}) {
    EXPECT_TRUE(by_environment({{"/dev", "tmpfs", "x"}, {over, "bind", "/x"}})) << over;
  }
  fs::remove(rootfs() + "/etc/ld.so.conf.d");
  EXPECT_TRUE(by_environment(OwnDev())) << "the image has no ld.so.conf.d";
}

class LibraryLinksTest : public InjectionTest {
 protected:
  static constexpr std::string_view kDir = kFakeLibraryDir;

  void MakeDir(std::string_view name) { fs::create_directories(JoinPath(rootfs(), name)); }
  // The names in a directory of the image, with the targets of links.
  std::map<std::string, std::string> Files(std::string_view dir) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(JoinPath(rootfs(), dir))) {
      files[entry.path().filename()] = entry.is_symlink() ? fs::read_symlink(entry.path()) : "";
    }
    return files;
  }
  static std::map<std::string, std::string> Links(const std::string& dir = "/dev/tessera/lib/") {
    std::map<std::string, std::string> links;
    for (const char* name :
         {"libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1"}) {
      links[name] = dir + name;
    }
    return links;
  }
};

TEST_F(LibraryLinksTest, TheImagesLibraryDirGetsLinksWithoutTheDriversVersion) {
  injection_.driver.libraries.push_back({.host_path = path("x"),
                                         .file_name = "libnvidia-glcore.so.550.54.15",
                                         .soname = "libnvidia-glcore.so.550.54.15"});
  for (const std::string& dir : {std::string(kDir), std::string("usr/lib64")}) {
    MakeDir(dir);
    MakeDir("usr/lib");
    for (const bool read_only : {false, true}) {
      for (int start = 0; start < 2; ++start) Injected(Document(OwnDev(), read_only));
      EXPECT_EQ(Files(dir), Links()) << dir;
    }
    fs::remove_all(rootfs() + "/usr");
  }
}

TEST_F(LibraryLinksTest, TheDirOfTheDistributionIsPreferredToLib64) {
  MakeDir(kDir);
  MakeDir("usr/lib64");
  Injected(Document(OwnDev()));
  EXPECT_EQ(Files(kDir), Links());
  EXPECT_THAT(Files("usr/lib64"), ::testing::IsEmpty());
}

TEST_F(LibraryLinksTest, Lib64MayBeALinkToLib) {
  MakeDir("usr/lib");
  fs::create_symlink("lib", rootfs() + "/usr/lib64");
  Injected(Document(OwnDev()));
  EXPECT_EQ(Files("usr/lib"), Links());
}

TEST_F(LibraryLinksTest, AMuslImageGetsNoLinks) {
  MakeDir("usr/lib");
  MakeDir("lib");
  Injected(Document(OwnDev()));
  EXPECT_THAT(Files("usr/lib"), ::testing::IsEmpty());
  EXPECT_THAT(Files("lib"), ::testing::IsEmpty());
}

TEST_F(LibraryLinksTest, ALimitedContainersLinksLeadToTheLimiter) {
  MakeDir(kDir);
  Write(std::string(kDir) + "/libnvidia-ml.so.1", MakeLibrary("libnvidia-ml.so.1"));
  injection_.limiter = Limiter{.library_dir = "/opt/tessera/lib", .limits_dir = path("limits")};
  ConfigDocument document = Document(OwnDev());
  for (int start = 0; start < 2; ++start) {
    document = Injected(document);
    const auto files = Files(kDir);
    EXPECT_EQ(files.at("libcuda.so.1"), "/dev/tessera/lib/libcuda.so.1");
    EXPECT_EQ(files.at("libnvidia-ml.so.1"), "") << "the image's own file";
    EXPECT_THAT(Destinations(document),
                Contains("/" + std::string(kDir) + "/libnvidia-ml.so.1").Times(1))
        << "the limiter is mounted over the image's own file";
    EXPECT_THAT(Destinations(document), Not(Contains("/" + std::string(kDir) + "/libcuda.so.1")));
  }
}

TEST_F(LibraryLinksTest, LinksOfAnEarlierStartFollowTheDriversDir) {
  MakeDir(kDir);
  fs::create_symlink("/nowhere", JoinPath(rootfs(), kDir) + "/libcuda.so");
  Injected(Document(OwnDev()));
  Injected(Document({{"/run", "tmpfs", "x"}}));
  auto links = Links("/run/tessera/lib/");
  links["libcuda.so"] = "/nowhere";
  EXPECT_EQ(Files(kDir), links);
}

TEST_F(LibraryLinksTest, NamesInTheImageStayAsTheyAre) {
  MakeDir(std::string(kDir) + "/libcuda.so.1");
  Write(std::string(kDir) + "/libnvidia-ml.so.1", "x");
  fs::create_symlink(path("outside"), JoinPath(rootfs(), kDir) + "/libcuda.so");
  auto files = Files(kDir);
  Injected(Document(OwnDev()));
  files.insert(*Links().find("libnvidia-ptxjitcompiler.so.1"));
  EXPECT_EQ(Files(kDir), files);
  EXPECT_THAT(Files(std::string(kDir) + "/libcuda.so.1"), ::testing::IsEmpty());
  EXPECT_FALSE(PathExists(path("outside")));
}

TEST_F(LibraryLinksTest, NoLinkIsMadeThroughALinkOfTheImage) {
  fs::create_directories(path("outside"));
  MakeDir("usr/lib");
  MakeDir("opt");
  const std::string dir = JoinPath(rootfs(), kDir);
  for (const std::string& target :
       {std::string("/"), std::string("../.."), std::string("../../../../.."),
        std::string("../../../../outside"), path("outside"), std::string("/opt")}) {
    fs::create_symlink(target, dir);
    Injected(Document(OwnDev()));
    EXPECT_THAT(Files("/"), ::testing::SizeIs(3)) << "etc, opt, usr; " << target;
    EXPECT_THAT(Files("usr"), ::testing::SizeIs(1)) << target;
    EXPECT_THAT(Files("opt"), ::testing::IsEmpty()) << target;
    EXPECT_EQ(ListDir(path("outside")).value().size(), 0u) << target;
    fs::remove(dir);
  }
  fs::remove_all(rootfs() + "/usr");
  fs::create_symlink(path("outside"), rootfs() + "/usr");
  fs::create_directories(path("outside/lib/") + TESSERA_MULTIARCH);
  Injected(Document(OwnDev()));
  EXPECT_EQ(ListDir(path("outside/lib/") + TESSERA_MULTIARCH).value().size(), 0u);
}

TEST_F(LibraryLinksTest, LibrariesThatThePodMountsHaveNoLinks) {
  MakeDir(kDir);
  Injected(Document({{"/dev", "tmpfs", "x"}, {"/lib/libcuda.so.1", "bind", path("own")}}));
  EXPECT_THAT(Files(kDir), Not(Contains(::testing::Key("libcuda.so.1"))));
  EXPECT_THAT(Files(kDir), Contains(::testing::Key("libnvidia-ml.so.1")));
}

TEST_F(LibraryLinksTest, NoLinkIsMadeBelowAMount) {
  MakeDir(kDir);
  Injected(Document({{"/dev", "tmpfs", "x"}, {"/usr", "bind", path("own")}}));
  EXPECT_THAT(Files(kDir), ::testing::IsEmpty());
}

TEST_F(LibraryLinksTest, ARootThatCannotBeWrittenIsNoError) {
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    GTEST_SKIP() << "mounts need root";
  }
  MakeDir(kDir);
  ASSERT_EQ(::mount(rootfs().c_str(), rootfs().c_str(), nullptr, MS_BIND, nullptr), 0);
  ASSERT_EQ(::mount(nullptr, rootfs().c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr),
            0);
  ConfigDocument document = Document(OwnDev(), true);
  const auto how = Inject(injection_, FindInjectionTarget(document, "").value(), &document);
  ASSERT_EQ(::umount(rootfs().c_str()), 0);
  ASSERT_TRUE(how.ok()) << how.status().message();
  EXPECT_THAT(*how, HasSubstr("; no links in the image: "));
  EXPECT_THAT(*how, HasSubstr("Read-only file system"));
  EXPECT_THAT(Files(kDir), ::testing::IsEmpty());
}

TEST_F(InjectionTest, LdSoConfMayNameItsDirInBothWays) {
  for (const char* conf :
       {"include ld.so.conf.d/*.conf\n", "\tinclude\t/etc/ld.so.conf.d/*.conf # all\n"}) {
    AddImageCache(conf);
    EXPECT_FALSE(Injected(Document(OwnDev())).env().Get("LD_LIBRARY_PATH").has_value()) << conf;
    fs::remove(rootfs() + "/etc/ld.so.conf.d/00-tessera.conf");
  }
}

TEST_F(InjectionTest, NodesAreCreatedOnlyInAPrivateDev) {
  injection_.devices = {
      {.path = "/dev/nvidia0", .major_number = 1, .minor_number = 3, .mode = 0660, .gid = 44}};
  const ConfigDocument document = Injected(Document(OwnDev()));
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
  EXPECT_EQ(bound.json().Find("linux")->Find("devices"), nullptr) << "nothing is made there";
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
  const ConfigDocument document = Injected(Document(OwnDev()));
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
  ConfigDocument again = Document(OwnDev());
  EXPECT_EQ(Inject(injection_, FindInjectionTarget(again, "").value(), &again).status().code(),
            Code::kNotFound);
}

TEST_F(InjectionTest, ProgramsAndLinksComeWithTheLibraries) {
  const ConfigDocument document = Injected(Document(OwnDev()));
  EXPECT_EQ(document.env().Get("PATH"), "/bin:/dev/tessera/bin");
  EXPECT_EQ(fs::read_symlink(path("bundle/tessera/tree/lib/libcuda.so.1")), "libcuda.so.550.54.15");
  EXPECT_EQ(fs::read_symlink(path("bundle/tessera/tree/lib/libcuda.so")), "libcuda.so.550.54.15");
  EXPECT_FALSE(PathExists(path("bundle/tessera/tree/lib/gbm")));
  EXPECT_FALSE(document.env().Get("XDG_DATA_DIRS").has_value());
}

TEST_F(InjectionTest, SocketsOfTheDriverNeedAPrivateDir) {
  injection_.driver.sockets = {{path("socket"), "/run/nvidia-persistenced/socket"}};
  EXPECT_THAT(Destinations(Injected(Document(OwnDev()))),
              Not(Contains("/run/nvidia-persistenced/socket")));
  EXPECT_THAT(Destinations(Injected(Document({{"/dev", "tmpfs", "x"}, {"/run", "tmpfs", "x"}}))),
              Contains("/run/nvidia-persistenced/socket"));
}

TEST_F(InjectionTest, StagedFilesHaveTheContainersSelinuxLabel) {
  AddImageCache();
  ConfigDocument plain = Document(OwnDev(), true);
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
  const ConfigDocument document = Injected(Document(OwnDev()));
  std::map<std::string, Mount> mounts;
  for (const Mount& mount : document.Mounts()) mounts[mount.destination] = mount;
  ASSERT_EQ(mounts.size(), 6u) << "/dev, the tree, three libraries and a program";
  EXPECT_EQ(mounts["/dev/tessera"].source, path("bundle/tessera/tree"));
  const Mount& cuda = mounts["/dev/tessera/lib/libcuda.so.550.54.15"];
  EXPECT_EQ(cuda.source, path("driver/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15"));
  EXPECT_THAT(cuda.options, ElementsAre("ro", "nosuid", "nodev", "bind", "rprivate"));
}

TEST_F(InjectionTest, NoVariableLoadsTheDriverBeforeTheLimiter) {
  ConfigDocument document = Document(OwnDev());
  document.MutableEnv()->Set("LD_PRELOAD", "/lib/mine.so:/dev/tessera/real/libcuda");
  document.MutableEnv()->Set("LD_AUDIT", "/run/tessera/real/libcuda");
  document = Injected(std::move(document));
  EXPECT_EQ(document.env().Get("LD_PRELOAD"), "/lib/mine.so");
  EXPECT_EQ(document.env().Get("LD_AUDIT"), "");
}

TEST_F(InjectionTest, ALimitedContainerGetsTheLimiterInPlaceOfTheDriversLibraries) {
  injection_.limiter = Limiter{.library_dir = "/opt/tessera/lib", .limits_dir = path("limits")};
  ConfigDocument document = Injected(Document(OwnDev()));
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
  document = Injected(Document(OwnDev(), true));
  EXPECT_EQ(mounts_of(document)[compat].source, "/opt/tessera/lib/libtessera-cuda-dev.so");
  EXPECT_THAT(Destinations(Injected(document)),
              ::testing::UnorderedElementsAreArray(Destinations(document)))
      << "started again";

  document = Injected(Document({{"/run", "tmpfs", "x"}}));
  mounts = mounts_of(document);
  EXPECT_EQ(mounts["/run/tessera/lib/libcuda.so.550.54.15"].source,
            "/opt/tessera/lib/libtessera-cuda-run.so");
  EXPECT_EQ(mounts["/run/tessera/limits"].source, path("limits"));
}

TEST_F(InjectionTest, ASharedTreeIsOneMount) {
  // The namespace ends with the process.
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    GTEST_SKIP() << "mounts need root";
  }
  injection_.tree_dir = path("trees");
  ConfigDocument document = Document(OwnDev());
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
    ConfigDocument document = Document(OwnDev());
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

TEST(ReplaceFile, AFailureLeavesNoOtherFile) {
  const TempDir dir;
  fs::create_directories(dir.path() + "/config.json/full");
  EXPECT_FALSE(ReplaceFile(dir.path() + "/config.json", "x").ok());
  EXPECT_EQ(ListDir(dir.path()).value().size(), 1u);
}

TEST(RootedDirReplaceFile, MakesAndReplacesFilesAndFollowsNoLink) {
  const TempDir dir;
  fs::create_directories(dir.path() + "/root/etc");
  fs::create_directories(dir.path() + "/outside");
  const RootedDir root = RootedDir::Open(dir.path() + "/root").value();
  ASSERT_TRUE(root.ReplaceFile("etc/x", "1").ok());
  ASSERT_TRUE(root.ReplaceFile("etc/x", "2").ok());
  EXPECT_EQ(ReadFile(dir.path() + "/root/etc/x").value(), "2");
  struct stat info;
  ASSERT_EQ(::stat((dir.path() + "/root/etc/x").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0644u);
  EXPECT_EQ(ListDir(dir.path() + "/root/etc").value().size(), 1u);
  fs::create_symlink("../../outside", dir.path() + "/root/link");
  fs::create_symlink("../../outside/x", dir.path() + "/root/etc/y");
  EXPECT_EQ(root.ReplaceFile("link/x", "3").code(), Code::kInvalidArgument);
  EXPECT_EQ(root.ReplaceFile("etc/y", "3").code(), Code::kInvalidArgument);
  EXPECT_EQ(root.ReplaceFile("nothing/x", "3").code(), Code::kNotFound);
  EXPECT_EQ(ListDir(dir.path() + "/outside").value().size(), 0u);
  if (::geteuid() != 0) return;
  ASSERT_EQ(::chown((dir.path() + "/root/etc/x").c_str(), 12, 34), 0);
  ASSERT_EQ(::chown((dir.path() + "/root/etc").c_str(), 56, 78), 0);
  ASSERT_TRUE(root.ReplaceFile("etc/x", "4").ok());
  ASSERT_TRUE(root.ReplaceFile("etc/new", "5").ok());
  ASSERT_EQ(::stat((dir.path() + "/root/etc/x").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 12u);
  EXPECT_EQ(info.st_gid, 34u);
  ASSERT_EQ(::stat((dir.path() + "/root/etc/new").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 56u);
}

TEST_F(InjectionTest, TheKernelsLimitIsSetOnlyWhereThereIsOne) {
  const auto unified = [](const ConfigDocument& document) {
    const Json* resources = document.json().Find("linux")->Find("resources");
    const Json* found = resources == nullptr ? nullptr : resources->Find("unified");
    return found == nullptr ? "none" : found->Serialize();
  };
  EXPECT_EQ(unified(Injected(Document(OwnDev()))), "none");
  injection_.dmem_max = "drm/0000:03:00.0/vram0 9663676416";
  const ConfigDocument document = Injected(Document(OwnDev()));
  EXPECT_EQ(unified(document), R"({"dmem.max":"drm/0000:03:00.0/vram0 9663676416"})");
  EXPECT_EQ(unified(Injected(document)), unified(document)) << "a bundle that starts again";
}

}  // namespace
}  // namespace tessera::oci
