// SPDX-License-Identifier: Apache-2.0
// Renders the spec of a resource Tessera. Threads: pure functions.
#pragma once

#include <functional>
#include <vector>

#include "src/base/status.h"
#include "src/components/objects.h"
#include "src/operator/driver/fleet.h"

namespace tessera::operators {

// Turns the spec of a resource Tessera into objects and drivers. Tests pass a Rendering with fewer
// objects.
struct Rendering {
  using Render = std::function<Result<std::vector<components::Component>>(const Json& spec)>;
  using Pools = std::function<Result<std::vector<driver::FleetPool>>(const Json& spec)>;
  Render render;
  Json definition;  // the resource's CustomResourceDefinition; null: another program manages it
  // An object of each type and namespace that settings may render.
  std::vector<Json> one_of_each_kind = {};
  Pools pools = nullptr;  // the drivers of a spec; null: drivers are not managed
  // DaemonSets that clean nodes when the resource is deleted; null: nodes are not cleaned.
  std::function<Result<std::vector<Json>>(const Json& spec)> cleanup = nullptr;
};
// Renders the objects of src/components.
Rendering DefaultRendering();

}  // namespace tessera::operators
