// SPDX-License-Identifier: Apache-2.0
#include "src/oci/driver_root.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/oci/driver_search.h"
#include "src/oci/elf.h"

namespace tessera::oci {
namespace {

constexpr std::array<std::string_view, 5> kBinaryDirs = {"usr/bin", "usr/sbin", "bin", "sbin",
                                                         "usr/local/bin"};
// Shared memory of the simulated driver.
constexpr std::array<std::string_view, 2> kStateFiles = {"run/simgpu/state", "run/simgpu/slots"};

// Containers have the sockets at the same paths.
constexpr DriverFile kSockets[] = {
    {"/run/nvidia-persistenced/socket", kUtility},
    {"/run/nvidia-fabricmanager/socket", kUtility},
};

class DriverFinder {
 public:
  DriverFinder(const RootedDir& root, Capabilities capabilities)
      : root_(root), capabilities_(capabilities) {
    files_.root = root.path();
  }

  Result<DriverFiles> Find() {
    ASSIGN_OR_RETURN(location_, DriverSearch(root_).FindLocation());
    files_.version = location_.version;
    for (const std::string& dir : location_.dirs) {
      RETURN_IF_ERROR(FindLibraries(dir));
      // libvdpau loads its drivers from this subdirectory.
      RETURN_IF_ERROR(FindLibraries(dir + "/vdpau"));
    }
    std::ranges::sort(files_.libraries, {}, &DriverLibrary::file_name);
    files_.binaries = FindFiles(DriverBinaries(), BinaryDirs());
    files_.data_files = FindFiles(DriverDataFiles(), {"usr/share", "etc"});
    files_.sockets = FindFiles(kSockets, {""});
    for (const std::string_view file : kStateFiles) {
      if (root_.Exists(std::string(file))) files_.state_files.emplace_back(file);
    }
    RETURN_IF_ERROR(CheckRequiredFiles());
    return std::move(files_);
  }

 private:
  Status FindLibraries(const std::string& dir) {
    const auto names = root_.List(
        dir, [&](std::string_view name) { return IsDriverLibrary(name, files_.version); });
    if (!names.ok()) return Status::Ok();
    for (const std::string& name : *names) {
      if (CapabilitiesNeedingLibrary(StemOf(name)) & capabilities_)
        RETURN_IF_ERROR(AddLibrary(dir, name));
    }
    return Status::Ok();
  }

  static std::string_view StemOf(std::string_view name) { return name.substr(0, name.find(".so")); }

  // Adds each name and each file once. If several files have one name, the first one found counts.
  Status AddLibrary(const std::string& dir, const std::string& name) {
    const Result<Fd> fd = root_.OpenTrustedFile(JoinPath(dir, name));
    if (!fd.ok()) {
      files_.notes.push_back(fd.status().message());
      return Status::Ok();
    }
    ASSIGN_OR_RETURN(std::string host_path, PathOfFd(fd->get()));
    const auto same = [&](const DriverLibrary& other) {
      return other.file_name == name || other.host_path == host_path;
    };
    if (std::ranges::any_of(files_.libraries, same)) return Status::Ok();
    Result<ElfInfo> elf = ReadElf(fd->get());
    if (elf.ok() && !elf->is_64_bit) return Status::Ok();
    if (!elf.ok()) {
      const Status error = elf.status().Annotate(host_path);
      if (StemOf(name) == "libcuda" || StemOf(name) == "libnvidia-ml") return error;
      files_.notes.push_back(error.message());
      return Status::Ok();
    }
    if (elf->soname.empty()) elf->soname = name;
    files_.libraries.push_back({std::move(host_path), name, std::move(elf->soname)});
    return Status::Ok();
  }

  // The files that the capabilities need, each in the first of `dirs` that has it.
  std::vector<FoundFile> FindFiles(std::span<const DriverFile> files,
                                   const std::vector<std::string>& dirs) const {
    std::vector<FoundFile> found;
    for (const DriverFile& file : files) {
      if (!(file.needed_by & capabilities_)) continue;
      for (const std::string& dir : dirs) {
        Result<std::string> path = root_.HostPath(JoinPath(dir, file.name));
        if (!path.ok()) continue;
        found.push_back({std::move(*path), std::string(file.name)});
        break;
      }
    }
    return found;
  }

  // Debian's programs are in usr/lib/nvidia/current if no alternative refers to them.
  std::vector<std::string> BinaryDirs() const {
    std::vector<std::string> dirs(kBinaryDirs.begin(), kBinaryDirs.end());
    const std::string& library_dir = location_.dirs[0];
    if (BaseName(DirName(library_dir)) == "nvidia")
      dirs.push_back("usr/lib/nvidia/" + BaseName(library_dir));
    return dirs;
  }

  Status CheckRequiredFiles() const {
    std::string missing;
    Capabilities incomplete = 0;
    for (const RequiredDriverFile& required : RequiredDriverFiles()) {
      if (!(required.capability & RequiredCapabilities(capabilities_)) || HasFile(required.name))
        continue;
      incomplete |= required.capability;
      if (missing.find(required.name) == std::string::npos) {
        missing += (missing.empty() ? "" : ", ") + std::string(required.name);
      }
    }
    if (incomplete == 0) return Status::Ok();
    return Error(
        Code::kFailedPrecondition,
        "NVIDIA_DRIVER_CAPABILITIES asks for {0}, but driver {1} in {2} lacks {3}: install "
        "these parts of the driver, or leave {0} out of NVIDIA_DRIVER_CAPABILITIES",
        CapabilitiesText(incomplete), files_.version, files_.root, missing);
  }

  bool HasFile(std::string_view name) const {
    return std::ranges::any_of(
               files_.libraries,
               [&](const DriverLibrary& library) { return StemOf(library.file_name) == name; }) ||
           std::ranges::any_of(files_.data_files,
                               [&](const FoundFile& file) { return file.name == name; });
  }

  const RootedDir& root_;
  const Capabilities capabilities_;
  DriverFiles files_;
  DriverLocation location_;
};

Result<RootedDir> OpenRoot(const std::string& root) {
  Result<RootedDir> dir = RootedDir::Open(root);
  if (dir.ok()) return dir;
  return Error(dir.status().code(),
               "driver root {}: install the NVIDIA driver, or name its root (driver-root in the "
               "runtime's configuration, --driver-root of tessera-agent)",
               dir.status().message());
}

}  // namespace

Result<DriverFiles> FindDriver(const std::string& root, Capabilities capabilities) {
  ASSIGN_OR_RETURN(const RootedDir dir, OpenRoot(root));
  return DriverFinder(dir, capabilities).Find();
}

Result<std::string> FindDriverLibrary(const std::string& root, std::string_view stem) {
  ASSIGN_OR_RETURN(const RootedDir dir, OpenRoot(root));
  ASSIGN_OR_RETURN(const std::string path, DriverSearch(dir).FindLibrary(stem));
  return dir.HostPath(path);
}

std::vector<std::string> DrmNodes(const std::string& root, const std::string& bus_id) {
  // A driver container's root has no sysfs; only the root of a simulated driver has a /sys of its
  // own.
  const bool has_sysfs =
      PathExists(JoinPath(root, "proc/driver/nvidia")) && PathExists(JoinPath(root, "sys/bus/pci"));
  const std::string dir =
      fmt::format("{}/bus/pci/devices/{}/drm", has_sysfs ? JoinPath(root, "sys") : "/sys", bus_id);
  std::vector<std::string> nodes;
  for (const std::string& name : ListDir(dir).value_or({})) {
    // Skips the connectors of a card: card1-DP-1.
    const bool is_connector = name.find('-') != std::string::npos;
    if ((name.starts_with("card") || name.starts_with("renderD")) && !is_connector) {
      nodes.push_back("dri/" + name);
    }
  }
  return nodes;
}

Result<std::vector<ProcGpu>> ListGpus(const std::string& root) {
  Result<std::vector<ProcGpu>> gpus = ReadProcGpus(JoinPath(root, "proc"));
  // A driver container's root often has no /proc; the kernel's /proc is the same for all roots.
  if (!gpus.ok() && root != "/") gpus = ReadProcGpus("/proc");
  if (!gpus.ok()) {
    return Error(gpus.status().code(),
                 "no GPU found: {}: load the driver (modprobe nvidia), or name its root "
                 "(driver-root in the runtime's configuration)",
                 gpus.status().message());
  }
  return gpus;
}

}  // namespace tessera::oci
