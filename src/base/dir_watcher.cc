// SPDX-License-Identifier: Apache-2.0
#include "src/base/dir_watcher.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "src/base/log.h"

namespace tessera {

DirWatcher::DirWatcher(TaskRunner* runner, std::string dir, Events events)
    : runner_(runner), dir_(std::move(dir)), events_(std::move(events)) {}

DirWatcher::~DirWatcher() {
  if (inotify_.valid()) runner_->Unwatch(inotify_.get());
}

void DirWatcher::Start() { Watch(); }

void DirWatcher::Watch() {
  Fd fd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  const uint32_t mask = IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_MOVED_FROM | IN_DELETE_SELF |
                        IN_MOVE_SELF | IN_ONLYDIR | (events_.written ? IN_CLOSE_WRITE : 0);
  if (!fd.valid() || ::inotify_add_watch(fd.get(), dir_.c_str(), mask) < 0) {
    if (!error_logged_) {
      Log(Severity::kWarning, "cannot watch the directory, retrying every second",
          {{"directory", dir_}, {"error", std::strerror(errno)}});
    }
    error_logged_ = true;
    return ScheduleWatch();
  }
  error_logged_ = false;
  inotify_ = std::move(fd);
  runner_->WatchReadable(inotify_.get(), [this] { Read(); });
  // After the watch has begun, so that no name is missed in between.
  events_.on_rescan();
}

void DirWatcher::ScheduleWatch() {
  runner_->PostDelayed(kRetry, [weak = weak_.Get()] {
    if (weak) weak->Watch();
  });
}

void DirWatcher::Read() {
  alignas(inotify_event) char buffer[8192];
  const ssize_t count = ::read(inotify_.get(), buffer, sizeof(buffer));
  const WeakPtr<DirWatcher> weak = weak_.Get();
  for (ssize_t at = 0; at < count;) {
    inotify_event event;
    std::memcpy(&event, buffer + at, sizeof(event));
    const std::string name = event.len > 0 ? buffer + at + sizeof(event) : "";
    at += static_cast<ssize_t>(sizeof(event) + event.len);
    // A handler may destroy the watcher.
    if (!Handle(event.mask, name) || !weak) return;
  }
}

bool DirWatcher::Handle(uint32_t mask, const std::string& name) {
  // inotify(7) watches an inode. After its end the path may lead to another one.
  if ((mask & (IN_IGNORED | IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT)) != 0) {
    runner_->Unwatch(inotify_.get());
    inotify_.Reset();
    Watch();
    return false;
  }
  // The kernel dropped events, beyond /proc/sys/fs/inotify/max_queued_events.
  if ((mask & IN_Q_OVERFLOW) != 0) {
    events_.on_rescan();
  } else if ((mask & (IN_CREATE | IN_MOVED_TO)) != 0) {
    events_.appeared(name);
  } else if ((mask & (IN_DELETE | IN_MOVED_FROM)) != 0) {
    events_.vanished(name);
  } else if ((mask & IN_CLOSE_WRITE) != 0) {
    events_.written(name);
  }
  return true;
}

}  // namespace tessera
