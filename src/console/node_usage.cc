// SPDX-License-Identifier: Apache-2.0
#include "src/console/node_usage.h"

#include <algorithm>
#include <utility>

#include "api/names.h"
#include "src/base/strings.h"
#include "src/formats/metric_line.h"

namespace tessera::console {
namespace {

struct Gauge {
  std::string_view metric;  // of dcgm-exporter
  const char* field;
  // A shared GPU has a series for each container and one for the rest.
  bool summed_over_series = false;
};
constexpr const char* kMetricsPath = "/metrics";
constexpr Gauge kGauges[] = {
    {"DCGM_FI_DEV_GPU_UTIL", "utilization", true},
    {"DCGM_FI_DEV_FB_USED", "memoryMiB", true},
    {"DCGM_FI_DEV_GPU_TEMP", "temperature"},
    {"DCGM_FI_DEV_POWER_USAGE", "power"},
};

void TakeGauge(std::string_view line, Json* gpus) {
  const auto metric = ParseMetricLine(line);
  if (!metric) return;
  const auto* gauge = std::ranges::find(kGauges, metric->name, &Gauge::metric);
  const std::string_view uuid = LabelIn(metric->labels, "UUID");
  if (gauge == std::end(kGauges) || uuid.empty()) return;
  Json* gpu = gpus->Find(uuid);
  if (gpu == nullptr) gpu = &gpus->Set(uuid, Json::MakeObject());
  const Json* other = gauge->summed_over_series ? gpu->Find(gauge->field) : nullptr;
  const double sum = metric->value + (other == nullptr ? 0 : other->ToDouble().value_or(0));
  gpu->Set(gauge->field, Json::NumberText(fmt::format("{}", sum)));
}

}  // namespace

Json JsonOfGpuGauges(std::string_view metrics) {
  Json gpus = Json::MakeObject();
  for (const std::string_view line : Split(metrics, '\n')) {
    if (line.starts_with("DCGM_")) TakeGauge(line, &gpus);
  }
  return gpus;
}

void NodeUsageReader::Read(const std::shared_ptr<WebSession>& session, const std::string& node,
                           Done done) {
  if (reads_.size() >= kMaxReads) {
    return done(
        Error(Code::kResourceExhausted, "too many pages read from agents now: retry in a moment"));
  }
  const RequestNumber number = ++last_number_;
  NodeRead& read = reads_[number];
  read.session = session;
  read.done = std::move(done);
  read.answer = Json::MakeObject();
  read.pages = std::make_unique<kube::AgentPages>(*session->client, kReadTimeout);
  read.pages->Read(
      node, {std::string(names::kContainersPath), kMetricsPath},
      [this, number](const kube::AgentPages::AgentPod&, std::string_view path,
                     const Result<std::string>& page) { OnPage(number, path, page); },
      [this, number](const Status& status) {
        NodeRead& read = reads_.at(number);
        if (!status.ok()) return Finish(number, status);
        Finish(number, std::move(read.answer));
      });
}

void NodeUsageReader::OnPage(RequestNumber number, std::string_view path,
                             const Result<std::string>& page) {
  Status status = page.status();
  Json& answer = reads_.at(number).answer;
  if (page.ok() && path == kMetricsPath) {
    answer.Set("gpus", JsonOfGpuGauges(*page));
  } else if (page.ok()) {
    const Result<Json> uses = ParseJson(*page);
    status = uses.status();
    for (const char* field : {"containers", "complete"}) {
      const Json* value = uses.ok() ? uses->Find(field) : nullptr;
      if (value != nullptr) answer.Set(field, *value);
    }
  }
  if (!status.ok()) Finish(number, status.Annotate("cannot read from the node's agent"));
}

void NodeUsageReader::Finish(RequestNumber number, Result<Json> answer) {
  const Done done = std::exchange(reads_.at(number).done, nullptr);
  if (!done) return;  // a page has failed before
  // `pages` must not be destroyed inside its callback.
  runner_.Post([this, number, weak = weak_.Get()] {
    if (weak) reads_.erase(number);
  });
  done(std::move(answer));
}

}  // namespace tessera::console
