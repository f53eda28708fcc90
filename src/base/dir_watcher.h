// SPDX-License-Identifier: Apache-2.0
// Reports, through inotify, names that appear in or vanish from one directory, and files that were
// written there. Keeps working when the directory is removed and created again. Threads: lives on
// `runner`.
//
// All watchers of a runner share one inotify instance. By default, all containers of a node that
// run as the same user have 128 instances together (fs.inotify.max_user_instances). If no instance
// is available, the watcher reads the directory every second instead.
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
    // A file that was open for writing was closed. May be null.
    std::function<void(const std::string& name)> on_written = nullptr;
  };
  // The interval at which the watcher looks for a missing directory, or reads a directory without
  // inotify.
  static constexpr Duration kRetryInterval = std::chrono::seconds(1);

  DirWatcher(TaskRunner* runner, std::string dir, Events events);
  ~DirWatcher();
  DirWatcher(const DirWatcher&) = delete;
  DirWatcher& operator=(const DirWatcher&) = delete;

  void Start();

 private:
  class Inotify;

  // The state of a file when the directory was read.
  struct WatchedFile {
    uint64_t inode = 0;
    int64_t modified_ns = 0;  // st_mtim
  };

  void Watch();
  void Poll();
  void ScheduleWatch();
  void OnInotifyEvent(uint32_t mask, const std::string& name);

  TaskRunner* const runner_;
  const std::string dir_;
  const Events events_;
  std::shared_ptr<Inotify> inotify_;  // null while the directory is not watched
  std::optional<std::map<std::string, WatchedFile>> last_read_;  // by name; only without inotify
  bool error_logged_ = false;
  WeakPtrFactory<DirWatcher> weak_{this};
};

}  // namespace tessera
