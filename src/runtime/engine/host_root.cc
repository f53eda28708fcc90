// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/engine/host_root.h"

#include <fcntl.h>
#include <glob.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "src/base/file.h"
#include "src/base/open_at2.h"

namespace tessera::engine {
namespace {

constexpr size_t kMaxConfig = 4u << 20;
constexpr char kLabel[] = "security.selinux";

// openat2 keeps links below the root. Kernels before 5.6 lack it; there only an empty root works.
Fd OpenInRoot(const std::string& root, const std::string& path, int flags) {
  const Fd dir(::open(root.empty() ? "/" : root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!dir.valid()) return Fd();
  Fd fd = OpenAt2(dir.get(), path, static_cast<uint64_t>(flags),
                  RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
  if (fd.valid() || errno != ENOSYS || !root.empty()) return fd;
  return Fd(::open(path.c_str(), flags | O_CLOEXEC));
}

Status FillAndName(int fd, const FileState& state, const std::string& temporary,
                   const std::string& path) {
  RETURN_IF_ERROR(WriteFd(fd, state.text));
  // Owner before mode: chown clears the set-id bits.
  if (::fchown(fd, state.uid, state.gid) != 0) return Status::FromErrno("chown", errno);
  if (::fchmod(fd, state.mode) != 0) return Status::FromErrno("chmod", errno);
  // Best effort: without SELinux there is no such attribute.
  if (!state.selinux.empty()) {
    (void)!::fsetxattr(fd, kLabel, state.selinux.data(), state.selinux.size(), 0);
  }
  if (::fsync(fd) != 0) return Status::FromErrno("fsync", errno);
  if (::rename(temporary.c_str(), path.c_str()) == 0) return Status::Ok();
  if (errno == EBUSY) {
    return Error(Code::kFailedPrecondition, "it is a mount point: mount its folder instead");
  }
  return Status::FromErrno("rename", errno);
}

void SyncFolder(const std::string& path) {
  const Fd dir(::open(DirName(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (dir.valid()) ::fsync(dir.get());
}

}  // namespace

HostRoot::HostRoot(std::string_view root) : root_(root) {
  while (root_.ends_with('/')) root_.pop_back();
}

Result<std::string> HostRoot::Resolve(const std::string& path) const {
  const Fd file = OpenInRoot(root_, path, O_PATH);
  if (file.valid()) return PathOfFd(file.get());
  if (errno != ENOENT) return Status::FromErrno(path, errno);
  const Fd folder = OpenInRoot(root_, DirName(path), O_PATH | O_DIRECTORY);
  if (!folder.valid() && errno == ENOENT) return Map(path);
  if (!folder.valid()) return Status::FromErrno(path, errno);
  struct stat info {};
  const std::string name = BaseName(path);
  if (::fstatat(folder.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
    return Error(Code::kFailedPrecondition, "{} is a dangling symbolic link", path);
  }
  ASSIGN_OR_RETURN(const std::string parent, PathOfFd(folder.get()));
  return JoinPath(parent, name);
}

bool HostRoot::Exists(const std::string& path) const {
  return OpenInRoot(root_, path, O_PATH).valid();
}

Result<std::optional<FileState>> HostRoot::Read(const std::string& path) const {
  // O_NONBLOCK: open must not block on a FIFO.
  const Fd fd = OpenInRoot(root_, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!fd.valid()) {
    if (errno != ENOENT) return Status::FromErrno(path, errno);
    RETURN_IF_ERROR(Resolve(path).status());
    return std::optional<FileState>();
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status::FromErrno(path, errno);
  if (!S_ISREG(info.st_mode)) {
    return Error(Code::kFailedPrecondition, "{} is {}, not a regular file", path,
                 S_ISDIR(info.st_mode) ? "a folder" : "a special file");
  }
  FileState state;
  auto text = ReadFd(fd.get(), kMaxConfig);
  if (!text.ok()) return text.status().Annotate(path);
  state.text = *std::move(text);
  state.mode = info.st_mode & 07777;
  state.uid = info.st_uid;
  state.gid = info.st_gid;
  std::array<char, 256> label;
  const ssize_t size = ::fgetxattr(fd.get(), kLabel, label.data(), label.size());
  if (size > 0) state.selinux.assign(label.data(), static_cast<size_t>(size));
  return std::optional<FileState>(std::move(state));
}

Status HostRoot::Write(const std::string& path, const FileState& state) const {
  ASSIGN_OR_RETURN(const std::string real, Resolve(path));
  const std::string temporary =
      JoinPath(DirName(real), fmt::format(".{}.tessera-new", BaseName(real)));
  ::unlink(temporary.c_str());  // left by an interrupted run
  const Fd fd(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.valid()) return Status::FromErrno(temporary, errno);
  const Status status = FillAndName(fd.get(), state, temporary, real);
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return status.Annotate(path);
  }
  SyncFolder(real);
  return Status::Ok();
}

Status HostRoot::Remove(const std::string& path) const {
  ASSIGN_OR_RETURN(const std::string real, Resolve(path));
  // On a read-only file system unlink fails even if the file does not exist.
  struct stat info {};
  if (::lstat(real.c_str(), &info) != 0 && errno == ENOENT) return Status::Ok();
  if (::unlink(real.c_str()) != 0 && errno != ENOENT) return Status::FromErrno(path, errno);
  SyncFolder(real);
  return Status::Ok();
}

Result<std::vector<std::string>> HostRoot::MakeParents(const std::string& path) const {
  std::vector<std::string> made;
  for (size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1)) {
    const std::string folder = path.substr(0, end);
    if (Exists(folder)) continue;
    ASSIGN_OR_RETURN(const std::string real, Resolve(folder));
    if (::mkdir(real.c_str(), 0755) != 0) return Status::FromErrno(folder, errno);
    made.push_back(folder);
  }
  return made;
}

std::vector<std::string> HostRoot::Glob(const std::string& pattern) const {
  std::vector<std::string> paths;
  glob_t found{};
  if (::glob(Map(pattern).c_str(), 0, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) {
      paths.push_back(std::string(found.gl_pathv[i]).substr(root_.size()));
    }
  }
  ::globfree(&found);
  return paths;
}

}  // namespace tessera::engine
