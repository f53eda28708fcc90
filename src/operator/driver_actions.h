// SPDX-License-Identifier: Apache-2.0
// Converts actions of an upgrade to patches for the API server and to reasons of Events. Pure.
#pragma once

#include <string>

#include "src/base/strings.h"
#include "src/formats/json.h"
#include "src/operator/driver/upgrade.h"

namespace tessera::operators {

// A merge patch that the API server rejects if the Node no longer has this resourceVersion.
Json NodePatchOf(const StringChanges& labels, const StringChanges& annotations,
                 const std::string& resource_version);
// Like the patch above, with the cordon or uncordon of the action.
Json NodePatchOf(const driver::UpgradeAction& action, const std::string& resource_version);

// The reason of the Event, in camel case: DriverUpgradeCordoned, DriverRolledBack.
std::string EventReasonOf(const driver::UpgradeAction& action);
// The result of a node's upgrade that ends with this action, for the metric: done, failed,
// rolled_back; "": the upgrade continues. `before`: the node's state before the action.
std::string_view UpgradeResultOf(const driver::UpgradeAction& action, driver::UpgradeState before);
// Whether the action is the first of its node's upgrade.
bool BeginsUpgrade(const driver::UpgradeAction& action);

}  // namespace tessera::operators
