// SPDX-License-Identifier: Apache-2.0
// The two files of one limited container (src/limiter/region.h) from the agent's side: `limits`,
// which is on the host, and `usage`, in a tmpfs of the container.
//
// The limiter of a process reads `limits` at a fixed path below the process's root. The process
// belongs to the container if this path leads to the file that the agent wrote for the container
// (same device and inode). So the search needs neither API server nor engine. A process that has
// left the container's mount namespace is not found.
//
// Here the agent, as root, opens paths below a container's root. The kernel resolves paths below
// that root (openat2, Linux 5.6; on older kernels no container is found), and no symbolic link is
// followed. A container with sufficient rights can still mount a file system that never answers. So
// FindContainer and VisibilityOf may hang, and are called on a thread of their own with a deadline.
// All other functions read /proc, or the tmpfs that FindContainer has opened, and do not hang.
//
// Threads: one at a time; the files that `limits` and `usage` return may be used on any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/agent/limits/usage_file.h"
#include "src/agent/pods/process_owner.h"
#include "src/base/file.h"
#include "src/base/status.h"
#include "src/limiter/limits_file.h"

namespace tessera::agent {

// A process of the container and the folder of `usage`, both open.
struct FoundContainer {
  std::string container_id;
  Fd process;       // /proc/<pid>, or /proc/<pid>/task/<tid> if its first thread has ended
  Fd usage_folder;  // O_PATH; keeps the tmpfs alive, but nothing else of the container
};

struct FindOptions {
  std::string proc_root = "/proc";
  bool require_tmpfs = true;  // false in tests
};

// Finds the first of `processes` that sees `limits` (path on the host). NOT_FOUND: no process sees
// the file. May hang.
Result<FoundContainer> FindContainer(const std::string& limits,
                                     const std::vector<PodProcess>& processes,
                                     const FindOptions& options);

// Whether a process can read the limits that the agent wrote for its container.
enum class LimitsVisibility {
  kVisible,  // the process sees or has mapped the file
  kHidden,   // the file was unmounted or covered: its path leads to another file or to none
  kUnknown,  // the process has ended, the kernel has no openat2, or the agent's file was replaced
};
// Examines process `pid` like FindContainer. A process that has changed its root after its limiter
// was loaded still has the file mapped. May hang.
LimitsVisibility VisibilityOf(const std::string& limits, int pid, const FindOptions& options);

class ContainerRegion {
 public:
  // `limits`: path on the host. Errors: those of LimitsFile::Open as a Status; NOT_FOUND: the
  // container is not limited.
  static Result<std::unique_ptr<ContainerRegion>> Open(const std::string& limits);

  void SetFound(FoundContainer found);
  bool found() const { return found_.has_value(); }
  // "" until SetFound.
  const std::string& container_id() const;

  // The use by the container's processes, by the index of the GPU in `limits`. NOT_FOUND: no
  // process of the container runs, or no process has used a GPU so far. The first call after the
  // end of the last process returns the final numbers; later calls return NOT_FOUND.
  Result<std::vector<UsageReading>> Read();
  // The pids of the container's processes that have a limiter. Errors: see ReadPids in
  // usage_file.h; NOT_FOUND if the container has no usage file.
  Result<std::vector<int>> ReadPids() const;

  const std::shared_ptr<limiter::LimitsFile>& limits() const { return limits_; }
  // The open file; null until a process has used a GPU.
  const std::shared_ptr<const Fd>& usage() const { return usage_; }

 private:
  ContainerRegion() { Forget(); }
  Status OpenUsage();
  void Forget();

  const std::shared_ptr<limiter::LimitsFile> limits_ = std::make_shared<limiter::LimitsFile>();
  std::optional<FoundContainer> found_;
  std::shared_ptr<const Fd> usage_;
  Status open_status_;  // the error if `usage_` is null
};

}  // namespace tessera::agent
