// SPDX-License-Identifier: Apache-2.0
#include "src/base/dir_watcher.h"

#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "src/base/file.h"
#include "src/base/log.h"

namespace tessera {

// The inotify instance of all watchers of a runner. If several watchers watch the same directory,
// the kernel gives all of them one watch descriptor.
class DirWatcher::Inotify : public std::enable_shared_from_this<Inotify> {
 public:
  // The instance of `runner`, created if necessary. Null, with errno set, if that fails.
  static std::shared_ptr<Inotify> Of(TaskRunner* runner) {
    thread_local std::map<TaskRunner*, std::weak_ptr<Inotify>> instances;
    std::erase_if(instances, [](const auto& entry) { return entry.second.expired(); });
    if (const auto found = instances.find(runner); found != instances.end()) {
      return found->second.lock();
    }
    Fd fd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (!fd.valid()) return nullptr;
    auto instance = std::make_shared<Inotify>(runner, std::move(fd));
    instances.emplace(runner, instance);
    return instance;
  }

  Inotify(TaskRunner* runner, Fd fd) : runner_(runner), fd_(std::move(fd)) {
    runner_->WatchReadable(fd_.get(), [this] { Read(); });
  }
  ~Inotify() { runner_->Unwatch(fd_.get()); }

  // Returns false, with errno set, if the directory cannot be watched.
  bool Add(const std::string& dir, uint32_t mask, DirWatcher* watcher) {
    const int descriptor = ::inotify_add_watch(fd_.get(), dir.c_str(), mask | IN_MASK_ADD);
    if (descriptor >= 0) watchers_.emplace(descriptor, watcher);
    return descriptor >= 0;
  }
  void Remove(DirWatcher* watcher) {
    const auto found =
        std::ranges::find(watchers_, watcher, [](const auto& e) { return e.second; });
    if (found == watchers_.end()) return;
    const int descriptor = found->first;
    watchers_.erase(found);
    if (!watchers_.contains(descriptor)) ::inotify_rm_watch(fd_.get(), descriptor);
  }

 private:
  void Read() {
    const std::shared_ptr<Inotify> self = shared_from_this();  // handlers may destroy all watchers
    alignas(inotify_event) char buffer[8192];
    const ssize_t count = ::read(fd_.get(), buffer, sizeof(buffer));
    for (ssize_t at = 0; at < count;) {
      inotify_event event;
      std::memcpy(&event, buffer + at, sizeof(event));
      const std::string name = event.len > 0 ? buffer + at + sizeof(event) : "";
      at += static_cast<ssize_t>(sizeof(event) + event.len);
      Dispatch(event, name);
    }
  }

  void Dispatch(const inotify_event& event, const std::string& name) {
    std::vector<WeakPtr<DirWatcher>> receivers;
    for (const auto& [descriptor, watcher] : watchers_) {
      const bool overflow = (event.mask & IN_Q_OVERFLOW) != 0;  // such an event has no descriptor
      if (overflow || descriptor == event.wd) receivers.push_back(watcher->weak_.Get());
    }
    for (const WeakPtr<DirWatcher>& receiver : receivers) {
      if (receiver) receiver->OnInotifyEvent(event.mask, name);
    }
  }

  TaskRunner* const runner_;
  const Fd fd_;
  std::multimap<int, DirWatcher*> watchers_;  // by the kernel's watch descriptor
};

DirWatcher::DirWatcher(TaskRunner* runner, std::string dir, Events events)
    : runner_(runner), dir_(std::move(dir)), events_(std::move(events)) {}

DirWatcher::~DirWatcher() {
  if (inotify_ != nullptr) inotify_->Remove(this);
}

void DirWatcher::Start() { Watch(); }

void DirWatcher::Watch() {
  std::shared_ptr<Inotify> inotify = Inotify::Of(runner_);
  const uint32_t mask = IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_MOVED_FROM | IN_DELETE_SELF |
                        IN_MOVE_SELF | IN_ONLYDIR | (events_.on_written ? IN_CLOSE_WRITE : 0);
  if (inotify == nullptr || !inotify->Add(dir_, mask, this)) {
    const int error = errno;
    const bool is_missing = error == ENOENT || error == ENOTDIR;
    if (!error_logged_) {
      Log(Severity::kWarning,
          is_missing ? "cannot watch the directory, retrying every second"
                     : "cannot watch the directory, reading it every second: see "
                       "fs.inotify.max_user_instances",
          {{"directory", dir_}, {"error", std::strerror(error)}});
    }
    error_logged_ = true;
    ScheduleWatch();
    is_missing ? last_read_.reset() : Poll();  // may destroy this object
    return;
  }
  error_logged_ = false;
  last_read_.reset();
  inotify_ = std::move(inotify);
  // After the watch has begun, so that no name is missed in between.
  events_.on_rescan();
}

void DirWatcher::Poll() {
  std::map<std::string, WatchedFile> now;
  for (const std::string& name : ListDir(dir_).value_or({})) {
    struct stat info {};
    if (::lstat(JoinPath(dir_, name).c_str(), &info) != 0) continue;
    now[name] = {info.st_ino, int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
  }
  const auto before = std::exchange(last_read_, now);
  if (!before) return events_.on_rescan();
  const WeakPtr<DirWatcher> weak = weak_.Get();  // handlers may destroy this object
  for (const auto& [name, state] : *before) {
    const auto found = now.find(name);
    if (found == now.end() || found->second.inode != state.inode) events_.on_vanished(name);
    if (!weak) return;
  }
  for (const auto& [name, state] : now) {
    const auto found = before->find(name);
    if (found == before->end() || found->second.inode != state.inode) {
      events_.on_appeared(name);
    } else if (found->second.modified_ns != state.modified_ns && events_.on_written) {
      events_.on_written(name);
    }
    if (!weak) return;
  }
}

void DirWatcher::ScheduleWatch() {
  runner_->PostDelayed(kRetryInterval, [weak = weak_.Get()] {
    if (weak) weak->Watch();
  });
}

void DirWatcher::OnInotifyEvent(uint32_t mask, const std::string& name) {
  // inotify(7) watches an inode, not a path. After this inode is gone, the path may lead to another
  // inode.
  if ((mask & (IN_IGNORED | IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT)) != 0) {
    // The instance stays open for the next watch, and the kernel does not reuse its descriptors.
    const std::shared_ptr<Inotify> inotify = std::exchange(inotify_, nullptr);
    inotify->Remove(this);
    Watch();
  } else if ((mask & IN_Q_OVERFLOW) != 0) {
    // The kernel dropped events, because more than fs.inotify.max_queued_events were queued.
    events_.on_rescan();
  } else if ((mask & (IN_CREATE | IN_MOVED_TO)) != 0) {
    events_.on_appeared(name);
  } else if ((mask & (IN_DELETE | IN_MOVED_FROM)) != 0) {
    events_.on_vanished(name);
  } else if ((mask & IN_CLOSE_WRITE) != 0 && events_.on_written) {
    events_.on_written(name);
  }
}

}  // namespace tessera
