// SPDX-License-Identifier: Apache-2.0
// Reports, through inotify, names that appear in or vanish from one directory, and files that were
// written there. Keeps working when the directory is removed and created again. All watchers of a
// runner share one instance of inotify, because all containers of a node that run as the same user
// have 128 together by default (fs.inotify.max_user_instances). If no instance is available, the
// watcher reads the directory every second instead. Threads: lives on `runner`.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"

namespace tessera {

class DirWatcher {
 public:
  struct Events {
    std::function<void(const std::string& name)> on_appeared;
    std::function<void(const std::string& name)> on_vanished;
    // The watcher may have missed changes, so the receiver must read the whole directory. Called at
    // the first watch, after an overflow of the kernel's queue, and when the directory was created
    // again.
    std::function<void()> on_rescan;
    // A file that was open for writing was closed; may be null.
    std::function<void(const std::string& name)> on_written = nullptr;
  };
  // Interval of searches for a missing directory, and of reads of a directory without inotify.
  static constexpr Duration kRetryInterval = std::chrono::seconds(1);

  DirWatcher(TaskRunner* runner, std::string dir, Events events);
  ~DirWatcher();
  DirWatcher(const DirWatcher&) = delete;
  DirWatcher& operator=(const DirWatcher&) = delete;

  void Start();

 private:
  class Inotify;

  // The state of a file when the directory was read.
  struct SeenFile {
    uint64_t inode = 0;
    int64_t written_ns = 0;  // time of the last change of its content
  };

  void Watch();
  void Poll();
  void ScheduleWatch();
  void Handle(uint32_t mask, const std::string& name);

  TaskRunner* const runner_;
  const std::string dir_;
  const Events events_;
  std::shared_ptr<Inotify> inotify_;  // null while the directory is not watched
  std::optional<std::map<std::string, SeenFile>> last_read_;  // only without inotify
  bool error_logged_ = false;
  WeakPtrFactory<DirWatcher> weak_{this};
};

}  // namespace tessera
