// SPDX-License-Identifier: Apache-2.0
// `kubectl inspect gpushare` with the original columns, because scripts parse them. Unlike the
// original, rows are sorted, and each GPU has its own size instead of the size of GPU 0.
#include <algorithm>
#include <set>

#include "src/base/strings.h"
#include "src/cli/commands.h"
#include "src/cli/output/text.h"

namespace tessera::cli {
namespace {

// In units of Inspection::unit_.
struct MemoryUsage {
  int64_t used = 0;
  int64_t total = 0;
};

// One GPU of a node; the sum of its slices if it has MIG slices.
struct GpuColumn : MemoryUsage {
  int index = 0;
};

class Inspection {
 public:
  Inspection(const ClusterView& view, std::vector<NodeRow> nodes) : nodes_(std::move(nodes)) {
    unit_ = view.ledger().options().gpu_mem_unit;
    std::erase_if(nodes_, [](const NodeRow& node) { return node.memory() == Bytes(0); });
  }

  std::string Summary() const;
  std::string Details() const;

 private:
  int64_t RoundUpToUnits(Bytes bytes) const {
    const int64_t unit = SizeOf(unit_).count();
    return (bytes.count() + unit - 1) / unit;
  }
  int64_t RoundDownToUnits(Bytes bytes) const { return bytes.count() / SizeOf(unit_).count(); }

  std::vector<GpuColumn> GpusOf(const NodeRow& node) const;
  // Whether the pod's GPUs on its node are unknown.
  static bool IsPending(const ledger::PodEntry& pod) { return pod.guessed() || !pod.holds_gpus(); }
  int64_t RequestedUnits(const NodeRow& node, const ledger::PodEntry& pod) const;
  std::optional<int64_t> PendingUnits(const NodeRow& node) const;
  int64_t HeldUnits(const NodeRow& node, const ledger::PodEntry& pod, int index) const;
  std::string RowsOf(const NodeRow& node, const std::vector<GpuColumn>& gpus,
                     bool has_pending_column) const;
  static std::string DashedLine(size_t length) { return std::string(length, '-') + "\n"; }
  static std::string UsageText(const MemoryUsage& usage) {
    return fmt::format("{}/{} ({}%)", usage.used, usage.total, Percent(usage));
  }
  static int64_t Percent(const MemoryUsage& usage) {
    return usage.total == 0 ? 0 : usage.used * 100 / usage.total;
  }
  static std::string AddressOf(const NodeRow& node) {
    const std::string& ip = node.entry->internal_ip;
    return ip.empty() ? "unknown" : Printable(ip);
  }

  std::vector<NodeRow> nodes_;
  device::MemoryUnit unit_;
};

std::vector<GpuColumn> Inspection::GpusOf(const NodeRow& node) const {
  std::vector<GpuColumn> gpus;
  std::map<int, std::pair<Bytes, Bytes>> sums;  // used and total
  for (const DeviceView& device : node.devices) {
    if (device.gpu == nullptr) continue;
    auto& [used, total] = sums[device.gpu->index];
    total += device.memory;
    // Guessed GPUs count as PENDING, as in the original.
    for (const PodShare& pod_share : device.holders) {
      if (IsPending(*pod_share.pod)) continue;
      used += pod_share.is_whole() ? device.memory : pod_share.share.memory;
    }
  }
  for (const auto& [index, sum] : sums) {
    const int64_t total = RoundDownToUnits(sum.second);
    gpus.push_back({{std::min(RoundUpToUnits(sum.first), total), total}, index});
  }
  return gpus;
}

int64_t Inspection::RequestedUnits(const NodeRow& node, const ledger::PodEntry& pod) const {
  const device::DeviceRequest& request = *pod.request.devices;
  Bytes sum = request.OneGpuShare().memory;
  for (const device::ContainerRequest& container : request.containers) {
    if (container.dialect == device::Dialect::kNone) continue;
    if (container.dialect == device::Dialect::kGpuMem) continue;  // counted in `sum` already
    const Bytes each = container.exclusive && !node.devices.empty() ? node.devices.front().memory
                                                                    : container.per_gpu.memory;
    sum += each * container.count;
  }
  return RoundUpToUnits(sum);
}

std::optional<int64_t> Inspection::PendingUnits(const NodeRow& node) const {
  std::optional<int64_t> pending;
  for (const ledger::PodEntry* pod : node.pods) {
    if (IsPending(*pod)) pending = pending.value_or(0) + RequestedUnits(node, *pod);
  }
  return pending;
}

int64_t Inspection::HeldUnits(const NodeRow& node, const ledger::PodEntry& pod, int index) const {
  Bytes sum;
  for (const DeviceView& device : node.devices) {
    if (device.gpu == nullptr || device.gpu->index != index) continue;
    for (const PodShare& pod_share : device.holders) {
      if (pod_share.pod != &pod) continue;
      sum += pod_share.is_whole() ? device.memory : pod_share.share.memory;
      if (pod_share.is_whole() && device.slice == nullptr) return RoundDownToUnits(device.memory);
    }
  }
  return RoundUpToUnits(sum);
}

std::string Inspection::Summary() const {
  size_t columns = 0;
  bool any_pending = false;
  for (const NodeRow& node : nodes_) {
    for (const GpuColumn& gpu : GpusOf(node)) {
      columns = std::max(columns, static_cast<size_t>(gpu.index) + 1);
    }
    any_pending = any_pending || PendingUnits(node).has_value();
  }
  std::string text = "NAME\tIPADDRESS\t";
  for (size_t i = 0; i < columns; ++i) text += fmt::format("GPU{}(Allocated/Total)\t", i);
  if (any_pending) text += "PENDING(Allocated)\t";
  text += fmt::format("GPU Memory({})\n", NameOf(unit_));
  MemoryUsage cluster;
  size_t line_length = 0;
  for (const NodeRow& node : nodes_) {
    std::vector<std::string> cells(columns, "0/0");
    MemoryUsage sum;
    for (const GpuColumn& gpu : GpusOf(node)) {
      cells[static_cast<size_t>(gpu.index)] = fmt::format("{}/{}", gpu.used, gpu.total);
      sum.used += gpu.used;
      sum.total += gpu.total;
    }
    const std::optional<int64_t> pending = PendingUnits(node);
    sum.used += pending.value_or(0);
    std::string row = fmt::format("{}\t{}\t", node.entry->node.name, AddressOf(node));
    for (const std::string& cell : cells) row += cell + "\t";
    if (any_pending) row += (pending ? fmt::format("{}", *pending) : "") + "\t";
    row += fmt::format("{}/{}\n", sum.used, sum.total);
    if (line_length == 0) line_length = row.size() + 20;
    text += row;
    cluster.used += sum.used;
    cluster.total += sum.total;
  }
  text += DashedLine(line_length) + "Allocated/Total GPU Memory In Cluster:\n" +
          UsageText(cluster) + "\t\n";
  return AlignTabs(text);
}

std::string Inspection::RowsOf(const NodeRow& node, const std::vector<GpuColumn>& gpus,
                               bool has_pending_column) const {
  std::string rows;
  for (const ledger::PodEntry* pod : node.pods) {
    rows += fmt::format("{}\t{}\t", Printable(pod->request.name), Printable(pod->request.ns));
    const bool is_pending = IsPending(*pod);
    for (const GpuColumn& gpu : gpus) {
      rows += fmt::format("{}\t", is_pending ? 0 : HeldUnits(node, *pod, gpu.index));
    }
    if (has_pending_column)
      rows += fmt::format("{}\t", is_pending ? RequestedUnits(node, *pod) : 0);
    rows += "\n";
  }
  return rows;
}

std::string Inspection::Details() const {
  std::string text;
  MemoryUsage cluster;
  size_t line_length = 0;
  for (const NodeRow& node : nodes_) {
    const std::vector<GpuColumn> gpus = GpusOf(node);
    const std::optional<int64_t> pending = PendingUnits(node);
    text += fmt::format("\nNAME:\t{}\nIPADDRESS:\t{}\n\nNAME\tNAMESPACE\t", node.entry->node.name,
                        AddressOf(node));
    MemoryUsage sum{.used = pending.value_or(0)};
    for (const GpuColumn& gpu : gpus) {
      text += fmt::format("GPU{}(Allocated)\t", gpu.index);
      sum.used += gpu.used;
      sum.total += gpu.total;
    }
    text += pending ? "Pending(Allocated)\t\n" : "\n";
    const std::string rows = RowsOf(node, gpus, pending.has_value());
    if (line_length == 0) line_length = rows.size() + 10;
    text += fmt::format("{}Allocated :\t{} ({}%)\t\nTotal :\t{} \t\n{}", rows, sum.used,
                        Percent(sum), sum.total, DashedLine(line_length));
    cluster.used += sum.used;
    cluster.total += sum.total;
  }
  text += "\n\nAllocated/Total GPU Memory In Cluster:\t" + UsageText(cluster) + "\t\n";
  return AlignTabs(text);
}

}  // namespace

Result<std::string> InspectGpushare(const ClusterView& view, const InspectOptions& options) {
  std::vector<NodeRow> nodes;
  if (options.node.empty()) {
    nodes = view.Nodes();
  } else {
    ASSIGN_OR_RETURN(NodeRow node, view.Node(options.node));
    nodes.push_back(std::move(node));
  }
  const Inspection inspection(view, std::move(nodes));
  return options.details ? inspection.Details() : inspection.Summary();
}

}  // namespace tessera::cli
