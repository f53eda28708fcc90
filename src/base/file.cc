// SPDX-License-Identifier: Apache-2.0
#include "src/base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <memory>
#include <system_error>

namespace tessera {

void Fd::Reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

Result<DirFd> DirFd::Open(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return Status::FromErrno(path, errno);
  return DirFd(std::move(fd), path);
}

Result<std::string> ReadFd(int fd, size_t max_size) {
  std::string data;
  struct stat info;
  if (::fstat(fd, &info) != 0) return Status::FromErrno("fstat", errno);
  if (S_ISDIR(info.st_mode)) return Status(Code::kInvalidArgument, "is a directory");
  const size_t known_size = info.st_size > 0 ? static_cast<size_t>(info.st_size) : 0;
  data.resize(std::min(known_size, max_size) + 4096);
  size_t length = 0;
  while (true) {
    if (length == data.size()) data.resize(data.size() * 2);
    const ssize_t count = ::read(fd, data.data() + length, data.size() - length);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Status::FromErrno("read", errno);
    if (count == 0) break;
    length += static_cast<size_t>(count);
    if (length > max_size) {
      return Error(Code::kResourceExhausted, "is longer than {} bytes", max_size);
    }
  }
  data.resize(length);
  return data;
}

Result<std::string> ReadFile(const std::string& path, size_t max_size) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return Status::FromErrno(path, errno);
  return ReadFd(fd.get(), max_size).Annotate(path);
}

Status WriteFd(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t count = ::write(fd, data.data(), data.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Status::FromErrno("write", errno);
    data.remove_prefix(static_cast<size_t>(count));
  }
  return Status::Ok();
}

namespace {

Status WriteAndSync(int fd, std::string_view data, mode_t mode) {
  RETURN_IF_ERROR(WriteFd(fd, data));
  if (::fchmod(fd, mode) != 0) return Status::FromErrno("fchmod", errno);
  if (::fsync(fd) != 0) return Status::FromErrno("fsync", errno);
  return Status::Ok();
}

}  // namespace

Status WriteFileAtomically(const std::string& path, std::string_view data, mode_t mode) {
  std::string temporary = path + ".XXXXXX";
  const Fd fd(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd.valid()) return Status::FromErrno(temporary, errno);
  Status status = WriteAndSync(fd.get(), data, mode);
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) {
    status = Status::FromErrno("rename", errno);
  }
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return status.Annotate(path);
  }
  const Fd dir(::open(DirName(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // The rename survives a crash only after the directory is synced (fsync(2)).
  if (dir.valid()) ::fsync(dir.get());
  return Status::Ok();
}

Result<Fd> OpenOutput(const std::string& path) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (!fd.valid()) return Status::FromErrno(path, errno);
  return fd;
}

Status WriteOutput(int fd, std::string_view data) {
  // EINVAL: pipes and devices have no length.
  if (::ftruncate(fd, 0) != 0 && errno != EINVAL) return Status::FromErrno("ftruncate", errno);
  return WriteFd(fd, data);
}

Status MakeDirs(const std::string& path, mode_t mode) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (::mkdir(part.c_str(), mode) != 0 && errno != EEXIST) return Status::FromErrno(part, errno);
    if (end == std::string::npos) return Status::Ok();
  }
}

bool PathExists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

std::string FileFingerprint(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return "";
  return fmt::format("{}:{}:{}.{}:{}", info.st_dev, info.st_ino, info.st_mtim.tv_sec,
                     info.st_mtim.tv_nsec, info.st_size);
}

Result<std::vector<std::string>> ListDir(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path.c_str()), &::closedir);
  if (!dir) return Status::FromErrno(path, errno);
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string JoinPath(std::string_view a, std::string_view b) {
  while (!b.empty() && b.front() == '/') b.remove_prefix(1);
  std::string path(a);
  if (!path.empty() && path.back() != '/') path += '/';
  return path.append(b);
}

std::string DirName(std::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(slash == 0 ? "/" : path.substr(0, slash));
}

std::string BaseName(std::string_view path) {
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

Fd BlockSignals(std::initializer_list<int> signals) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : signals) ::sigaddset(&set, signal);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return Fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

TempDir::TempDir(std::string_view prefix) {
  const char* base = ::getenv("TMPDIR");
  path_ = JoinPath(base ? base : "/tmp", std::string(prefix) + ".XXXXXX");
  TESSERA_CHECK(::mkdtemp(path_.data()) != nullptr);
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Fd OpenAt2(int dir, const std::string& path, uint64_t flags, uint64_t resolve) {
  open_how how{};
  how.flags = flags | O_CLOEXEC;
  how.resolve = resolve;
  long fd = -1;
  do {  // EAGAIN: a rename interfered with the path walk
    fd = ::syscall(SYS_openat2, dir, path.c_str(), &how, sizeof(how));
  } while (fd < 0 && (errno == EAGAIN || errno == EINTR));
  return Fd(static_cast<int>(fd));
}

Result<std::string> PathOfFd(int fd) {
  std::array<char, PATH_MAX> path;
  const std::string link = fmt::format("/proc/self/fd/{}", fd);
  const ssize_t length = ::readlink(link.c_str(), path.data(), path.size());
  if (length < 0) return Status::FromErrno(link, errno);
  return std::string(path.data(), static_cast<size_t>(length));
}

}  // namespace tessera
