// SPDX-License-Identifier: Apache-2.0
#include "src/components/settings.h"

#include "src/components/deploy_text.h"
#include "src/formats/yaml.h"

namespace tessera::components {

Json MergeSpec(const Json& spec, const Json& changes) {
  if (!spec.is_object() || !changes.is_object()) return changes;
  Json merged = spec;
  for (const auto& [key, value] : changes.members()) {
    const Json* before = merged.Find(key);
    if (value.is_null()) {
      merged.Erase(key);
    } else if (before != nullptr && before->is_object() && value.is_object()) {
      merged.Set(key, MergeSpec(*before, value));
    } else {
      merged.Set(key, value);
    }
  }
  return merged;
}

const Json& DefaultSpec() {
  static const Json spec = ParsedYaml("chart/values.yaml");
  return spec;
}

}  // namespace tessera::components
