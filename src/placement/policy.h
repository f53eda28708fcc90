// SPDX-License-Identifier: Apache-2.0
// Where a pod goes: one interface for every policy. A policy answers for the cluster as it is now
// and changes nothing in it; the caller places what it decided on.
//
// A policy never refuses a demand that fits, and never names a place where it does not. Equal
// histories give equal answers. Equal scores go to the node of the lowest id.
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

struct Decision {
  NodeId node = kNoNode;
  Pick pick;
  float score = 0;
};

// The score of a node on which the demand does not fit.
inline constexpr float kUnfit = -std::numeric_limits<float>::infinity();

// One term of a score, for people: {"terminal waste", 12.5}.
using ScoreTerm = std::pair<std::string_view, double>;

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;

  // The best place; nothing where the demand fits nowhere.
  virtual std::optional<Decision> Choose(ShapeId shape) = 0;
  // Scores of all nodes by id, kUnfit where the demand does not fit; larger is better. Valid until
  // the next call.
  virtual std::span<const float> Scores(ShapeId shape) = 0;
  // The GPUs that the pod would get on this node; nothing where it does not fit.
  virtual std::optional<Pick> PickOn(ShapeId shape, NodeId node) = 0;
  // Of what the score of this node is made: the sum of the terms is the score, but for rounding.
  // One term with the name of the policy where it has no parts; none where the demand does not fit.
  virtual std::vector<ScoreTerm> Explain(ShapeId shape, NodeId node) {
    const float score = Scores(shape)[node];
    if (score == kUnfit) return {};
    return {{name(), score}};
  }

  // What comes and goes, for policies that learn from it: a pod that arrives (placed or not, once),
  // and one that leaves. A policy that learns does so in steps of some ten microseconds here, so
  // that Choose never waits. A cluster that runs already is told as arrivals of all its pods.
  virtual void Arrived(ShapeId shape) { (void)shape; }
  virtual void Departed(ShapeId shape) { (void)shape; }
};

// A pod shape and how often it comes, for policies that are told the mix (FGD) instead of learning.
struct MixEntry {
  ShapeId shape = 0;
  double weight = 0;
};

// Parts of the default policy. "Tessera-links-turnover" is the policy without these two, to see
// what they are worth on a trace.
enum PolicyPart { kRollOuts, kClosedForm, kMemo, kTurnover, kReservation, kScarcity, kLinks };
inline constexpr std::array<std::string_view, 7> kPolicyParts{
    "rollouts", "closedform", "memo", "turnover", "reservation", "scarcity", "links"};
using PolicyParts = std::bitset<kPolicyParts.size()>;

struct PolicyOptions {
  uint64_t seed = 0;          // of policies that draw
  std::vector<MixEntry> mix;  // what is expected to come; may be empty
  PolicyParts without;        // set by MakePolicy from the name
};

// Names as in `sched-replay --policy`, in the order in which help lists them.
struct PolicyInfo {
  std::string_view name;
  std::string_view help;  // one line
  std::unique_ptr<Policy> (*make)(Cluster& cluster, const PolicyOptions& options);
};
std::span<const PolicyInfo> Policies();
// Upper and lower case are one. INVALID_ARGUMENT lists the names that there are.
Result<const PolicyInfo*> FindPolicy(std::string_view name);
Result<std::unique_ptr<Policy>> MakePolicy(std::string_view name, Cluster& cluster,
                                           PolicyOptions options);

}  // namespace tessera::placement
