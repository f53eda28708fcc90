// SPDX-License-Identifier: Apache-2.0
#include "tests/runtime/container_fixture.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = R"({
  "ociVersion": "1.0.2",
  "process": {
    "user": {"uid": 0, "gid": 0}, "cwd": "/", "noNewPrivileges": true,
    "args": ["/bin/probe", "/dev/nvidia0", "/dev/nvidia1"],
    "env": ["PATH=/usr/bin:/bin"]
  },
  "root": {"path": "rootfs", "readonly": true},
  "mounts": [
    {"destination": "/proc", "type": "proc", "source": "proc"},
    {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]}
  ],
  "linux": {
    "resources": {"devices": [{"allow": false, "access": "rwm"}]},
    "namespaces": [{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"},
                   {"type": "network"}]
  }
})";

std::string FindProgram(const std::string& name) {
  for (const char* dir : {"/usr/sbin/", "/usr/bin/", "/usr/local/sbin/", "/usr/local/bin/"}) {
    if (::access((dir + name).c_str(), X_OK) == 0) return dir + name;
  }
  return {};
}

// crun refuses hosts that have controllers in both cgroup hierarchies. On such a host, crun gets a
// view without the second hierarchy.
bool NeedsV1Cgroups(std::string_view runtime) {
  const auto controllers = ReadFile("/sys/fs/cgroup/unified/cgroup.controllers");
  return runtime == "crun" && controllers.ok() && controllers->size() > 1;
}

SubprocessResult RunToItsEnd(const std::vector<std::string>& argv) {
  Result<SubprocessResult> result = RunProgram(argv, std::chrono::seconds(30));
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  return result.ok() ? *result : SubprocessResult{};
}

}  // namespace

void ContainerFixture::SetUp() {
  if (::geteuid() != 0) GTEST_SKIP() << "containers and device nodes need root";
  const std::string runtime = FindProgram(GetParam());
  if (runtime.empty()) GTEST_SKIP() << GetParam() << " is not installed";
  const oci::FakeDriverOptions driver = oci::TwoGpus();
  ASSERT_TRUE(oci::MakeFakeDriver(path("driver"), driver).ok());
  const Status nodes = oci::MakeFakeNodes(path("driver"), driver);
  if (!nodes.ok()) GTEST_SKIP() << "device nodes cannot be made here: " << nodes.message();
  MakeImage();
  UseTreeDir(path("trees"));
  ::setenv("TESSERA_RUNTIME_CONFIG", path("runtime.toml").c_str(), 1);
  config_ = ParseJson(kConfig).value();
}

void ContainerFixture::TearDown() {
  ::unsetenv("TESSERA_RUNTIME_CONFIG");
  ::umount2(path("trees/trees").c_str(), MNT_DETACH);
  // The folder could not be removed while a mount is left in it.
  const auto mounts = ReadFile("/proc/self/mounts");
  ASSERT_TRUE(mounts.ok());
  EXPECT_EQ(mounts->find(path("")), std::string::npos);
}

void ContainerFixture::MakeImage() {
  for (const char* dir :
       {"bin", "etc", "proc", "sys", "dev", "run", "tmp", "lib64", "lib/x86_64-linux-gnu"}) {
    fs::create_directories(JoinPath(rootfs(), dir));
  }
  fs::copy(TESSERA_PROBE, rootfs() + "/bin/probe");
  fs::copy(TESSERA_PROBE_STATIC, rootfs() + "/bin/probe-static");
  fs::copy("/lib64/ld-linux-x86-64.so.2", rootfs() + "/lib64/ld-linux-x86-64.so.2");
  fs::copy("/lib/x86_64-linux-gnu/libc.so.6", rootfs() + "/lib/x86_64-linux-gnu/libc.so.6");
}

void ContainerFixture::AddLinkerCache() {
  fs::create_directories(rootfs() + "/etc/ld.so.conf.d");
  ASSERT_TRUE(
      WriteFileAtomically(rootfs() + "/etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n", 0644)
          .ok());
  const auto ldconfig = RunProgram({"/sbin/ldconfig", "-r", rootfs()}, std::chrono::seconds(30));
  ASSERT_TRUE(ldconfig.ok() && ldconfig->exit_code == 0);
}

void ContainerFixture::UseTreeDir(const std::string& dir) {
  tree_dir_ = dir;
  WriteRuntimeToml("");
}

void ContainerFixture::WriteRuntimeToml(const std::string& more) {
  const std::string text = fmt::format(
      "runtimes = [\"{0}\"]\ndriver-root = \"{1}\"\ndev-root = \"{1}\"\n"
      "driver-tree-dir = \"{2}\"\ngrant-socket = \"{3}\"\ngrant-timeout-seconds = 3\n{4}",
      GetParam(), path("driver"), tree_dir_, path("grant.sock"), more);
  ASSERT_TRUE(WriteFileAtomically(path("runtime.toml"), text, 0644).ok());
}

void ContainerFixture::SetArgs(const std::vector<std::string>& args) {
  config_.Find("process")->Set("args", Json::Strings(args));
}

void ContainerFixture::AddEnv(const std::string& entry) {
  config_.Find("process")->Find("env")->Append(Json::String(entry));
}

void ContainerFixture::AddAnnotation(const std::string& name, const std::string& value) {
  config_.EnsureObject("annotations").value()->Set(name, Json::String(value));
}

void ContainerFixture::AddMount(const std::string& destination, const std::string& type,
                                const std::string& source,
                                const std::vector<std::string>& options) {
  Json mount = Json::MakeObject();
  mount.Set("destination", Json::String(destination));
  mount.Set("type", Json::String(type));
  mount.Set("source", Json::String(source));
  mount.Set("options", Json::Strings(options));
  config_.Find("mounts")->Append(std::move(mount));
}

void ContainerFixture::RemoveMount(const std::string& destination) {
  std::erase_if(config_.Find("mounts")->items(), [&](const Json& mount) {
    return mount.StringAt("destination").value() == destination;
  });
}

SubprocessResult ContainerFixture::Run() {
  EXPECT_TRUE(WriteFileAtomically(bundle() + "/config.json", config_.Pretty(), 0600).ok());
  return RunAsItIs();
}

SubprocessResult ContainerFixture::RunAsItIs() {
  const std::string id = fmt::format("tessera-test-{}-{}", ::getpid(), ++count_);
  SubprocessResult result =
      RunTessera({"--log", log(), "--log-format", "json", "run", "--bundle", bundle(), id});
  RunTessera({"delete", "-f", id});
  return result;
}

SubprocessResult ContainerFixture::RunTessera(const std::vector<std::string>& arguments) {
  std::vector<std::string> argv;
  if (NeedsV1Cgroups(GetParam())) {
    argv = {"/usr/bin/unshare",
            "--mount",
            "--propagation",
            "private",
            "/bin/sh",
            "-c",
            "umount -l /sys/fs/cgroup/unified && exec \"$@\"",
            "sh"};
  }
  argv.insert(argv.end(), {TESSERA_RUNTIME_PROGRAM, "--root", path("state")});
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return RunToItsEnd(argv);
}

SubprocessResult ContainerFixture::RunOwn(const std::vector<std::string>& arguments) {
  std::vector<std::string> argv = {TESSERA_RUNTIME_PROGRAM};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return RunToItsEnd(argv);
}

std::map<std::string, std::string> ContainerFixture::Tree(const std::string& dir) {
  std::map<std::string, std::string> tree;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    struct stat info;
    if (::lstat(entry.path().c_str(), &info) != 0) continue;
    tree[entry.path()] = fmt::format(
        "{:o} {} {}", static_cast<unsigned>(info.st_mode), S_ISDIR(info.st_mode) ? 0 : info.st_size,
        entry.is_symlink() ? fs::read_symlink(entry.path()).string() : "");
  }
  return tree;
}

}  // namespace tessera
