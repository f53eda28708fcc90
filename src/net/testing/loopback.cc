// SPDX-License-Identifier: Apache-2.0
#include "src/net/testing/loopback.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>

#include "src/base/status.h"

namespace tessera::net::testing {

namespace {

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

}  // namespace

// The mutex guards tasks from other threads.
struct TestRunner::Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<MonotonicTime, uint64_t>, Task> tasks;
  uint64_t sequence = 0;

  // The next due task; waits for it until `end`.
  Task Take(MonotonicTime end) {
    std::unique_lock lock(mutex);
    while (true) {
      const MonotonicTime now = std::chrono::steady_clock::now();
      if (!tasks.empty() && tasks.begin()->first.first <= now) {
        return std::move(tasks.extract(tasks.begin()).mapped());
      }
      if (now >= end) return nullptr;
      changed.wait_until(lock, tasks.empty() ? end : std::min(end, tasks.begin()->first.first));
    }
  }
};

TestRunner::TestRunner() : queue_(std::make_unique<Queue>()) {}
TestRunner::~TestRunner() = default;

bool TestRunner::RunUntil(const std::function<bool()>& done, Duration limit) {
  // Other threads may change the data of `done` without posting a task.
  constexpr Duration kPollInterval = std::chrono::milliseconds(5);
  const MonotonicTime end = clock_.Now() + limit;
  while (!done()) {
    const MonotonicTime now = clock_.Now();
    if (now >= end) return false;
    if (const Task task = queue_->Take(std::min(end, now + kPollInterval))) task();
  }
  return true;
}

void TestRunner::RunFor(Duration time) {
  const MonotonicTime end = clock_.Now() + time;
  while (const Task task = queue_->Take(end)) task();
}

void TestRunner::PostDelayed(Duration delay, Task task) {
  const std::lock_guard lock(queue_->mutex);
  queue_->tasks.emplace(std::pair(clock_.Now() + delay, queue_->sequence++), std::move(task));
  queue_->changed.notify_all();
}

void TestRunner::WatchReadable(int, Task) { CheckFailed(__FILE__, __LINE__, "not in TestRunner"); }
void TestRunner::Unwatch(int) { CheckFailed(__FILE__, __LINE__, "not in TestRunner"); }

RawClient::RawClient(const Address& to) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const sockaddr_in address = Loopback(to.port);
  TESSERA_CHECK(
      ::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  const timeval receive_timeout{.tv_sec = 10, .tv_usec = 0};
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &receive_timeout, sizeof(receive_timeout));
}

void RawClient::Send(std::string_view bytes) { RawServer::Write(fd_.get(), bytes); }

std::string RawClient::Receive(size_t max_bytes) {
  std::string buffer(max_bytes, '\0');
  const ssize_t got = ::recv(fd_.get(), buffer.data(), buffer.size(), 0);
  buffer.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return buffer;
}

std::string RawClient::ReceiveUntilClose() {
  std::string all;
  for (std::string piece = Receive(); !piece.empty(); piece = Receive()) all += piece;
  return all;
}

void RawClient::ShutdownWrite() { ::shutdown(fd_.get(), SHUT_WR); }

// The mutex guards `current`, so that the destructor can end the script's blocking call.
struct RawServer::Shared {
  Script script;
  Fd listener;
  uint16_t port = 0;
  std::atomic<bool> stop{false};
  std::atomic<int> connections{0};
  std::mutex mutex;
  int current = -1;  // the connection that the script serves; -1: none

  void Serve() {
    while (!stop) {
      const Fd connection(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!connection.valid() || stop) return;
      ++connections;
      SetCurrent(connection.get());
      script(connection.get());
      SetCurrent(-1);
    }
  }
  void SetCurrent(int fd) {
    const std::lock_guard lock(mutex);
    current = fd;
    if (stop && fd >= 0) ::shutdown(fd, SHUT_RDWR);
  }
};

RawServer::RawServer(Script script) : shared_(std::make_shared<Shared>()) {
  shared_->script = std::move(script);
  shared_->listener.Reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = Loopback(0);
  socklen_t length = sizeof(address);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  TESSERA_CHECK(::bind(shared_->listener.get(), raw, length) == 0);
  TESSERA_CHECK(::listen(shared_->listener.get(), 16) == 0);
  TESSERA_CHECK(::getsockname(shared_->listener.get(), raw, &length) == 0);
  shared_->port = ntohs(address.sin_port);
  thread_ = std::thread([shared = shared_] { shared->Serve(); });
}

RawServer::~RawServer() {
  shared_->stop = true;
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->current >= 0) ::shutdown(shared_->current, SHUT_RDWR);
  }
  ::shutdown(shared_->listener.get(), SHUT_RDWR);  // Ends accept.
  thread_.join();
}

Url RawServer::url() const { return {.address = {.host = "127.0.0.1", .port = shared_->port}}; }
int RawServer::connections() const { return shared_->connections; }

std::string RawServer::ReadHeader(int fd) {
  std::string header;
  char byte;
  while (header.find("\r\n\r\n") == std::string::npos) {
    if (::recv(fd, &byte, 1, 0) <= 0) return "";
    header.push_back(byte);
  }
  return header;
}

bool RawServer::Write(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

}  // namespace tessera::net::testing
