// SPDX-License-Identifier: Apache-2.0
#include "src/agent/exporter/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "src/base/metrics.h"
#include "src/gpu/xid.h"

namespace tessera::agent {
namespace {

struct GpuOnPage {
  const GpuSample* sample = nullptr;
  std::string gpu_labels;
  std::string holder_labels;  // "," and the labels of the only holder, if it holds the whole GPU
  const GpuHolders* holders = nullptr;  // null: no container
  const XidCounts* xids = nullptr;      // null: none so far
};

using MetricLabels = std::map<std::string_view, std::string>;

MetricLabels ContainerLabels(const ContainerName& holder, const LabelStyle& style) {
  if (style.old_names) {
    return {{"container_name", holder.container},
            {"pod_namespace", holder.pod_namespace},
            {"pod_name", holder.pod}};
  }
  return {
      {"container", holder.container}, {"namespace", holder.pod_namespace}, {"pod", holder.pod}};
}

std::string ModelLabel(std::string model, const LabelStyle& style) {
  if (style.replace_blanks) std::ranges::replace(model, ' ', '-');
  return MetricLabel("modelName", model);
}

std::string TextOf(const MetricLabels& labels) {
  std::string text;
  for (const auto& [name, value] : labels) text.append(",").append(MetricLabel(name, value));
  return text;
}

std::string NumberText(const Field& field, double number) {
  if (field.is_double) return fmt::format("{:.6f}", number);
  return fmt::format("{}", std::llround(number));
}

// Escapes backslashes, which help texts of a user's file may have.
std::string EscapeHelp(std::string_view help) {
  std::string text;
  for (const char c : help) {
    if (c == '\\') text += '\\';
    text += c;
  }
  return text;
}

class PageWriter {
 public:
  PageWriter(const PageOptions& options, const HoldersByUuid& holders, const XidsByUuid& xids)
      : options_(options),
        holders_(holders),
        xids_(xids),
        xid_window_ms_(std::chrono::duration_cast<std::chrono::milliseconds>(options.xid_window)) {}

  void AddGpu(const GpuSample& sample) {
    GpuOnPage gpu{.sample = &sample};
    gpu.gpu_labels = MetricLabel("gpu", std::to_string(sample.index)) + "," +
                     MetricLabel(options_.style.old_names ? "uuid" : "UUID", sample.uuid) + "," +
                     MetricLabel("pci_bus_id", sample.pci_bus_id) + "," +
                     MetricLabel("device", fmt::format("nvidia{}", sample.index)) + "," +
                     ModelLabel(sample.model, options_.style);
    const bool has_hostname = !options_.hostname.empty() && !options_.style.no_hostname;
    if (has_hostname) gpu.gpu_labels += "," + MetricLabel("hostname", options_.hostname);
    gpu.gpu_labels += TextOf(FieldLabels(sample));
    const auto holders = holders_.find(sample.uuid);
    if (holders != holders_.end()) gpu.holders = &holders->second;
    gpu.holder_labels = TextOf(HolderLabels(gpu));
    const auto xids = xids_.find(sample.uuid);
    if (xids != xids_.end()) gpu.xids = &xids->second;
    gpus_.push_back(std::move(gpu));
  }

  std::string Render() {
    for (size_t i = 0; i < options_.counters->size(); ++i) {
      const CounterSpec& counter = (*options_.counters)[i];
      if (counter.is_label()) continue;
      counter_ = &counter;
      family_is_open_ = false;
      for (const GpuOnPage& gpu : gpus_) WriteGpu(gpu, gpu.sample->numbers[i]);
    }
    return std::move(text_);
  }

 private:
  MetricLabels FieldLabels(const GpuSample& sample) const {
    MetricLabels labels;
    for (size_t i = 0; i < options_.counters->size(); ++i) {
      const CounterSpec& counter = (*options_.counters)[i];
      if (!counter.is_label()) continue;
      std::string value = sample.texts[i];
      if (value.empty() && sample.numbers[i])
        value = NumberText(*counter.field, *sample.numbers[i]);
      if (!value.empty()) labels[counter.name] = std::move(value);
    }
    return labels;
  }

  void WriteGpu(const GpuOnPage& gpu, const std::optional<double>& number) {
    switch (counter_->field->source) {
      case FieldSource::kLastXid:
        return WriteLastXid(gpu);
      case FieldSource::kXidTotal:
        return gpu.xids == nullptr ? void() : WriteXids(gpu, gpu.xids->total, {});
      case FieldSource::kXidInWindow:
        return gpu.xids == nullptr
                   ? void()
                   : WriteXids(gpu, gpu.xids->in_window,
                               {{"window_size_in_ms", std::to_string(xid_window_ms_.count())}});
      default:
        if (number) WriteNumber(gpu, *number);
    }
  }

  void WriteNumber(const GpuOnPage& gpu, double number) {
    const Field& field = *counter_->field;
    const bool is_divided =
        field.source == FieldSource::kGpuPercent || field.source == FieldSource::kMemoryUsed;
    if (is_divided && gpu.holders != nullptr && !gpu.holders->shares.empty()) {
      return WriteShares(gpu, std::llround(number));
    }
    Write(gpu, gpu.holder_labels, NumberText(field, number));
  }

  // One series for each container that shares the GPU, and one for the rest of the device.
  void WriteShares(const GpuOnPage& gpu, int64_t total) {
    const Field& field = *counter_->field;
    std::vector<const ShareUse*> known_shares;
    std::vector<int64_t> parts;
    for (const ShareUse& share : gpu.holders->shares) {
      const bool of_time = field.source == FieldSource::kGpuPercent;
      const std::optional<double> part = of_time ? share.percent : share.bytes;
      if (!part) continue;
      known_shares.push_back(&share);
      parts.push_back(std::llround(*part * field.factor));
    }
    parts = PartsAndRest(total, std::move(parts));
    for (size_t i = 0; i < known_shares.size(); ++i) {
      Write(gpu, TextOf(ContainerLabels(known_shares[i]->holder, options_.style)),
            std::to_string(parts[i]));
    }
    Write(gpu, {}, std::to_string(parts.back()));
  }

  void WriteLastXid(const GpuOnPage& gpu) {
    if (!options_.exports_xids) return;
    const uint64_t code = gpu.xids == nullptr ? 0 : gpu.xids->last;
    const gpu::XidInfo* info = gpu::FindXid(code);
    MetricLabels labels = HolderLabels(gpu);
    labels["err_code"] = std::to_string(code);
    labels["err_msg"] = code == 0         ? "No Error"
                        : info == nullptr ? "Unknown Error"
                                          : std::string(info->name);
    Write(gpu, TextOf(labels), std::to_string(code));
  }

  void WriteXids(const GpuOnPage& gpu, const std::map<uint64_t, uint64_t>& counts,
                 MetricLabels labels) {
    if (!options_.exports_xids) return;
    labels.merge(HolderLabels(gpu));
    for (const auto& [code, count] : counts) {
      labels["xid"] = std::to_string(code);
      Write(gpu, TextOf(labels), std::to_string(count));
    }
  }

  MetricLabels HolderLabels(const GpuOnPage& gpu) const {
    const bool is_whole = gpu.holders != nullptr && gpu.holders->sole_holder;
    return is_whole ? ContainerLabels(*gpu.holders->sole_holder, options_.style) : MetricLabels();
  }

  void Write(const GpuOnPage& gpu, std::string_view labels, std::string_view value) {
    if (!family_is_open_) {
      fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", counter_->name,
                     EscapeHelp(counter_->help), counter_->name, counter_->type);
      family_is_open_ = true;
    }
    text_.append(counter_->name).append("{").append(gpu.gpu_labels).append(labels);
    text_.append("} ").append(value).append("\n");
  }

  const PageOptions& options_;
  const HoldersByUuid& holders_;
  const XidsByUuid& xids_;
  const std::chrono::milliseconds xid_window_ms_;
  std::vector<GpuOnPage> gpus_;
  const CounterSpec* counter_ = nullptr;
  bool family_is_open_ = false;
  std::string text_;
};

}  // namespace

std::string RenderPage(const PageOptions& options,
                       const std::vector<std::shared_ptr<const GpuSample>>& gpus,
                       const HoldersByUuid& holders, const XidsByUuid& xids) {
  PageWriter page(options, holders, xids);
  for (const auto& gpu : gpus) page.AddGpu(*gpu);
  return page.Render();
}

}  // namespace tessera::agent
