// SPDX-License-Identifier: Apache-2.0
// Renders dcgm-exporter's metrics of this node's GPUs from NVML. A sampler (sampler.h) reads the
// GPUs, and after each round the exporter renders the text again (page.h). A scrape copies this
// text and therefore never waits for the driver.
//
// Series of a GPU that does not answer are absent. tessera_exporter_sample_age_seconds is the age
// of its last answer. Threads: lives on `runner`.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "src/agent/exporter/container_meter.h"
#include "src/agent/exporter/page.h"
#include "src/agent/exporter/sampler.h"
#include "src/base/metrics.h"

namespace tessera::agent {

class Exporter {
 public:
  struct Sources {
    std::shared_ptr<gpu::NvmlLoader> loader;
    gpu::BlockingCaller* caller = nullptr;  // must outlive the exporter
    // Passes the holdings to `then` once, on any thread.
    std::function<void(std::function<void(Holdings)> then)> holdings;
  };

  // `interval`: between two rounds.
  Exporter(TaskRunner* runner, PageOptions options, Duration interval, Sources sources);

  void Start() { sampler_.Start(); }
  // Call when the driver has reported an XID. When the call returns, the text contains the XID.
  void OnXid(const std::string& uuid, uint64_t code);
  void SetContainerUses(std::shared_ptr<const ContainerUses> uses);
  // Call when the driver may have been unloaded; see Sampler.
  void RefreshDriver() { sampler_.RefreshDriver(); }

  // The text of the last round.
  const std::string& text() const { return text_; }
  // Writes the metric families tessera_exporter_* and those of containers (ContainerMeter).
  void WriteOwnMetrics(MetricsText* text) const;

 private:
  struct Xid {
    MonotonicTime at{};
    std::string uuid;
    uint64_t code = 0;
  };

  void OnRound();
  void UpdateMeter();
  void RequestHoldings();
  void ForgetOldXids();
  void Render();

  TaskRunner* const runner_;
  const PageOptions page_options_;
  const Sources sources_;
  bool holdings_requested_ = false;
  Holdings holdings_;
  ContainerMeter meter_;
  std::shared_ptr<const ContainerUses> uses_;  // null: none
  XidsByUuid xids_;
  std::deque<Xid> recent_xids_;
  std::string text_;
  Duration render_time_{};
  Sampler sampler_;
  WeakPtrFactory<Exporter> weak_{this};
};

}  // namespace tessera::agent
