// SPDX-License-Identifier: Apache-2.0
// Finds pods that are gone and have left, and releases their entries from the ledger.
//
//   A pod is gone     The API server does not have it or reports its end, and the kubelet does not
//                     list it.
//                     Or two lists of the kubelet, a minute apart, lack the pod, and the API server
//                     does not report it as running.
//   A pod has left    None of its processes is on the node any more (pod_processes.h).
//
// A pod that is gone and still has processes is leaving: it was deleted by force, or a process
// hangs in the driver. Its GPUs stay in the ledger, so that no container gets them. After
// ReleaseOptions::timeout they are withheld with the process as the reason: the scheduler places no
// pod there, and other holders of the GPU continue. They are offered again when the processes are
// gone.
//
// Threads: lives on `runner`.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/agent/grants/grant_ledger.h"
#include "src/agent/grants/grant_metrics.h"
#include "src/agent/kubelet/kubelet.h"
#include "src/agent/pods/pod_processes.h"
#include "src/agent/pods/pods.h"
#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"

namespace tessera::agent {

// The reason why each GPU is withheld, by UUID.
using WithheldGpus = std::map<std::string, std::string, std::less<>>;

// Returns the inventory with these GPUs withheld; unhealthy GPUs keep their state.
std::shared_ptr<const device::NodeInventory> Withhold(
    std::shared_ptr<const device::NodeInventory> inventory, const WithheldGpus& withheld);

struct ReleaseOptions {
  PodProcesses* processes = nullptr;  // outlives EndedPods; null: processes are not checked (tests)
  Duration timeout = std::chrono::seconds(30);
  std::function<void(const WithheldGpus&)> on_withheld;  // on each change; may be null
};

class EndedPods {
 public:
  static constexpr Duration kPruneInterval = std::chrono::seconds(60);
  // Delay of a check, so that one check serves pods that end together.
  static constexpr Duration kCheckDelay = std::chrono::milliseconds(20);
  // First pause between checks, because the kubelet still lists a pod for a while after its end.
  static constexpr Duration kFirstPause = std::chrono::milliseconds(100);
  static constexpr Duration kLongestPause = std::chrono::seconds(10);
  using PodsDone = std::function<void(const Result<PodDevices>&)>;

  // The arguments must outlive the object; `pods` may be null. `on_released` is called after a
  // release.
  EndedPods(TaskRunner* runner, GrantLedger* ledger, PodResources* kubelet, const Pods* pods,
            ReleaseOptions options, GrantMetrics* metrics, std::function<void()> on_released);
  EndedPods(const EndedPods&) = delete;
  EndedPods& operator=(const EndedPods&) = delete;

  // Lists the kubelet's pods by a call that starts now or later. A call that is already running may
  // have read the list before the requesting pod was admitted.
  void ListKubeletPods(PodsDone done);
  // Releases the entries of `conflicts` whose pods are gone and have left. UNAVAILABLE while it is
  // unknown whether they are gone. After OK, only entries of living and of leaving pods remain.
  // `list_time`: the kubelet's time to list its pods.
  using Resolved = std::function<void(const Status&, Duration list_time)>;
  void Resolve(std::vector<GrantLedger::Conflict> conflicts, ContainerRef requester, Resolved done);
  // The reason why the first leaving pod of the conflicts still holds its GPU; nullopt if no pod is
  // leaving.
  std::optional<std::string> ReasonStillHeld(
      const std::vector<GrantLedger::Conflict>& conflicts) const;
  // Call when the API server reports the end of pods. Checks soon, then again until the kubelet
  // does not list them and their processes have left.
  void ScheduleCheck();
  // Each minute, tidies the ledger and releases the entries of pods that the kubelet does not list
  // any more. Stops when the ledger has neither an entry nor a spent token.
  void SchedulePrune();

 private:
  using Keys = std::set<GrantLedger::Key>;
  struct LeavingContainer {
    MonotonicTime since;
    std::string remains;    // text that names its remaining processes
    bool withheld = false;  // it has been leaving for longer than the timeout
  };

  void StartList();
  void CheckAfter(Duration pause);
  void Check();
  void Prune(const Result<PodDevices>& kubelet_pods);
  // UNAVAILABLE if the list failed or is older than the requesting pod.
  Status CheckListIsCurrent(const std::vector<GrantLedger::Conflict>& conflicts,
                            const ContainerRef& requester,
                            const Result<PodDevices>& kubelet_pods) const;
  // Entries of pods that the API server reports as ended and the kubelet does not list. Sets
  // `any_still_listed` if the kubelet lists such a pod, or does not answer.
  Keys EndedAndUnlisted(const Result<PodDevices>& kubelet_pods, bool* any_still_listed) const;
  bool IsGone(const GrantLedger::Entry& entry, const PodDevices& kubelet_pods,
              const ContainerRef& requester) const;
  bool EndedPerApiServer(const ContainerRef& holder) const;
  bool RunsPerApiServer(const ContainerRef& holder) const;
  bool HasNamesake(const ContainerRef& holder) const;
  // Releases the entries in `gone` whose processes have ended, and keeps checking the others. Then
  // calls `done`.
  void ReleaseIfProcessesEnded(Keys gone, std::function<void()> done);
  void ReleaseOrKeep(const Keys& gone, const ProcessSnapshot& snapshot);
  bool Release(const GrantLedger::Key& key);
  void RecordRemaining(const GrantLedger::Key& key, const GrantLedger::Entry& entry,
                       std::string remains);
  void PublishWithheld();

  TaskRunner* const runner_;
  GrantLedger* const ledger_;
  PodResources* const kubelet_;
  const Pods* const pods_;
  const ReleaseOptions options_;
  GrantMetrics* const metrics_;
  const std::function<void()> on_released_;

  std::vector<PodsDone> waiting_callbacks_;
  bool listing_ = false;
  bool prune_planned_ = false;
  bool check_planned_ = false;
  Duration pause_ = kFirstPause;
  Keys unlisted_at_last_prune_;  // entries whose pods were not listed at the last pruning
  std::map<GrantLedger::Key, LeavingContainer> leaving_containers_;
  WithheldGpus withheld_;
  WeakPtrFactory<EndedPods> weak_{this};
};

}  // namespace tessera::agent
