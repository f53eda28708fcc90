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
          .every_kind = components::SpecOfEveryKind(),
          .pools = [](const Json& spec) -> Result<std::vector<driver::FleetPool>> {
            ASSIGN_OR_RETURN(const components::Settings settings, components::ParseSettings(spec));
            return driver::PoolsOf(settings);
          },
          .cleanup = [](const Json& spec) -> Result<std::vector<Json>> {
            ASSIGN_OR_RETURN(const components::Settings settings, components::ParseSettings(spec));
            return components::RenderCleanup(settings);
          }};
}

std::vector<Json> ExamplesOf(const Rendering& rendering) {
  std::vector<Json> examples;
  const auto components = rendering.render(rendering.every_kind);
  if (!components.ok()) return examples;
  for (const components::Component& component : *components) {
    examples.insert(examples.end(), component.objects.begin(), component.objects.end());
  }
  return examples;
}

}  // namespace tessera::operators
