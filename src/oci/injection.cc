// SPDX-License-Identifier: Apache-2.0
#include "src/oci/injection.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <set>

#include "api/names.h"
#include "src/base/file.h"
#include "src/base/machine.h"
#include "src/oci/image_libraries.h"
#include "src/oci/rooted_dir.h"
#include "src/oci/shared_tree.h"
#include "src/oci/stage.h"
#include "src/oci/tree.h"

namespace tessera::oci {
namespace {

constexpr std::string_view kLdCache = "/etc/ld.so.cache";
constexpr std::string_view kDefaultPath =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
// mount(2) ignores other flags together with MS_BIND, so runc and crun remount with them. With
// rprivate, later mounts below the mount point do not propagate to the host.
const std::vector<std::string> kReadOnlyBind = {"ro", "nosuid", "nodev", "bind", "rprivate"};
// The shared tree contains a mount for each file of the driver, which only rbind includes.
const std::vector<std::string> kReadOnlyTree = {"ro", "nosuid", "nodev", "rbind", "rprivate"};
// For the state of the container's processes. The directory is sticky, so that users cannot remove
// each other's files.
const std::vector<std::string> kUsageTmpfs = {"rw",     "nosuid",    "nodev",
                                              "noexec", "mode=1777", "size=8m"};
const std::vector<std::string> kReadWriteBind = {"rw",     "nosuid", "nodev",
                                                 "noexec", "bind",   "rprivate"};

constexpr std::string_view kGbmDirs =
    "/usr/lib/" TESSERA_MULTIARCH "/gbm:/usr/lib64/gbm:/usr/lib/gbm";

// A link that programs expect in addition to the SONAME.
struct ExtraLink {
  std::string_view name;
  std::string_view soname;
};
constexpr ExtraLink kExtraLinks[] = {
    {"libcuda.so", "libcuda.so.1"},
    {"libnvidia-opticalflow.so", "libnvidia-opticalflow.so.1"},
    {"libGLX_indirect.so.0", "libGLX_nvidia.so.0"},
};

// A search path of a loader. Injection prepends the tree's directory `dir`. If the variable is not
// set, the loader searches `default_dirs`, so the new value names them as well.
struct LoaderPath {
  std::string_view variable;
  std::string_view dir;
  std::string_view default_dirs;
};
constexpr LoaderPath kLoaderPaths[] = {
    {"XDG_DATA_DIRS", "share", "/usr/local/share:/usr/share"},  // Vulkan
    {"__EGL_VENDOR_LIBRARY_DIRS", "share/glvnd/egl_vendor.d",
     "/etc/glvnd/egl_vendor.d:/usr/share/glvnd/egl_vendor.d"},
    {"__EGL_EXTERNAL_PLATFORM_CONFIG_DIRS", "share/egl/egl_external_platform.d",
     "/etc/egl/egl_external_platform.d:/usr/share/egl/egl_external_platform.d"},
    {"GBM_BACKENDS_PATH", "lib/gbm", kGbmDirs},
};

// Makes new files readable for the container's user, regardless of the engine's umask. The
// low-level runtime inherits the umask, so the destructor restores it.
class ScopedUmask {
 public:
  ScopedUmask() : old_(::umask(0022)) {}
  ~ScopedUmask() { ::umask(old_); }
  ScopedUmask(const ScopedUmask&) = delete;
  ScopedUmask& operator=(const ScopedUmask&) = delete;

 private:
  mode_t old_;
};

// Whether an earlier start of this bundle added the mount.
bool IsInjected(const Mount& mount, const std::string& stage, const std::string& tree_dir) {
  if (!mount.source.starts_with('/')) return false;
  const std::string source = CleanPath(mount.source);
  if (IsBelow(source, stage)) return true;
  return !tree_dir.empty() && IsBelow(source, tree_dir) &&
         (mount.destination == names::kContainerDriverDir || mount.destination == kRunDriverDir);
}

std::optional<Mount> FindEngineMountOver(const ConfigDocument& document,
                                         const std::string& tree_dir, std::string_view path) {
  const std::string stage = Stage::PathIn(document.bundle());
  std::vector<Mount> mounts = document.Mounts();
  std::erase_if(mounts, [&](const Mount& mount) { return IsInjected(mount, stage, tree_dir); });
  const Mount* over = FindMountOver(mounts, path);
  return over == nullptr ? std::nullopt : std::optional(*over);
}

// Whether `path` is in a file system that the engine creates and removes with this container. New
// files are created only there.
bool IsInPrivateTmpfs(const ConfigDocument& document, const std::string& tree_dir,
                      std::string_view path) {
  const std::optional<Mount> over = FindEngineMountOver(document, tree_dir, path);
  return over && over->type == "tmpfs";
}

Status CheckDirOrMissing(const RootedDir& root, const std::string& dir) {
  // Also rejects a dangling link in the image, because runc 1.1 follows it on the host.
  if (root.IsMissing(dir) || root.HasDir(dir, Links::kReject)) return Status::Ok();
  return Error(Code::kFailedPrecondition,
               "the image has /{} as a symbolic link or a file: GPUs are given only to images in "
               "which /{} is a directory, or missing",
               dir, dir);
}

LinkerSetup FindLinker(const ConfigDocument& document, const RootedDir& root,
                       const std::string& tree_dir) {
  if (const auto over = FindEngineMountOver(document, tree_dir, kLdCache)) {
    return {.fallback_reason =
                "a mount at " + over->destination + " lies over " + std::string(kLdCache)};
  }
  return FindLinkerSetup(root, document.IsRootReadOnly());
}

// A mount over the directory would hide links in the image.
std::string FindLibraryDirForLinks(const ConfigDocument& document, const RootedDir& root,
                                   const std::string& tree_dir) {
  std::string dir = FindLibraryDir(root);
  return FindEngineMountOver(document, tree_dir, "/" + dir) ? "" : dir;
}

class Injector {
 public:
  Injector(const Injection& injection, const InjectionTarget& target, Stage stage,
           ConfigDocument* document)
      : injection_(injection), target_(target), stage_(std::move(stage)), document_(*document) {}

  // Returns how driver files get into the container.
  Result<std::string> Run() {
    document_.EraseMountsFrom(stage_.path());
    RETURN_IF_ERROR(DenyGpus(injection_.denied_devices, &document_));
    for (const DeviceNode& node : injection_.devices) RETURN_IF_ERROR(AddNode(node));
    if (!injection_.dmem_max.empty()) {
      RETURN_IF_ERROR(document_.SetUnified("dmem.max", injection_.dmem_max));
    }
    RETURN_IF_ERROR(CollectTree());
    const std::vector<std::string> link_names = CollectLinkNames();
    ASSIGN_OR_RETURN(std::string summary, MountTree());
    for (const Mount& mount : mounts_after_tree_) RETURN_IF_ERROR(document_.AddMount(mount));
    RETURN_IF_ERROR(AddSockets());
    RETURN_IF_ERROR(EditEnv());
    if (link_names.empty()) return summary;
    const Status linked =
        LinkLibraries(target_.root, target_.library_dir, ContainerPath("lib"), link_names);
    // Programs that ask the linker find the libraries without these links.
    if (!linked.ok()) summary += "; no links in the image: " + linked.message();
    return summary;
  }

 private:
  Status AddNode(const DeviceNode& node) {
    RETURN_IF_ERROR(document_.AllowDevice(node));
    // Group access works only for members of the group.
    if ((node.mode & 0006) != 0006 && node.gid != 0) RETURN_IF_ERROR(document_.AddGroup(node.gid));
    if (IsInPrivateTmpfs(document_, injection_.tree_dir, node.path))
      return document_.AddDevice(node);
    return CheckExistingNode(node);
  }

  // For a container whose /dev is a directory of the host. Nothing is created there, so the node
  // must exist.
  Status CheckExistingNode(const DeviceNode& node) {
    const std::optional<Mount> over =
        FindEngineMountOver(document_, injection_.tree_dir, node.path);
    if (over && over->source.starts_with('/')) {
      const std::string below = node.path.substr(CleanPath(over->destination).size());
      const std::string host_path = CleanPath(over->source) + below;
      const Result<DeviceNode> existing = ReadDeviceNode(host_path, node.path);
      if (existing.ok() && existing->major_number == node.major_number &&
          existing->minor_number == node.minor_number) {
        return Status::Ok();
      }
    }
    return Error(Code::kFailedPrecondition,
                 "{} cannot be made: the container's /dev is {}, and nothing is written there; let "
                 "the engine make /dev (a tmpfs), or mount only the files that are needed",
                 node.path,
                 over ? fmt::format("{} of the host", over->source) : "in its root file system");
  }

  Status CollectTree() {
    for (const DriverLibrary& library : injection_.driver.libraries) AddLibrary(library);
    if (injection_.limiter) RETURN_IF_ERROR(AddLimiter());
    for (const ExtraLink& link : kExtraLinks) AddExtraLink(link);
    for (const FoundFile& binary : injection_.driver.binaries) {
      tree_.AddDriverFile("bin/" + binary.name, binary.host_path);
    }
    for (const FoundFile& file : injection_.driver.data_files) {
      tree_.AddDriverFile("share/" + file.name, file.host_path);
    }
    for (const std::string& file : injection_.driver.state_files) {
      tree_.AddMountPoint(file);
      mounts_after_tree_.push_back(
          {ContainerPath(file), "bind", JoinPath(injection_.driver.root, file), kReadWriteBind});
    }
    for (const Mount& mount : injection_.mounts) RETURN_IF_ERROR(AddGrantedMount(mount));
    return Status::Ok();
  }

  std::string ContainerPath(std::string_view name) const {
    return JoinPath(target_.driver_dir, name);
  }

  // The limiter is also mounted over all other copies of the libraries that it replaces.
  Status AddLimiter() {
    const Limiter& limiter = *injection_.limiter;
    RETURN_IF_ERROR(stage_.SetLabel(limiter.limits_dir));
    RETURN_IF_ERROR(stage_.SetLabel(JoinPath(limiter.limits_dir, "limits")));
    tree_.AddDir("limits");
    tree_.AddDir("usage", 01777);
    mounts_after_tree_.push_back(
        {ContainerPath("limits"), "bind", limiter.limits_dir, kReadOnlyBind});
    mounts_after_tree_.push_back({ContainerPath("usage"), "tmpfs", "tmpfs", kUsageTmpfs});
    std::vector<std::string_view> sonames;
    for (const LimiterLibrary& library : kLimiterLibraries) sonames.push_back(library.soname);
    for (const ImageLibrary& library :
         FindImageLibraries(document_, target_.root, target_.linker.cache, sonames)) {
      mounts_after_tree_.push_back(
          {library.path, "bind", LimiterFileFor(library.soname), kReadOnlyBind});
    }
    return Status::Ok();
  }

  // Host path of the library that replaces the driver's; "" if no library replaces it.
  std::string LimiterFileFor(std::string_view soname) const {
    const auto* replacement = std::ranges::find(kLimiterLibraries, soname, &LimiterLibrary::soname);
    if (!injection_.limiter || replacement == std::end(kLimiterLibraries)) return "";
    const bool in_dev = target_.driver_dir == names::kContainerDriverDir;
    return JoinPath(injection_.limiter->library_dir,
                    in_dev ? replacement->file_for_dev : replacement->file_for_run);
  }

  // The name of the driver's own library below real/. No linker searches for this name, so a search
  // path that contains the directory has no effect.
  static std::string RealNameOf(const std::string& soname) {
    return soname.substr(0, soname.find('.'));
  }

  // In a limited container the limiter's libraries replace the driver's. The limiter loads the
  // driver's libraries from real/NAME.
  void AddLibrary(const DriverLibrary& library) {
    const std::string limiter = LimiterFileFor(library.soname);
    if (!limiter.empty()) {
      tree_.AddDriverFile("real/" + RealNameOf(library.soname), library.host_path);
    }
    tree_.AddDriverFile("lib/" + library.file_name, limiter.empty() ? library.host_path : limiter);
    AddCacheEntry(library.file_name);
    // The GBM loader requests the driver of the kernel module nvidia-drm by this name.
    if (library.soname == "libnvidia-allocator.so.1" && !injection_.driver.data_files.empty()) {
      tree_.AddLink("lib/gbm/nvidia-drm_gbm.so", "../" + library.file_name);
    }
    if (library.soname == library.file_name) return;
    tree_.AddLink("lib/" + library.soname, library.file_name);
    AddCacheEntry(library.soname);
  }

  void AddExtraLink(const ExtraLink& link) {
    for (const DriverLibrary& library : injection_.driver.libraries) {
      if (library.soname != link.soname) continue;
      tree_.AddLink(fmt::format("lib/{}", link.name), library.file_name);
      return AddCacheEntry(link.name);
    }
  }

  // Programs that do not ask the linker search for these names. Names with the driver's version are
  // left out: after an update of the driver, such links would stay in the container's layer. Names
  // at which the pod mounts a library are left out, too: the low-level runtime would follow the
  // link.
  std::vector<std::string> CollectLinkNames() const {
    std::vector<std::string> names;
    if (target_.library_dir.empty()) return names;
    std::set<std::string> mounted;
    for (const Mount& mount : document_.Mounts()) {
      const std::string path = CleanPath(mount.destination);
      if (!IsBelow(path, target_.driver_dir)) mounted.insert(BaseName(path));
    }
    for (const LdCacheEntry& entry : cache_entries_) {
      if (entry.name.ends_with(injection_.driver.version) || mounted.contains(entry.name)) continue;
      names.push_back(entry.name);
    }
    return names;
  }

  void AddCacheEntry(std::string_view name) {
    cache_entries_.push_back({.name = std::string(name),
                              .path = fmt::format("{}/lib/{}", target_.driver_dir, name),
                              .flags = NativeLdCacheFlags()});
  }

  // Trees with and without the limiter have different files as libcuda. A new tree replaces the
  // other trees of its family, so the two kinds have different families.
  std::string TreeFamily() const {
    const std::string& root = injection_.driver.root;
    return injection_.limiter ? root + " limited by " + injection_.limiter->library_dir : root;
  }

  Result<std::string> MountTree() {
    std::string reason = "no directory for shared trees is configured";
    if (!injection_.tree_dir.empty()) {
      const Result<std::string> shared = ShareTree(tree_, TreeFamily(), injection_.tree_dir,
                                                   LabelWithoutCategories(document_.MountLabel()));
      if (shared.ok()) {
        RETURN_IF_ERROR(document_.AddMount({target_.driver_dir, "bind", *shared, kReadOnlyTree}));
        return fmt::format("driver files by one mount of {}", *shared);
      }
      reason = shared.status().message();
    }
    ASSIGN_OR_RETURN(const std::string staged, stage_.AddTree(tree_));
    RETURN_IF_ERROR(document_.AddMount({target_.driver_dir, "bind", staged, kReadOnlyBind}));
    for (const TreeEntry& entry : tree_.entries()) {
      if (entry.kind != TreeEntryKind::kDriverFile) continue;
      RETURN_IF_ERROR(
          document_.AddMount({ContainerPath(entry.name), "bind", entry.target, kReadOnlyBind}));
    }
    return fmt::format("driver files by a mount each: {}", reason);
  }

  Status AddSockets() {
    for (const FoundFile& socket : injection_.driver.sockets) {
      // In the image's own /run the mount point would remain after the container ends.
      if (!IsInPrivateTmpfs(document_, injection_.tree_dir, socket.name)) continue;
      RETURN_IF_ERROR(document_.AddMount({socket.name, "bind", socket.host_path, kReadWriteBind}));
    }
    return Status::Ok();
  }

  Status AddGrantedMount(const Mount& mount) {
    const std::string destination = CleanPath(mount.destination);
    if (destination == names::kContainerDriverDir ||
        !IsBelow(destination, names::kContainerDriverDir)) {
      mounts_after_tree_.push_back(mount);
      return Status::Ok();
    }
    std::string name = destination.substr(names::kContainerDriverDir.size() + 1);
    struct stat info;
    if (::stat(mount.source.c_str(), &info) != 0) return Status::FromErrno(mount.source, errno);
    mounts_after_tree_.push_back(mount);
    mounts_after_tree_.back().destination = ContainerPath(name);
    S_ISDIR(info.st_mode) ? tree_.AddDir(std::move(name)) : tree_.AddMountPoint(std::move(name));
    return Status::Ok();
  }

  Status EditEnv() {
    ASSIGN_OR_RETURN(EnvList env, document_.MutableEnv());
    RemovePreloadsOfDriver(&env);
    for (const auto& [name, value] : injection_.env) env.Set(name, value);
    if (!injection_.driver.binaries.empty()) {
      env.AppendDir("PATH", ContainerPath("bin"), kDefaultPath);
    }
    for (const LoaderPath& path : kLoaderPaths) AddLoaderPath(path, &env);
    if (cache_entries_.empty()) return Status::Ok();
    // The linker ignores LD_LIBRARY_PATH for set-user-ID programs (ld.so(8)), but not the cache.
    if (target_.linker.method != LinkerSetup::Method::kEnvironment) return AddCache();
    env.AppendDir("LD_LIBRARY_PATH", ContainerPath("lib"));
    return Status::Ok();
  }

  void AddLoaderPath(const LoaderPath& path, EnvList* env) const {
    const std::string prefix = std::string(path.dir) + "/";
    const auto below = [&](const TreeEntry& entry) { return entry.name.starts_with(prefix); };
    if (std::ranges::none_of(tree_.entries(), below)) return;
    const std::string dir = ContainerPath(path.dir);
    const std::string list = env->Get(path.variable).value_or(std::string(path.default_dirs));
    if (!list.starts_with(dir)) env->Set(path.variable, fmt::format("{}:{}", dir, list));
  }

  Status AddCache() {
    const std::string merged =
        WriteLdCache(MergeLdCaches(std::move(cache_entries_), target_.linker.cache));
    // If this process cannot write to the root, ldconfig in the container cannot either, so a
    // read-only mount of the cache is enough.
    if (target_.linker.method == LinkerSetup::Method::kWrite &&
        WriteLinkerFiles(target_.root, ContainerPath("lib"), merged).ok()) {
      return Status::Ok();
    }
    ASSIGN_OR_RETURN(const std::string path, stage_.AddFile("ld.so.cache", merged));
    return document_.AddMount({std::string(kLdCache), "bind", path, kReadOnlyBind});
  }

  const Injection& injection_;
  const InjectionTarget& target_;
  Stage stage_;
  ConfigDocument& document_;
  Tree tree_;
  std::vector<Mount> mounts_after_tree_;  // in order, after the tree
  std::vector<LdCacheEntry> cache_entries_;
};

}  // namespace

void RemovePreloadsOfDriver(EnvList* env) {
  for (const std::string_view name : {"LD_PRELOAD", "LD_AUDIT"}) {
    for (const std::string_view dir : {names::kContainerDriverDir, kRunDriverDir}) {
      env->RemoveFilesBelow(name, JoinPath(dir, "real"));
    }
  }
}

std::vector<std::string_view> DirListVariables() {
  std::vector<std::string_view> names = {"PATH", "LD_LIBRARY_PATH"};
  for (const LoaderPath& path : kLoaderPaths) names.push_back(path.variable);
  return names;
}

std::string LimiterDirBeside(std::string_view program) {
  return JoinPath(DirName(DirName(program)), "lib");
}

Result<InjectionTarget> FindInjectionTarget(const ConfigDocument& document,
                                            const std::string& tree_dir) {
  ASSIGN_OR_RETURN(const std::string root_path, document.RootPath());
  Result<RootedDir> root = RootedDir::Open(root_path);
  if (!root.ok()) return root.status().Annotate("root file system of the container");
  RETURN_IF_ERROR(CheckDirOrMissing(*root, "dev"));
  std::string driver_dir(names::kContainerDriverDir);
  if (!IsInPrivateTmpfs(document, tree_dir, driver_dir)) {
    driver_dir = kRunDriverDir;
    if (!IsInPrivateTmpfs(document, tree_dir, driver_dir)) {
      return Error(
          Code::kFailedPrecondition,
          "the driver's files cannot be mounted: the container has a tmpfs neither at "
          "/dev nor at /run, and nothing is written into images or directories of the host; "
          "let the engine make /dev, or mount a tmpfs at /run");
    }
    RETURN_IF_ERROR(CheckDirOrMissing(*root, "run"));
  }
  LinkerSetup linker = FindLinker(document, *root, tree_dir);
  std::string library_dir = FindLibraryDirForLinks(document, *root, tree_dir);
  return InjectionTarget{std::move(driver_dir), std::move(*root), std::move(linker),
                         std::move(library_dir)};
}

Status DenyGpus(const std::vector<DeviceNode>& gpus, ConfigDocument* document) {
  // Engines give the nodes of all GPUs to a privileged container.
  document->EraseGpuNodes();
  if (gpus.empty()) return Status::Ok();
  // runc rejects a rule that denies a part of "c 195:*". Without this rule, the engine's first rule
  // denies the GPUs, unless another rule allows every character device.
  document->EraseGpuRules();
  if (!document->AllowsEveryGpu()) return Status::Ok();
  for (const DeviceNode& gpu : gpus) RETURN_IF_ERROR(document->DenyDevice(gpu));
  return Status::Ok();
}

Result<std::string> Inject(const Injection& injection, const InjectionTarget& target,
                           ConfigDocument* document) {
  const ScopedUmask umask;
  ASSIGN_OR_RETURN(Stage stage, Stage::Make(document->bundle(), document->MountLabel()));
  return Injector(injection, target, std::move(stage), document).Run();
}

}  // namespace tessera::oci
