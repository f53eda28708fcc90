// SPDX-License-Identifier: Apache-2.0
#include "src/placement/quota.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>

#include "src/device/model.h"
#include "src/formats/json.h"

namespace tessera::placement {
namespace {

Status InvalidQuota(std::string_view place, std::string_view problem) {
  return Error(Code::kInvalidArgument, "GPU quota: {}: {}", place, problem);
}

Status CheckNames(std::string_view place, const Json& object) {
  const auto& members = object.members();
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i].first.empty()) return InvalidQuota(place, "a name is empty");
    for (size_t j = 0; j < i; ++j) {
      if (members[j].first == members[i].first) {
        return InvalidQuota(place, fmt::format("\"{}\" occurs twice", members[i].first));
      }
    }
  }
  return {};
}

Result<std::vector<QuotaLimit>> ParseLimits(const std::string& place, const Json& json) {
  if (!json.is_object())
    return InvalidQuota(place, "must be an object of model and number of GPUs");
  RETURN_IF_ERROR(CheckNames(place, json));
  std::vector<QuotaLimit> limits;
  for (const auto& [model, number] : json.members()) {
    const std::string model_place = fmt::format("{}.{}", place, model);
    const Result<int64_t> gpus =
        number.is_number() ? number.ToInt() : Error(Code::kInvalidArgument, "is no number");
    if (!gpus.ok()) {
      return InvalidQuota(
          model_place, fmt::format("must be a whole number of GPUs, not {}", number.Serialize()));
    }
    if (*gpus < 0 || *gpus > kMaxQuotaGpus) {
      return InvalidQuota(model_place,
                          fmt::format("must be 0 to {} GPUs, not {}", kMaxQuotaGpus, *gpus));
    }
    limits.push_back({model, *gpus});
  }
  return limits;
}

Result<std::vector<std::string>> ParsePools(const std::string& place, const Json& json) {
  if (!json.is_array()) return InvalidQuota(place, "must be a list of names");
  std::vector<std::string> pools;
  for (const Json& item : json.items()) {
    if (!item.is_string() || item.string_value().empty()) {
      return InvalidQuota(place, fmt::format("must hold names of pools, not {}", item.Serialize()));
    }
    pools.push_back(item.string_value());
  }
  return pools;
}

std::string GpusText(int64_t milli) { return fmt::format("{:.6g}", milli / 1000.0); }

// A slice's fraction of the GPU's compute in thousandths: sevenths, or quarters on the A30. Rounded
// down, so that the slices of one GPU never count more than the GPU.
int64_t MilliOfSlice(std::string_view profile, std::string_view model) {
  int64_t slices = 0;
  std::from_chars(profile.data(), profile.data() + profile.size(), slices);
  return std::min<int64_t>(1000, slices * 1000 / (device::MatchesModel(model, "A30") ? 4 : 7));
}

int64_t MilliOf(const GpuDemand& gpu_demand, const Cluster& cluster, std::string_view model,
                Bytes memory) {
  if (gpu_demand.kind != kNoMigProfile)
    return MilliOfSlice(cluster.NameOfKind(gpu_demand.kind), model);
  if (gpu_demand.milli != MilliGpu(0) || memory <= Bytes(0)) return gpu_demand.milli.count();
  // Rounded up. Otherwise many small shares would cost nothing.
  const int64_t share = (gpu_demand.bytes.count() * 1000 + memory.count() - 1) / memory.count();
  return std::min(share, kWholeGpu.count());
}

}  // namespace

Result<QuotaConfig> ParseQuota(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text).Annotate("GPU quota"));
  if (!json.is_object()) return InvalidQuota("the document", "must be an object of namespaces");
  RETURN_IF_ERROR(CheckNames("namespaces", json));
  QuotaConfig config;
  for (const auto& [name, value] : json.members()) {
    const std::string place = fmt::format("namespace \"{}\"", name);
    if (!value.is_object())
      return InvalidQuota(place, "must be an object with \"quota\" and \"pool\"");
    RETURN_IF_ERROR(CheckNames(place, value));
    NamespaceQuota quota;
    for (const auto& [key, member] : value.members()) {
      if (key == "quota") {
        ASSIGN_OR_RETURN(quota.limits, ParseLimits(place + " quota", member));
      } else if (key == "pool") {
        ASSIGN_OR_RETURN(quota.pools, ParsePools(place + " pool", member));
      } else {
        return InvalidQuota(place, fmt::format("\"{}\" is neither \"quota\" nor \"pool\"", key));
      }
    }
    config.emplace(name, std::move(quota));
  }
  return config;
}

std::vector<QuotaCharge> ChargesOf(std::string_view namespace_name, const Cluster& cluster,
                                   NodeId node, const Demand& demand, const Pick& pick) {
  const std::span<const GpuState> gpus = cluster.node(node).gpus;
  std::map<std::string_view, int64_t> amounts;
  for (size_t n = 0; n < demand.gpu_demands.size(); ++n) {
    for (uint64_t left = pick.masks[n]; left != 0; left &= left - 1) {
      const GpuState& gpu = gpus[std::countr_zero(left)];
      const std::string_view model = cluster.NameOf(gpu.model);
      amounts[model] += MilliOf(demand.gpu_demands[n], cluster, model, Bytes(gpu.total_bytes));
    }
  }
  std::vector<QuotaCharge> charges;
  for (const auto& [model, amount] : amounts) {
    charges.push_back(
        {std::string(namespace_name), std::string(model), cluster.pool(node), MilliGpu(amount)});
  }
  return charges;
}

QuotaCharge EstimatedCharge(std::string_view namespace_name, const Cluster& cluster,
                            const Demand& demand, std::string_view model, Bytes gpu_memory,
                            std::string_view pool) {
  int64_t amount = 0;
  for (const GpuDemand& gpu_demand : demand.gpu_demands) {
    amount += MilliOf(gpu_demand, cluster, model, gpu_memory) * gpu_demand.count;
  }
  return {std::string(namespace_name), std::string(model), std::string(pool), MilliGpu(amount)};
}

Quota::Amounts Quota::SumOf(std::span<const QuotaCharge> charges) {
  Amounts sum;
  for (const QuotaCharge& charge : charges) {
    if (charge.amount == MilliGpu(0)) continue;
    sum[charge.namespace_name][charge.model] += charge.amount.count();
  }
  return sum;
}

Status Quota::CheckModel(std::string_view name, const std::vector<QuotaLimit>& limits,
                         const std::string& model, const Amounts& wanted) const {
  bool matched = false;
  std::vector<std::string> others;
  for (const QuotaLimit& limit : limits) {
    others.push_back(limit.model);
    if (!device::MatchesModel(model, limit.model)) continue;
    matched = true;
    int64_t wanted_milli = 0;
    for (const auto& [other, amount] : wanted.find(name)->second) {
      if (device::MatchesModel(other, limit.model)) wanted_milli += amount;
    }
    const int64_t used = Used(name, limit.model).count(), limit_milli = limit.gpus * 1000;
    if (used + wanted_milli <= limit_milli) continue;
    return Error(Code::kResourceExhausted,
                 "namespace \"{}\" may use {} GPUs of model {}: {} used, {} left, {} wanted", name,
                 limit.gpus, limit.model, GpusText(used),
                 GpusText(std::max<int64_t>(limit_milli - used, 0)), GpusText(wanted_milli));
  }
  if (matched) return {};
  return Error(Code::kPermissionDenied, "namespace \"{}\" has no quota for GPU model \"{}\": {}",
               name, model,
               others.empty() ? "it has no quota for any model"
                              : fmt::format("it has a quota for {}", fmt::join(others, ", ")));
}

Status Quota::Check(std::span<const QuotaCharge> charges) const {
  for (const QuotaCharge& charge : charges) {
    if (charge.amount < MilliGpu(0)) {
      return Error(Code::kInvalidArgument, "a charge of {} thousandths of a GPU is negative",
                   charge.amount.count());
    }
    const auto at = config_.find(charge.namespace_name);
    if (at == config_.end() || charge.amount == MilliGpu(0)) continue;
    const std::vector<std::string>& pools = at->second.pools;
    if (!pools.empty() && std::ranges::find(pools, charge.pool) == pools.end()) {
      return Error(Code::kPermissionDenied,
                   "namespace \"{}\" may not use GPUs of pool \"{}\": only of {}",
                   charge.namespace_name, charge.pool, fmt::join(pools, ", "));
    }
  }
  const Amounts wanted = SumOf(charges);
  for (const auto& [name, models] : wanted) {
    const auto at = config_.find(name);
    if (at == config_.end() || !at->second.limits) continue;
    for (const auto& [model, amount] : models) {
      RETURN_IF_ERROR(CheckModel(name, *at->second.limits, model, wanted));
    }
  }
  return {};
}

Status Quota::Charge(std::span<const QuotaCharge> charges) {
  RETURN_IF_ERROR(Check(charges));
  ChargeUnchecked(charges);
  return {};
}

void Quota::ChargeUnchecked(std::span<const QuotaCharge> charges) {
  for (const auto& [name, models] : SumOf(charges)) {
    for (const auto& [model, amount] : models) used_[name][model] += amount;
  }
}

Status Quota::Refund(std::span<const QuotaCharge> charges) {
  const Amounts sum = SumOf(charges);
  for (const auto& [name, models] : sum) {
    for (const auto& [model, amount] : models) {
      const auto at = used_.find(name);
      const auto used = at == used_.end()            ? int64_t{0}
                        : at->second.contains(model) ? at->second.find(model)->second
                                                     : 0;
      if (amount >= 0 && amount <= used) continue;
      return Error(Code::kFailedPrecondition,
                   "namespace \"{}\" has {} GPUs of model \"{}\" charged; {} cannot be refunded",
                   name, GpusText(used), model, GpusText(amount));
    }
  }
  for (const auto& [name, models] : sum) {
    auto& used = used_.find(name)->second;
    for (const auto& [model, amount] : models) {
      const auto at = used.find(model);
      if ((at->second -= amount) == 0) used.erase(at);
    }
    if (used.empty()) used_.erase(used_.find(name));
  }
  return {};
}

std::string Quota::TextOfLines(std::string_view namespace_name) const {
  std::vector<std::string> texts;
  const auto at = config_.find(namespace_name);
  if (at == config_.end() || !at->second.limits) return "";
  for (const QuotaLimit& limit : *at->second.limits) {
    const int64_t used = Used(namespace_name, limit.model).count();
    texts.push_back(fmt::format("{}: {} used, {} left", limit.model, GpusText(used),
                                GpusText(std::max<int64_t>(limit.gpus * 1000 - used, 0))));
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

MilliGpu Quota::Used(std::string_view namespace_name, std::string_view model) const {
  MilliGpu sum;
  const auto at = used_.find(namespace_name);
  if (at == used_.end()) return sum;
  for (const auto& [other, amount] : at->second) {
    if (device::MatchesModel(other, model)) sum += MilliGpu(amount);
  }
  return sum;
}

}  // namespace tessera::placement
