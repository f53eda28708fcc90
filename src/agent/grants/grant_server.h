// SPDX-License-Identifier: Apache-2.0
// The grant socket: takes requests from tessera-runtime, passes them to a handler, sends the
// answers. Only root may connect. Sizes, times and the number of connections are bounded, so a
// faulty client affects only its own connection. When all connections are taken, the connection
// that has stalled longest is closed. If all of them wait for answers, new connections wait in the
// kernel's queue. Threads: lives on `runner`.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "src/agent/grants/grant_metrics.h"
#include "src/base/file.h"
#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"
#include "src/grant/message.h"
#include "src/net/accept_loop.h"

namespace tessera::agent {

struct GrantServerLimits {
  size_t max_connections = 64;
  // From accept to the last byte of the request.
  Duration request_timeout = std::chrono::seconds(5);
  // A connection without a complete request may be closed at this age.
  Duration stall_timeout = std::chrono::seconds(1);
  uid_t uid = 0;  // only clients with this UID are served
};

class GrantServer {
 public:
  using Reply = std::function<void(Result<grant::Grant>)>;
  // Calls `reply` once, on the runner, now or later.
  using Handler = std::function<void(const grant::GrantRequest& request, Reply reply)>;

  GrantServer(TaskRunner* runner, GrantServerLimits limits, GrantMetrics* metrics, Handler handler);
  ~GrantServer();
  GrantServer(const GrantServer&) = delete;
  GrantServer& operator=(const GrantServer&) = delete;

  // Creates the socket with mode 0600.
  Status Listen(const std::string& path);
  bool SocketPresent() const { return accept_loop_.OwnsPath(); }
  size_t connections() const { return connections_.size(); }

 private:
  struct ClientConnection {
    Fd fd;
    std::string received;
    size_t expected_bytes = grant::kFrameHeaderSize;
    bool header_done = false;
    bool handling = false;  // the handler has the complete request
    MonotonicTime accepted_at{};
    MonotonicTime requested_at{};
  };

  void OnConnection(Fd fd);
  // Pauses accepting while all connections are taken, and closes the oldest connection without a
  // complete request once it is older than stall_timeout.
  void MakeRoom();
  void Read(uint64_t id);
  // Appends the bytes that have arrived to `received`. An error ends the connection.
  Status ReceiveBytes(ClientConnection* connection);
  void Dispatch(uint64_t id, ClientConnection* connection);
  void ReplyAndClose(uint64_t id, const Result<grant::Grant>& reply);
  void Close(uint64_t id);

  TaskRunner* const runner_;
  const GrantServerLimits limits_;
  GrantMetrics* const metrics_;
  const Handler handler_;
  net::AcceptLoop accept_loop_;
  std::map<uint64_t, ClientConnection> connections_;  // in order of age
  uint64_t next_id_ = 1;
  WeakPtrFactory<GrantServer> weak_{this};
};

}  // namespace tessera::agent
