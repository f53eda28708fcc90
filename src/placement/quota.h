// SPDX-License-Identifier: Apache-2.0
// Limits how many GPUs of which model the pods of a namespace may hold, and on which node pools. A
// charge lasts until it is refunded, whether the pod is bound or not. So two concurrent decisions
// cannot both take the last GPU. Does not track pods: the caller keeps their charges.
//
// A namespace without an entry is unlimited. A namespace with an entry may use a model if each
// matching line of its quota has used + wanted ≤ GPUs × 1000. A model that matches no line is
// rejected. An entry without "quota" limits no model. If an entry lists pools, only nodes of these
// pools are allowed.
//
// Threads: one. Cost: some string compares; check once for each model and pool, not for each node.
#pragma once

#include <compare>
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

// One line of a quota: how many GPUs of a model.
struct QuotaLimit {
  std::string model;  // a common name, see device::MatchesModel
  int64_t gpus = 0;
  bool operator==(const QuotaLimit&) const = default;
};

struct NamespaceQuota {
  std::optional<std::vector<QuotaLimit>> limits;
  std::vector<std::string> pools;
  bool operator==(const NamespaceQuota&) const = default;
};
using QuotaConfig = std::map<std::string, NamespaceQuota, std::less<>>;

// More GPUs than any cluster has. A larger number is rejected as a typing error.
inline constexpr int64_t kMaxQuotaGpus = 1'000'000;

// Parses {"ml":{"quota":{"M40":8,"P100":2},"pool":["public"]}}, the format of gpu-admission's
// ConfigMap. INVALID_ARGUMENT names the namespace, the field and the reason: a negative, fractional
// or huge number, an empty or repeated name, or an unknown member.
Result<QuotaConfig> ParseQuota(std::string_view json);

// The GPUs of one model that one pod is charged for.
struct QuotaCharge {
  std::string namespace_name;
  std::string model;  // of the GPU: its product name or a node's label
  std::string pool;   // of the node
  MilliGpu amount;
  auto operator<=>(const QuotaCharge&) const = default;
};

// The charges of a pod on this node, one for each model among its GPUs. A whole GPU is charged
// 1000, a MIG slice its fraction of the GPU's compute, and a share its compute. A share that
// requests only memory is charged its fraction of the GPU's memory. Empty for a pod without GPUs.
std::vector<QuotaCharge> ChargesOf(std::string_view namespace_name, const Cluster& cluster,
                                   NodeId node, const Demand& demand, const Pick& pick);
// The charge before GPUs are picked. Assumes that all GPUs are of `model` and have this memory.
QuotaCharge EstimatedCharge(std::string_view namespace_name, const Cluster& cluster,
                            const Demand& demand, std::string_view model, Bytes gpu_memory,
                            std::string_view pool);

class Quota {
 public:
  // Changes limits; existing charges stay, even above a new limit.
  void SetConfig(QuotaConfig config) { config_ = std::move(config); }
  const QuotaConfig& config() const { return config_; }

  // Whether all charges of a pod or a gang are allowed together. RESOURCE_EXHAUSTED states the used
  // and remaining amounts; PERMISSION_DENIED means that the namespace may not use the model or the
  // pool. A charge of zero is always allowed.
  Status Check(std::span<const QuotaCharge> charges) const;
  Status Check(const QuotaCharge& charge) const { return Check({&charge, 1}); }
  // Charges all or, with the error of Check, none.
  Status Charge(std::span<const QuotaCharge> charges);
  // Charges pods that already run, whether allowed or not.
  void ChargeUnchecked(std::span<const QuotaCharge> charges);
  // Refunds all charges or none. FAILED_PRECONDITION for a refund above the charged amount.
  Status Refund(std::span<const QuotaCharge> charges);

  // "A100: 1 used, 0 left; T4: 2 used, 6 left": each line of the namespace; "" without lines.
  std::string TextOfLines(std::string_view namespace_name) const;
  // The used amount of all GPUs whose model matches `model`, as in a line of a quota.
  MilliGpu Used(std::string_view namespace_name, std::string_view model) const;

 private:
  // Thousandths by namespace, then by charged model; an amount of 0 has no entry.
  using Amounts = std::map<std::string, std::map<std::string, int64_t, std::less<>>, std::less<>>;

  static Amounts SumOf(std::span<const QuotaCharge> charges);
  Status CheckModel(std::string_view name, const std::vector<QuotaLimit>& limits,
                    const std::string& model, const Amounts& wanted) const;

  QuotaConfig config_;
  Amounts used_;
};

}  // namespace tessera::placement
