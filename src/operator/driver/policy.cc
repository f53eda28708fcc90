// SPDX-License-Identifier: Apache-2.0
// Reads and checks the policy of an upgrade.
#include <algorithm>
#include <limits>
#include <optional>

#include "src/base/strings.h"
#include "src/operator/driver/upgrade.h"

namespace tessera::driver {
namespace {

void ReadFlag(const Json* section, std::string_view key, bool* out) {
  if (section != nullptr) *out = section->BoolAt(key).value_or(*out);
}

void ReadCount(const Json* section, std::string_view key, int* out) {
  if (section != nullptr) *out = static_cast<int>(section->IntAt(key).value_or(*out));
}

void ReadTime(const Json* section, std::string_view key, Duration* out) {
  const Json* value = section == nullptr ? nullptr : section->Find(key);
  if (value != nullptr && !value->is_null()) {
    *out = std::chrono::seconds(value->ToInt().value_or(0));
  }
}

void ReadWait(const Json* wait, UpgradePolicy* policy) {
  if (wait == nullptr) return;
  ReadTime(wait, "timeoutSeconds", &policy->wait_timeout);
  const std::string selector = wait->StringAt("podSelector").value_or("");
  if (selector.empty()) return;
  for (const std::string_view term : Split(selector, ',')) {
    const size_t equals = term.find('=');
    policy->wait_for[std::string(term.substr(0, equals))] = term.substr(equals + 1);
  }
}

// The number of nodes, or the percentage if the text ends with "%"; nullopt: the text is invalid.
std::optional<int> ParseMaxUnavailable(std::string_view text, bool* percent) {
  *percent = text.ends_with('%');
  if (*percent) text.remove_suffix(1);
  const int64_t limit = *percent ? 100 : std::numeric_limits<int>::max();
  const int64_t number = ParseInt(text).value_or(-1);
  if (number < 0 || number > limit) return std::nullopt;
  return static_cast<int>(number);
}

}  // namespace

Result<UpgradePolicy> ReadPolicy(const Json& json) {
  UpgradePolicy policy;
  ReadFlag(&json, "autoUpgrade", &policy.auto_upgrade);
  ReadCount(&json, "maxParallelUpgrades", &policy.max_parallel);
  ReadCount(&json, "canaries", &policy.canaries);
  ReadFlag(&json, "rollback", &policy.rollback);
  ReadTime(&json, "restartTimeoutSeconds", &policy.restart_timeout);
  ReadTime(&json, "validationTimeoutSeconds", &policy.validation_timeout);
  if (const Json* most = json.Find("maxUnavailable"); most != nullptr && !most->is_null()) {
    policy.max_unavailable = most->is_string() ? most->string_value() : most->Serialize();
  }
  ReadWait(json.Find("waitForCompletion"), &policy);
  const Json* pods = json.Find("gpuPodDeletion");
  const Json* drain = json.Find("drain");
  ReadTime(pods, "timeoutSeconds", &policy.pod_deletion_timeout);
  ReadFlag(drain, "enable", &policy.drain);
  ReadTime(drain, "timeoutSeconds", &policy.drain_timeout);
  // Both sections allow, by their own options, the eviction of pods without a controller and of
  // pods with data.
  for (const Json* section : {pods, policy.drain ? drain : nullptr}) {
    bool force = policy.force, empty_dir = policy.delete_empty_dir;
    ReadFlag(section, "force", &force);
    ReadFlag(section, "deleteEmptyDir", &empty_dir);
    policy.force |= force;
    policy.delete_empty_dir |= empty_dir;
  }
  RETURN_IF_ERROR(CheckPolicy(policy));
  return policy;
}

Status CheckPolicy(const UpgradePolicy& policy) {
  bool percent = false;
  if (!ParseMaxUnavailable(policy.max_unavailable, &percent)) {
    return Error(Code::kInvalidArgument,
                 "upgradePolicy.maxUnavailable: invalid \"{}\": want a number, or 0% to 100%",
                 policy.max_unavailable);
  }
  if (policy.max_parallel < 0) {
    return Error(Code::kInvalidArgument,
                 "upgradePolicy.maxParallelUpgrades: invalid {}: want 0 (no limit) or more",
                 policy.max_parallel);
  }
  if (policy.canaries < 0) {
    return Error(Code::kInvalidArgument, "upgradePolicy.canaries: invalid {}: want 0 or more",
                 policy.canaries);
  }
  return Status::Ok();
}

int MaxUnavailable(const UpgradePolicy& policy, int total) {
  bool percent = false;
  int number = ParseMaxUnavailable(policy.max_unavailable, &percent).value_or(0);
  if (percent) number = static_cast<int>((static_cast<int64_t>(total) * number + 99) / 100);
  return std::max(1, number);
}

}  // namespace tessera::driver
