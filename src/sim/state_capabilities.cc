// SPDX-License-Identifier: Apache-2.0
// Capability files of MIG. A process may use an instance if it can open the device files of the GPU
// instance and of the compute instance. /proc/driver/nvidia/capabilities has their numbers. On a
// real node, the kernel module creates the files in /proc, and NVIDIA's tools create the device
// files. Here the process that creates an instance creates both, if it may write the driver root.
//
// Source of paths, numbers and modes: NVIDIA's MIG user guide, "Device nodes and capabilities".
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "src/sim/state.h"

namespace tessera::sim {
namespace {

// The root of the driver with this state folder; "": the folder is not in a driver root.
std::string DriverRootOf(const std::string& state_dir) {
  constexpr std::string_view kSuffix = "/run/simgpu";
  return state_dir.ends_with(kSuffix) ? state_dir.substr(0, state_dir.size() - kSuffix.size()) : "";
}

// "gpu0/mig/gi9", or "gpu0/mig/gi9/ci0".
std::string CapabilityFolder(const MigCapability& capability) {
  std::string folder =
      "gpu" + std::to_string(capability.gpu_minor) + "/mig/gi" + std::to_string(capability.gi);
  if (capability.ci >= 0) folder += "/ci" + std::to_string(capability.ci);
  return folder;
}

void MakeFolders(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    mkdir(path.substr(0, slash).c_str(), 0755);
  }
  mkdir(path.c_str(), 0755);
}

void WriteFile(const std::string& path, int flags, const std::string& text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0444);
  if (fd < 0) return;
  (void)!write(fd, text.data(), text.size());
  close(fd);
}

// Creates the device file: a character device or a plain file, like the GPU's own device file.
// Records it for `simgpu destroy` (simgpu/device_files.h).
void MakeDeviceFile(const std::string& state_dir, const MigCapability& capability) {
  const std::string gpu = "nvidia" + std::to_string(capability.gpu_minor);
  struct stat info;
  if (lstat(State::DevicePath(gpu.c_str()).c_str(), &info) != 0) return;
  const bool is_device_node = S_ISCHR(info.st_mode);
  const std::string path = State::DevicePath(capability.device().c_str());
  const uint32_t number = capability.number();
  MakeFolders(path.substr(0, path.rfind('/')));
  if (mknod(path.c_str(), (is_device_node ? S_IFCHR : S_IFREG) | 0444,
            is_device_node ? makedev(kCapabilityMajor, number) : 0) != 0) {
    return;
  }
  chmod(path.c_str(), 0444);  // mknod applies the umask
  WriteFile(state_dir + "/device-files", O_APPEND,
            is_device_node ? "c " + std::to_string(kCapabilityMajor) + " " +
                                 std::to_string(number) + " " + path + "\n"
                           : "f 0 0 " + path + "\n");
}

}  // namespace

std::string CapabilityText(uint32_t number, unsigned mode) {
  return "DeviceFileMinor: " + std::to_string(number) +
         "\nDeviceFileMode: " + std::to_string(mode) + "\nDeviceFileModify: 1\n";
}

std::string MigCapability::device() const {
  return "nvidia-caps/nvidia-cap" + std::to_string(number());
}

// The simulation has no kernel module, so an allowed open() fails with ENXIO.
bool State::MayOpen(const char* name, int flags) {
  const int fd = open(DevicePath(name).c_str(), flags | O_CLOEXEC | O_NONBLOCK);
  if (fd >= 0) close(fd);
  return fd >= 0 || errno == ENXIO || errno == ENODEV;
}

void State::CreateCapabilityFiles(const MigCapability& capability) const {
  const std::string root = DriverRootOf(dir_);
  if (!root.empty()) {
    const std::string folder =
        root + "/proc/driver/nvidia/capabilities/" + CapabilityFolder(capability);
    MakeFolders(folder);
    WriteFile(folder + "/access", O_TRUNC, CapabilityText(capability.number(), 0444));
  }
  MakeDeviceFile(dir_, capability);
}

void State::RemoveCapabilityFiles(const MigCapability& capability) const {
  unlink(DevicePath(capability.device().c_str()).c_str());
  const std::string root = DriverRootOf(dir_);
  if (root.empty()) return;
  const std::string folder =
      root + "/proc/driver/nvidia/capabilities/" + CapabilityFolder(capability);
  unlink((folder + "/access").c_str());
  rmdir(folder.c_str());
}

bool State::MayUse(uint32_t gpu, uint32_t compute_instance) const {
  const ComputeInstance& compute = file_->gpu_states[gpu].compute_instances[compute_instance];
  const uint32_t gi = file_->gpu_states[gpu].gpu_instances[compute.gpu_instance.load()].id.load();
  const MigCapability parent{facts(gpu).minor, gi};
  const MigCapability own{facts(gpu).minor, gi, int(compute.id.load())};
  return MayOpen(parent.device().c_str(), O_RDONLY) && MayOpen(own.device().c_str(), O_RDONLY);
}

}  // namespace tessera::sim
