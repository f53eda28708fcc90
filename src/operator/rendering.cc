// SPDX-License-Identifier: Apache-2.0
#include "src/operator/rendering.h"

#include "src/components/settings.h"

namespace tessera::operators {

Rendering DefaultRendering() {
  return {.render = [](const Json& spec) -> Result<std::vector<components::Component>> {
            ASSIGN_OR_RETURN(const components::Settings settings, components::ParseSettings(spec));
            return components::RenderComponents(settings);
          },
          .definition = components::TesseraDefinition(),
          .one_of_each_kind = components::ObjectsOfEveryKind(),
          .pools = [](const Json& spec) -> Result<std::vector<driver::FleetPool>> {
            ASSIGN_OR_RETURN(const components::Settings settings, components::ParseSettings(spec));
            return driver::PoolsOf(settings);
          },
          .cleanup = [](const Json& spec) -> Result<std::vector<Json>> {
            ASSIGN_OR_RETURN(const components::Settings settings, components::ParseSettings(spec));
            return components::RenderCleanup(settings);
          }};
}

}  // namespace tessera::operators
