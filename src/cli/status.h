// SPDX-License-Identifier: Apache-2.0
// `tessera status`: whether each component of an installation works, and what to do if it does not.
// ReadInstallation reads objects of the API; StatusOf judges them; status_command prints a screen.
// Unlike most commands it needs no ledger.
//
// Threads: ReadInstallation uses the client's thread; all other functions are pure. Included only
// in src/cli.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/base/strings.h"
#include "src/cli/cluster_client.h"
#include "src/cli/commands.h"
#include "src/cli/installation_audit.h"
#include "src/formats/json.h"

namespace tessera::cli {

// What to do if kube-scheduler does not call Tessera.
inline constexpr std::string_view kConnectKubeScheduler =
    "name the extender https://CLUSTER_IP:9410/v1/extender in kube-scheduler's configuration, with "
    "the certificates of Secret tessera-system/tessera-scheduler-client; CLUSTER_IP is that of "
    "Service tessera-system/tessera-scheduler";

// One component, or one node with a problem.
struct StatusLine {
  std::string name;
  bool works = true;
  std::string detail;
  std::string fix;           // what the user can do; "" if the component works
  bool is_unknown = false;   // `works` is true because nothing shows a problem
  bool agent_fails = false;  // a node: its agent is missing or does not become ready
};

struct InstallationStatus {
  std::vector<StatusLine> components;
  std::vector<StatusLine> nodes;  // nodes with a problem, by name

  bool works() const;
};

// Objects as the API server has them. NOT_FOUND: the object does not exist.
struct InstallationObjects {
  // The agents' DaemonSets: the general one, and one for each pool of nodes.
  Result<std::vector<Json>> agent_daemonsets = std::vector<Json>();
  // The DaemonSets of driver containers, in all namespaces, because NVIDIA's operator runs its
  // own.
  Result<std::vector<Json>> driver_daemonsets = std::vector<Json>();
  Result<Json> scheduler_deployment = Status(Code::kNotFound, "");
  Result<Json> scheduler_endpoints = Status(Code::kNotFound, "");
  Result<Json> webhook = Status(Code::kNotFound, "");
  Result<Json> operator_deployment = Status(Code::kNotFound, "");
  Result<Json> tessera_resource = Status(Code::kNotFound, "");  // which the operator follows
  // The metrics page of the scheduler's leader; an error if it cannot be read.
  Result<std::string> leader_metrics = Status(Code::kNotFound, "");
  InstallationAudit audit;
  std::vector<Json> pods;         // of the system namespace
  std::vector<Json> driver_pods;  // of driver containers, in all namespaces
  // The latest Event of type Warning of pods of the system namespace that are not ready, by pod
  // name, such as "FailedMount: configmap \"metrics\" not found". Holds only some pods if many are
  // not ready.
  StringMap warnings;
  // Pods that kube-scheduler cannot place because of an error, such as an error of its
  // extender. Each has its metadata and the condition PodScheduled.
  std::vector<Json> failed_placements;
  std::vector<Json> nodes;  // metadata and status of all nodes
};

// The bound pods of one program, or of all programs if `program` is "", by node. During an update a
// node has a new pod and an old pod that is being deleted; the new pod counts.
std::map<std::string, const Json*> PodsByNode(const std::vector<Json>& pods,
                                              std::string_view program);
InstallationStatus StatusOf(const InstallationObjects& objects);
// Whether a message of kube-scheduler is about a call of its extender.
bool MentionsExtender(std::string_view message);
// Number of requests for the verb "filter" on the leader's metrics page; nullopt if it has none.
std::optional<int64_t> FilterRequests(std::string_view leader_metrics);
// Name of the pod that leads, by the EndpointSlice; "" if no replica leads.
std::string LeaderOf(const InstallationObjects& objects);

// Reads only nodes with the labels `node_selector`. Fails if pods or nodes cannot be listed. If
// another object cannot be read, its member has the error. Defined in status_reader.cc.
Result<InstallationObjects> ReadInstallation(ClusterClient& api,
                                             const std::string& node_selector = "");

// A table has at most 20 nodes, unless the format is -o wide.
Result<std::string> ShowStatus(const InstallationStatus& status, const Style& style);

}  // namespace tessera::cli
