// SPDX-License-Identifier: Apache-2.0
// The grant service with its journal, ledger, socket and connection to the kubelet, on a thread of
// its own. Threads: construct and destroy on one thread; call Post on any.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "src/agent/grants/grant_metrics.h"
#include "src/agent/grants/grant_service.h"
#include "src/agent/grants/holdings.h"
#include "src/agent/kubelet/device_set.h"
#include "src/agent/kubelet/plugin_answers.h"
#include "src/agent/limits/container_usage.h"
#include "src/base/task_runner.h"
#include "src/device/dialects/plugin_checkpoints.h"
#include "src/gpu/nvml.h"
#include "src/grant/token.h"
#include "src/trace/span.h"

namespace tessera::agent {

struct GrantsThreadOptions {
  GrantOptions service;
  device::AllocatedMinors minors_of_other_plugins;  // of containers with GPUs of another plugin
  std::string state_dir;
  std::string socket;
  std::string pod_resources_socket;
  uid_t socket_client_uid = 0;
  // Lists the processes on GPUs; null: GPUs are released without checking processes (tests).
  std::shared_ptr<gpu::NvmlLoader> nvml;
  std::string proc_root = "/proc";
  // Makes the source of pods, on the grants' thread; null: all pods are unknown.
  std::function<std::unique_ptr<Pods>(TaskRunner* runner)> make_pods;
  GrantService::OnUsageChanged on_usage_changed;  // called on the grants' thread
  NamespaceSet kill_on_bypass_namespaces;         // see ContainerUsage
  trace::SpanRecorder record_span;                // null: grants are not traced
  // Called on the grants' thread once a second, with the uses, while containers have shares.
  std::function<void(std::shared_ptr<const ContainerUses>)> on_container_uses;
};

class GrantsThread final : public KubeletGrants {
 public:
  static constexpr std::string_view kJournalName = "grants.journal";
  static constexpr std::string_view kPodsName = "pods.journal";
  static constexpr std::string_view kKeyName = "token.key";

  // The arguments must outlive the object.
  GrantsThread(GrantsThreadOptions options, const DeviceSetHolder* devices,
               const grant::TokenSigner* signer, GrantMetrics* metrics);
  ~GrantsThread() override;
  GrantsThread(const GrantsThread&) = delete;
  GrantsThread& operator=(const GrantsThread&) = delete;

  // After OK the socket is served. Errors: the state directory or the socket cannot be used.
  Status Start();
  void Allocate(const std::string& resource, const std::vector<std::string>& ids,
                std::function<void(Result<grant::Grant>)> done) override;
  void Check(const std::string& resource, const std::vector<std::string>& ids,
             std::function<void(Status)> done) override;
  // Call when the inventory has changed. Any thread.
  void OnInventoryChanged();
  // Call when the driver may have been unloaded; see ProcessReader::Refresh. Any thread.
  void RefreshDriver();
  // Records Events on the pods that hold the GPU. Any thread.
  void OnXid(const std::string& uuid, uint64_t code);
  // See GrantService::SetIsolationDisabled. Any thread.
  void SetIsolationDisabled(bool disabled);
  // Passes the holdings of containers, or none while the thread starts or ends, to `then` on the
  // grants' thread. Any thread.
  void GetHoldings(std::function<void(Holdings)> then);
  // Runs the task on the grants' thread. Any thread.
  void Post(TaskRunner::Task task) { runner_.Post(std::move(task)); }

 private:
  struct State;
  Status MakeState();
  std::unique_ptr<Pods> MakePods();

  const GrantsThreadOptions options_;
  const DeviceSetHolder* const devices_;
  const grant::TokenSigner* const signer_;
  GrantMetrics* const metrics_;
  EpollTaskRunner runner_;
  std::unique_ptr<State> state_;
  std::thread thread_;
};

}  // namespace tessera::agent
