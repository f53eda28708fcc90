// SPDX-License-Identifier: Apache-2.0
// Owned descriptors and whole files. Everything that may race with somebody who moves folders is
// relative to a DirFd. Not for streaming and not for anything that needs a cache.
// Threads: functions are safe from any thread; an Fd belongs to one.
#pragma once

#include <sys/types.h>

#include <cstddef>
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

// A folder, opened once; what happens to its name afterwards does not matter.
class DirFd {
 public:
  // NOT_FOUND, INVALID_ARGUMENT (not a directory), PERMISSION_DENIED.
  static Result<DirFd> Open(const std::string& path);

  int get() const { return fd_.get(); }
  // For messages only.
  const std::string& path() const { return path_; }

 private:
  DirFd(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  Fd fd_;
  std::string path_;
};

inline constexpr size_t kDefaultMaxFileSize = 64u << 20;

// RESOURCE_EXHAUSTED if the file is longer than `max_size`; INVALID_ARGUMENT for a directory.
// Reads files whose size is not known before, too (/proc).
Result<std::string> ReadFile(const std::string& path, size_t max_size = kDefaultMaxFileSize);
Result<std::string> ReadFd(int fd, size_t max_size = kDefaultMaxFileSize);

// Writes all of it, whatever write(2) does in between.
Status WriteFd(int fd, std::string_view data);

// Puts `data` at `path` so that a reader, or a crash, sees the old or the new file and nothing
// else: temporary file, fsync, rename, fsync of the folder. On error the old file stands untouched.
Status WriteFileAtomically(const std::string& path, std::string_view data, mode_t mode);

// For what people ask a program to write, in two steps, so that a path that cannot be written is
// told before the work is done. As a shell's `>` they follow links and leave pipes and devices what
// they are; what stands in a file stays until WriteOutput.
Result<Fd> OpenOutput(const std::string& path);
Status WriteOutput(int fd, std::string_view data);

// mkdir -p.
Status MakeDirs(const std::string& path, mode_t mode = 0755);
bool PathExists(const std::string& path);
// Names in a folder without "." and "..", sorted.
Result<std::vector<std::string>> ListDir(const std::string& path);
std::string JoinPath(std::string_view a, std::string_view b);
std::string DirName(std::string_view path);
std::string BaseName(std::string_view path);

// A fresh folder that goes, with all that is in it, when the object goes. For tests and staging.
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

}  // namespace tessera
