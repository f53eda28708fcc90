// SPDX-License-Identifier: Apache-2.0
// The kubelet over gRPC. Every call has a connection of its own, which the agent makes itself: gRPC
// waits a second after a refused connection, and a starting kubelet refuses for some milliseconds,
// because its socket appears before it listens.
//
// Threads: the objects live on `runner`. A destructor cancels the running calls, whose `done` is
// not called any more.
#pragma once

#include <memory>
#include <string>

#include "src/agent/kubelet/kubelet.h"
#include "src/base/clock.h"

namespace tessera::agent {

// The running calls, so that no call outlives the object to which it reports.
class PendingCalls;

class GrpcKubeletRegistry final : public KubeletRegistry {
 public:
  // The kubelet dials back for up to 10 s within the call.
  static constexpr Duration kDeadline = std::chrono::seconds(15);

  GrpcKubeletRegistry(TaskRunner* runner, std::string socket_path);
  ~GrpcKubeletRegistry() override;

  std::string SocketIdentity() const override;
  void Register(const Registration& registration, Done done) override;

 private:
  TaskRunner* const runner_;
  const std::string socket_path_;
  const std::shared_ptr<PendingCalls> pending_;
};

class GrpcPodResources final : public PodResources {
 public:
  GrpcPodResources(TaskRunner* runner, std::string socket_path, Duration deadline);
  ~GrpcPodResources() override;

  void List(Done done) override;

 private:
  TaskRunner* const runner_;
  const std::string socket_path_;
  const Duration deadline_;
  const std::shared_ptr<PendingCalls> pending_;
};

}  // namespace tessera::agent
