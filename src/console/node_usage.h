// SPDX-License-Identifier: Apache-2.0
// The current gauges of a node's GPUs, and what containers use of these GPUs, from the node's
// agent. The agent is read through the API server with the user's own rights: `list` on pods and
// `get` on pods/proxy in the namespace of the agents (Role tessera-view-usage).
//
// Threads: the runner's. Bounds: kMaxReads at once.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "src/base/weak_ptr.h"
#include "src/console/sessions.h"
#include "src/formats/json.h"
#include "src/kube/agent_pages.h"

namespace tessera::console {

// The gauges of GPUs on a metrics page of dcgm-exporter, by UUID:
// {"GPU-…":{"utilization":37,"temperature":61,"power":212.4,"memoryMiB":20480}}. Utilization is in
// percent, temperature in degrees Celsius, power in watts. The values of the containers of a shared
// GPU are added up. A gauge that the page lacks is absent; other lines are skipped.
Json JsonOfGpuGauges(std::string_view metrics);

class NodeUsageReader {
 public:
  static constexpr size_t kMaxReads = 64;
  static constexpr Duration kReadTimeout = std::chrono::seconds(3);
  using Done = std::function<void(Result<Json>)>;

  explicit NodeUsageReader(TaskRunner& runner) : runner_(runner) {}

  // Calls `done` once, but not after this object is destroyed, with {"gpus":…,"containers":[…],
  // "complete":true}: `gpus` as JsonOfGpuGauges, the others as on the page of the agent
  // (agent/limits/usage_page.h). NOT_FOUND: no agent runs on the node. RESOURCE_EXHAUSTED: too many
  // reads at once.
  void Read(const std::shared_ptr<WebSession>& session, const std::string& node, Done done);

 private:
  // One call of Read. `pages` is the last member, so that it is destroyed before the session's
  // client.
  struct NodeRead {
    std::shared_ptr<WebSession> session;
    Done done;
    Json answer;
    std::unique_ptr<kube::AgentPages> pages;
  };
  using RequestNumber = uint64_t;

  void OnPage(RequestNumber number, std::string_view path, const Result<std::string>& page);
  void Finish(RequestNumber number, Result<Json> answer);

  TaskRunner& runner_;
  RequestNumber last_number_ = 0;
  std::map<RequestNumber, NodeRead> reads_;
  WeakPtrFactory<NodeUsageReader> weak_{this};
};

}  // namespace tessera::console
