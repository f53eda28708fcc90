// SPDX-License-Identifier: Apache-2.0
#include "src/oci/image_libraries.h"

#include <algorithm>
#include <array>
#include <utility>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/oci/driver_search.h"
#include "src/oci/elf.h"
#include "src/oci/tree.h"

namespace tessera::oci {
namespace {

// Directories into which NVIDIA's first runtime and cloud providers mount the driver.
constexpr std::array<std::string_view, 3> kDriverDirs = {
    "usr/local/nvidia/lib", "usr/local/nvidia/lib64", "opt/nvidia/lib64"};
// Directories of cuda-compat, relative to each /usr/local/cuda*.
constexpr std::array<std::string_view, 2> kCompatDirs = {"compat", "compat/lib"};

class ImageSearch {
 public:
  ImageSearch(const ConfigDocument& document, const RootedDir& root,
              const std::vector<std::string_view>& sonames)
      : root_(root), sonames_(sonames), mounts_(document.Mounts()) {
    for (Mount& mount : mounts_) mount.destination = CleanPath(mount.destination);
  }

  // `dir` is a path in the container.
  void AddDir(std::string_view dir) {
    const Result<std::string> real = root_.RealPath(std::string(dir.substr(1)));
    for (std::string path : {CleanPath(dir), real.ok() ? "/" + *real : std::string()}) {
      if (!path.empty() && std::ranges::count(dirs_, path) == 0) {
        dirs_.push_back(std::move(path));
      }
    }
  }

  std::vector<ImageLibrary> Find() && {
    for (const std::string& dir : dirs_) SearchDir(root_, dir.substr(1), nullptr);
    for (const Mount& mount : mounts_) SearchMount(mount);
    return std::move(found_);
  }

 private:
  bool IsNamedLikeLibrary(std::string_view name) const {
    return std::ranges::any_of(sonames_, [&](std::string_view soname) {
      return name.starts_with(soname.substr(0, soname.rfind('.')));  // libcuda.so
    });
  }

  void SearchMount(const Mount& mount) {
    const auto has = [&](std::string_view option) {
      return std::ranges::count(mount.options, option) != 0;
    };
    const bool is_host_path = mount.source.starts_with('/') && mount.destination != "/";
    const bool is_shared = has("shared") || has("rshared");
    if (!is_host_path || is_shared || IsInDriverDir(mount.destination)) return;
    if (IsNamedLikeLibrary(BaseName(mount.destination))) {
      const Result<RootedDir> dir = RootedDir::Open(DirName(mount.source));
      if (dir.ok()) AddIfDriverLibrary(*dir, BaseName(mount.source), mount.destination, &mount);
      return;
    }
    const Result<RootedDir> base = RootedDir::Open(mount.source);
    if (!base.ok()) return;
    for (const std::string& dir : dirs_) {
      if (!IsBelow(dir, mount.destination)) continue;
      SearchDir(*base, "." + dir.substr(mount.destination.size()), &mount);
    }
  }

  // `base` is the source of `mount`, or the image if `mount` is null.
  void SearchDir(const RootedDir& base, const std::string& dir, const Mount* mount) {
    const std::string at = mount == nullptr ? "/" : mount->destination;
    const auto names =
        base.List(dir, [&](std::string_view name) { return IsNamedLikeLibrary(name); });
    if (!names.ok()) return;
    for (const std::string& name : *names) {
      const Result<std::string> real = base.RealPath(JoinPath(dir, name));
      if (real.ok()) AddIfDriverLibrary(base, *real, CleanPath(JoinPath(at, *real)), mount);
    }
  }

  // A low-level runtime would create a missing mount point, so the file must exist.
  void AddIfDriverLibrary(const RootedDir& base, const std::string& file, std::string path,
                          const Mount* mount) {
    if (FindMountOver(mounts_, path) != mount) return;
    const Result<Fd> fd = base.OpenFile(file, Links::kInRoot);
    const Result<ElfInfo> elf = fd.ok() ? ReadElf(fd->get()) : fd.status();
    if (!elf.ok() || !elf->is_64_bit || std::ranges::count(sonames_, elf->soname) == 0) return;
    ImageLibrary library{std::move(path), elf->soname};
    if (found_.size() == kMaxImageLibraries || std::ranges::count(found_, library) != 0) return;
    found_.push_back(std::move(library));
  }

  const RootedDir& root_;
  const std::vector<std::string_view>& sonames_;
  std::vector<Mount> mounts_;
  std::vector<std::string> dirs_;
  std::vector<ImageLibrary> found_;
};

}  // namespace

std::vector<ImageLibrary> FindImageLibraries(const ConfigDocument& document, const RootedDir& root,
                                             const LdCache& cache,
                                             const std::vector<std::string_view>& sonames) {
  ImageSearch search(document, root, sonames);
  for (const std::string_view dir : kLibraryDirs) search.AddDir(fmt::format("/{}", dir));
  for (const std::string_view dir : kDriverDirs) search.AddDir(fmt::format("/{}", dir));
  const auto toolkits =
      root.List("usr/local", [](std::string_view name) { return name.starts_with("cuda"); });
  for (const std::string& toolkit : toolkits.value_or({})) {
    for (const std::string_view dir : kCompatDirs) {
      search.AddDir(fmt::format("/usr/local/{}/{}", toolkit, dir));
    }
  }
  for (const LdCacheEntry& entry : cache.entries) {
    const bool is_named = std::ranges::count(sonames, entry.name) != 0;
    if (is_named && entry.path.starts_with('/')) search.AddDir(DirName(entry.path));
  }
  const std::string path = document.env().Get("LD_LIBRARY_PATH").value_or("");
  for (const std::string_view dir : Split(path, ':')) {
    if (dir.starts_with('/')) search.AddDir(dir);
  }
  return std::move(search).Find();
}

}  // namespace tessera::oci
