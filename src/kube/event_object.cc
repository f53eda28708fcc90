// SPDX-License-Identifier: Apache-2.0
#include "src/kube/event_object.h"

#include <utility>

#include "src/base/strings.h"

namespace tessera::kube {

Json MakeEventObject(std::string_view name, const InvolvedObject& about, const EventText& text,
                     const EventReporter& reporter, WallTime now, int64_t count) {
  const auto string = [](std::string_view value) { return Json::String(value); };
  const Json stamp = string(Rfc3339(now));
  Json involved = Json::MakeObject({{"apiVersion", string(about.api_version)},
                                    {"kind", string(about.kind)},
                                    {"name", string(about.name)},
                                    {"uid", string(about.uid.str())}});
  if (!about.ns.empty()) involved.Set("namespace", string(about.ns));
  Json source = Json::MakeObject({{"component", string(reporter.component)}});
  if (!reporter.host.empty()) source.Set("host", string(reporter.host));
  return Json::MakeObject(
      {{"apiVersion", string("v1")},
       {"kind", string("Event")},
       {"metadata",
        Json::MakeObject({{"name", string(name)}, {"namespace", string(about.EventNamespace())}})},
       {"involvedObject", std::move(involved)},
       {"type", string(text.kind == EventKind::kWarning ? "Warning" : "Normal")},
       {"reason", string(text.reason)},
       {"message", string(TruncateUtf8(std::string(text.message), kMaxEventMessage))},
       {"source", std::move(source)},
       {"reportingComponent", string(reporter.component)},
       {"reportingInstance", string(reporter.instance)},
       {"firstTimestamp", stamp},
       {"lastTimestamp", stamp},
       {"count", Json::Int(count)}});
}

}  // namespace tessera::kube
