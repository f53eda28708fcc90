// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/engine/host_root.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/formats/json.h"

namespace tessera::engine {
namespace {

constexpr size_t kMaxConfigBytes = 4u << 20;
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

Status WriteAndRename(int fd, const FileState& state, const std::string& temporary,
                      const std::string& path) {
  RETURN_IF_ERROR(WriteFd(fd, state.text));
  // The owner comes before the mode, because chown clears the set-id bits.
  if (::fchown(fd, state.uid, state.gid) != 0) return Status::FromErrno("chown", errno);
  if (::fchmod(fd, state.mode) != 0) return Status::FromErrno("chmod", errno);
  // Best effort: without SELinux there is no such attribute.
  if (!state.selinux.empty()) {
    (void)!::fsetxattr(fd, kLabel, state.selinux.data(), state.selinux.size(), 0);
  }
  if (::fsync(fd) != 0) return Status::FromErrno("fsync", errno);
  if (::rename(temporary.c_str(), path.c_str()) == 0) return Status::Ok();
  // vfs_rename in fs/namei.c does not replace a mount point, such as a single file that is mounted
  // into a container.
  if (errno == EBUSY) {
    return Error(Code::kFailedPrecondition, "it is a mount point: mount its directory instead");
  }
  return Status::FromErrno("rename", errno);
}

void SyncDir(const std::string& path) {
  const Fd dir(::open(DirName(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (dir.valid()) ::fsync(dir.get());
}

constexpr char kPathVariable[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr std::array<std::string_view, 6> kProgramDirs = {
    "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"};

// The child's report to the parent. JSON, because the program's output may contain any bytes.
std::string Encode(const Result<SubprocessResult>& result) {
  Json json = Json::MakeObject();
  if (!result.ok()) {
    json.Set("error", Json::String(result.status().message()));
    json.Set("code", Json::Int(static_cast<int>(result.status().code())));
    return json.Serialize();
  }
  json.Set("exit", Json::Int(result->exit_code));
  json.Set("out", Json::String(result->out));
  json.Set("err", Json::String(result->err));
  return json.Serialize();
}

Result<SubprocessResult> Decode(const std::string& text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  if (const Json* error = json.Find("error")) {
    ASSIGN_OR_RETURN(const int64_t code, json.IntAt("code"));
    return Status(static_cast<Code>(code), error->string_value());
  }
  SubprocessResult result;
  ASSIGN_OR_RETURN(const int64_t exit_code, json.IntAt("exit"));
  result.exit_code = static_cast<int>(exit_code);
  ASSIGN_OR_RETURN(result.out, json.StringAt("out"));
  ASSIGN_OR_RETURN(result.err, json.StringAt("err"));
  return result;
}

[[noreturn]] void RunInChild(const std::string& root, const std::vector<std::string>& argv,
                             Duration deadline, int report) {
  Result<SubprocessResult> result = SubprocessResult{};
  if (::chroot(root.c_str()) != 0 || ::chdir("/") != 0) {
    result = Status::FromErrno("chroot to " + root, errno);
  } else {
    ::setenv("PATH", kPathVariable, 1);
    result = RunProgram(argv, deadline);
  }
  const Status written = WriteFd(report, Encode(result));
  ::_exit(written.ok() ? 0 : 1);
}

}  // namespace

HostRoot::HostRoot(std::string_view root) : root_(root) {
  while (root_.ends_with('/')) root_.pop_back();
}

Result<std::string> HostRoot::Resolve(const std::string& path) const {
  const Fd file = OpenInRoot(root_, path, O_PATH);
  if (file.valid()) return PathOfFd(file.get());
  if (errno != ENOENT) return Status::FromErrno(path, errno);
  const Fd dir = OpenInRoot(root_, DirName(path), O_PATH | O_DIRECTORY);
  if (!dir.valid() && errno == ENOENT) return Map(path);
  if (!dir.valid()) return Status::FromErrno(path, errno);
  struct stat info {};
  const std::string name = BaseName(path);
  if (::fstatat(dir.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
    return Error(Code::kFailedPrecondition, "{} is a dangling symbolic link", path);
  }
  ASSIGN_OR_RETURN(const std::string parent, PathOfFd(dir.get()));
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
                 S_ISDIR(info.st_mode) ? "a directory" : "a special file");
  }
  FileState state;
  auto text = ReadFd(fd.get(), kMaxConfigBytes);
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
  const Status status = WriteAndRename(fd.get(), state, temporary, real);
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return status.Annotate(path);
  }
  SyncDir(real);
  return Status::Ok();
}

Status HostRoot::Remove(const std::string& path) const {
  ASSIGN_OR_RETURN(const std::string real, Resolve(path));
  // On a read-only file system unlink fails even if the file does not exist.
  struct stat info {};
  if (::lstat(real.c_str(), &info) != 0 && errno == ENOENT) return Status::Ok();
  if (::unlink(real.c_str()) != 0 && errno != ENOENT) return Status::FromErrno(path, errno);
  SyncDir(real);
  return Status::Ok();
}

Result<std::vector<std::string>> HostRoot::MakeParents(const std::string& path) const {
  std::vector<std::string> created;
  for (size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1)) {
    const std::string dir = path.substr(0, end);
    if (Exists(dir)) continue;
    ASSIGN_OR_RETURN(const std::string real, Resolve(dir));
    if (::mkdir(real.c_str(), 0755) != 0) return Status::FromErrno(dir, errno);
    created.push_back(dir);
  }
  return created;
}

// glob(3) would follow absolute links from the root of this process.
std::vector<std::string> HostRoot::Glob(const std::string& pattern) const {
  std::vector<std::string> paths = {""};
  for (const std::string_view part : SplitList(pattern, '/')) {
    const std::string name_pattern(part);
    std::vector<std::string> next;
    for (const std::string& parent : paths) {
      if (part.find_first_of("*?[\\") == std::string_view::npos) {
        next.push_back(parent + "/" + name_pattern);
        continue;
      }
      const auto dir = Resolve(parent.empty() ? "/" : parent);
      if (!dir.ok()) continue;
      for (const std::string& name : ListDir(*dir).value_or({})) {
        if (::fnmatch(name_pattern.c_str(), name.c_str(), FNM_PERIOD) != 0) continue;
        next.push_back(parent + "/" + name);
      }
    }
    paths = std::move(next);
  }
  std::erase_if(paths, [this](const std::string& path) {
    return !OpenInRoot(root_, path, O_PATH | O_NOFOLLOW).valid();
  });
  std::ranges::sort(paths);
  return paths;
}

std::string FindHostProgram(const HostRoot& host, std::string_view name) {
  for (const std::string_view dir : kProgramDirs) {
    const std::string path = JoinPath(dir, name);
    const auto real = host.Resolve(path);
    if (real.ok() && ::access(real->c_str(), X_OK) == 0) return path;
  }
  return "";
}

Result<SubprocessResult> RunOnHost(const HostRoot& host, const std::vector<std::string>& argv,
                                   Duration deadline) {
  if (host.IsOwnRoot()) return RunProgram(argv, deadline);
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return Status::FromErrno("pipe", errno);
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return Status::FromErrno("fork", errno);
  if (child == 0) RunInChild(host.root(), argv, deadline, write_end.get());
  write_end.Reset();
  const auto report = ReadFd(read_end.get());
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  RETURN_IF_ERROR(report.status());
  return Decode(*report).Annotate(argv[0]);
}

}  // namespace tessera::engine
