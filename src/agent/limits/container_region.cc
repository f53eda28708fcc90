// SPDX-License-Identifier: Apache-2.0
#include "src/agent/limits/container_region.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <utility>

#include "src/base/file.h"

namespace tessera::agent {
namespace {

// The directories in which tessera-runtime puts the limiter's files: below /dev if the container
// has a /dev of its own, else below /run.
constexpr std::array<const char*, 2> kLimiterDirs = {"dev/tessera", "run/tessera"};

// A later kernel may follow the magic links of /proc under RESOLVE_IN_ROOT alone (openat2(2)).
Fd OpenBelow(int folder, const std::string& path, uint64_t flags, uint64_t resolve) {
  return OpenAt2(folder, path, flags, resolve | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS);
}

bool IsSame(int fd, const struct stat& file) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && info.st_dev == file.st_dev && info.st_ino == file.st_ino;
}

bool IsTmpfs(int fd) {
  struct statfs info {};
  return ::fstatfs(fd, &info) == 0 && info.f_type == TMPFS_MAGIC;
}

// The kernel shows no root for a process that has ended, zombies included.
bool IsAlive(const Fd& process) {
  char target[2];
  return ::readlinkat(process.get(), "root", target, sizeof(target)) >= 0;
}

// The folder of `usage` if the process sees `limits`.
Fd UsageFolderOf(const Fd& process, const struct stat& limits, bool require_tmpfs) {
  const Fd root(::openat(process.get(), "root", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return Fd();
  for (const std::string dir : kLimiterDirs) {
    const Fd limits_fd = OpenBelow(root.get(), dir + "/limits/limits", O_PATH, RESOLVE_IN_ROOT);
    if (!limits_fd.valid() || !IsSame(limits_fd.get(), limits)) continue;
    Fd folder = OpenBelow(root.get(), dir + "/usage", O_PATH | O_DIRECTORY, RESOLVE_IN_ROOT);
    if (folder.valid() && (!require_tmpfs || IsTmpfs(folder.get()))) return folder;
  }
  return Fd();
}

Fd OpenRoot(const std::string& process) {
  return Fd(::open((process + "/root").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
}

// If the first thread of a process has ended, the kernel shows root and memory map only below
// another thread. `process`: /proc/<pid>.
std::string LivingThread(const std::string& process) {
  if (OpenRoot(process).valid()) return process;
  for (const std::string& thread : ListDir(process + "/task").value_or({})) {
    std::string path = fmt::format("{}/task/{}", process, thread);
    if (OpenRoot(path).valid()) return path;
  }
  return process;
}

// Whether a memory map, the text of /proc/<pid>/maps, has the file. A line is "<addresses> <rights>
// <offset> <major>:<minor> <inode> <path>".
bool HasMapped(const std::string& maps, const struct stat& file) {
  // The kernel prints the device of the file system in hex and the inode in decimal
  // (show_vma_header_prefix in fs/proc/task_mmu.c).
  const std::string file_id = fmt::format(" {:02x}:{:02x} {} ", major(file.st_dev),
                                          minor(file.st_dev), static_cast<uint64_t>(file.st_ino));
  return maps.find(file_id) != std::string::npos;
}

// Whether the container still sees the agent's earlier directory of `limits`, which was deleted on
// the host and created again. A container cannot fake this, because it cannot write to that file
// system.
bool IsReplaced(const Fd& root, const std::string& folder, const struct stat& limits) {
  const Fd dir_fd = OpenBelow(root.get(), folder, O_PATH | O_DIRECTORY, RESOLVE_IN_ROOT);
  struct stat info {};
  return dir_fd.valid() && ::fstat(dir_fd.get(), &info) == 0 && info.st_dev == limits.st_dev &&
         info.st_nlink == 0;
}

Status NotFound() { return Status(Code::kNotFound, "no process of the container is known"); }

}  // namespace

Result<FoundContainer> FindContainer(const std::string& limits,
                                     const std::vector<PodProcess>& processes,
                                     const FindOptions& options) {
  struct stat file {};
  if (::stat(limits.c_str(), &file) != 0) return Status::FromErrno(limits, errno);
  for (const PodProcess& candidate : processes) {
    const std::string path = LivingThread(fmt::format("{}/{}", options.proc_root, candidate.pid));
    Fd process(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!process.valid()) continue;
    Fd folder = UsageFolderOf(process, file, options.require_tmpfs);
    if (!folder.valid()) continue;
    return FoundContainer{candidate.container_id, std::move(process), std::move(folder)};
  }
  return Error(Code::kNotFound, "no process sees {}", limits);
}

LimitsVisibility VisibilityOf(const std::string& limits, int pid, const FindOptions& options) {
  struct stat file {};
  const std::string process = LivingThread(fmt::format("{}/{}", options.proc_root, pid));
  const Fd root = OpenRoot(process);
  if (!root.valid() || ::stat(limits.c_str(), &file) != 0) return LimitsVisibility::kUnknown;
  for (const std::string dir : kLimiterDirs) {
    const Fd limits_fd = OpenBelow(root.get(), dir + "/limits/limits", O_PATH, RESOLVE_IN_ROOT);
    // Kernels before 5.6 have no openat2. A seccomp filter that is older than the call answers
    // EPERM.
    if (!limits_fd.valid() && (errno == ENOSYS || errno == EPERM))
      return LimitsVisibility::kUnknown;
    if (limits_fd.valid() && IsSame(limits_fd.get(), file)) return LimitsVisibility::kVisible;
    if (IsReplaced(root, dir + "/limits", file)) return LimitsVisibility::kUnknown;
  }
  const Result<std::string> maps = ReadFile(process + "/maps");
  // A process that ends meanwhile has no map any more.
  if (!maps.ok() || maps->empty()) return LimitsVisibility::kUnknown;
  return HasMapped(*maps, file) ? LimitsVisibility::kVisible : LimitsVisibility::kHidden;
}

Result<std::unique_ptr<ContainerRegion>> ContainerRegion::Open(const std::string& limits) {
  // LimitsFile::Open would create the file.
  if (!PathExists(limits))
    return Error(Code::kNotFound, "{} is missing: the container is not limited", limits);
  std::unique_ptr<ContainerRegion> region(new ContainerRegion());
  if (const int error = region->limits_->Open(limits.c_str()); error != 0) {
    return Status::FromErrno(limits, error);
  }
  return region;
}

void ContainerRegion::SetFound(FoundContainer found) {
  Forget();
  found_ = std::move(found);
}

void ContainerRegion::Forget() {
  found_.reset();
  usage_.reset();
  open_status_ = NotFound();
}

const std::string& ContainerRegion::container_id() const {
  static const std::string none;
  return found_ ? found_->container_id : none;
}

// The first process that uses a GPU creates the file, and the container may replace it.
// RESOLVE_NO_XDEV keeps the path inside the container's tmpfs.
Status ContainerRegion::OpenUsage() {
  struct stat info {};
  if (usage_ && ::fstat(usage_->get(), &info) == 0 && info.st_nlink > 0) return Status::Ok();
  usage_.reset();
  const Fd path_fd = OpenBelow(found_->usage_folder.get(), limiter::kUsageFile, O_PATH,
                               RESOLVE_BENEATH | RESOLVE_NO_XDEV);
  // A container can replace the file by a link, or mount another file system over it.
  const bool is_replaced = !path_fd.valid() && (errno == ELOOP || errno == EXDEV);
  if (!path_fd.valid() && !is_replaced) return Status::FromErrno(limiter::kUsageFile, errno);
  if (is_replaced || ::fstat(path_fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return Error(Code::kFailedPrecondition, "{} is not a regular file", limiter::kUsageFile);
  }
  // Opened through the descriptor, so that it is the file that was checked.
  const std::string name = fmt::format("/proc/self/fd/{}", path_fd.get());
  Fd usage(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!usage.valid()) return Status::FromErrno(limiter::kUsageFile, errno);
  usage_ = std::make_shared<const Fd>(std::move(usage));
  return Status::Ok();
}

Result<std::vector<UsageReading>> ContainerRegion::Read() {
  if (!found_) return NotFound();
  const bool alive = IsAlive(found_->process);
  open_status_ = OpenUsage();
  Result<std::vector<UsageReading>> readings =
      usage_ ? ReadUsage(usage_->get(), limits_->limits().gpu_count) : open_status_;
  if (!alive) Forget();
  return readings;
}

Result<std::vector<int>> ContainerRegion::ReadPids() const {
  return usage_ ? agent::ReadPids(usage_->get()) : open_status_;
}

}  // namespace tessera::agent
