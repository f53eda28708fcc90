// SPDX-License-Identifier: Apache-2.0
// One step of a pod's start, as an OpenTelemetry span.
//
// All spans of a pod have the same trace ID without any context being passed between programs: the
// ID is the pod's UID without dashes. So a log line with a pod's UID leads to its trace, too. The
// parent of every span is the span "pod" (RootSpan), which the agent records at the first grant.
//
// Threads: values and pure functions.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/base/uid.h"

namespace tessera::trace {

// The pod, or one container of it, that a step concerns.
struct Subject {
  Uid pod;
  std::string ns;
  std::string name;
  std::string container;  // "": the pod as a whole
};

// One finished step.
struct PodSpan {
  std::string name;  // "filter", "bind", "grant", …
  Subject subject;
  WallTime start;
  WallTime end;
  std::vector<std::pair<std::string, std::string>> attributes;
  Status status;  // an error marks the span as failed
  bool root = false;
};

// The span that contains all others of its pod.
PodSpan RootSpan(Subject subject, WallTime created, WallTime started);

// 32 hexadecimal digits: the pod's UID without dashes, or a hash of a UID of another form.
std::string TraceIdOf(const Uid& pod);

// May be called on any thread. Null if nothing is traced.
using SpanRecorder = std::function<void(PodSpan)>;

}  // namespace tessera::trace
