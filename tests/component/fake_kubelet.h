// SPDX-License-Identifier: Apache-2.0
// The kubelet's device manager as a plugin sees it, over real unix sockets and real gRPC: it cleans
// the folder when it starts, listens on kubelet.sock, dials back inside Register and asks for the
// options before it answers, then reads ListAndWatch until it ends. It can also die without a word,
// listen late, refuse, forget to open its stream, open two, end one, and drop connections half.
//
// It fakes the kubelet's manners only; that the real one has them is what tests/e2e proves.
// Threads: any; calls of the plugin come on threads of their own.
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
  // What shall happen at each registration.
  struct Manners {
    int refuse = 0;              // so many registrations are answered with an error
    int end_stream_at_once = 0;  // so many streams are cancelled after their first list
    int no_stream = 0;           // so many registrations are not followed by a stream
    bool two_streams = false;
    bool pre_start = false;  // the plugin shall want to be asked before each start
  };

  explicit FakeKubelet(std::string dir);
  ~FakeKubelet();
  FakeKubelet(const FakeKubelet&) = delete;
  FakeKubelet& operator=(const FakeKubelet&) = delete;

  void SetManners(Manners manners);

  // Removes all sockets of the folder, makes kubelet.sock, and listens.
  void Start() {
    Bind();
    Listen();
  }
  // The two halves: between them connections are refused.
  void Bind();
  void Listen();
  // As after SIGKILL: all connections break, kubelet.sock stays.
  void Kill();

  // When the socket began to listen.
  Clock::time_point listening_since() const;
  int registrations() const;  // since the first Start, accepted ones
  // Waits until `count` registrations were accepted; false at the deadline. When that was.
  bool WaitForRegistrations(int count, std::chrono::milliseconds deadline);
  Clock::time_point last_registered() const;
  std::string endpoint() const;
  std::string resource() const;

  // The list as the live streams have it; waits until it is `wanted`.
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
