// SPDX-License-Identifier: Apache-2.0
#include "src/oci/tree.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "api/names.h"
#include "src/base/file.h"
#include "src/oci/config_document.h"

namespace tessera::oci {
namespace {

// Creates the parents of `path` below `root`, which exists.
Status MakeParents(const std::string& root, const std::string& path) {
  for (size_t slash = path.find('/', root.size() + 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string dir = path.substr(0, slash);
    if (::mkdir(dir.c_str(), 0755) != 0 && errno != EEXIST) {
      return Status::FromErrno(dir, errno);
    }
  }
  return Status::Ok();
}

int Make(const TreeEntry& entry, const std::string& path) {
  switch (entry.kind) {
    case TreeEntryKind::kDir:
      // The umask affects mkdir, but not chmod.
      return ::mkdir(path.c_str(), 0755) == 0 ? ::chmod(path.c_str(), entry.mode) : -1;
    case TreeEntryKind::kLink:
      return ::symlink(entry.target.c_str(), path.c_str());
    default:
      break;
  }
  // Creates an empty file by one call instead of open and close.
  return ::mknod(path.c_str(), S_IFREG | 0444, 0);
}

}  // namespace

bool IsInDriverDir(std::string_view path) {
  return IsBelow(path, names::kContainerDriverDir) || IsBelow(path, kRunDriverDir);
}

void Tree::Add(TreeEntry entry) {
  const auto same = [&](const TreeEntry& other) { return other.name == entry.name; };
  if (std::none_of(entries_.begin(), entries_.end(), same)) entries_.push_back(std::move(entry));
}

void Tree::AddDriverFile(std::string name, std::string host_path) {
  Add({TreeEntryKind::kDriverFile, std::move(name), std::move(host_path)});
}
void Tree::AddMountPoint(std::string name) {
  Add({TreeEntryKind::kMountPoint, std::move(name), {}});
}
void Tree::AddDir(std::string name, mode_t mode) {
  Add({TreeEntryKind::kDir, std::move(name), {}, mode});
}
void Tree::AddLink(std::string name, std::string target) {
  Add({TreeEntryKind::kLink, std::move(name), std::move(target)});
}

Status Tree::MakeIn(const std::string& dir) const {
  for (const TreeEntry& entry : entries_) {
    const std::string path = JoinPath(dir, entry.name);
    int failed = Make(entry, path);
    if (failed != 0 && errno == ENOENT) {
      RETURN_IF_ERROR(MakeParents(dir, path));
      failed = Make(entry, path);
    }
    // A directory may have been created as a parent.
    const bool exists = errno == EEXIST && entry.kind == TreeEntryKind::kDir;
    if (failed != 0 && !exists) return Status::FromErrno(path, errno);
  }
  return Status::Ok();
}

}  // namespace tessera::oci
