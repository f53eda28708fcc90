// SPDX-License-Identifier: Apache-2.0
// For tests of src/net and of the code above it: a runner that can wait, raw sockets for
// misbehaving peers, and test certificates. Threads: the test's.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "src/base/file.h"
#include "src/base/task_runner.h"
#include "src/net/address.h"
#include "src/net/tls.h"

namespace tessera::net::testing {

// A runner on the test's thread, in real time. It stops only between tasks and loses no task.
class TestRunner : public TaskRunner {
 public:
  TestRunner();
  ~TestRunner() override;

  // Runs tasks until `done` returns true, checked after each task. Returns false after `limit`.
  bool RunUntil(const std::function<bool()>& done, Duration limit = std::chrono::seconds(30));
  void RunFor(Duration time);

  void Post(Task task) override { PostDelayed(Duration::zero(), std::move(task)); }
  void PostDelayed(Duration delay, Task task) override;
  // Not supported; these tests wait only for tasks.
  void WatchReadable(int fd, Task on_ready) override;
  void Unwatch(int fd) override;
  bool RunsTasksOnCurrentThread() const override { return true; }
  const Clock& clock() const override { return clock_; }

 private:
  struct Queue;
  SystemClock clock_;
  std::unique_ptr<Queue> queue_;
};

// A TestRunner whose monotonic clock the test can move forward. Delays of tasks stay in real time.
class ShiftedRunner : public TestRunner {
 public:
  const Clock& clock() const override { return shifted_; }
  void Advance(Duration by) { shifted_.shift += by; }

 private:
  struct ShiftedClock : public SystemClock {
    MonotonicTime Now() const override { return SystemClock::Now() + shift; }
    Duration shift{};
  };
  ShiftedClock shifted_;
};

// A blocking TCP connection whose bytes the test controls.
class RawClient {
 public:
  explicit RawClient(const Address& to);
  void Send(std::string_view bytes);
  // Up to `max_bytes` bytes, blocking for the first; "" if the peer has closed (or reset).
  std::string Receive(size_t max_bytes = 64 << 10);
  std::string ReceiveUntilClose();
  void ShutdownWrite();
  int fd() const { return fd_.get(); }

 private:
  Fd fd_;
};

// A server with scripted behavior: runs `script` with the socket of each connection, one after the
// other, on a thread of its own, until the object is destroyed.
class RawServer {
 public:
  using Script = std::function<void(int fd)>;
  explicit RawServer(Script script);
  ~RawServer();
  Url url() const;
  int connections() const;

  // For scripts: reads one request's header; "" if the peer has closed.
  static std::string ReadHeader(int fd);
  // False if the peer has closed.
  static bool Write(int fd, std::string_view bytes);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

// A certificate authority for one test.
class TestCa {
 public:
  TestCa();
  ~TestCa();
  struct Pair {
    std::string certificate;
    std::string key;
  };
  const std::string& certificate() const { return certificate_; }
  // `names` are DNS names or IPs; `common_name` is the user of a client certificate.
  Pair Issue(const std::string& common_name, const std::vector<std::string>& names) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::string certificate_;
};

}  // namespace tessera::net::testing
