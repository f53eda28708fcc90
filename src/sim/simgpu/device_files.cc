// SPDX-License-Identifier: Apache-2.0
#include "src/sim/simgpu/device_files.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <sstream>

#include "src/base/file.h"

namespace tessera::sim {
namespace {

constexpr std::string_view kMigConfigDevice = "nvidia-caps/nvidia-cap1";
constexpr std::string_view kMigMonitorDevice = "nvidia-caps/nvidia-cap2";

std::string ListPath(const std::string& state_dir) { return JoinPath(state_dir, "device-files"); }

// Writes a line for each file: "c 195 0 /dev/nvidia0", "f 0 0 /tmp/node/dev/nvidia0".
std::string ToText(const std::vector<DeviceFile>& files) {
  std::string text;
  for (const DeviceFile& file : files) {
    text += fmt::format("{} {} {} {}\n", file.type == S_IFCHR ? 'c' : 'f', major(file.number),
                        minor(file.number), file.path);
  }
  return text;
}

std::vector<DeviceFile> ReadList(const std::string& state_dir) {
  std::vector<DeviceFile> files;
  std::istringstream lines(ReadFile(ListPath(state_dir)).value_or(""));
  char type = 0;
  unsigned major_number = 0, minor_number = 0;
  DeviceFile file;
  while (lines >> type >> major_number >> minor_number >> std::ws &&
         std::getline(lines, file.path)) {
    file.type = type == 'c' ? S_IFCHR : S_IFREG;
    file.number = makedev(major_number, minor_number);
    files.push_back(file);
  }
  return files;
}

bool Matches(const struct stat& info, const DeviceFile& file) {
  if ((info.st_mode & S_IFMT) != file.type) return false;
  return file.type == S_IFCHR ? info.st_rdev == file.number : info.st_size == 0;
}

// Only root may configure MIG instances; everyone may monitor them.
mode_t ModeOf(const DeviceFile& file) {
  if (file.path.ends_with(kMigConfigDevice)) return 0400;
  return file.path.ends_with(kMigMonitorDevice) ? 0444 : 0666;
}

// Creates the file if it is missing, and then sets `created`.
Status MakeDeviceFile(const DeviceFile& file, bool* created) {
  struct stat info;
  *created = lstat(file.path.c_str(), &info) != 0;
  if (!*created) {
    if (Matches(info, file)) return {};
    return Error(Code::kAlreadyExists,
                 "{} exists and is another kind of file: remove it, or "
                 "give another --dev-root",
                 file.path);
  }
  RETURN_IF_ERROR(MakeDirs(DirName(file.path)));
  if (mknod(file.path.c_str(), file.type | 0666, file.number) != 0) {
    const Status status = Status::FromErrno("create " + file.path, errno);
    if (file.type != S_IFCHR || status.code() != Code::kPermissionDenied) return status;
    return Error(status.code(), "{}: run as root, or use --device-files for plain files",
                 status.message());
  }
  // mknod applies the umask.
  if (chmod(file.path.c_str(), ModeOf(file)) != 0) return Status::FromErrno(file.path, errno);
  return {};
}

}  // namespace

bool HasMig(const StateFile& state) {
  return std::any_of(state.facts, state.facts + state.gpu_count,
                     [](const GpuFacts& gpu) { return gpu.mig_capable != 0; });
}

std::vector<DeviceFile> DeviceFilesOf(const StateFile& state, const std::string& dev_root,
                                      mode_t type) {
  const std::string dev = std::filesystem::absolute(dev_root + "/dev").lexically_normal();
  std::vector<DeviceFile> files;
  const auto add = [&](const std::string& name, unsigned major_number, unsigned minor_number) {
    files.push_back(
        {JoinPath(dev, name), type, type == S_IFCHR ? makedev(major_number, minor_number) : 0});
  };
  add("nvidiactl", kNvidiaMajor, 255);
  add("nvidia-modeset", kNvidiaMajor, 254);
  add("nvidia-uvm", kUvmMajor, 0);
  add("nvidia-uvm-tools", kUvmMajor, 1);
  for (uint32_t i = 0; i < state.gpu_count; ++i) {
    const unsigned number = state.facts[i].minor;
    add(fmt::format("nvidia{}", number), kNvidiaMajor, number);
  }
  if (HasMig(state)) {
    add(std::string(kMigConfigDevice), kCapabilityMajor, kMigConfigMinor);
    add(std::string(kMigMonitorDevice), kCapabilityMajor, kMigMonitorMinor);
  }
  return files;
}

Status ReplaceDeviceFiles(const std::string& state_dir, const std::vector<DeviceFile>& wanted) {
  std::vector<DeviceFile> recorded = ReadList(state_dir);
  std::erase_if(recorded, [&](const DeviceFile& old) {
    if (std::ranges::count(wanted, old) != 0) return false;
    RemoveDeviceFile(old);
    return true;
  });
  Status status;
  for (const DeviceFile& file : wanted) {
    bool created = false;
    status = MakeDeviceFile(file, &created);
    if (!status.ok()) break;
    if (created && std::ranges::count(recorded, file) == 0) recorded.push_back(file);
  }
  // Records the files after an error too, so that `simgpu destroy` removes the created files.
  RETURN_IF_ERROR(MakeDirs(state_dir));
  RETURN_IF_ERROR(WriteFileAtomically(ListPath(state_dir), ToText(recorded), 0644));
  return status;
}

void RemoveDeviceFile(const DeviceFile& file) {
  struct stat info;
  if (lstat(file.path.c_str(), &info) == 0 && Matches(info, file)) unlink(file.path.c_str());
}

}  // namespace tessera::sim
