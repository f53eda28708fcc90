// SPDX-License-Identifier: Apache-2.0
// Decides with --binding=allocate whether a container may start with the GPUs that Allocate gave
// for its IDs (allocation_grants.h). At this point the kubelet lists the container that holds the
// IDs. The agent rejects the start in three cases: it gave the GPUs to another container, the
// container's assignment has other GPUs, or neither grant nor assignment is known. A user must then
// delete the pod, because Allocate's answer cannot be changed. The kubelet calls PreStartContainer
// before each start of a container, also after restarts of kubelet and agent; the ledger keeps the
// grants.
//
// The kubelet lists pods by name, not by UID. It does not list ordinary init containers. Such a
// container starts only if Allocate knew its name for certain. If another device plugin gave whole
// GPUs to a container that has run, StartChecks records them in the ledger: the ID of a whole GPU
// is its UUID.
//
// Threads: `runner`'s, which is also GrantService's.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/agent/grants/grant_ledger.h"
#include "src/agent/grants/grant_metrics.h"
#include "src/agent/grants/grant_service.h"
#include "src/agent/grants/start_waits.h"
#include "src/agent/kubelet/device_set.h"
#include "src/agent/kubelet/kubelet.h"
#include "src/agent/pods/pods.h"
#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"

namespace tessera::agent {

class StartChecks {
 public:
  // Pause between two List calls. The kubelet allows 100 calls a second.
  static constexpr Duration kListPause = std::chrono::milliseconds(100);
  using OnChecked = std::function<void(Status)>;

  // The arguments must outlive the object. `pods` may be null.
  StartChecks(TaskRunner* runner, GrantService* service, GrantLedger* ledger, const Pods* pods,
              const DeviceSetHolder* devices, GrantMetrics* metrics);
  StartChecks(const StartChecks&) = delete;
  StartChecks& operator=(const StartChecks&) = delete;

  // Calls `done` once, now or later, and not after the object is destroyed. FAILED_PRECONDITION:
  // the container must not start with these IDs. UNAVAILABLE: it cannot start now, for example
  // because a GPU is unhealthy; the kubelet retries.
  void Check(const std::string& resource, const std::vector<std::string>& ids, OnChecked done);

 private:
  struct Call;
  using CallPtr = std::shared_ptr<Call>;
  using Entry = GrantLedger::Entry;
  // A container that the kubelet lists with some or all of the IDs.
  struct ListedHolder {
    ContainerRef ref;    // without UID
    bool exact = false;  // the container holds exactly these IDs of the resource
  };
  using Holders = std::vector<ListedHolder>;

  void ListPods(const CallPtr& call);
  void Verify(const CallPtr& call, const PodDevices& kubelet_pods);
  // OK if the entry belongs to the container that holds the IDs.
  Status CompareHolders(const Entry& entry, const Holders& holders,
                        const PodDevices& kubelet_pods) const;
  // Makes the container that holds the IDs the holder of an entry whose owner is unknown.
  Result<ContainerRef> FindOwner(const Entry& entry, const Holders& holders);
  // Checks IDs that are in no entry of the ledger.
  void CheckUngranted(const CallPtr& call, const Holders& holders);
  // Records a grant of the GPUs that another device plugin gave to a container that has run.
  void AdoptGpus(const CallPtr& call, const ContainerRef& holder);
  // Finishes the call: OK if GrantService confirms the container's grant, else its error, for
  // example because a GPU is unhealthy.
  void FinishWithGrant(const CallPtr& call, const ContainerRef& owner);
  void Finish(const CallPtr& call, const Status& status) const;

  static Holders HoldersOf(const Call& call, const PodDevices& kubelet_pods);
  // The latest entry with these IDs, or null.
  const Entry* EntryOf(const Call& call) const;
  // Returns `owner` with its pod's UID. UNAVAILABLE while the pod is unknown.
  Result<ContainerRef> WithUid(ContainerRef owner) const;
  bool HasRun(const ContainerRef& holder) const;
  std::vector<std::string> AssignedGpusOf(const ContainerRef& owner) const;
  // FAILED_PRECONDITION with a text for users.
  Status MismatchError(const ContainerRef& owner, const std::vector<std::string>& container_gpus,
                       const std::string& how_given) const;

  TaskRunner* const runner_;
  GrantService* const service_;
  GrantLedger* const ledger_;
  const Pods* const pods_;
  const DeviceSetHolder* const devices_;
  GrantMetrics* const metrics_;
  WeakPtrFactory<StartChecks> weak_{this};
};

}  // namespace tessera::agent
