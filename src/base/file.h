// SPDX-License-Identifier: Apache-2.0
// Owned descriptors and whole files. Accesses that may race with renamed directories are relative
// to a DirFd. Does not stream or cache. Threads: functions are safe from any thread; an Fd belongs
// to one thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/status.h"

namespace tessera {

// Owns a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { Reset(); }
  Fd(Fd&& other) noexcept : fd_(other.Release()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) Reset(other.Release());
    return *this;
  }

  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }
  void Reset(int fd = -1);

 private:
  int fd_ = -1;
};

// An open directory. Renaming it does not affect later accesses.
class DirFd {
 public:
  // NOT_FOUND, INVALID_ARGUMENT (not a directory), PERMISSION_DENIED.
  static Result<DirFd> Open(const std::string& path);

  int get() const { return fd_.get(); }
  // Only for messages: the directory may have been renamed since.
  const std::string& path() const { return path_; }

 private:
  DirFd(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  Fd fd_;
  std::string path_;
};

inline constexpr size_t kDefaultMaxFileSize = 64u << 20;

// RESOURCE_EXHAUSTED if the file is longer than `max_size`; INVALID_ARGUMENT for a directory. Also
// reads files whose size is unknown in advance (/proc).
Result<std::string> ReadFile(const std::string& path, size_t max_size = kDefaultMaxFileSize);
Result<std::string> ReadFd(int fd, size_t max_size = kDefaultMaxFileSize);

// Writes all of `data`, retrying partial writes.
Status WriteFd(int fd, std::string_view data);

// Replaces the file at `path` atomically: readers see the old or the new file, also after a crash.
// Uses a temporary file, fsync, rename, fsync of the directory. On error the old file is unchanged.
Status WriteFileAtomically(const std::string& path, std::string_view data, mode_t mode);

// Write a program's output in two steps, so that an unwritable path is reported before the work
// starts. Like a shell's `>`, OpenOutput follows links and opens pipes and devices, but an existing
// file keeps its content until WriteOutput.
Result<Fd> OpenOutput(const std::string& path);
Status WriteOutput(int fd, std::string_view data);

// mkdir -p.
Status MakeDirs(const std::string& path, mode_t mode = 0755);
bool PathExists(const std::string& path);
// A text that changes when the file is replaced or written; "" if there is no such file. Follows
// links, because Kubernetes updates mounted Secrets and tokens by replacing a link.
std::string FileFingerprint(const std::string& path);
// Names in a directory without "." and "..", sorted.
Result<std::vector<std::string>> ListDir(const std::string& path);
std::string JoinPath(std::string_view a, std::string_view b);
std::string DirName(std::string_view path);
std::string BaseName(std::string_view path);

// A new directory, deleted with its contents by the destructor. For tests and staging.
class TempDir {
 public:
  explicit TempDir(std::string_view prefix = "tessera");
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Blocks the signals and returns a descriptor from which they can be read. To be called before any
// thread starts, because threads inherit the mask.
Fd BlockSignals(std::initializer_list<int> signals);

// openat2(2) with O_CLOEXEC, retried if a rename interferes. `resolve`: RESOLVE_* of
// <linux/openat2.h>. On error the result is invalid and errno is set: ENOSYS before Linux 5.6.
Fd OpenAt2(int dir, const std::string& path, uint64_t flags, uint64_t resolve);

// The kernel's path of an open file.
Result<std::string> PathOfFd(int fd);

}  // namespace tessera
