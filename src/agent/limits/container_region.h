// SPDX-License-Identifier: Apache-2.0
// The two files of one limited container (src/limiter/region.h) as the agent sees them: `limits`,
// which is on the host, and `usage`, in a tmpfs of the container.
//
// A process is of the container if it finds, where the limiter looks for it, the very `limits` that
// the agent wrote for the container (device and inode). So neither the API server nor the engine is
// asked, and a process that has left the container's mount namespace does not count.
//
// The agent runs as root in a container's root file system here. Paths below that root are resolved
// by the kernel (openat2, Linux 5.6; on older ones no container is found), and no symbolic link is
// followed. Even so a container with rights enough can
// mount a file system of its own there that never answers. Therefore `Find` may hang, and is called
// on a thread of its own with a deadline; everything else touches /proc, or the tmpfs that `Find`
// has opened, and does not hang.
//
// Threads: one at a time, but for what `limits` and `usage` have given.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/agent/limits/usage_file.h"
#include "src/base/file.h"
#include "src/base/status.h"
#include "src/base/uid.h"
#include "src/limiter/limits_file.h"

namespace tessera::agent {

// A process of a pod; `container_id` is the engine's, from its cgroup.
struct PodProcess {
  int pid = 0;
  std::string container_id;
};
// By pod, in order of pids. Reads <proc_root>/<pid>/cgroup of all processes: some 10 µs each.
using PodProcessMap = std::map<Uid, std::vector<PodProcess>>;
PodProcessMap ListPodProcesses(const std::string& proc_root);

// A process of the container and the folder of `usage`, both open.
struct FoundContainer {
  std::string container_id;
  Fd process;       // /proc/<pid>, or /proc/<pid>/task/<tid> if its first thread has ended
  Fd usage_folder;  // O_PATH; keeps the tmpfs, and nothing else of the container
};

struct FindOptions {
  std::string proc_root = "/proc";
  bool require_tmpfs = true;  // false in tests
};

// The first of `processes` that sees `limits` (path on the host). NOT_FOUND: none does. May hang.
Result<FoundContainer> FindContainer(const std::string& limits,
                                     const std::vector<PodProcess>& processes,
                                     const FindOptions& options);

// Whether a process can read the limits that the agent wrote for its container.
enum class LimitsSight {
  kSeen,     // it sees or has mapped that file
  kHidden,   // another file or none is in the file's place: it was unmounted or covered
  kUnknown,  // the process has ended, the kernel has no openat2, or the agent's file was replaced
};
// Looks at process `pid` as FindContainer does. A process that has changed its root after its
// limiter was loaded still has the file mapped. May hang.
LimitsSight SightOf(const std::string& limits, int pid, const FindOptions& options);

class ContainerRegion {
 public:
  // `limits`: path on the host. Errors of LimitsFile::Open as a Status; NOT_FOUND: not limited.
  static Result<std::unique_ptr<ContainerRegion>> Open(const std::string& limits);

  void SetFound(FoundContainer found);
  bool found() const { return found_.has_value(); }
  // "" until it is found.
  const std::string& container_id() const;

  // What the container's processes use, by the index of the GPU in `limits`. NOT_FOUND: no process
  // of it runs, or none has used a GPU so far. After the last process has ended the final numbers
  // are given once more, and the container is not found any more.
  Result<std::vector<UsageReading>> Read();
  // The pids of the container's processes that have a limiter, and errors, as ReadPids of
  // usage_file.h gives them. NOT_FOUND: the container has no usage file.
  Result<std::vector<int>> ReadPids() const;

  const std::shared_ptr<limiter::LimitsFile>& limits() const { return limits_; }
  // The file as it is open now; null until a process has used a GPU.
  const std::shared_ptr<const Fd>& usage() const { return usage_; }

 private:
  ContainerRegion() { Forget(); }
  Status OpenUsage();
  void Forget();

  const std::shared_ptr<limiter::LimitsFile> limits_ = std::make_shared<limiter::LimitsFile>();
  std::optional<FoundContainer> found_;
  std::shared_ptr<const Fd> usage_;
  Status opened_;  // why there is no `usage_`
};

}  // namespace tessera::agent
