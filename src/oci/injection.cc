// SPDX-License-Identifier: Apache-2.0
#include "src/oci/injection.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>

#include "api/names.h"
#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/oci/ld_cache.h"
#include "src/oci/rooted_dir.h"
#include "src/oci/stage.h"

namespace tessera::oci {
namespace {

constexpr std::string_view kLdCache = "/etc/ld.so.cache";
constexpr std::string_view kDefaultPath =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const std::vector<std::string> kReadOnlyBind = {"ro", "nosuid", "nodev", "bind", "rprivate"};
const std::vector<std::string> kSharedBind = {"rw", "nosuid", "nodev", "noexec", "bind", "rprivate"};

// Links that programs expect beside those that a SONAME gives.
struct ExtraLink {
  std::string_view name;
  std::string_view soname;
};
constexpr ExtraLink kExtraLinks[] = {
    {"libcuda.so", "libcuda.so.1"},
    {"libnvidia-opticalflow.so", "libnvidia-opticalflow.so.1"},
    {"libGLX_indirect.so.0", "libGLX_nvidia.so.0"},
};

// Mounts that earlier starts of this bundle added do not count.
std::optional<Mount> MountOver(const ConfigDocument& document, std::string_view path) {
  const std::string stage = Stage::PathIn(document.bundle());
  std::optional<Mount> over;
  for (Mount& mount : document.Mounts()) {
    if (mount.source.starts_with('/') && IsBelow(CleanPath(mount.source), stage)) continue;
    const std::string destination = CleanPath(mount.destination);
    if (destination != "/" && IsBelow(path, destination)) over = std::move(mount);
  }
  return over;
}

// Only a file system that the engine makes for this container, and drops with it, may get new names.
bool IsPrivate(const ConfigDocument& document, std::string_view path) {
  const std::optional<Mount> over = MountOver(document, path);
  return over && over->type == "tmpfs";
}

Status CheckNoLink(const RootedDir& root, const std::string& dir) {
  // Also a link that leads nowhere in the image: runc 1.1 follows it on the host.
  if (root.IsMissing(dir) || root.HasDir(dir, Links::kRefuse)) return Status::Ok();
  return Error(Code::kFailedPrecondition,
               "the image has /{} as a symbolic link or a file: GPUs are given only to images in "
               "which /{} is a folder, or missing",
               dir, dir);
}

void ReadImageCache(const ConfigDocument& document, const RootedDir& root, Placement* placement) {
  if (const auto over = MountOver(document, kLdCache)) {
    placement->why_no_cache = "a mount at " + over->destination + " lies over it";
    return;
  }
  Result<std::string> cache = root.Read(std::string(kLdCache), Links::kRefuse, kMaxLdCacheSize);
  if (!cache.ok()) {
    placement->why_no_cache = cache.status().message();
    return;
  }
  const Result<LdCache> parsed = ParseLdCache(*cache);
  if (!parsed.ok()) {
    placement->why_no_cache = parsed.status().message();
    return;
  }
  placement->ld_cache = std::move(*cache);
}

// PATH-like lists: adds at the end, once.
std::string AppendToList(std::string list, const std::string& dir) {
  const auto parts = Split(list, ':');
  if (std::find(parts.begin(), parts.end(), dir) != parts.end()) return list;
  return list.empty() ? dir : list + ":" + dir;
}

class Injector {
 public:
  Injector(const Injection& injection, const Placement& placement, Stage stage,
           ConfigDocument* document)
      : injection_(injection),
        placement_(placement),
        stage_(std::move(stage)),
        document_(*document) {}

  Status Run() {
    document_.EraseMountsFrom(stage_.path());
    // Whoever was given some GPUs shall not see the others.
    document_.EraseGpuNodes();
    for (const DeviceNode& node : injection_.devices) RETURN_IF_ERROR(AddNode(node));
    RETURN_IF_ERROR(document_.AddMount(
        {placement_.driver_dir, "bind", stage_.tree(), kReadOnlyBind}));
    for (const DriverLibrary& library : injection_.driver.libraries) {
      RETURN_IF_ERROR(AddLibrary(library));
    }
    for (const ExtraLink& link : kExtraLinks) RETURN_IF_ERROR(AddExtraLink(link));
    for (const DriverBinary& binary : injection_.driver.binaries) {
      RETURN_IF_ERROR(AddFile(binary.host_path, "bin/" + binary.name, kReadOnlyBind));
    }
    for (const std::string& file : injection_.driver.state_files) {
      RETURN_IF_ERROR(AddFile(JoinPath(injection_.driver.root, file), file, kSharedBind));
    }
    RETURN_IF_ERROR(AddSockets());
    for (const Mount& mount : injection_.mounts) RETURN_IF_ERROR(AddGrantedMount(mount));
    return EditEnv();
  }

 private:
  Status AddNode(const DeviceNode& node) {
    RETURN_IF_ERROR(document_.AllowDevice(node));
    // Group access works only for members.
    if ((node.mode & 0006) != 0006 && node.gid != 0) RETURN_IF_ERROR(document_.AddGroup(node.gid));
    if (IsPrivate(document_, node.path)) return document_.AddDevice(node);
    return CheckBoundNode(node);
  }

  // The container has a folder of the host as its /dev. There we make nothing; the node must be there.
  Status CheckBoundNode(const DeviceNode& node) {
    const std::optional<Mount> over = MountOver(document_, node.path);
    if (over && over->source.starts_with('/')) {
      const std::string below = node.path.substr(CleanPath(over->destination).size());
      const std::string host_path = CleanPath(over->source) + below;
      const Result<DeviceNode> there = LookAtDevice(host_path, node.path);
      if (there.ok() && there->major_number == node.major_number &&
          there->minor_number == node.minor_number) {
        return Status::Ok();
      }
    }
    return Error(Code::kFailedPrecondition,
                 "{} cannot be made: the container's /dev is {}, and nothing is written there; let "
                 "the engine make /dev (a tmpfs), or mount only the files that are needed",
                 node.path,
                 over ? fmt::format("{} of the host", over->source) : "in its root file system");
  }

  Status AddFile(const std::string& host, const std::string& name,
                 const std::vector<std::string>& options) {
    RETURN_IF_ERROR(stage_.AddPlace(name));
    return document_.AddMount({JoinPath(placement_.driver_dir, name), "bind", host, options});
  }

  Status AddLibrary(const DriverLibrary& library) {
    RETURN_IF_ERROR(AddFile(library.host_path, "lib/" + library.file_name, kReadOnlyBind));
    RETURN_IF_ERROR(AddCacheEntry(library.file_name));
    if (library.soname == library.file_name) return Status::Ok();
    RETURN_IF_ERROR(stage_.AddLink("lib/" + library.soname, library.file_name));
    return AddCacheEntry(library.soname);
  }

  Status AddExtraLink(const ExtraLink& link) {
    for (const DriverLibrary& library : injection_.driver.libraries) {
      if (library.soname != link.soname) continue;
      RETURN_IF_ERROR(stage_.AddLink(fmt::format("lib/{}", link.name), library.file_name));
      return AddCacheEntry(link.name);
    }
    return Status::Ok();
  }

  Status AddCacheEntry(std::string_view name) {
    cache_entries_.push_back({.name = std::string(name),
                              .path = fmt::format("{}/lib/{}", placement_.driver_dir, name),
                              .flags = NativeLdCacheFlags()});
    return Status::Ok();
  }

  Status AddSockets() {
    for (const DriverSocket& socket : injection_.driver.sockets) {
      // In an image's own /run the place for it would stay behind.
      if (!IsPrivate(document_, socket.container_path)) continue;
      RETURN_IF_ERROR(
          document_.AddMount({socket.container_path, "bind", socket.host_path, kSharedBind}));
    }
    return Status::Ok();
  }

  Status AddGrantedMount(const Mount& mount) {
    const std::string destination = CleanPath(mount.destination);
    if (destination == names::kContainerDriverDir ||
        !IsBelow(destination, names::kContainerDriverDir)) {
      return document_.AddMount(mount);
    }
    const std::string name = destination.substr(names::kContainerDriverDir.size() + 1);
    struct stat info;
    if (::stat(mount.source.c_str(), &info) != 0) return Status::FromErrno(mount.source, errno);
    RETURN_IF_ERROR(S_ISDIR(info.st_mode) ? stage_.AddFolder(name) : stage_.AddPlace(name));
    Mount moved = mount;
    moved.destination = JoinPath(placement_.driver_dir, name);
    return document_.AddMount(moved);
  }

  Status EditEnv() {
    for (const auto& [name, value] : injection_.env) RETURN_IF_ERROR(document_.SetEnv(name, value));
    if (!injection_.driver.binaries.empty()) {
      const std::string path = document_.Env("PATH").value_or(std::string(kDefaultPath));
      RETURN_IF_ERROR(
          document_.SetEnv("PATH", AppendToList(path, placement_.driver_dir + "/bin")));
    }
    if (cache_entries_.empty()) return Status::Ok();
    if (placement_.ld_cache) return AddCache();
    const std::string list = document_.Env("LD_LIBRARY_PATH").value_or("");
    return document_.SetEnv("LD_LIBRARY_PATH", AppendToList(list, placement_.driver_dir + "/lib"));
  }

  Status AddCache() {
    ASSIGN_OR_RETURN(const LdCache image, ParseLdCache(*placement_.ld_cache));
    const std::string merged = WriteLdCache(MergeLdCaches(std::move(cache_entries_), image));
    ASSIGN_OR_RETURN(const std::string path, stage_.AddFile("ld.so.cache", merged));
    return document_.AddMount({std::string(kLdCache), "bind", path, kReadOnlyBind});
  }

  const Injection& injection_;
  const Placement& placement_;
  Stage stage_;
  ConfigDocument& document_;
  std::vector<LdCacheEntry> cache_entries_;
};

}  // namespace

Result<Placement> FindPlacement(const ConfigDocument& document) {
  ASSIGN_OR_RETURN(const std::string root_path, document.RootPath());
  Result<RootedDir> root = RootedDir::Open(root_path);
  if (!root.ok()) return root.status().Annotate("root file system of the container");
  RETURN_IF_ERROR(CheckNoLink(*root, "dev"));
  Placement placement;
  if (IsPrivate(document, names::kContainerDriverDir)) {
    placement.driver_dir = names::kContainerDriverDir;
  } else if (IsPrivate(document, "/run/tessera")) {
    RETURN_IF_ERROR(CheckNoLink(*root, "run"));
    placement.driver_dir = "/run/tessera";
  } else {
    return Error(Code::kFailedPrecondition,
                 "there is no place for the driver's files: the container has a tmpfs neither at "
                 "/dev nor at /run, and nothing is written into images or folders of the host; "
                 "let the engine make /dev, or mount a tmpfs at /run");
  }
  ReadImageCache(document, *root, &placement);
  return placement;
}

Status Inject(const Injection& injection, const Placement& placement, ConfigDocument* document) {
  ASSIGN_OR_RETURN(Stage stage, Stage::Make(document->bundle()));
  return Injector(injection, placement, std::move(stage), document).Run();
}

}  // namespace tessera::oci
