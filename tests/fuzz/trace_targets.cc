// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <unordered_set>

#include "src/base/status.h"
#include "src/placement/demand.h"
#include "src/replay/trace.h"
#include "tests/fuzz/targets.h"

namespace tessera::fuzz {
namespace {

// Whether the file was accepted. Otherwise checks that the error is INVALID_ARGUMENT and names the
// line.
template <typename T>
bool AcceptedTrace(const Result<T>& result) {
  if (result.ok()) return true;
  TESSERA_CHECK(result.status().code() == Code::kInvalidArgument);
  const std::string& message = result.status().message();
  TESSERA_CHECK(message.starts_with("file:") && message[5] >= '1' && message[5] <= '9');
  return false;
}

template <typename Item>
void CheckHost(const Item& item) {
  TESSERA_CHECK(!item.name.empty());
  TESSERA_CHECK(item.cpu_milli >= 0 && item.memory >= Bytes(0));
}

}  // namespace

void TraceNodes(std::string_view input) {
  const auto nodes = replay::ParseNodes(input, "file");
  if (!AcceptedTrace(nodes)) return;
  TESSERA_CHECK(!nodes->empty());
  std::unordered_set<std::string> names;
  for (const replay::TraceNode& node : *nodes) {
    CheckHost(node);
    TESSERA_CHECK(names.insert(node.name).second);
    TESSERA_CHECK(node.gpus >= 0 && node.gpus <= static_cast<int>(placement::kMaxGpusPerNode));
  }
  TESSERA_CHECK(replay::CapacityOf(*nodes) >= 0);
}

void TracePods(std::string_view input) {
  const auto list = replay::ParsePods(input, "file");
  if (!AcceptedTrace(list)) return;
  TESSERA_CHECK(!list->pods.empty());
  for (const replay::TracePod& pod : list->pods) {
    CheckHost(pod);
    TESSERA_CHECK(pod.per_gpu >= MilliGpu(0) && pod.per_gpu <= kWholeGpu);
    TESSERA_CHECK((pod.gpus > 0) == (pod.per_gpu > MilliGpu(0)) && pod.milli() >= 0);
    TESSERA_CHECK(pod.created >= 0 && pod.deleted >= pod.created);
    for (const std::string& model : pod.models) TESSERA_CHECK(!model.empty());
  }
}

}  // namespace tessera::fuzz
