// SPDX-License-Identifier: Apache-2.0
#include "src/oci/shared_tree.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "src/base/file.h"
#include "src/base/strings.h"

namespace tessera::oci {
namespace {

// Creating a tree takes a millisecond. An engine waits longer than this timeout for a start.
constexpr std::chrono::seconds kLockTimeout{5};
constexpr std::chrono::milliseconds kLockRetry{5};

struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileId&) const = default;
};

Result<FileId> IdOf(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return Status::FromErrno(path, errno);
  return FileId{info.st_dev, info.st_ino};
}

Status Mount(const char* source, const std::string& target, const char* type, unsigned long flags,
             const char* data = nullptr) {
  if (::mount(source, target.c_str(), type, flags, data) == 0) return Status::Ok();
  return Status::FromErrno("mount " + target, errno);
}

// Unmounts all mounts at `path` on the host, and removes it. Running containers keep their own
// copies. MNT_DETACH, because a program of the host may have a file of the tree open. The loop ends
// when umount2 answers EINVAL: no mount is left.
void UnmountAll(const std::string& path) {
  while (::umount2(path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) {
  }
  ::rmdir(path.c_str());
}

Result<Fd> AcquireLock(const std::string& dir) {
  const std::string path = JoinPath(dir, "lock");
  Fd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) return Status::FromErrno(path, errno);
  const auto deadline = std::chrono::steady_clock::now() + kLockTimeout;
  // flock(2) itself waits without a limit.
  while (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return Status::FromErrno(path, errno);
    if (std::chrono::steady_clock::now() > deadline) {
      return Error(Code::kUnavailable, "{}: another process has held it for {} s", path,
                   kLockTimeout.count());
    }
    std::this_thread::sleep_for(kLockRetry);
  }
  return lock;
}

class SharedTreeMaker {
 public:
  SharedTreeMaker(const Tree& tree, const std::string& family, const std::string& dir,
                  const std::string& label)
      : tree_(tree), dir_(dir), label_(label), trees_(JoinPath(dir, "trees")) {
    prefix_ = fmt::format("{:08x}-", std::hash<std::string>()(family) & 0xffffffff);
  }

  Result<std::string> Share() {
    RETURN_IF_ERROR(IdentifyFiles());
    if (IsComplete()) return path_;
    RETURN_IF_ERROR(MakeDirs(dir_));
    ASSIGN_OR_RETURN(const Fd lock, AcquireLock(dir_));
    if (IsComplete()) return path_;
    RETURN_IF_ERROR(MountBase());
    UnmountAll(path_);  // left by an interrupted process
    RETURN_IF_ERROR(UnmountStaleTrees());
    const Status status = CreateTree();
    if (!status.ok()) {
      UnmountAll(path_);
      return status;
    }
    return path_;
  }

 private:
  Status IdentifyFiles() {
    std::string content = label_;
    for (const TreeEntry& entry : tree_.entries()) {
      FileId id;
      if (entry.kind == TreeEntryKind::kDriverFile) {
        ASSIGN_OR_RETURN(id, IdOf(entry.target));
      } else if (entry.kind == TreeEntryKind::kLink) {
        id = IdOfEntry(JoinPath(DirName(entry.name), entry.target));
      }
      ids_.push_back(id);
      content += fmt::format("{} {} {} {:o} {} {}\n", static_cast<int>(entry.kind), entry.name,
                             entry.target, entry.mode, id.device, id.inode);
    }
    path_ = JoinPath(trees_, fmt::format("{}{:016x}", prefix_, std::hash<std::string>()(content)));
    return Status::Ok();
  }

  FileId IdOfEntry(const std::string& name) const {
    for (size_t i = 0; i < ids_.size(); ++i) {
      if (tree_.entries()[i].name == name) return ids_[i];
    }
    return {};
  }

  // Whether the tree is complete: the last step of its creation makes it read-only.
  bool IsComplete() const {
    struct statfs info;
    if (::statfs(path_.c_str(), &info) != 0) return false;
    // f_flags has the flags of the mount besides those of the file system (calculate_f_flags in
    // fs/statfs.c).
    return info.f_type == TMPFS_MAGIC && (info.f_flags & ST_RDONLY) != 0 && HasCurrentFiles();
  }

  bool HasCurrentFiles() const {
    for (size_t i = 0; i < ids_.size(); ++i) {
      const TreeEntry& entry = tree_.entries()[i];
      if (entry.kind != TreeEntryKind::kDriverFile) continue;
      const Result<FileId> mounted = IdOf(JoinPath(path_, entry.name));
      if (!mounted.ok() || *mounted != ids_[i]) return false;
    }
    return true;
  }

  // Makes the mount private. Otherwise mounts and unmounts of trees below a shared /run would
  // propagate to other mount namespaces.
  Status MountBase() const {
    if (::mkdir(trees_.c_str(), 0755) != 0 && errno != EEXIST) {
      return Status::FromErrno(trees_, errno);
    }
    ASSIGN_OR_RETURN(const FileId above, IdOf(dir_));
    ASSIGN_OR_RETURN(const FileId base, IdOf(trees_));
    if (base.device == above.device) {
      RETURN_IF_ERROR(MountTmpfs(trees_));
    }
    return Mount(nullptr, trees_, nullptr, MS_PRIVATE);
  }

  static Status MountTmpfs(const std::string& path, const std::string& label = "") {
    // The size is enough for names and links. Other users cannot write to the tmpfs.
    std::string options = "mode=0755,size=1m,nr_inodes=4k";
    if (!label.empty()) options += fmt::format(",context=\"{}\"", label);
    return Mount("tessera", path, "tmpfs", MS_NOSUID | MS_NODEV, options.c_str());
  }

  Status CreateTree() const {
    if (::mkdir(path_.c_str(), 0755) != 0) return Status::FromErrno(path_, errno);
    RETURN_IF_ERROR(MountTmpfs(path_, label_));
    RETURN_IF_ERROR(tree_.MakeIn(path_));
    for (const TreeEntry& entry : tree_.entries()) {
      if (entry.kind != TreeEntryKind::kDriverFile) continue;
      const std::string mount_point = JoinPath(path_, entry.name);
      // mount(2) ignores all other flags of a new bind mount, so a second call sets them.
      RETURN_IF_ERROR(Mount(entry.target.c_str(), mount_point, nullptr, MS_BIND));
      RETURN_IF_ERROR(Mount(nullptr, mount_point, nullptr,
                            MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV));
      // A bind mount is otherwise a peer of the mount that contains the file, and propagates mounts
      // to it.
      RETURN_IF_ERROR(Mount(nullptr, mount_point, nullptr, MS_PRIVATE));
    }
    if (!HasCurrentFiles()) {
      return Error(Code::kAborted, "{}: the driver's files changed meanwhile", path_);
    }
    return Mount(nullptr, path_, nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV);
  }

  Status UnmountStaleTrees() const {
    ASSIGN_OR_RETURN(const std::vector<std::string> others, ListDir(trees_));
    size_t remaining = others.size();
    for (const std::string& other : others) {
      if (!other.starts_with(prefix_) || !IsStale(JoinPath(trees_, other))) continue;
      UnmountAll(JoinPath(trees_, other));
      --remaining;
    }
    if (remaining < kMaxSharedTrees) return Status::Ok();
    return Error(Code::kResourceExhausted,
                 "{} holds {} trees: unmount them (umount --recursive --lazy)", trees_, remaining);
  }

  // Whether tree `other` has another file under the name of one of this tree's files. The names of
  // libraries change with the driver's version; the links to them keep their names.
  bool IsStale(const std::string& other) const {
    for (size_t i = 0; i < ids_.size(); ++i) {
      if (ids_[i] == FileId{}) continue;
      const Result<FileId> other_id = IdOf(JoinPath(other, tree_.entries()[i].name));
      if (other_id.ok() && *other_id != ids_[i]) return true;
    }
    return false;
  }

  const Tree& tree_;
  const std::string& dir_;
  const std::string& label_;
  const std::string trees_;
  std::string prefix_;
  std::string path_;
  std::vector<FileId> ids_;  // of the entries' files; zero for mount points and directories
};

}  // namespace

Result<std::string> ShareTree(const Tree& tree, const std::string& family, const std::string& dir,
                              const std::string& label) {
  return SharedTreeMaker(tree, family, dir, label).Share();
}

std::string LabelWithoutCategories(std::string_view mount_label) {
  constexpr size_t kUserRoleType = 3;
  const std::vector<std::string_view> parts = Split(mount_label, ':');
  const bool is_plain = std::ranges::all_of(mount_label, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_.:,-", c) != nullptr;
  });
  if (parts.size() <= kUserRoleType || !is_plain) return "";
  return fmt::format("{}:{}:{}:s0", parts[0], parts[1], parts[2]);
}

Result<size_t> DropSharedTrees(const std::string& dir) {
  const std::string trees = JoinPath(dir, "trees");
  if (!PathExists(trees)) return size_t{0};
  ASSIGN_OR_RETURN(const Fd lock, AcquireLock(dir));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDir(trees));
  for (const std::string& name : names) UnmountAll(JoinPath(trees, name));
  UnmountAll(trees);
  if (!PathExists(trees)) return names.size();
  return Error(Code::kPermissionDenied,
               "{} could not be unmounted: \"umount --recursive --lazy {}\" as root does it", trees,
               trees);
}

}  // namespace tessera::oci
