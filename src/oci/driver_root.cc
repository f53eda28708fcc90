// SPDX-License-Identifier: Apache-2.0
#include "src/oci/driver_root.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/oci/elf.h"
#include "src/oci/ld_cache.h"

namespace tessera::oci {
namespace {

#if defined(__x86_64__)
#define TESSERA_MULTIARCH "x86_64-linux-gnu"
#elif defined(__aarch64__)
#define TESSERA_MULTIARCH "aarch64-linux-gnu"
#endif

constexpr std::array<std::string_view, 8> kLibraryDirs = {
    "usr/lib/" TESSERA_MULTIARCH,
    "usr/lib/" TESSERA_MULTIARCH "/nvidia/current",
    "usr/lib64",
    "usr/lib",
    "lib/" TESSERA_MULTIARCH,
    "lib64",
    "usr/local/lib",
    "usr/lib/nvidia",
};
constexpr std::array<std::string_view, 5> kBinaryDirs = {"usr/bin", "usr/sbin", "bin", "sbin",
                                                         "usr/local/bin"};
constexpr std::array<std::string_view, 2> kStateFiles = {"run/simgpu/state", "run/simgpu/slots"};

struct SocketPlace {
  std::string_view path;
  Capabilities needed_by;
};
constexpr SocketPlace kSockets[] = {
    {"run/nvidia-persistenced/socket", kUtility},
    {"run/nvidia-fabricmanager/socket", kUtility},
};

// libcuda.so.550.54.15 -> 550.54.15; empty for libcuda.so.1.
std::string_view DriverVersionIn(std::string_view name, std::string_view stem) {
  if (!name.starts_with(stem)) return {};
  name.remove_prefix(stem.size());
  if (!name.starts_with(".so.")) return {};
  name.remove_prefix(4);
  const bool numbers = name.find_first_not_of("0123456789.") == std::string_view::npos;
  return numbers && name.find('.') != std::string_view::npos ? name : std::string_view();
}

class Finder {
 public:
  Finder(const RootedDir& root, Capabilities capabilities)
      : root_(root), capabilities_(capabilities) {
    files_.root = root.path();
  }

  Result<DriverFiles> Find() {
    RETURN_IF_ERROR(FindVersion());
    for (const DriverFile& library : DriverLibraries()) {
      if (library.needed_by & capabilities_) RETURN_IF_ERROR(FindLibrary(library));
    }
    if (!missing_.empty()) {
      // One line: each driver leaves some out, and the simulated one most.
      files_.notes.push_back(fmt::format("not in this driver: {}", missing_));
    }
    FindBinaries();
    FindSockets();
    for (const std::string_view file : kStateFiles) {
      if (root_.Exists(std::string(file))) files_.state_files.emplace_back(file);
    }
    return std::move(files_);
  }

 private:
  Status FindVersion() {
    std::vector<std::string> dirs(kLibraryDirs.begin(), kLibraryDirs.end());
    for (const std::string_view stem : {"libcuda", "libnvidia-ml"}) {
      if (TryDirs(dirs, stem)) return Status::Ok();
    }
    // Somewhere else: the root's own linker cache knows.
    const std::vector<std::string> cached = DirsFromCache();
    for (const std::string_view stem : {"libcuda", "libnvidia-ml"}) {
      if (TryDirs(cached, stem)) return Status::Ok();
    }
    dirs.insert(dirs.end(), cached.begin(), cached.end());
    std::string searched;
    for (const std::string& dir : dirs) {
      if (root_.HasDir(dir, Links::kInRoot)) searched += (searched.empty() ? "" : ", ") + dir;
    }
    return Error(Code::kNotFound,
                 "driver root {} holds no driver: there is no libcuda.so.<version> and no "
                 "libnvidia-ml.so.<version> in {}; install the driver, or name its root "
                 "(driver-root in the runtime's configuration, --driver-root of tessera-agent)",
                 root_.path(), searched.empty() ? "any library folder, for it has none" : searched);
  }

  bool TryDirs(const std::vector<std::string>& dirs, std::string_view stem) {
    for (const std::string& dir : dirs) {
      std::string version = VersionIn(dir, stem);
      if (version.empty()) continue;
      files_.version = std::move(version);
      dirs_ = {dir};
      // Files of one driver may be spread (vdpau, or 64-bit folders beside multiarch ones).
      for (const std::string& other : dirs) {
        if (other != dir && root_.HasDir(other, Links::kInRoot)) dirs_.push_back(other);
      }
      const std::string vdpau = JoinPath(dir, "vdpau");
      if (root_.HasDir(vdpau, Links::kInRoot)) dirs_.push_back(vdpau);
      return true;
    }
    return false;
  }

  std::string VersionIn(const std::string& dir, std::string_view stem) const {
    const std::string link = fmt::format("{}/{}.so.1", dir, stem);
    const Result<std::string> target = root_.ReadLink(link);
    if (target.ok()) {
      const std::string target_name = BaseName(*target);
      const std::string_view version = DriverVersionIn(target_name, stem);
      const std::string file = fmt::format("{}/{}.so.{}", dir, stem, version);
      if (!version.empty() && root_.Exists(file)) return std::string(version);
    }
    // Without the usual link the folder has to be read.
    const Result<std::vector<std::string>> names = ListDir(JoinPath(root_.path(), dir));
    if (!names.ok()) return {};
    for (const std::string& name : *names) {
      const std::string_view version = DriverVersionIn(name, stem);
      if (!version.empty()) return std::string(version);
    }
    return {};
  }

  std::vector<std::string> DirsFromCache() const {
    std::vector<std::string> dirs;
    const Result<std::string> data =
        root_.Read("etc/ld.so.cache", Links::kInRoot, kMaxLdCacheSize);
    if (!data.ok()) return dirs;
    const Result<LdCache> cache = ParseLdCache(*data);
    if (!cache.ok()) return dirs;
    for (const LdCacheEntry& entry : cache->entries) {
      if (entry.flags != NativeLdCacheFlags()) continue;
      if (entry.name != "libcuda.so.1" && entry.name != "libnvidia-ml.so.1") continue;
      dirs.push_back(DirName(entry.path));
    }
    return dirs;
  }

  Status FindLibrary(const DriverFile& library) {
    const std::string name = fmt::format("{}.so.{}", library.name, files_.version);
    const bool vital = library.name == "libcuda" || library.name == "libnvidia-ml";
    for (const std::string& dir : dirs_) {
      const std::string path = JoinPath(dir, name);
      const Result<Fd> fd = root_.OpenTrustedFile(path);
      if (!fd.ok()) {
        if (fd.status().code() == Code::kNotFound) continue;
        files_.notes.push_back(fd.status().message());
        continue;
      }
      Result<ElfInfo> elf = ReadElf(fd->get());
      ASSIGN_OR_RETURN(std::string host_path, PathOf(fd->get()));
      if (!elf.ok()) {
        const Status why = elf.status().Annotate(host_path);
        if (vital) return why;
        files_.notes.push_back(why.message());
        continue;
      }
      if (elf->soname.empty()) elf->soname = name;
      files_.libraries.push_back({std::move(host_path), name, std::move(elf->soname)});
      return Status::Ok();
    }
    missing_ += (missing_.empty() ? "" : ", ") + name;
    return Status::Ok();
  }

  void FindBinaries() {
    for (const DriverFile& binary : DriverBinaries()) {
      if (!(binary.needed_by & capabilities_)) continue;
      for (const std::string_view dir : kBinaryDirs) {
        Result<std::string> path = root_.HostPath(fmt::format("{}/{}", dir, binary.name));
        if (!path.ok()) continue;
        files_.binaries.push_back({std::move(*path), std::string(binary.name)});
        break;
      }
    }
  }

  void FindSockets() {
    for (const SocketPlace& socket : kSockets) {
      if (!(socket.needed_by & capabilities_)) continue;
      Result<std::string> path = root_.HostPath(std::string(socket.path));
      if (path.ok()) files_.sockets.push_back({std::move(*path), fmt::format("/{}", socket.path)});
    }
  }

  const RootedDir& root_;
  const Capabilities capabilities_;
  DriverFiles files_;
  std::vector<std::string> dirs_;
  std::string missing_;  // libraries, separated by commas
};

Result<std::vector<ProcGpu>> ListGpusIn(const std::string& folder) {
  ASSIGN_OR_RETURN(const std::vector<std::string> bus_ids, ListDir(folder));
  std::vector<ProcGpu> gpus;
  for (const std::string& bus_id : bus_ids) {
    const std::string path = JoinPath(JoinPath(folder, bus_id), "information");
    ASSIGN_OR_RETURN(const std::string text, ReadFile(path, 64u << 10));
    gpus.push_back(ParseGpuInformation(bus_id, text));
  }
  return gpus;
}

}  // namespace

Result<DriverFiles> FindDriver(const std::string& root, Capabilities capabilities) {
  Result<RootedDir> dir = RootedDir::Open(root);
  if (!dir.ok()) return dir.status().Annotate("driver root");
  return Finder(*dir, capabilities).Find();
}

ProcGpu ParseGpuInformation(std::string bus_id, std::string_view text) {
  ProcGpu gpu{.bus_id = std::move(bus_id)};
  for (const std::string_view line : Split(text, '\n')) {
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view key = Trim(line.substr(0, colon));
    const std::string_view value = Trim(line.substr(colon + 1));
    if (key == "Model") gpu.model = value;
    if (key == "GPU UUID") gpu.uuid = value;
    if (key == "Device Minor") {
      gpu.minor = static_cast<int>(ParseInt(value).value_or(-1));
    }
  }
  return gpu;
}

Result<std::vector<ProcGpu>> ListGpus(const std::string& root) {
  Result<std::vector<ProcGpu>> gpus = ListGpusIn(JoinPath(root, "proc/driver/nvidia/gpus"));
  // A driver container's root often has no /proc of its own; the kernel's is the same for all.
  if (!gpus.ok() && root != "/") gpus = ListGpusIn("/proc/driver/nvidia/gpus");
  if (!gpus.ok()) {
    return Error(gpus.status().code(),
                 "no GPU is known: {}: load the driver (modprobe nvidia), or name its root "
                 "(driver-root in the runtime's configuration)",
                 gpus.status().message());
  }
  return gpus;
}

}  // namespace tessera::oci
