// SPDX-License-Identifier: Apache-2.0
// The single thread on which a program's sockets live. Servers and clients of src/net refer to it
// and pass their results to a TaskRunner, so that a program's state stays on its runner:
//
//   net::IoThread io;                        // cmd/ creates it
//   net::HttpServer / net::HttpClient (io, runner, ...)
//
// The thread sleeps in epoll_wait when idle. Do not run blocking work (use Worker of
// base/task_runner.h) or a program's own logic on it.
//
// Ownership: must outlive every server and client that uses it. The destructor drops running
// operations and joins the thread. Threads: any.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/base/clock.h"

namespace tessera::net {

class IoThread {
 public:
  explicit IoThread(const std::string& name = "net");
  ~IoThread();
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;

  // Runs `task` on the thread. Any thread.
  void Post(std::function<void()> task);

  // Used only in src/net.
  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Used only in src/net, on the IoThread. Has one deadline at a time. A pending callback never runs
// after Start, Stop or the destructor.
class Timer {
 public:
  explicit Timer(IoThread& io);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void Start(Duration delay, std::function<void()> on_due);
  void Stop();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tessera::net
