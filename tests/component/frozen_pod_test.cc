// SPDX-License-Identifier: Apache-2.0
// A pod's processes are found in real cgroups, with the names of both cgroup drivers, also a
// process that cannot end because its cgroup is frozen.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <optional>
#include <thread>

#include "src/agent/pods/pod_processes.h"
#include "src/base/file.h"

namespace tessera::agent {
namespace {

using namespace std::chrono_literals;

// A UID that is unique to this process, because the tests of this file run side by side.
std::string UidText() { return fmt::format("fd3b355a-665c-4c95-8e7f-{:012x}", ::getpid()); }

// The folder of a pod as the kubelet's two cgroup drivers name it.
std::string FolderOf(bool systemd) {
  std::string uid = UidText();
  if (!systemd) return "pod" + uid;
  std::ranges::replace(uid, '-', '_');
  return fmt::format("kubepods-burstable-pod{}.slice", uid);
}

// Where cgroups are mounted, and how a process is frozen there.
struct Hierarchy {
  const char* root;
  const char* freezer;
  const char* frozen;
  const char* thawed;
  bool survives_kill;  // while it is frozen
};
constexpr Hierarchy kVersion1{"/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED", true};
constexpr Hierarchy kVersion2{"/sys/fs/cgroup", "cgroup.freeze", "1", "0", false};
constexpr Hierarchy kVersion2Beside1{"/sys/fs/cgroup/unified", "cgroup.freeze", "1", "0", false};

bool Write(const std::string& path, std::string_view text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file.good();
}

// A process in a cgroup of its own below a cgroup of the test. The destructor removes both cgroups.
class PodInCgroup {
 public:
  PodInCgroup(const Hierarchy& hierarchy, const std::string& pod)
      : hierarchy_(hierarchy),
        top_(fmt::format("{}/tessera-test-{}", hierarchy.root, ::getpid())),
        pod_(top_ + "/" + pod),
        container_(pod_ + "/" + std::string(64, 'a')) {
    // Without the file, `root` is a directory of a tmpfs and not a mounted hierarchy.
    if (!PathExists(std::string(hierarchy.root) + "/cgroup.procs")) return;
    child_ = ::fork();
    if (child_ == 0) {
      for (;;) ::pause();
    }
    for (const std::string& folder : {top_, pod_, container_}) {
      created_ = ::mkdir(folder.c_str(), 0755) == 0;
    }
    created_ = created_ && Write(container_ + "/cgroup.procs", std::to_string(child_)) &&
               PathExists(Freezer());
  }
  ~PodInCgroup() {
    if (created_) (void)Freeze(false);
    Kill();
    Reap();
    for (const std::string& folder : {container_, pod_, top_}) {
      // The kernel may still be taking the last process out.
      for (int i = 0; i < 100 && ::rmdir(folder.c_str()) != 0 && errno == EBUSY; ++i) {
        std::this_thread::sleep_for(10ms);
      }
    }
  }
  PodInCgroup(const PodInCgroup&) = delete;
  PodInCgroup& operator=(const PodInCgroup&) = delete;

  bool created() const { return created_; }
  pid_t pid() const { return child_; }
  bool Freeze(bool frozen) const {
    return Write(Freezer(), frozen ? hierarchy_.frozen : hierarchy_.thawed);
  }
  void Kill() const {
    if (child_ > 0) ::kill(child_, SIGKILL);
  }
  void Reap() {
    if (child_ > 0) ::waitpid(child_, nullptr, 0);
    child_ = 0;
  }

 private:
  std::string Freezer() const { return container_ + "/" + hierarchy_.freezer; }

  const Hierarchy& hierarchy_;
  const std::string top_, pod_, container_;
  pid_t child_ = 0;
  bool created_ = false;
};

std::string Remains() {
  return TakeProcessSnapshot("/proc", {}).DescribeRemaining(Uid(UidText()), {});
}

// The parameter says whether the kubelet uses the systemd cgroup driver.
class FrozenPodTest : public ::testing::TestWithParam<bool> {};

TEST_P(FrozenPodTest, AProcessCountsUntilItHasLeftItsCgroup) {
  bool any = false;
  for (const Hierarchy* hierarchy : {&kVersion1, &kVersion2, &kVersion2Beside1}) {
    SCOPED_TRACE(hierarchy->root);
    PodInCgroup pod(*hierarchy, FolderOf(GetParam()));
    if (!pod.created()) continue;  // not mounted here, or no root
    any = true;
    EXPECT_TRUE(Remains().starts_with(fmt::format("its process {} ", pod.pid()))) << Remains();
    ASSERT_TRUE(pod.Freeze(true));
    pod.Kill();
    if (hierarchy->survives_kill) {
      std::this_thread::sleep_for(50ms);
      EXPECT_TRUE(Remains().starts_with(fmt::format("its process {} ", pod.pid()))) << Remains();
      ASSERT_TRUE(pod.Freeze(false));
    }
    // The process is a zombie from here on, so it holds no GPU.
    siginfo_t info{};
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pod.pid()), &info, WEXITED | WNOWAIT), 0);
    EXPECT_EQ(Remains(), "");
    pod.Reap();
    EXPECT_EQ(Remains(), "");
  }
  if (!any) GTEST_SKIP() << "no cgroup can be made below /sys/fs/cgroup: run as root";
}

INSTANTIATE_TEST_SUITE_P(CgroupDrivers, FrozenPodTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "systemd" : "cgroupfs"; });

}  // namespace
}  // namespace tessera::agent
