// SPDX-License-Identifier: Apache-2.0
// Real mounts, in a mount namespace of the test's own, so that none is left behind.
#include "src/oci/shared_tree.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "src/base/file.h"

namespace tessera::oci {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Once per process, because a namespace ends with its last process.
bool HasOwnMounts() {
  static const bool kHas = ::unshare(CLONE_NEWNS) == 0 &&
                           ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  return kHas;
}

class SharedTree : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasOwnMounts()) GTEST_SKIP() << "mounts need root";
    fs::create_directories(path("driver"));
    WriteDriver("1.0");
  }
  void TearDown() override {
    for (const std::string& name : {path("trees/trees"), path("container")}) {
      ::umount2(name.c_str(), MNT_DETACH);
    }
  }

  std::string path(const std::string& name) const { return JoinPath(dir_.path(), name); }

  // Writes like an installer: new files, renamed into place.
  void WriteDriver(const std::string& version) {
    version_ = version;
    ASSERT_TRUE(WriteFileAtomically(path("driver/libx.so." + version), "x" + version, 0644).ok());
    ASSERT_TRUE(WriteFileAtomically(path("driver/smi"), "smi" + version, 0755).ok());
  }

  Tree MakeTree() const {
    Tree tree;
    tree.AddDriverFile("lib/libx.so." + version_, path("driver/libx.so." + version_));
    tree.AddLink("lib/libx.so.1", "libx.so." + version_);
    tree.AddDriverFile("bin/smi", path("driver/smi"));
    tree.AddMountPoint("run/state");
    return tree;
  }

  Result<std::string> Share() const { return Share(MakeTree()); }
  Result<std::string> Share(const Tree& tree) const {
    return ShareTree(tree, path("driver"), path("trees"));
  }
  int Mounts() const {
    const std::string text = ReadFile("/proc/self/mountinfo").value();
    int count = 0;
    for (size_t at = 0; (at = text.find(path("trees/trees"), at)) != std::string::npos; ++at) {
      ++count;
    }
    return count;
  }

  TempDir dir_;
  std::string version_;
};

TEST_F(SharedTree, DroppedTreesLeaveNoMountsAndContainersKeepTheirFiles) {
  EXPECT_EQ(DropSharedTrees(path("trees")).value(), 0u) << "no tree exists yet";
  const std::string tree = Share().value();
  fs::create_directory(path("container"));
  ASSERT_EQ(::mount(tree.c_str(), path("container").c_str(), nullptr, MS_BIND | MS_REC, nullptr),
            0);
  ASSERT_EQ(DropSharedTrees(path("trees")).value(), 1u);
  EXPECT_EQ(Mounts(), 0);
  EXPECT_FALSE(PathExists(path("trees/trees")));
  EXPECT_EQ(ReadFile(path("container/bin/smi")).value(), "smi1.0");
  EXPECT_EQ(DropSharedTrees(path("trees")).value(), 0u);
  EXPECT_TRUE(Share().ok()) << "the next container makes the tree again";
}

TEST_F(SharedTree, ContainsOnlyTheDriversFiles) {
  const std::string tree = Share().value();
  EXPECT_EQ(ReadFile(tree + "/lib/libx.so.1").value(), "x1.0");
  EXPECT_EQ(ReadFile(tree + "/bin/smi").value(), "smi1.0");
  EXPECT_EQ(ReadFile(tree + "/run/state").value(), "");
  EXPECT_EQ(ListDir(tree).value().size(), 3u);
  EXPECT_EQ(ListDir(tree + "/lib").value().size(), 2u);
}

TEST_F(SharedTree, AnExistingTreeIsReused) {
  const std::string tree = Share().value();
  // Held open, so that another tree cannot get the number of its file system.
  const Fd held(::open(tree.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_EQ(Share().value(), tree);
  struct stat before, now;
  ASSERT_EQ(::fstat(held.get(), &before), 0);
  ASSERT_EQ(::stat(tree.c_str(), &now), 0);
  EXPECT_EQ(now.st_dev, before.st_dev);
}

TEST_F(SharedTree, WaitsForAnotherProcessThatMakesATree) {
  fs::create_directories(path("trees"));
  Fd held(::open(path("trees/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  std::atomic<bool> released = false;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    released = true;
    held.Reset();
  });
  const auto tree = Share();
  EXPECT_TRUE(tree.ok()) << tree.status().ToString();
  EXPECT_TRUE(released);
  other.join();
}

TEST_F(SharedTree, CannotBeWritten) {
  const std::string tree = Share().value();
  for (const char* name : {"/lib/libx.so.1.0", "/bin/smi", "/run/state", "/new"}) {
    EXPECT_EQ(::open((tree + name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644), -1) << name;
    EXPECT_EQ(errno, EROFS) << name;
  }
  EXPECT_EQ(ReadFile(path("driver/smi")).value(), "smi1.0");
}

TEST_F(SharedTree, IsMadeOnce) {
  const std::string tree = Share().value();
  const int mounts = Mounts();
  EXPECT_EQ(Share().value(), tree);
  EXPECT_EQ(Mounts(), mounts);
}

TEST_F(SharedTree, AnotherSetOfFilesHasItsOwnTree) {
  const std::string all = Share().value();
  Tree fewer;
  fewer.AddDriverFile("bin/smi", path("driver/smi"));
  const std::string tree = Share(fewer).value();
  EXPECT_NE(tree, all);
  EXPECT_FALSE(PathExists(tree + "/lib"));
  EXPECT_EQ(Share().value(), all);
  EXPECT_EQ(ListDir(path("trees/trees")).value().size(), 2u);
}

TEST_F(SharedTree, AReplacedDriverGetsANewTreeAndTheOldTreeIsRemoved) {
  const std::string old = Share().value();
  const int mounts = Mounts();
  WriteDriver("1.0");  // again with the same version and size
  const std::string tree = Share().value();
  EXPECT_NE(tree, old);
  EXPECT_FALSE(PathExists(old));
  fs::remove(path("driver/libx.so.1.0"));
  WriteDriver("2.0");
  EXPECT_EQ(ReadFile(Share().value() + "/lib/libx.so.1").value(), "x2.0");
  EXPECT_FALSE(PathExists(tree));
  EXPECT_EQ(Mounts(), mounts);
}

TEST_F(SharedTree, AnotherVersionOfALibraryGetsANewTree) {
  const std::string old = Share().value();
  // The program stays the same file.
  ASSERT_TRUE(WriteFileAtomically(path("driver/libx.so.2.0"), "x2.0", 0644).ok());
  version_ = "2.0";
  EXPECT_EQ(ReadFile(Share().value() + "/lib/libx.so.1").value(), "x2.0");
  EXPECT_FALSE(PathExists(old));
}

TEST_F(SharedTree, AContainerKeepsTheFilesOfADriverThatIsGone) {
  fs::create_directories(path("container"));
  ASSERT_EQ(
      ::mount(Share()->c_str(), path("container").c_str(), nullptr, MS_BIND | MS_REC, nullptr), 0);
  fs::remove(path("driver/libx.so.1.0"));
  WriteDriver("2.0");
  ASSERT_TRUE(Share().ok());
  EXPECT_EQ(ReadFile(path("container/lib/libx.so.1")).value(), "x1.0");
  EXPECT_EQ(ReadFile(path("container/bin/smi")).value(), "smi1.0");
}

TEST_F(SharedTree, ATreeWithAnUnmountedFileIsRecreated) {
  const std::string tree = Share().value();
  ASSERT_EQ(::umount2((tree + "/bin/smi").c_str(), MNT_DETACH), 0);
  EXPECT_EQ(ReadFile(Share().value() + "/bin/smi").value(), "smi1.0");
}

TEST_F(SharedTree, AnIncompleteTreeIsRecreated) {
  const std::string tree = Share().value();
  // All steps are done except the last step.
  ASSERT_EQ(::mount(nullptr, tree.c_str(), nullptr, MS_REMOUNT | MS_BIND, nullptr), 0);
  const int mounts = Mounts();
  EXPECT_EQ(Share().value(), tree);
  EXPECT_EQ(::open((tree + "/new").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644), -1);
  EXPECT_EQ(Mounts(), mounts);
}

TEST_F(SharedTree, IsRecreatedAfterAllMountsAreGone) {
  const std::string tree = Share().value();
  ASSERT_EQ(::umount2(path("trees/trees").c_str(), MNT_DETACH), 0);
  EXPECT_EQ(Share().value(), tree);
  EXPECT_EQ(ReadFile(tree + "/bin/smi").value(), "smi1.0");
}

TEST_F(SharedTree, ConcurrentCallsCreateOneTree) {
  std::vector<pid_t> children;
  for (int i = 0; i < 16; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      const Result<std::string> tree = Share();
      ::_exit(tree.ok() && ReadFile(*tree + "/bin/smi").value_or("") == "smi1.0" ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(ListDir(path("trees/trees")).value().size(), 1u);
  EXPECT_EQ(Mounts(), 4);  // the base, the tree, two files
}

TEST_F(SharedTree, AFileThatIsMissingLeavesNoTree) {
  ASSERT_TRUE(Share().ok());
  Tree tree = MakeTree();
  tree.AddDriverFile("bin/gone", path("driver/gone"));
  EXPECT_THAT(Share(tree).status().message(), HasSubstr(path("driver/gone")));
  EXPECT_EQ(ListDir(path("trees/trees")).value().size(), 1u);
}

TEST_F(SharedTree, ATreeThatCannotBeFilledLeavesNoMounts) {
  ASSERT_TRUE(Share().ok());
  const int mounts = Mounts();
  Tree tree = MakeTree();
  // More names than the tmpfs has inodes.
  for (int i = 0; i < 5000; ++i) tree.AddMountPoint(fmt::format("place{}", i));
  EXPECT_THAT(Share(tree).status().message(), HasSubstr("No space left"));
  EXPECT_EQ(Mounts(), mounts);
}

TEST_F(SharedTree, TheNumberOfTreesIsBounded) {
  for (size_t i = 0; i <= kMaxSharedTrees; ++i) {
    Tree tree;
    tree.AddDriverFile(fmt::format("bin/smi{}", i), path("driver/smi"));
    const Result<std::string> shared = Share(tree);
    if (i < kMaxSharedTrees) {
      EXPECT_TRUE(shared.ok()) << shared.status().message();
    } else {
      EXPECT_THAT(shared.status().message(), HasSubstr("holds 16 trees"));
    }
  }
}

TEST_F(SharedTree, ReportsMissingPermissionToMount) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setresuid(65534, 65534, 65534) != 0) ::_exit(2);
    ::_exit(Share().status().code() == Code::kPermissionDenied ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(LabelWithoutCategories, DropsTheCategories) {
  EXPECT_EQ(LabelWithoutCategories("system_u:object_r:container_file_t:s0:c15,c300"),
            "system_u:object_r:container_file_t:s0");
  EXPECT_EQ(LabelWithoutCategories("system_u:object_r:container_file_t:s0"),
            "system_u:object_r:container_file_t:s0");
  for (const char* none : {"", "container_file_t", "a:b:c", "a:b:c\",x:s0", "a:b:c d:s0"}) {
    EXPECT_EQ(LabelWithoutCategories(none), "") << none;
  }
}

}  // namespace
}  // namespace tessera::oci
