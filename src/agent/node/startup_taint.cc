// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/startup_taint.h"

#include <fmt/format.h>

#include <utility>

namespace tessera::agent {
namespace {

Json Operation(std::string_view op, const std::string& path) {
  return Json::MakeObject({{"op", Json::String(op)}, {"path", Json::String(path)}});
}

}  // namespace

std::optional<Json> TaintPatchFor(const Json& node, const TaintKeys& keys) {
  const Json* spec = node.Find("spec");
  const Json* taints = spec != nullptr ? spec->Find("taints") : nullptr;
  if (taints == nullptr || !taints->is_array()) return std::nullopt;
  Json patch = Json::MakeArray();
  // From the end, because a removal moves the taints behind it.
  for (size_t i = taints->items().size(); i-- > 0;) {
    const Json& taint = taints->items()[i];
    if (!taint.is_object() || !keys.contains(taint.StringAt("key").value_or(""))) continue;
    const std::string path = fmt::format("/spec/taints/{}", i);
    Json test = Operation("test", path);
    test.Set("value", taint);
    patch.Append(std::move(test));
    patch.Append(Operation("remove", path));
  }
  if (patch.items().empty()) return std::nullopt;
  return patch;
}

}  // namespace tessera::agent
