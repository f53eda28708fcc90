// SPDX-License-Identifier: Apache-2.0
// A command's view of a cluster: a ledger like the scheduler's. It is filled once (snapshot.h), or
// follows the cluster through the same feed as the scheduler. Does not print (commands.h does).
//
// Waits for a slow API server, and retries a few times if it is unreachable. Fails at once on
// errors that waiting does not fix. Without the right to read the quota's ConfigMap, only quotas
// are unknown.
//
// Threads: the runner's thread, which also runs the callbacks. Ownership: io and runner outlive the
// session.
// Errors, with the remedy: UNAUTHENTICATED, PERMISSION_DENIED, UNAVAILABLE, DEADLINE_EXCEEDED.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"
#include "src/cli/snapshot.h"
#include "src/kube/client.h"
#include "src/kube/config.h"
#include "src/ledger/feed.h"
#include "src/ledger/outages.h"
#include "src/ledger/server_probe.h"
#include "src/net/io_thread.h"
#include "src/placement/policy.h"

namespace tessera::cli {

struct SessionOptions {
  kube::Config config;
  std::string policy{placement::kDefaultPolicy};
  Duration timeout = std::chrono::seconds(30);
  bool follow = false;
  // How often a following session checks that the server answers.
  Duration probe_interval = ledger::ServerProbe::kInterval;
  std::string pods_ns;   // "": pods of all namespaces
  std::string kept_pod;  // "ns/name" of the pod that FindPod finds; "": none
  // Label selectors; the ledger has only the nodes and pods that they select.
  std::string node_selector, pod_selector;
};

class Session final : private ledger::ClusterFeed::Delegate {
 public:
  using OnReady = std::function<void(Status)>;

  // Calls `on_ready` once.
  Session(net::IoThread& io, TaskRunner& runner, SessionOptions options, OnReady on_ready);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // REQUIRES: on_ready got OK.
  ledger::ClusterLedger& ledger() { return *ledger_; }
  const kube::PodObject* FindPod(const std::string& ns, const std::string& name) const;
  // For requests about objects that are not in the ledger; keeps the session's deadline.
  kube::Client& client() { return client_; }
  // Why quotas are unknown: PERMISSION_DENIED, or DATA_LOSS if the ConfigMap is invalid. OK if they
  // are known.
  const Status& quota_problem() const { return quota_problem_; }

  // The current outage, with the remedy; nullopt while the ledger follows the cluster.
  std::optional<ledger::Outage> outage() const { return outages_.Longest(); }

 private:
  // Starts to read the cluster, with or without quotas, into a new ledger.
  void StartReading(device::MemoryUnit unit, bool with_quota);
  void PostStartReading(device::MemoryUnit unit, bool with_quota);
  void NotifyReady(Status status);
  void SetOutage(std::string_view what, const Status& status, WallTime since);
  Status WithRemedy(std::string_view what, const Status& status) const;

  void OnSynced() override;
  void OnQuota() override { quota_problem_ = Status::Ok(); }
  void OnError(std::string_view what, const Status& status) override;
  void OnRecovered(std::string_view what) override { (void)outages_.End(what); }

  TaskRunner& runner_;
  const SessionOptions options_;
  OnReady on_ready_;
  kube::Client client_;
  int failures_ = 0;
  bool with_quota_ = true;
  Status quota_problem_;
  Status last_error_;
  ledger::Outages outages_;  // of the feed, and of the probe
  std::optional<ledger::ServerProbe> probe_;
  std::unique_ptr<ledger::ClusterLedger> ledger_;
  std::unique_ptr<Snapshot> snapshot_;
  std::unique_ptr<ledger::ClusterFeed> feed_;  // instead of snapshot_ if `follow` is set
  WeakPtrFactory<Session> weak_{this};
};

// Options of a command's client, which retries once.
kube::ClientOptions ClientOptionsOf(Duration timeout);

// The kubeconfig files of a command.
struct KubeconfigFiles {
  std::string paths;     // "": there is none
  bool is_list = false;  // `paths` may have several, separated by ':'
};

// `kubeconfig` if it is not empty, else $KUBECONFIG, else ~/.kube/config if it exists.
KubeconfigFiles FindKubeconfig(const std::string& kubeconfig, const kube::GetEnv& getenv);

// Reads the files that FindKubeconfig finds, else the pod's service account. FAILED_PRECONDITION
// lists the places searched.
Result<kube::Config> FindClusterConfig(const std::string& kubeconfig, const std::string& context,
                                       const kube::GetEnv& getenv);

// NOT_FOUND with similar names, or with other namespaces that have a pod of this name.
Status NoSuchPod(const ledger::ClusterLedger& ledger, const std::string& ns,
                 const std::string& name);

}  // namespace tessera::cli
