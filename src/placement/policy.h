// SPDX-License-Identifier: Apache-2.0
// The interface of all placement policies: a policy chooses the node and the GPUs of a pod. It
// reads the cluster as it is now and changes nothing in it; the caller places the pod.
// A policy finds a placement for every demand that fits, and never returns a placement that does
// not fit. Equal histories give equal results. Among equal scores the lowest node id is chosen.
//
// Threads: a policy belongs to the thread of its cluster.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/placement/cluster.h"
#include "src/placement/demand.h"

namespace tessera::placement {

struct Placement {
  NodeId node = kNoNode;
  Pick pick;
  float score = 0;
};

// The score of a node on which the demand does not fit.
inline constexpr float kUnfit = -std::numeric_limits<float>::infinity();

// One term of a score, for users: {"terminal waste", 12.5}.
using ScoreTerm = std::pair<std::string_view, double>;

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;

  // The best placement; nullopt if the demand fits on no node.
  virtual std::optional<Placement> Choose(ShapeId shape) = 0;
  // Scores of all nodes by id; larger is better, kUnfit if the demand does not fit. Valid until the
  // next call.
  virtual std::span<const float> Scores(ShapeId shape) = 0;
  // The GPUs that the pod would get on this node; nullopt if the demand does not fit.
  virtual std::optional<Pick> PickOn(ShapeId shape, NodeId node) = 0;
  // The terms of a node's score: their sum is the score, up to rounding. A policy without terms
  // returns a single term with the policy's name. Empty if the demand does not fit.
  virtual std::vector<ScoreTerm> Explain(ShapeId shape, NodeId node) {
    const float score = Scores(shape)[node];
    if (score == kUnfit) return {};
    return {{name(), score}};
  }

  // Call once when a pod arrives, whether it is placed or not, and once when it leaves. A policy
  // that learns spends about ten microseconds here, so that Choose never waits. For a cluster that
  // already runs, the caller reports all its pods as arrivals.
  virtual void OnArrival(ShapeId shape) { (void)shape; }
  virtual void OnDeparture(ShapeId shape) { (void)shape; }
};

// A pod shape and how often it arrives: an entry of the mix that FGD is given. The default policy
// learns its mix from arrivals.
struct MixEntry {
  ShapeId shape = 0;
  double weight = 0;
};

// The name of the policy that programs use unless a flag names another.
inline constexpr std::string_view kDefaultPolicy = "Tessera";

// Parts of the default policy that its name can exclude: "Tessera-links-turnover" lacks links and
// turnover. A replay thus measures what each part contributes.
enum PolicyPart { kRollOuts, kClosedForm, kMemo, kTurnover, kReservation, kScarcity, kLinks };
inline constexpr std::array<std::string_view, 7> kPolicyParts{
    "rollouts", "closedform", "memo", "turnover", "reservation", "scarcity", "links"};
using PolicyParts = std::bitset<kPolicyParts.size()>;

struct PolicyOptions {
  uint64_t seed = 0;           // for random policies
  std::vector<MixEntry> mix;   // the expected pods; may be empty
  PolicyParts excluded_parts;  // MakePolicy reads them from the name
};

// A policy that `sched-replay --policy` accepts.
struct PolicyInfo {
  std::string_view name;
  std::string_view help;  // one line
  std::unique_ptr<Policy> (*make)(Cluster& cluster, const PolicyOptions& options);
};
// In the order in which help lists them.
std::span<const PolicyInfo> Policies();
// Ignores case. INVALID_ARGUMENT lists the known names.
Result<const PolicyInfo*> FindPolicy(std::string_view name);
Result<std::unique_ptr<Policy>> MakePolicy(std::string_view name, Cluster& cluster,
                                           PolicyOptions options);

}  // namespace tessera::placement
