// SPDX-License-Identifier: Apache-2.0
#include "src/oci/driver_search.h"

#include <algorithm>
#include <array>
#include <utility>

#include "src/oci/ld_cache.h"

namespace tessera::oci {
namespace {

// A subdirectory of a library directory. Each directory in it belongs to a driver version of
// Debian.
constexpr std::string_view kVersionsDir = "nvidia";
constexpr int kMaxLinks = 16;

// libcuda.so.550.54.15 -> 550.54.15; empty for libcuda.so.1.
std::string_view DriverVersionIn(std::string_view name, std::string_view stem) {
  if (!name.starts_with(stem)) return {};
  name.remove_prefix(stem.size());
  if (!name.starts_with(".so.")) return {};
  name.remove_prefix(4);
  const bool is_numeric = name.find_first_not_of("0123456789.") == std::string_view::npos;
  return is_numeric && name.find('.') != std::string_view::npos ? name : std::string_view();
}

}  // namespace

// Directories may be links to each other (lib -> usr/lib); each is searched once.
std::vector<std::string> DriverSearch::LibraryDirs() const {
  std::vector<std::string> dirs;
  const auto add = [&](const std::string& dir) {
    Result<std::string> real = root_.RealPath(dir);
    if (!real.ok() || std::ranges::count(dirs, *real) != 0) return;
    if (root_.HasDir(*real, Links::kReject)) dirs.push_back(std::move(*real));
  };
  for (const std::string_view dir : kLibraryDirs) add(std::string(dir));
  const size_t plain_dirs = dirs.size();
  for (size_t i = 0; i < plain_dirs; ++i) {
    const std::string versions = JoinPath(dirs[i], kVersionsDir);
    const auto names = root_.List(versions);
    if (!names.ok()) continue;
    add(versions);
    for (const std::string& name : *names) add(JoinPath(versions, name));
  }
  return dirs;
}

std::vector<std::string> DriverSearch::LinkerCacheDirs() const {
  const Result<std::string> data = root_.Read("etc/ld.so.cache", Links::kInRoot, kMaxLdCacheSize);
  const Result<LdCache> cache = data.ok() ? ParseLdCache(*data) : data.status();
  if (!cache.ok()) return {};
  std::vector<std::string> dirs;
  for (const LdCacheEntry& entry : cache->entries) {
    if (entry.flags != NativeLdCacheFlags()) continue;
    if (entry.name == "libcuda.so.1" || entry.name == "libnvidia-ml.so.1") {
      dirs.push_back(DirName(entry.path));
    }
  }
  return dirs;
}

std::string DriverSearch::FindNewestVersion(const std::vector<std::string>& dirs,
                                            std::string_view stem) const {
  std::string newest, newest_name;
  for (const std::string& dir : dirs) {
    const auto names = root_.List(
        dir, [&](std::string_view name) { return !DriverVersionIn(name, stem).empty(); });
    if (!names.ok()) continue;
    for (const std::string& name : *names) {
      if (!newest.empty() && CompareLibraryNames(name, newest_name) <= 0) continue;
      if (!root_.Exists(JoinPath(dir, name))) continue;
      newest_name = name;
      newest = JoinPath(dir, name);
    }
  }
  return newest;
}

Result<std::string> DriverSearch::FindUnresolvedLibrary(std::string_view stem) const {
  const auto find_in = [&](const auto& dirs) {
    for (const auto& dir : dirs) {
      std::string path = fmt::format("{}/{}.so.1", dir, stem);
      if (root_.Exists(path)) return path;
    }
    return std::string();
  };
  // This fast path finds most drivers.
  if (std::string path = find_in(kLibraryDirs); !path.empty()) return path;
  std::vector<std::string> dirs = LibraryDirs();
  if (std::string path = find_in(dirs); !path.empty()) return path;
  const std::vector<std::string> cached = LinkerCacheDirs();
  if (std::string path = find_in(cached); !path.empty()) return path;
  dirs.insert(dirs.end(), cached.begin(), cached.end());
  if (std::string path = FindNewestVersion(dirs, stem); !path.empty()) return path;
  return Error(
      Code::kNotFound,
      "driver root {0} holds no driver: there is no {1}.so.1 and no {1}.so.<version> in {2}; "
      "install the NVIDIA driver, or name its root (driver-root in the runtime's "
      "configuration, --driver-root of tessera-agent)",
      root_.path(), stem,
      dirs.empty() ? "its library directories, because it has none"
                   : fmt::format("{}", fmt::join(dirs, ", ")));
}

Result<std::string> DriverSearch::FindLibrary(std::string_view stem) const {
  ASSIGN_OR_RETURN(const std::string path, FindUnresolvedLibrary(stem));
  return root_.RealPath(path);
}

Result<DriverLocation> DriverSearch::FollowToVersion(std::string path,
                                                     std::string_view stem) const {
  const std::string start = path;
  for (int links = 0; links < kMaxLinks; ++links) {
    const std::string name = BaseName(path);
    const std::string_view version = DriverVersionIn(name, stem);
    if (!version.empty()) {
      ASSIGN_OR_RETURN(std::string dir, root_.RealPath(DirName(path)));
      return DriverLocation{std::string(version), {std::move(dir)}};
    }
    const Result<std::string> target = root_.ReadLink(path);
    if (!target.ok()) break;
    path = target->starts_with('/') ? *target : JoinPath(DirName(path), *target);
  }
  return Error(Code::kNotFound,
               "{}: no link to this file has the driver's version (want {}.so.<version>), so the "
               "driver's other files cannot be recognized: install the driver again",
               JoinPath(root_.path(), start), stem);
}

Result<DriverLocation> DriverSearch::FindLocation() const {
  Status first_error;
  for (const std::string_view stem : {"libcuda", "libnvidia-ml"}) {
    const Result<std::string> path = FindUnresolvedLibrary(stem);
    Result<DriverLocation> location = path.ok() ? FollowToVersion(*path, stem) : path.status();
    if (!location.ok()) {
      if (first_error.ok()) first_error = location.status();
      continue;
    }
    // Files of one driver may be in several directories.
    for (std::string& dir : LibraryDirs()) {
      if (dir != location->dirs[0]) location->dirs.push_back(std::move(dir));
    }
    return location;
  }
  return first_error;
}

}  // namespace tessera::oci
