// SPDX-License-Identifier: Apache-2.0
#include "src/agent/exporter/exporter.h"

#include <utility>
#include <vector>

namespace tessera::agent {

Exporter::Exporter(TaskRunner* runner, PageOptions options, Duration interval, Sources sources)
    : runner_(runner),
      page_options_(std::move(options)),
      sources_(std::move(sources)),
      meter_(interval + Sampler::kReadDeadline),
      sampler_(runner, sources_.loader, sources_.caller, page_options_.counters, interval,
               [this] { OnRound(); }) {}

void Exporter::OnXid(const std::string& uuid, uint64_t code) {
  XidCounts& counts = xids_[uuid];
  counts.last = code;
  ++counts.total[code];
  ++counts.in_window[code];
  recent_xids_.push_back({.at = runner_->clock().Now(), .uuid = uuid, .code = code});
  Render();
}

void Exporter::SetContainerUses(std::shared_ptr<const ContainerUses> uses) {
  uses_ = std::move(uses);
  if (uses_ != nullptr) meter_.AddUses(*uses_);
}

// Renders with the holdings that the previous round requested, so that no round waits for the
// grants thread.
void Exporter::OnRound() {
  UpdateMeter();
  RequestHoldings();
  ForgetOldXids();
  Render();
}

void Exporter::UpdateMeter() {
  for (const Sampler::SampledGpu& gpu : sampler_.gpus()) {
    if (gpu.sample == nullptr) continue;
    meter_.AddReading(gpu.sample->uuid, {.at = gpu.answered_at,
                                         .energy_mj = gpu.sample->energy_mj,
                                         .use = gpu.sample->busy_fraction});
  }
}

void Exporter::RequestHoldings() {
  if (sources_.holdings == nullptr || holdings_requested_) return;
  holdings_requested_ = true;
  // The holdings arrive on another thread; the weak pointer is checked on the runner's thread.
  sources_.holdings([this, runner = runner_, weak = weak_.Get()](Holdings holdings) {
    runner->Post([this, weak, holdings = std::move(holdings)]() mutable {
      if (!weak) return;
      holdings_requested_ = false;
      holdings_ = std::move(holdings);
      meter_.SetHolders(runner_->clock().Now(), holdings_);
    });
  });
}

void Exporter::ForgetOldXids() {
  const MonotonicTime now = runner_->clock().Now();
  while (!recent_xids_.empty() && now - recent_xids_.front().at >= page_options_.xid_window) {
    const Xid& old = recent_xids_.front();
    --xids_[old.uuid].in_window[old.code];
    recent_xids_.pop_front();
  }
}

void Exporter::Render() {
  const MonotonicTime start = runner_->clock().Now();
  std::vector<std::shared_ptr<const GpuSample>> samples;
  for (const Sampler::SampledGpu& gpu : sampler_.gpus()) {
    if (gpu.sample != nullptr) samples.push_back(gpu.sample);
  }
  text_ = RenderPage(page_options_, samples, HoldersOf(holdings_, uses_.get()), xids_);
  render_time_ = runner_->clock().Now() - start;
}

void Exporter::WriteOwnMetrics(MetricsText* text) const {
  meter_.Write(text);
  const MonotonicTime now = runner_->clock().Now();
  const auto seconds = [](Duration duration) {
    return std::chrono::duration<double>(duration).count();
  };
  const auto label = [](size_t index) { return MetricLabel("gpu", std::to_string(index)); };
  const std::vector<Sampler::SampledGpu>& gpus = sampler_.gpus();
  text->AddFamily("tessera_exporter_sample_age_seconds", "gauge",
                  "Time since a GPU last answered all queries for dcgm-exporter's metrics.");
  for (size_t i = 0; i < gpus.size(); ++i) {
    text->AddSample("tessera_exporter_sample_age_seconds", label(i),
                    seconds(now - gpus[i].answered_at));
  }
  text->AddFamily(
      "tessera_exporter_late_samples_total", "counter",
      "Queries of a GPU that missed their deadline; the GPU's series are absent meanwhile.");
  for (size_t i = 0; i < gpus.size(); ++i) {
    text->AddSample("tessera_exporter_late_samples_total", label(i), gpus[i].late_queries);
  }
  text->AddFamily("tessera_exporter_render_seconds", "gauge",
                  "Time to render the last text of dcgm-exporter's metrics.");
  text->AddSample("tessera_exporter_render_seconds", "", seconds(render_time_));
}

}  // namespace tessera::agent
