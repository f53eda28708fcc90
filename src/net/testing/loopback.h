// SPDX-License-Identifier: Apache-2.0
// For tests of this room and of rooms above: a runner to wait on, raw sockets to misbehave with,
// and certificates made on the spot. Threads: the test's.
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

// A runner on the test's thread that stops between two tasks and loses none. Real time.
class TestRunner : public TaskRunner {
 public:
  TestRunner();
  ~TestRunner() override;

  // Runs tasks until `done` holds, which is asked after each. False after `limit`.
  bool RunUntil(const std::function<bool()>& done, Duration limit = std::chrono::seconds(10));
  void RunFor(Duration time);

  void Post(Task task) override { PostDelayed(Duration::zero(), std::move(task)); }
  void PostDelayed(Duration delay, Task task) override;
  // Not there: what these tests wait for comes as tasks.
  void WatchReadable(int fd, Task on_ready) override;
  void Unwatch(int fd) override;
  bool RunsTasksOnCurrentThread() const override { return true; }
  const Clock& clock() const override { return clock_; }

 private:
  struct Queue;
  SystemClock clock_;
  std::unique_ptr<Queue> queue_;
};

// A blocking TCP connection whose every byte the test decides.
class RawClient {
 public:
  explicit RawClient(const Address& to);
  void Send(std::string_view bytes);
  // Up to `most` bytes, waiting for the first; "" when the peer has closed (or reset).
  std::string Receive(size_t most = 64 << 10);
  std::string ReceiveUntilClose();
  void ShutdownWrite();
  int fd() const { return fd_.get(); }

 private:
  Fd fd_;
};

// A server of scripted behaviour: each connection runs `script` with its socket on a thread of the
// server, one connection after the other, until the object goes.
class RawServer {
 public:
  using Script = std::function<void(int fd)>;
  explicit RawServer(Script script);
  ~RawServer();
  Url url() const;
  int connections() const;

  // For scripts: reads one request's header; "" when the peer has closed.
  static std::string ReadHeader(int fd);
  // False: the peer has gone.
  static bool Write(int fd, std::string_view bytes);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

// A certificate authority of one test.
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
