// SPDX-License-Identifier: Apache-2.0
// --binding=allocate: whether a container may start with what Allocate gave to its ids
// (allocation_grants.h). By then the kubelet says which container that is. Where it is another one
// than was meant, or was assigned other GPUs, or nobody can tell, it does not start: what Allocate
// has answered cannot be taken back, so the pod has to be deleted. Asked each time that a container
// starts, also after restarts of kubelet and agent; the ledger is the memory.
//
// The kubelet says names and not UIDs, and nothing of ordinary init containers: those start where
// Allocate left no doubt. Whole GPUs that a plugin before us gave, by ids that name them, to a
// container that has run are taken into the ledger here.
//
// Threads: lives on `runner`, that of the grants.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/agent/grants/grant_ledger.h"
#include "src/agent/grants/grant_metrics.h"
#include "src/agent/grants/grant_service.h"
#include "src/agent/kubelet/device_set.h"
#include "src/agent/kubelet/kubelet.h"
#include "src/agent/pods/pods.h"
#include "src/base/task_runner.h"

namespace tessera::agent {

class StartChecks {
 public:
  // The kubelet waits for 30 s; its list is limited to 100 calls a second.
  static constexpr Duration kPatience = std::chrono::seconds(5);
  static constexpr Duration kPause = std::chrono::milliseconds(100);
  using Checked = std::function<void(Status)>;

  // All outlive it. `pods` and `metrics` may be null.
  StartChecks(TaskRunner* runner, GrantService* service, GrantLedger* ledger, const Pods* pods,
              const DeviceSetHolder* devices, GrantMetrics* metrics);
  StartChecks(const StartChecks&) = delete;
  StartChecks& operator=(const StartChecks&) = delete;

  // Replies once, now or later; not at all when it is destroyed before. FAILED_PRECONDITION: not
  // with these ids. UNAVAILABLE: not now, and the kubelet asks again; also where a GPU is ill.
  void Check(const std::string& resource, const std::vector<std::string>& ids, Checked done);

 private:
  struct Call;
  using CallPtr = std::shared_ptr<Call>;
  using Entry = GrantLedger::Entry;
  // A container that has the ids, or some of them, as the kubelet says.
  struct Holder {
    ContainerRef who;    // without UID
    bool exact = false;  // these, and no others of the resource
  };
  using Holders = std::vector<Holder>;

  void Ask(const CallPtr& call);
  void Verify(const CallPtr& call, const PodDevices& listed);
  // Whether it was meant for the one who holds the ids.
  Status Compare(const Entry& entry, const Holders& holders, const PodDevices& listed) const;
  // Finds out whose an answer by ids is.
  Result<ContainerRef> Name(const Entry& entry, const Holders& holders);
  // Nothing was given to these ids.
  void CheckStranger(const CallPtr& call, const Holders& holders);
  void Adopt(const CallPtr& call, const ContainerRef& holder);
  // As to a container that late binding starts: what it was given, unless it is ill.
  void Grant(const CallPtr& call, const ContainerRef& who);
  void Finish(const CallPtr& call, const Status& status) const;

  static Holders HoldersOf(const Call& call, const PodDevices& listed);
  // The last that was given to the ids; null where nothing was.
  const Entry* EntryOf(const Call& call) const;
  // With its UID. UNAVAILABLE while the pod is not known.
  Result<ContainerRef> WithUid(ContainerRef who) const;
  bool HasRun(const ContainerRef& holder) const;
  std::vector<std::string> AssignedTo(const ContainerRef& who) const;
  // FAILED_PRECONDITION, for people.
  Status Wrong(const ContainerRef& who, const std::vector<std::string>& has,
               const std::string& why) const;

  TaskRunner* const runner_;
  GrantService* const service_;
  GrantLedger* const ledger_;
  const Pods* const pods_;
  const DeviceSetHolder* const devices_;
  GrantMetrics* const metrics_;
  const std::shared_ptr<StartChecks*> self_ = std::make_shared<StartChecks*>(this);
};

}  // namespace tessera::agent
