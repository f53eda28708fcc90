// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/device_nodes.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/oci/proc_gpus.h"

namespace tessera::agent {
namespace {

// The major number of the GPUs is a constant of the kernel. The major number of nvidia-uvm is
// chosen when the module is loaded.
constexpr uint32_t kGpuMajor = 195;
constexpr uint32_t kControlMinor = 255;
constexpr uint32_t kModesetMinor = 254;
constexpr mode_t kMode = 0666;
constexpr size_t kMaxProcFile = 1 << 20;

struct WantedNode {
  std::string name;  // below dev/
  uint32_t major_number;
  uint32_t minor_number;
};

Status Make(const std::string& path, const WantedNode& node, bool* made) {
  struct stat info;
  if (::lstat(path.c_str(), &info) == 0) {
    if (!S_ISCHR(info.st_mode)) {
      return Error(Code::kFailedPrecondition,
                   "{} is not a character device: remove it, then tessera-agent makes the node",
                   path);
    }
    // A simulated driver or another module has another number: the node stays as it is.
    return Status::Ok();
  }
  if (errno != ENOENT) return Status::FromErrno(path, errno);
  RETURN_IF_ERROR(MakeDirs(std::string(DirName(path))));
  if (::mknod(path.c_str(), S_IFCHR | kMode, ::makedev(node.major_number, node.minor_number)) !=
      0) {
    return Error(Code::kPermissionDenied, "{} cannot be made ({}): tessera-agent needs CAP_MKNOD",
                 path, std::strerror(errno));
  }
  // The umask may have cleared mode bits.
  if (::chmod(path.c_str(), kMode) != 0) return Status::FromErrno("chmod " + path, errno);
  *made = true;
  return Status::Ok();
}

// Follows links if `is_link`.
bool IsNode(const std::string& path, dev_t number, bool is_link) {
  struct stat info;
  const int failed = is_link ? ::stat(path.c_str(), &info) : ::lstat(path.c_str(), &info);
  return failed == 0 && S_ISCHR(info.st_mode) && info.st_rdev == number;
}

// Makes the link to the existing node `name`. A link that leads to another device, or nowhere, is
// replaced, because a module may get another number when it is loaded.
Status Link(const std::string& dev, const std::string& name, std::string* link, dev_t* number,
            bool* made) {
  struct stat node;
  const std::string path = JoinPath(dev, name);
  if (::lstat(path.c_str(), &node) != 0) return Status::FromErrno(path, errno);
  *number = node.st_rdev;
  *link = fmt::format("{}/char/{}:{}", dev, major(node.st_rdev), minor(node.st_rdev));
  if (!S_ISCHR(node.st_mode) || IsNode(*link, node.st_rdev, /*is_link=*/true)) return Status::Ok();
  struct stat old;
  if (::lstat(link->c_str(), &old) == 0) {
    if (!S_ISLNK(old.st_mode)) {
      return Error(Code::kFailedPrecondition,
                   "{} is not a symbolic link: remove it, then tessera-agent makes it", *link);
    }
    ::unlink(link->c_str());
  }
  RETURN_IF_ERROR(MakeDirs(DirName(*link)));
  if (::symlink(("../" + name).c_str(), link->c_str()) != 0) {
    return Status::FromErrno(*link, errno);
  }
  *made = true;
  return Status::Ok();
}

// `complete`: false if the minor of a GPU is unknown.
std::vector<WantedNode> WantedNodes(const DeviceNodeOptions& options, DeviceNodeReport* report,
                                    bool* complete) {
  std::vector<WantedNode> nodes;
  *complete = true;
  const std::vector<oci::ProcGpu> gpus = oci::ReadProcGpus(options.proc_root).value_or({});
  if (gpus.empty()) return nodes;  // no driver: nothing to make
  std::string devices = ReadFile(JoinPath(options.proc_root, "devices"), kMaxProcFile).value_or("");
  if (devices.empty()) devices = ReadFile("/proc/devices", kMaxProcFile).value_or("");
  const uint32_t gpu_major = FindMajor(devices, {"nvidia", "nvidia-frontend"}).value_or(kGpuMajor);
  for (const oci::ProcGpu& gpu : gpus) {
    if (gpu.minor && *gpu.minor < static_cast<int>(kModesetMinor)) {
      const auto minor = static_cast<uint32_t>(*gpu.minor);
      nodes.push_back({"nvidia" + std::to_string(minor), gpu_major, minor});
    } else {
      *complete = false;
      report->problems.push_back(
          fmt::format("{}/driver/nvidia/gpus/{}/information names no device minor",
                      options.proc_root, gpu.bus_id));
    }
  }
  nodes.push_back({"nvidiactl", gpu_major, kControlMinor});
  nodes.push_back({"nvidia-modeset", gpu_major, kModesetMinor});
  if (const auto uvm = FindMajor(devices, {"nvidia-uvm"})) {
    nodes.push_back({"nvidia-uvm", *uvm, 0});
    nodes.push_back({"nvidia-uvm-tools", *uvm, 1});
  } else if (!PathExists(JoinPath(options.dev_root, "dev/nvidia-uvm"))) {
    report->problems.push_back(
        "/dev/nvidia-uvm is missing and the module nvidia-uvm is not loaded: run \"modprobe "
        "nvidia-uvm\" on the host; without it CUDA does not start");
    if (options.load_module) options.load_module("nvidia-uvm");
  }
  return nodes;
}

constexpr int kCannotStart = 127;

bool IsPresent(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0;
}

// Runs in a child of a program with threads, so it makes only async-signal-safe calls.
[[noreturn]] void RunModprobe(const char* root, const char* program, const char* module) {
  if (::chroot(root) == 0 && ::chdir("/") == 0) {
    // The agent's environment has credentials and paths that modprobe must not get.
    const char* const env[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", nullptr};
    const char* const argv[] = {"modprobe", module, nullptr};
    ::execve(program, const_cast<char* const*>(argv), const_cast<char* const*>(env));
  }
  ::_exit(kCannotStart);
}

}  // namespace

std::optional<uint32_t> FindMajor(std::string_view proc_devices,
                                  const std::vector<std::string_view>& names) {
  for (const std::string_view line : Split(proc_devices, '\n')) {
    // Block devices follow, with numbers of their own: a name there is another device.
    if (Trim(line) == "Block devices:") return std::nullopt;
    const std::vector<std::string_view> words = SplitList(line, ' ');
    if (words.size() != 2 || std::find(names.begin(), names.end(), words[1]) == names.end()) {
      continue;
    }
    const Result<int64_t> number = ParseInt(words[0]);
    if (number.ok() && *number > 0 && *number < 4096) return static_cast<uint32_t>(*number);
  }
  return std::nullopt;
}

void DeviceNodes::Record(CreatedNode node, DeviceNodeReport* report) {
  std::erase_if(created_nodes_, [&](const CreatedNode& old) { return old.path == node.path; });
  report->made_paths.push_back(node.path);
  created_nodes_.push_back(std::move(node));
}

DeviceNodeReport DeviceNodes::Update(const DeviceNodeOptions& options) {
  DeviceNodeReport report;
  bool complete = false;
  const std::string dev = JoinPath(options.dev_root, "dev");
  std::vector<std::string> wanted_paths;
  for (const WantedNode& node : WantedNodes(options, &report, &complete)) {
    const std::string path = JoinPath(dev, node.name);
    wanted_paths.push_back(path);
    bool made = false;
    Status status = Make(path, node, &made);
    if (made)
      Record({path, ::makedev(node.major_number, node.minor_number), /*is_link=*/false}, &report);
    std::string link;
    dev_t number = 0;
    made = false;
    if (status.ok()) status = Link(dev, node.name, &link, &number, &made);
    if (made) Record({link, number, /*is_link=*/true}, &report);
    if (!link.empty()) wanted_paths.push_back(link);
    if (!status.ok()) report.problems.push_back(status.message());
  }
  if (!complete) return report;
  // A link is removed before its node, because the node identifies the link.
  std::stable_partition(created_nodes_.begin(), created_nodes_.end(),
                        [](const CreatedNode& node) { return node.is_link; });
  std::erase_if(created_nodes_, [&](const CreatedNode& old) {
    if (std::ranges::count(wanted_paths, old.path) != 0) return false;
    if (IsNode(old.path, old.number, old.is_link) && ::unlink(old.path.c_str()) == 0) {
      report.removed_paths.push_back(old.path);
    }
    return true;
  });
  return report;
}

Status LoadKernelModule(const std::string& root, const std::string& module) {
  const char* program = nullptr;
  for (const char* path : {"/usr/sbin/modprobe", "/sbin/modprobe"}) {
    // modprobe is often a link to an absolute path that exists only inside the root.
    if (program == nullptr && IsPresent(JoinPath(root, path))) program = path;
  }
  if (program == nullptr) {
    return Error(Code::kNotFound,
                 "{} has no sbin/modprobe: run \"modprobe {}\" on the host, or load it at boot "
                 "(/etc/modules-load.d)",
                 root, module);
  }
  const pid_t child = ::fork();
  if (child < 0) return Status::FromErrno("fork", errno);
  if (child == 0) RunModprobe(root.c_str(), program, module.c_str());
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return Status::Ok();
  return Error(
      Code::kFailedPrecondition,
      "modprobe {} failed in {} (exit code {}): run it on the host to see why; agents need "
      "CAP_SYS_MODULE",
      module, root, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

}  // namespace tessera::agent
