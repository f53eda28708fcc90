// SPDX-License-Identifier: Apache-2.0
// Builds an Event object of the API. events.h aggregates and limits Events. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/clock.h"
#include "src/base/uid.h"
#include "src/formats/json.h"

namespace tessera::kube {

// The API's limit for the message of an Event.
inline constexpr size_t kMaxEventMessage = 1024;

// The object that an Event is about.
struct InvolvedObject {
  std::string api_version = "v1";
  std::string kind;
  std::string ns;  // "" for a cluster-scoped object, whose Event is created in "default"
  std::string name;
  Uid uid;

  std::string EventNamespace() const { return ns.empty() ? "default" : ns; }
};

enum class EventKind : uint8_t { kNormal, kWarning };

struct EventReporter {
  std::string_view component;  // "tessera-agent"
  std::string_view instance;   // the component's pod or node
  std::string_view host;       // "" if irrelevant
};

struct EventText {
  EventKind kind = EventKind::kNormal;
  std::string_view reason;   // a word in camel case for filters
  std::string_view message;  // truncated at the API's limit
};

// `name`: the Event's, unique in its namespace. `about`: the object that the Event is about.
Json MakeEventObject(std::string_view name, const InvolvedObject& about, const EventText& text,
                     const EventReporter& reporter, WallTime now, int64_t count = 1);

}  // namespace tessera::kube
