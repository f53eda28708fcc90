// SPDX-License-Identifier: Apache-2.0
// The protocol between kube-scheduler and an extender (k8s.io/kube-scheduler/extender/v1). The JSON
// keys are capitalized, because the Go structs have no tags; older schedulers wrote lower case, so
// keys are compared without case.
//
// Requests may have 5,000 node names or 5,000 whole nodes. So names are views into the body, nodes
// are passed through as text, and only the pod is decoded.
//
// Threads: objects are values, and each thread may use its own copy. A request is valid while its
// body lives. Errors: INVALID_ARGUMENT with the offset or the field.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/base/uid.h"
#include "src/kube/objects.h"
#include "src/ledger/ledger.h"

namespace tessera::scheduler {

// Ten times the nodes that Kubernetes supports. Without a limit, a request of short names could
// take a gigabyte of memory.
inline constexpr size_t kMaxNodes = 50'000;

// ExtenderArgs of filter and prioritize. Reuse the object for the next request: it keeps its
// memory, and does not decode an equal pod again (prioritize follows filter).
struct ExtenderArgs {
  kube::PodObject pod;
  std::vector<std::string_view> node_names;
  std::vector<std::string_view> quoted_names;  // node_names as JSON, from the request
  // The JSON of whole nodes (nodeCacheCapable: false), in the order of node_names.
  std::vector<std::string_view> node_texts;
  bool has_nodes = false;                   // the request has whole nodes instead of names
  std::deque<std::string> unescaped_names;  // the names whose JSON has escapes
  std::string pod_text;                     // the JSON of `pod`; empty if it is too long to keep
};
Status ParseExtenderArgs(std::string_view body, ExtenderArgs* out);

// ExtenderFilterResult. Nodes are identified by position in the request.
struct FilterResult {
  using Rejection = std::pair<size_t, std::string_view>;
  std::vector<size_t> fitting;
  std::vector<Rejection> failed;
  std::vector<Rejection> unresolvable;  // evicting pods would not help
  std::string error;                    // if not empty, all other fields are ignored
  // Owns the reasons; thousands of nodes share few of them.
  std::vector<std::unique_ptr<const std::string>> reasons;
};
// Returns names, and whole nodes if the request had them.
std::string Serialize(const ExtenderArgs& args, const FilterResult& result);
// The response to an invalid request.
std::string SerializeFilterError(std::string_view error);

// HostPriorityList, 0 to 10; scores by position in the request.
inline constexpr int kMaxHostScore = 10;
std::string SerializePriorities(const ExtenderArgs& args, const std::vector<int>& scores);

struct BindingArgs {
  std::string pod, ns;
  Uid uid;
  std::string node;
};
// All fields are required.
Result<BindingArgs> ParseBindingArgs(std::string_view body);
// ExtenderBindingResult.
std::string SerializeBindingResult(std::string_view error);

// ExtenderPreemptionArgs and -Result: the victims by node.
using Victims = std::map<std::string, ledger::ClusterLedger::Eviction, std::less<>>;
struct PreemptionArgs {
  kube::PodObject pod;
  Victims victims;
};
Result<PreemptionArgs> ParsePreemptionArgs(std::string_view body);
std::string SerializeVictims(const Victims& victims);

}  // namespace tessera::scheduler
