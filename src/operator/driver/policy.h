// SPDX-License-Identifier: Apache-2.0
// Reads driver.upgradePolicy of the settings, with the keys of NVIDIA's chart. Pure; any thread.
#pragma once

#include <map>
#include <string>

#include "src/base/status.h"
#include "src/base/strings.h"
#include "src/formats/json.h"
#include "src/operator/driver/upgrade.h"

namespace tessera::driver {

struct PolicySettings {
  UpgradePolicy policy;
  // Labels of the pods that an upgrade waits for (waitForCompletion.podSelector).
  StringMap wait_for;
};

// `json`: a section that the schema has accepted. INVALID_ARGUMENT names the field.
Result<PolicySettings> ReadPolicy(const Json& json);

}  // namespace tessera::driver
