// SPDX-License-Identifier: Apache-2.0
// How many GPUs of which model the pods of a namespace may hold, and on which pools of nodes. Who
// was charged stays charged until refunded, bound or not, so two pods that are decided on at the
// same time cannot both take the last GPU. Not for knowing pods: the caller keeps what it charged.
//
// A namespace that the configuration does not name is not limited. One that it names may use a
// model where every line of its quota that means this model holds: used + wanted ≤ GPUs × 1000. A
// model that no line means is refused; without "quota" models are not limited. With a list of pools
// only nodes of these pools are allowed.
//
// Threads: one. Cost: some string compares; ask once for each model and pool, not for each node.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/base/units.h"
#include "src/placement/cluster.h"
#include "src/placement/demand.h"

namespace tessera::placement {

struct NamespaceQuota {
  struct Line {
    std::string model;  // as people write it, see device::MatchesModel
    int64_t gpus = 0;
    bool operator==(const Line&) const = default;
  };
  std::optional<std::vector<Line>> lines;
  std::vector<std::string> pools;
  bool operator==(const NamespaceQuota&) const = default;
};
using QuotaConfig = std::map<std::string, NamespaceQuota, std::less<>>;

// More than any cluster has; a larger number is a slip of the pen.
inline constexpr int64_t kMaxQuotaGpus = 1'000'000;

// {"ml":{"quota":{"M40":8,"P100":2},"pool":["public"]}}, as gpu-admission's ConfigMap has it.
// INVALID_ARGUMENT names the namespace, the field and the reason: numbers that are negative,
// fractional or huge, names that are empty or occur twice, members that nobody knows.
Result<QuotaConfig> ParseQuota(std::string_view json);

// GPUs of one model for one pod or a part of it.
struct QuotaCharge {
  std::string namespace_name;
  std::string model;  // of the GPU: its product name or a node's label
  std::string pool;   // of the node
  MilliGpu amount;
  bool operator==(const QuotaCharge&) const = default;
};

// What a pod is charged on this node: shares their compute, or where they ask for memory alone
// their part of the GPU's memory; whole GPUs 1000; a MIG slice its part of the compute. One charge
// for each model among its GPUs; none for a pod without GPUs.
std::vector<QuotaCharge> ChargesOf(std::string_view namespace_name, const Cluster& cluster,
                                   NodeId node, const Demand& demand, const Pick& pick);
// The same before GPUs are picked, if all of them are of `model` and have so much memory.
QuotaCharge ChargeOf(std::string_view namespace_name, const Cluster& names, const Demand& demand,
                     std::string_view model, Bytes gpu_memory, std::string_view pool);

class Quota {
 public:
  // Changes limits; what is used stays, also where it is now too much.
  void SetConfig(QuotaConfig config) { config_ = std::move(config); }
  const QuotaConfig& config() const { return config_; }

  // Whether all charges together are allowed: those of a pod, or of a gang. RESOURCE_EXHAUSTED says
  // what is used and what is left; PERMISSION_DENIED that model or pool is not for this namespace.
  // No amount at all is always allowed.
  Status Check(std::span<const QuotaCharge> charges) const;
  Status Check(const QuotaCharge& charge) const { return Check({&charge, 1}); }
  // All of them, or none and the error of Check.
  Status Charge(std::span<const QuotaCharge> charges);
  // For pods that run already: charged whether allowed or not.
  void Record(std::span<const QuotaCharge> charges);
  // Gives back what was charged, all or none. FAILED_PRECONDITION for more than is charged.
  Status Refund(std::span<const QuotaCharge> charges);

  // "A100: 1 used, 0 left; T4: 2 used, 6 left": of each line of the namespace; "" without any.
  std::string TextOfLines(std::string_view namespace_name) const;
  // Of GPUs that `model` means, as a line of a quota would.
  MilliGpu Used(std::string_view namespace_name, std::string_view model) const;

 private:
  // By namespace, then by model as charged; no zeros.
  using Amounts = std::map<std::string, std::map<std::string, int64_t, std::less<>>, std::less<>>;

  static Amounts SumOf(std::span<const QuotaCharge> charges);
  Status CheckModel(std::string_view name, const std::vector<NamespaceQuota::Line>& lines,
                    const std::string& model, const Amounts& wanted) const;

  QuotaConfig config_;
  Amounts used_;
};

}  // namespace tessera::placement
