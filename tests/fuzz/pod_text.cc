// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/pod_text.h"

#include <string>

#include "src/base/strings.h"

namespace tessera::fuzz {
namespace {

// Returns the first word of `text` and removes it and the space behind it from `text`.
std::string_view TakeWord(std::string_view* text) {
  const size_t end = std::min(text->find(' '), text->size());
  const std::string_view word = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return word;
}

}  // namespace

device::PodSpec ParsePodText(std::string_view text) {
  device::PodSpec pod;
  for (std::string_view line : Split(text, '\n')) {
    const std::string_view verb = TakeWord(&line);
    if (verb == "container" || verb == "init" || verb == "sidecar") {
      const device::Phase phase = verb == "init"      ? device::Phase::kInit
                                  : verb == "sidecar" ? device::Phase::kSidecar
                                                      : device::Phase::kMain;
      pod.containers.push_back({.name = std::string(line), .phase = phase});
      continue;
    }
    const std::string name(TakeWord(&line));
    if (verb == "annotation") pod.annotations[name] = line;
    if (pod.containers.empty()) continue;
    if (verb == "limit") pod.containers.back().limits[name] = line;
    if (verb == "request") pod.containers.back().requests[name] = line;
  }
  return pod;
}

}  // namespace tessera::fuzz
