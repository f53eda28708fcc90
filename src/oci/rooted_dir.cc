// SPDX-License-Identifier: Apache-2.0
#include "src/oci/rooted_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <memory>

#include "src/base/file.h"

namespace tessera::oci {

Result<RootedDir> RootedDir::Open(const std::string& path) {
  ASSIGN_OR_RETURN(DirFd dir, DirFd::Open(path));
  return RootedDir(std::move(dir));
}

Result<Fd> RootedDir::Resolve(const std::string& path, uint64_t flags, Links links) const {
  // A later kernel may follow magic links under RESOLVE_IN_ROOT alone (openat2(2)).
  uint64_t resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  if (links == Links::kReject) resolve |= RESOLVE_NO_SYMLINKS;
  Fd fd = OpenAt2(dir_.get(), path, flags, resolve);
  if (fd.valid()) return fd;
  const std::string name = JoinPath(this->path(), path);
  if (errno == ENOSYS) {
    return Error(Code::kUnimplemented, "{}: this kernel has no openat2, which needs Linux 5.6",
                 name);
  }
  if (errno == ELOOP && links == Links::kReject) {
    return Error(Code::kInvalidArgument, "{}: a symbolic link, which is not followed", name);
  }
  return Status::FromErrno(name, errno);
}

Result<Fd> RootedDir::OpenTrustedFile(const std::string& path) const {
  // O_NONBLOCK: open must not block on a FIFO.
  ASSIGN_OR_RETURN(Fd fd, Resolve(path, O_RDONLY | O_NOCTTY | O_NONBLOCK, Links::kInRoot));
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return Status::FromErrno(path, errno);
  if (!S_ISREG(info.st_mode)) {
    return Error(Code::kInvalidArgument, "{}: not a regular file", JoinPath(this->path(), path));
  }
  return fd;
}

Result<Fd> RootedDir::OpenFile(const std::string& path, Links links) const {
  // O_PATH does not open the file: a FIFO does not block, and a device is not touched.
  ASSIGN_OR_RETURN(const Fd handle, Resolve(path, O_PATH, links));
  struct stat info;
  if (::fstat(handle.get(), &info) != 0) return Status::FromErrno(path, errno);
  if (!S_ISREG(info.st_mode)) {
    return Error(Code::kInvalidArgument, "{}: not a regular file", JoinPath(this->path(), path));
  }
  // Opens through the descriptor, so that the opened file is the checked file.
  const std::string name = "/proc/self/fd/" + std::to_string(handle.get());
  Fd fd(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!fd.valid()) return Status::FromErrno(JoinPath(this->path(), path), errno);
  return fd;
}

Result<std::string> RootedDir::Read(const std::string& path, Links links, size_t max_size) const {
  ASSIGN_OR_RETURN(const Fd fd, OpenFile(path, links));
  return ReadFd(fd.get(), max_size).Annotate(JoinPath(this->path(), path));
}

bool RootedDir::HasDir(const std::string& path, Links links) const {
  return Resolve(path, O_PATH | O_DIRECTORY, links).ok();
}

bool RootedDir::Exists(const std::string& path) const {
  return Resolve(path, O_PATH, Links::kInRoot).ok();
}

bool RootedDir::IsMissing(const std::string& path) const {
  const Result<Fd> handle = Resolve(path, O_PATH | O_NOFOLLOW, Links::kInRoot);
  return !handle.ok() && handle.status().code() == Code::kNotFound;
}

Result<std::string> RootedDir::ReadLink(const std::string& path) const {
  ASSIGN_OR_RETURN(const Fd fd, Resolve(path, O_PATH | O_NOFOLLOW, Links::kInRoot));
  std::array<char, PATH_MAX> target;
  // An empty path means the link that the descriptor itself refers to (readlink(2)).
  const ssize_t length = ::readlinkat(fd.get(), "", target.data(), target.size());
  if (length < 0) return Status::FromErrno(JoinPath(this->path(), path), errno);
  return std::string(target.data(), static_cast<size_t>(length));
}

Result<std::string> RootedDir::RealPath(const std::string& path) const {
  ASSIGN_OR_RETURN(const Fd fd, Resolve(path, O_PATH, Links::kInRoot));
  ASSIGN_OR_RETURN(const std::string real, PathOfFd(fd.get()));
  ASSIGN_OR_RETURN(const std::string root, PathOfFd(dir_.get()));  // the root may be a link
  if (root == "/") return real.substr(1);
  if (real == root) return std::string(".");
  if (!real.starts_with(root + "/")) {
    // The file was moved after the kernel resolved its path.
    return Error(Code::kNotFound, "{}: moved out of the root, to {}", JoinPath(this->path(), path),
                 real);
  }
  return real.substr(root.size() + 1);
}

Result<std::vector<std::string>> RootedDir::List(
    const std::string& path, const std::function<bool(std::string_view)>& is_wanted) const {
  ASSIGN_OR_RETURN(Fd fd, Resolve(path, O_RDONLY | O_DIRECTORY, Links::kInRoot));
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::fdopendir(fd.get()), &::closedir);
  if (!dir) return Status::FromErrno(JoinPath(this->path(), path), errno);
  (void)fd.Release();  // closedir closes it
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != ".." && is_wanted(name)) names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Status RootedDir::ReplaceFile(const std::string& path, std::string_view data) const {
  const std::string full = JoinPath(this->path(), path);
  ASSIGN_OR_RETURN(const Fd dir, Resolve(DirName(path), O_PATH | O_DIRECTORY, Links::kReject));
  const std::string name = BaseName(path);
  struct stat owner_info;
  if (::fstatat(dir.get(), name.c_str(), &owner_info, AT_SYMLINK_NOFOLLOW) == 0) {
    if (!S_ISREG(owner_info.st_mode)) {
      return Error(Code::kInvalidArgument, "{}: not a regular file", full);
    }
  } else if (errno != ENOENT || ::fstat(dir.get(), &owner_info) != 0) {
    return Status::FromErrno(full, errno);
  }
  const std::string temporary = "." + name + ".tessera";
  ::unlinkat(dir.get(), temporary.c_str(), 0);  // left by a process that was killed
  const Fd fd(::openat(dir.get(), temporary.c_str(),
                       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.valid()) return Status::FromErrno(full, errno);
  Status status = WriteFd(fd.get(), data);
  if (status.ok() && (::fchown(fd.get(), owner_info.st_uid, owner_info.st_gid) != 0 ||
                      ::fchmod(fd.get(), 0644) != 0 ||
                      ::renameat(dir.get(), temporary.c_str(), dir.get(), name.c_str()) != 0)) {
    status = Status::FromErrno("replace", errno);
  }
  if (!status.ok()) ::unlinkat(dir.get(), temporary.c_str(), 0);
  return status.Annotate(full);
}

Status RootedDir::MakeLinks(const std::string& dir, std::string_view target_dir,
                            const std::vector<std::string>& names,
                            const std::function<bool(std::string_view target)>& may_replace) const {
  ASSIGN_OR_RETURN(const Fd at, Resolve(dir, O_PATH | O_DIRECTORY, Links::kReject));
  struct stat owner;
  if (::fstat(at.get(), &owner) != 0) return Status::FromErrno(dir, errno);
  for (const std::string& name : names) {
    const std::string target = JoinPath(target_dir, name);
    bool made = ::symlinkat(target.c_str(), at.get(), name.c_str()) == 0;
    if (!made && errno == EEXIST) {
      std::array<char, PATH_MAX> text;
      const ssize_t length = ::readlinkat(at.get(), name.c_str(), text.data(), text.size());
      if (length < 0) continue;  // no link
      const std::string_view old(text.data(), static_cast<size_t>(length));
      if (old == target || !may_replace(old)) continue;
      made = ::unlinkat(at.get(), name.c_str(), 0) == 0 &&
             ::symlinkat(target.c_str(), at.get(), name.c_str()) == 0;
    }
    const bool is_owned = owner.st_uid == ::geteuid() && owner.st_gid == ::getegid();
    if (!made || (!is_owned && ::fchownat(at.get(), name.c_str(), owner.st_uid, owner.st_gid,
                                          AT_SYMLINK_NOFOLLOW) != 0)) {
      return Status::FromErrno(JoinPath(JoinPath(this->path(), dir), name), errno);
    }
  }
  return Status::Ok();
}

Result<std::string> RootedDir::HostPath(const std::string& path) const {
  ASSIGN_OR_RETURN(const Fd fd, Resolve(path, O_PATH, Links::kInRoot));
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return Status::FromErrno(path, errno);
  if (!S_ISREG(info.st_mode) && !S_ISSOCK(info.st_mode)) {
    return Error(Code::kInvalidArgument, "{}: neither a regular file nor a socket",
                 JoinPath(this->path(), path));
  }
  return PathOfFd(fd.get());
}

}  // namespace tessera::oci
