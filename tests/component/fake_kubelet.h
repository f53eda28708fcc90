// SPDX-License-Identifier: Apache-2.0
// A fake of the kubelet's device manager, over real unix sockets and real gRPC. It empties the
// folder when it starts, listens on kubelet.sock, dials back during Register and reads the options
// before it answers, and then reads ListAndWatch until the stream ends. For tests of failures it
// can die without closing anything, listen late, reject registrations, open no stream or two
// streams, end a stream, and half-close a connection.
//
// tests/e2e checks that the real kubelet behaves in this way. Threads: any; calls of the plugin
// come on threads of their own.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "src/base/status.h"

namespace tessera::testing {

class FakeKubelet {
 public:
  using Clock = std::chrono::steady_clock;

  struct Device {
    std::string id;
    bool healthy = false;
    int numa = -1;
    bool operator==(const Device&) const = default;
  };
  // What the kubelet does at the next registrations.
  struct Behavior {
    int refuse = 0;              // number of registrations that get an error
    int end_stream_at_once = 0;  // number of streams that are cancelled after their first list
    int no_stream = 0;           // number of registrations that no stream follows
    bool two_streams = false;
    bool pre_start = false;  // the registration must have this pre_start_required
  };

  explicit FakeKubelet(std::string dir);
  ~FakeKubelet();
  FakeKubelet(const FakeKubelet&) = delete;
  FakeKubelet& operator=(const FakeKubelet&) = delete;

  void SetBehavior(Behavior behavior);

  // Removes all sockets of the folder, makes kubelet.sock, and listens.
  void Start() {
    Bind();
    Listen();
  }
  // The two steps of Start. Between them, connections are refused.
  void Bind();
  void Listen();
  // Acts like a kubelet after SIGKILL: all connections break, and kubelet.sock stays.
  void Kill();

  // When the socket began to listen.
  Clock::time_point listening_since() const;
  int registrations() const;  // since the first Start, accepted ones
  // Waits until `count` registrations were accepted; false at the deadline.
  bool WaitForRegistrations(int count, std::chrono::milliseconds deadline);
  Clock::time_point last_registered() const;
  std::string endpoint() const;
  std::string resource() const;

  // Waits until all live streams have received the list `wanted`; false at the deadline.
  bool WaitForDevices(const std::vector<Device>& wanted, std::chrono::milliseconds deadline);
  std::vector<Device> devices() const;
  int messages() const;  // lists received, since the first Start
  int live_streams() const;
  // The kubelet ends its stream and lives on.
  void EndStreams();
  // Stops sending on the connection to the plugin; it still reads.
  void HalfClose();

  // Calls of the kubelet on the plugin that registered last. Env of the first container.
  Result<std::vector<std::pair<std::string, std::string>>> Allocate(
      const std::vector<std::string>& ids);
  Result<std::vector<std::string>> Prefer(const std::vector<std::string>& available, int size);
  Status PreStart(const std::vector<std::string>& ids);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tessera::testing
