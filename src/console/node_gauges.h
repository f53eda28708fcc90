// SPDX-License-Identifier: Apache-2.0
// Utilization and temperature of GPUs for the page's map of nodes. Each agent's metrics page is
// read once for all viewers, at most every kMaxAge, and only while a page shows its node. The pages
// are read through the API server with the console's own account, so the caller checks the user's
// rights (Rights::agents).
//
// For the usage of containers see node_usage.h, for values over time metric_history.h.
//
// Threads: the client's runner. The client must outlive this object. Bounds: kMaxParallelReads
// reads at once, one read started per kReadInterval; a node that no page shows is forgotten after
// kForgetAfter.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/weak_ptr.h"
#include "src/kube/agent_pages.h"
#include "src/kube/client.h"

namespace tessera::console {

// {"GPU-…":[37,61]}: utilization in percent and temperature in degrees Celsius of each GPU, from a
// metrics page of dcgm-exporter; null for a gauge that the page lacks.
std::string GaugesForNodeMap(std::string_view metrics);

class NodeGauges {
 public:
  static constexpr size_t kMaxNodes = 1000;  // in one call of Read
  static constexpr size_t kMaxParallelReads = 8;
  static constexpr Duration kReadInterval = std::chrono::milliseconds(20);
  static constexpr Duration kMaxAge = std::chrono::seconds(10);
  static constexpr Duration kForgetAfter = std::chrono::minutes(2);
  static constexpr Duration kReadTimeout = std::chrono::seconds(3);

  explicit NodeGauges(kube::Client& client) : client_(client) {}
  NodeGauges(const NodeGauges&) = delete;
  NodeGauges& operator=(const NodeGauges&) = delete;

  // Returns the last values of these nodes, for example
  //   {"n1":{"age":3.2,"gpus":{"GPU-…":[37,61]}},"n2":{"error":"no route to host"}}
  // "age": seconds since the agent was read; "gpus": as in GaugesForNodeMap; both are absent if no
  // read has succeeded. "error": why the last read failed; absent if it succeeded. A node whose
  // first read has not ended is absent. Returns at once, and then reads the agents whose last read
  // is older than kMaxAge. REQUIRES: these nodes exist; at most kMaxNodes.
  std::string Read(const std::vector<std::string>& nodes);

 private:
  struct Gauges {
    MonotonicTime requested_at{};  // by a page
    std::optional<MonotonicTime> last_read_ended_at;
    MonotonicTime read_at{};  // of `gpus`
    std::string gpus;         // "": never read
    std::string error;        // of the last read
    std::string pod;          // the agent's, if the last read succeeded
    bool queued = false;      // waits for a read, or is being read
  };
  // Exactly one member is set.
  struct AgentRead {
    std::unique_ptr<kube::AgentPages> pages;  // finds the agent's pod and reads its page
    kube::Operation page;                     // reads the page of a known pod
  };
  using RequestNumber = uint64_t;

  void ScheduleNextRead();
  void StartNextRead();
  void StartRead(const std::string& node);
  void TakePage(const std::string& node, const std::string& pod, const Result<std::string>& page);
  void EndRead(RequestNumber number, const std::string& node);
  MonotonicTime Now() const { return client_.runner().clock().Now(); }

  kube::Client& client_;
  std::map<std::string, Gauges> nodes_;
  std::deque<std::string> queue_;
  bool next_read_scheduled_ = false;
  RequestNumber last_number_ = 0;
  std::map<RequestNumber, AgentRead> reads_;
  WeakPtrFactory<NodeGauges> weak_{this};
};

}  // namespace tessera::console
