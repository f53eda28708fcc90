// SPDX-License-Identifier: Apache-2.0
// What kube-scheduler and an extender say to each other (k8s.io/kube-scheduler/extender/v1), in
// JSON whose keys are capitalised, because the Go structs have no tags; older schedulers wrote them
// small, so any case is read.
//
// Requests are of 5,000 node names, or of 5,000 whole nodes: names are views into the body, nodes
// are passed through as text, and only the pod becomes an object.
//
// Threads: values; a request is made and used while its body lives. Errors: INVALID_ARGUMENT with
// the offset or the field.
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

namespace tessera::scheduler {

// Ten times what Kubernetes is made for. A request of that size in short names would otherwise
// become a gigabyte of memory.
inline constexpr size_t kMaxNodes = 50'000;

// ExtenderArgs: of filter and prioritize. Made once for many requests: its memory is used again,
// and a pod that comes a second time, as every one does with prioritize, is not read again.
struct ExtenderArgs {
  kube::PodObject pod;
  std::vector<std::string_view> names;
  std::vector<std::string_view> quoted;  // the same as JSON: how they stood in the request
  // Where whole nodes came (nodeCacheCapable: false), their text, in the order of `names`.
  std::vector<std::string_view> nodes;
  bool has_nodes = false;
  std::deque<std::string> kept;  // names that stood with escapes
  std::string pod_text;          // what `pod` was made of; empty where that was too much to keep
};
Status ParseExtenderArgs(std::string_view body, ExtenderArgs* out);

// ExtenderFilterResult. Nodes are positions in the request.
struct FilterResult {
  using Refusal = std::pair<size_t, std::string_view>;
  std::vector<size_t> fitting;
  std::vector<Refusal> failed;
  std::vector<Refusal> unresolvable;  // evicting pods would not help
  std::string error;                  // not empty: nothing else counts
  // Of the refusals: thousands of nodes share few of them.
  std::vector<std::unique_ptr<const std::string>> reasons;
};
// Names go back, and nodes too where nodes came.
std::string Serialize(const ExtenderArgs& args, const FilterResult& result);
// For a request that could not be read.
std::string SerializeFilterError(std::string_view error);

// HostPriorityList, 0 to 10; scores by position in the request.
inline constexpr int kMaxHostScore = 10;
std::string SerializePriorities(const ExtenderArgs& args, const std::vector<int>& scores);

struct BindingArgs {
  std::string pod, ns;
  Uid uid;
  std::string node;
};
// Every field must be there.
Result<BindingArgs> ParseBindingArgs(std::string_view body);
// ExtenderBindingResult.
std::string SerializeBindingResult(std::string_view error);

// ExtenderPreemptionArgs and -Result: by node the pods (UIDs) that shall go.
struct NodeVictims {
  std::vector<Uid> uids;
  int64_t pdb_violations = 0;
};
using Victims = std::map<std::string, NodeVictims, std::less<>>;
struct PreemptionArgs {
  kube::PodObject pod;
  Victims victims;
};
Result<PreemptionArgs> ParsePreemptionArgs(std::string_view body);
std::string SerializeVictims(const Victims& victims);

}  // namespace tessera::scheduler
