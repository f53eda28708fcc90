// SPDX-License-Identifier: Apache-2.0
// Decides what the runtime's question gets: checks the token's seal, binds it to the container that
// asks, keeps a GPU from being in two pods, refuses an ill GPU, and writes it down before it
// answers. Transport is grant_server.h's, memory grant_ledger.h's.
//
// A GPU that another pod's entry holds is no conflict if that pod is gone; the kubelet is asked,
// and only then. Entries of ended pods are released there, and every minute while there are any.
//
// Threads: lives on `runner`, which may wait for the disk (journal), so not the one of health and
// registration. Nothing here calls NVML or the API server.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "src/agent/device_set.h"
#include "src/agent/grant_ledger.h"
#include "src/agent/kubelet.h"
#include "src/base/task_runner.h"
#include "src/grant/message.h"
#include "src/grant/token.h"

namespace tessera::agent {

struct GrantOptions {
  std::string resource;
  std::string driver_root = "/";  // host paths
  std::string dev_root = "/";
  std::string dev_root_ctr_path = "/";  // dev_root as this process sees it
  std::string version;
};

class GrantService {
 public:
  static constexpr Duration kPruneInterval = std::chrono::seconds(60);
  using Reply = std::function<void(Result<grant::Grant>)>;

  // All outlive it.
  GrantService(TaskRunner* runner, GrantOptions options, const DeviceSetHolder* devices,
               const grant::TokenSealer* sealer, GrantLedger* ledger, PodResources* pods);
  ~GrantService();
  GrantService(const GrantService&) = delete;
  GrantService& operator=(const GrantService&) = delete;

  // Replies once, now or later; not at all when the service is destroyed before.
  void Handle(const grant::Request& request, Reply reply);

 private:
  // One token of a request, understood.
  struct Claim {
    grant::Nonce nonce;
    std::vector<std::string> ids;
  };
  using PodsDone = std::function<void(const Result<PodDevices>&)>;

  Result<std::vector<Claim>> OpenTokens(const grant::Request& request) const;
  Result<grant::Grant> Describe(const std::vector<Claim>& claims) const;
  Result<grant::GrantedDevice> DescribeDevice(const DeviceSet& set, const std::string& id) const;
  std::vector<GrantLedger::Conflict> ConflictsOf(const std::vector<Claim>& claims,
                                                 const ContainerRef& who) const;
  // Releases what pods that are gone hold; an error names the one that is not.
  Status Resolve(const std::vector<GrantLedger::Conflict>& conflicts, const ContainerRef& who,
                 const Result<PodDevices>& pods);
  Result<grant::Grant> Bind(const std::vector<Claim>& claims, const ContainerRef& who);

  // Lists pods with a call that starts now or later, never with one that is under way: it may have
  // looked before the asking pod was admitted.
  void ListPods(PodsDone done);
  void StartList();
  void PruneLater();
  void Prune(const Result<PodDevices>& pods);

  TaskRunner* const runner_;
  const GrantOptions options_;
  const DeviceSetHolder* const devices_;
  const grant::TokenSealer* const sealer_;
  GrantLedger* const ledger_;
  PodResources* const pods_;

  std::vector<PodsDone> waiting_;
  bool listing_ = false;
  bool prune_planned_ = false;
  std::set<grant::Nonce> missing_;  // their pods were not listed at the last pruning
  const std::shared_ptr<GrantService*> self_;
};

}  // namespace tessera::agent
