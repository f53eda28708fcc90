// SPDX-License-Identifier: Apache-2.0
#include "src/operator/driver/policy.h"

#include "src/base/strings.h"

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

void ReadWait(const Json* wait, PolicySettings* out) {
  if (wait == nullptr) return;
  ReadTime(wait, "timeoutSeconds", &out->policy.wait_timeout);
  const std::string selector = wait->StringAt("podSelector").value_or("");
  if (selector.empty()) return;
  for (const std::string_view term : Split(selector, ',')) {
    const size_t equals = term.find('=');
    out->wait_for[std::string(term.substr(0, equals))] = term.substr(equals + 1);
  }
  out->policy.wait_for_jobs = true;
}

}  // namespace

Result<PolicySettings> ReadPolicy(const Json& json) {
  PolicySettings out;
  UpgradePolicy& policy = out.policy;
  ReadFlag(&json, "autoUpgrade", &policy.auto_upgrade);
  ReadCount(&json, "maxParallelUpgrades", &policy.max_parallel);
  ReadCount(&json, "canaries", &policy.canaries);
  ReadFlag(&json, "rollback", &policy.rollback);
  ReadTime(&json, "restartTimeoutSeconds", &policy.restart_timeout);
  ReadTime(&json, "validationTimeoutSeconds", &policy.validation_timeout);
  if (const Json* most = json.Find("maxUnavailable"); most != nullptr && !most->is_null()) {
    policy.max_unavailable = most->is_string() ? most->string_value() : most->Serialize();
  }
  ReadWait(json.Find("waitForCompletion"), &out);
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
  return out;
}

}  // namespace tessera::driver
