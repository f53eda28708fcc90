// SPDX-License-Identifier: Apache-2.0
#include "src/sim/simgpu/driver_root.h"

#include <fmt/ranges.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <tuple>

#include <sys/stat.h>
#include <unistd.h>

#include "src/base/file.h"
#include "src/base/machine.h"
#include "src/sim/simgpu/device_files.h"
#include "src/sim/simgpu/library_exports.h"
#include "src/sim/simgpu/pci_files.h"
#include "src/sim/state.h"

namespace tessera::sim {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLibraryDir = "usr/lib/" TESSERA_MULTIARCH;

// A library, by its name without version. An optional library may be missing.
struct Library {
  std::string_view name;
  bool optional;
};
constexpr Library kLibraries[] = {{"libcuda", /*optional=*/false},
                                  {"libnvidia-ml", /*optional=*/false},
                                  {"libnvidia-ptxjitcompiler", /*optional=*/true}};

Status Write(const std::string& path, std::string_view text) {
  RETURN_IF_ERROR(MakeDirs(DirName(path)));
  return WriteFileAtomically(path, text, 0644);
}

using FileEdit = std::function<Status(const std::string& file)>;

// Copies the file, and applies `change` to the copy.
Status Copy(const std::string& from, const std::string& to, const FileEdit& change = {}) {
  std::error_code error;
  const std::string temporary = to + ".new";
  // Never write into the old file, because programs may have mapped it.
  fs::remove(temporary, error);
  if (!fs::copy_file(from, temporary, error)) {
    return Error(Code::kUnknown, "copy {} to {}: {}", from, to, error.message());
  }
  if (change != nullptr) RETURN_IF_ERROR(change(temporary));
  fs::rename(temporary, to, error);
  if (error) return Error(Code::kUnknown, "rename {}: {}", temporary, error.message());
  return {};
}

Status MakeLink(const std::string& path, const std::string& target) {
  unlink(path.c_str());
  if (symlink(target.c_str(), path.c_str()) != 0) return Status::FromErrno(path, errno);
  return {};
}

// The first of `folders` that has `name`.
Result<std::string> FindFile(const std::string& name, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    const std::string path = JoinPath(folder, name);
    if (PathExists(path)) return path;
  }
  return Error(Code::kNotFound,
               "{} is missing in {}: build the targets sim_cuda, sim_nvml and "
               "nvidia-smi, or set --library-dir",
               name, fmt::join(folders, ", "));
}

std::vector<std::string> LibraryFolders(const DriverRootOptions& options) {
  if (!options.library_dir.empty()) return {options.library_dir};
  std::error_code error;
  const std::string program_folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  return {program_folder + "/../lib/sim", program_folder + "/../lib",
          program_folder + "/../lib/tessera", program_folder};
}

std::vector<std::string> ProgramFolders(const DriverRootOptions& options) {
  if (!options.program_dir.empty()) return {options.program_dir};
  std::error_code error;
  const std::string program_folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  return {program_folder, program_folder + "/../bin"};
}

// An edit that limits the exports of a library to the exports of the profile's driver.
FileEdit LimitExportsOf(std::string_view library, const Profile& profile) {
  if (library == "libcuda") {
    return [&](const std::string& file) { return LimitCudaExports(file, profile.cuda_version); };
  }
  if (library == "libnvidia-ml") {
    return [&](const std::string& file) { return LimitNvmlExports(file, profile.driver_version); };
  }
  return {};
}

// Removes libraries of other driver versions, which tools that list a driver root would use too.
void RemoveOtherVersions(const std::string& folder, std::string_view library,
                         const std::string& versioned) {
  std::error_code error;
  const std::string prefix = fmt::format("{}.so.", library);
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (!entry.is_symlink() && name.starts_with(prefix) && name != versioned) {
      fs::remove(entry.path(), error);
    }
  }
}

Status WriteLibraries(const DriverRootOptions& options) {
  const std::string folder = JoinPath(options.root, kLibraryDir);
  RETURN_IF_ERROR(MakeDirs(folder));
  for (const Library& library : kLibraries) {
    const std::string soname = fmt::format("{}.so.1", library.name);
    auto source = FindFile(soname, LibraryFolders(options));
    if (!source.ok() && library.optional) continue;
    if (!source.ok()) return source.status();
    const std::string versioned =
        fmt::format("{}.so.{}", library.name, options.profile.driver_version);
    RETURN_IF_ERROR(
        Copy(*source, JoinPath(folder, versioned), LimitExportsOf(library.name, options.profile)));
    RETURN_IF_ERROR(MakeLink(JoinPath(folder, soname), versioned));
    RETURN_IF_ERROR(MakeLink(JoinPath(folder, fmt::format("{}.so", library.name)), soname));
    RemoveOtherVersions(folder, library.name, versioned);
  }
  const std::string programs = JoinPath(options.root, "usr/bin");
  RETURN_IF_ERROR(MakeDirs(programs));
  // nvidia-smi is optional: driver roots in container images lack it, too.
  auto smi = FindFile("nvidia-smi", ProgramFolders(options));
  return smi.ok() ? Copy(*smi, JoinPath(programs, "nvidia-smi")) : Status();
}

std::string InformationText(const GpuFacts& gpu, std::string_view driver_version) {
  return fmt::format(
      "Model: \t\t {}\nIRQ:   \t\t {}\nGPU UUID: \t {}\nVideo BIOS: \t {}\nBus Type: \t PCIe\n"
      "DMA Size: \t 47 bits\nDMA Mask: \t 0x7fffffffffff\nBus Location: \t {}\n"
      "Device Minor: \t {}\nGPU Firmware: \t {}\nGPU Excluded:\t No\n",
      gpu.name, 100 + gpu.minor, gpu.uuid, gpu.vbios, PciAddressText(gpu.pci), gpu.minor,
      driver_version);
}

// The minor numbers of all capabilities of MIG, and the capabilities that exist without instances.
Status WriteCapabilities(const std::string& root, const StateFile& state) {
  if (!HasMig(state)) return {};
  constexpr uint32_t kGpusWithMinors = 32;  // the driver has minor numbers for 32 GPUs
  std::string minors = fmt::format("config {}\nmonitor {}\n", kMigConfigMinor, kMigMonitorMinor);
  for (uint32_t gpu = 0; gpu < kGpusWithMinors; ++gpu) {
    for (uint32_t gpu_instance = 0; gpu_instance < MigCapability::kGpuInstanceIds; ++gpu_instance) {
      minors += fmt::format("gpu{}/gi{}/access {}\n", gpu, gpu_instance,
                            MigCapability{gpu, gpu_instance}.number());
      for (int compute_instance = 0; compute_instance < int(MigCapability::kComputeInstanceIds);
           ++compute_instance) {
        minors += fmt::format("gpu{}/gi{}/ci{}/access {}\n", gpu, gpu_instance, compute_instance,
                              MigCapability{gpu, gpu_instance, compute_instance}.number());
      }
    }
  }
  RETURN_IF_ERROR(Write(JoinPath(root, "proc/driver/nvidia-caps/mig-minors"), minors));
  const std::string capabilities = JoinPath(root, "proc/driver/nvidia/capabilities");
  for (const auto& [name, number, mode] : {std::tuple("config", kMigConfigMinor, 0400),
                                           std::tuple("monitor", kMigMonitorMinor, 0444)}) {
    RETURN_IF_ERROR(
        Write(fmt::format("{}/mig/{}", capabilities, name), CapabilityText(number, mode)));
  }
  for (uint32_t i = 0; i < state.gpu_count; ++i) {
    if (state.facts[i].mig_capable == 0) continue;
    RETURN_IF_ERROR(MakeDirs(fmt::format("{}/gpu{}/mig", capabilities, state.facts[i].minor)));
  }
  return {};
}

Status WriteProc(const std::string& root, const StateFile& state) {
  const std::string proc = JoinPath(root, "proc/driver/nvidia");
  RETURN_IF_ERROR(Write(proc + "/version", fmt::format("NVRM version: NVIDIA UNIX " TESSERA_MACHINE
                                                       " Kernel Module  {}  (simulated)\n"
                                                       "GCC version:  none\n",
                                                       state.driver_version)));
  // From this file the agent reads the numbers of the device nodes that it creates.
  RETURN_IF_ERROR(
      Write(JoinPath(root, "proc/devices"),
            fmt::format("Character devices:\n{} nvidia\n{} nvidia-uvm\n{} nvidia-caps\n\nBlock "
                        "devices:\n",
                        kNvidiaMajor, kUvmMajor, kCapabilityMajor)));
  RETURN_IF_ERROR(
      Write(proc + "/params",
            "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n"));
  for (uint32_t i = 0; i < state.gpu_count; ++i) {
    const GpuFacts& gpu = state.facts[i];
    RETURN_IF_ERROR(Write(fmt::format("{}/gpus/{}/information", proc, PciAddressText(gpu.pci)),
                          InformationText(gpu, state.driver_version)));
  }
  return WriteCapabilities(root, state);
}

// The device files that the options ask for.
std::vector<DeviceFile> WantedDeviceFiles(const DriverRootOptions& options,
                                          const StateFile& state) {
  switch (options.device_files) {
    case DeviceFiles::kNone:
      return {};
    case DeviceFiles::kNodes:
      return DeviceFilesOf(state, options.dev_root, S_IFCHR);
    case DeviceFiles::kPlain:
      return DeviceFilesOf(state, options.dev_root, S_IFREG);
  }
  CheckFailed(__FILE__, __LINE__, "unknown kind of device files");
}

// Accepts a root that is missing, empty, or a simulated driver.
Status CheckRoot(const std::string& root) {
  if (root.empty()) return Error(Code::kInvalidArgument, "no driver root: set --root");
  auto names = ListDir(root);
  if (!names.ok() || names->empty() || PathExists(StateDir(root) + "/state")) return {};
  return Error(Code::kAlreadyExists,
               "{} has other files, such as {}: use another folder, or empty it", root,
               names->front());
}

// Removes the files that simulate /proc and /sys.
void RemoveKernelFiles(const std::string& root) {
  std::error_code error;
  for (const char* name : {"proc", "sys"}) fs::remove_all(fs::path(root) / name, error);
}

}  // namespace

std::string StateDir(const std::string& root) { return JoinPath(root, "run/simgpu"); }

Status CreateDriverRoot(const DriverRootOptions& options) {
  RETURN_IF_ERROR(CheckRoot(options.root));
  ASSIGN_OR_RETURN(auto state, MakeState(options.profile, options.node_name));
  RETURN_IF_ERROR(WriteLibraries(options));
  // Removes GPUs of the previous node, so that the agent does not create their device nodes again.
  RemoveKernelFiles(options.root);
  RETURN_IF_ERROR(WriteProc(options.root, *state));
  RETURN_IF_ERROR(WritePciFiles(options.root, *state));
  const std::string state_dir = StateDir(options.root);
  RETURN_IF_ERROR(ReplaceDeviceFiles(state_dir, WantedDeviceFiles(options, *state)));
  // The state is the last file: a process that finds it also finds all other files.
  if (const int error = State::Create(state_dir, *state); error != 0) {
    return Status::FromErrno(state_dir + "/state", error);
  }
  return {};
}

Status DestroyDriverRoot(const std::string& root, const std::string& dev_root) {
  State state;
  if (const int error = state.Open(StateDir(root)); error != 0) {
    return Error(Code::kNotFound, "no simulated driver at {}: {}", root, strerror(error));
  }
  // This is the first step, so that the agent does not create device files of listed GPUs again.
  RemoveKernelFiles(root);
  RETURN_IF_ERROR(ReplaceDeviceFiles(StateDir(root), {}));
  if (!dev_root.empty()) {
    for (const mode_t type : {S_IFCHR, S_IFREG}) {
      for (const DeviceFile& file : DeviceFilesOf(state.file(), dev_root, type)) {
        RemoveDeviceFile(file);
      }
    }
  }
  std::error_code error;
  for (const char* name : {"usr", "run"}) fs::remove_all(fs::path(root) / name, error);
  fs::remove(root, error);  // fails unless empty
  return {};
}

}  // namespace tessera::sim
