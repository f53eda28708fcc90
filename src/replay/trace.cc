// SPDX-License-Identifier: Apache-2.0
#include "src/replay/trace.h"

#include <unordered_set>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/placement/demand.h"
#include "src/replay/csv.h"

namespace tessera::replay {
namespace {

// More than any machine has, and far below an overflow of sums over a million rows.
constexpr int64_t kMaxCpuMilli = 1'000'000'000;
constexpr int64_t kMaxMemoryMib = placement::kMaxRequestedMemory.count() / MiB(1).count();
static_assert(kMaxCpuMilli <= placement::kMaxRequestedCpuMilli);
constexpr int64_t kMaxGpus = 1'000'000;
constexpr int64_t kMaxSeconds = int64_t{1} << 40;

struct HostColumns {
  size_t name, cpu, memory;
};

Result<HostColumns> FindHostColumns(const Csv& csv, std::string_view name) {
  HostColumns columns;
  ASSIGN_OR_RETURN(columns.name, csv.Column(name));
  ASSIGN_OR_RETURN(columns.cpu, csv.Column("cpu_milli"));
  ASSIGN_OR_RETURN(columns.memory, csv.Column("memory_mib"));
  return columns;
}

template <typename Item>
Status ReadHost(const Csv& csv, const HostColumns& columns, size_t row, Item* item) {
  item->name = csv.Text(row, columns.name);
  if (item->name.empty()) return csv.InvalidField(row, columns.name, "a name is missing");
  ASSIGN_OR_RETURN(item->cpu_milli, csv.Number(row, columns.cpu, 0, kMaxCpuMilli));
  ASSIGN_OR_RETURN(const int64_t mib, csv.Number(row, columns.memory, 0, kMaxMemoryMib));
  item->memory = MiB(mib);
  return {};
}

struct PodColumns {
  HostColumns host;
  size_t gpus, milli, spec, created, deleted;
};

Status ReadGpus(const Csv& csv, const PodColumns& columns, size_t row, TracePod* pod) {
  ASSIGN_OR_RETURN(const int64_t gpus, csv.Number(row, columns.gpus, 0, kMaxGpus));
  ASSIGN_OR_RETURN(const int64_t milli, csv.Number(row, columns.milli, 0, kWholeGpu.count()));
  if ((gpus == 0) != (milli == 0)) {
    return csv.InvalidField(
        row, columns.milli,
        fmt::format("{} thousandths for {} GPUs: both must be 0, or neither", milli, gpus));
  }
  pod->gpus = static_cast<int>(gpus);
  pod->per_gpu = MilliGpu(milli);
  if (columns.spec == Csv::kMissing) return {};
  for (const std::string_view model : SplitList(csv.Text(row, columns.spec), '|')) {
    pod->models.emplace_back(model);
  }
  return {};
}

Status ReadTimes(const Csv& csv, const PodColumns& columns, size_t row, TracePod* pod) {
  ASSIGN_OR_RETURN(pod->created, csv.Number(row, columns.created, 0, kMaxSeconds));
  ASSIGN_OR_RETURN(pod->deleted, csv.Number(row, columns.deleted, 0, kMaxSeconds));
  if (pod->deleted < pod->created) {
    return csv.InvalidField(
        row, columns.deleted,
        fmt::format("{} is before its creation at {}", pod->deleted, pod->created));
  }
  return {};
}

}  // namespace

Result<std::vector<TraceNode>> ParseNodes(std::string_view text, std::string_view file) {
  ASSIGN_OR_RETURN(const Csv csv, Csv::Parse(text, file));
  ASSIGN_OR_RETURN(const HostColumns columns, FindHostColumns(csv, "sn"));
  ASSIGN_OR_RETURN(const size_t gpu, csv.Column("gpu"));
  ASSIGN_OR_RETURN(const size_t model, csv.Column("model"));
  std::vector<TraceNode> nodes(csv.rows());
  std::unordered_set<std::string_view> names, models;
  for (size_t row = 0; row < csv.rows(); ++row) {
    TraceNode& node = nodes[row];
    RETURN_IF_ERROR(ReadHost(csv, columns, row, &node));
    if (!names.insert(csv.Text(row, columns.name)).second) {
      return csv.InvalidField(row, columns.name, fmt::format("duplicate node {}", node.name));
    }
    constexpr int64_t kMaxPerNode = placement::kMaxGpusPerNode;
    ASSIGN_OR_RETURN(const int64_t gpus, csv.Number(row, gpu, 0, kMaxPerNode));
    node.gpus = static_cast<int>(gpus);
    node.model = csv.Text(row, model);
    if (gpus > 0) models.insert(csv.Text(row, model));
    if (models.size() >= placement::kMaxModels) {
      return csv.InvalidField(
          row, model,
          fmt::format("more than {} models of GPUs in one list", placement::kMaxModels - 1));
    }
  }
  return nodes;
}

Result<PodList> ParsePods(std::string_view text, std::string_view file) {
  ASSIGN_OR_RETURN(const Csv csv, Csv::Parse(text, file));
  PodColumns columns;
  ASSIGN_OR_RETURN(columns.host, FindHostColumns(csv, "name"));
  ASSIGN_OR_RETURN(columns.gpus, csv.Column("num_gpu"));
  ASSIGN_OR_RETURN(columns.milli, csv.Column("gpu_milli"));
  columns.spec = csv.Find("gpu_spec");
  columns.created = csv.Find("creation_time");
  columns.deleted = csv.Find("deletion_time");
  PodList list;
  list.has_times = columns.created != Csv::kMissing && columns.deleted != Csv::kMissing;
  list.pods.resize(csv.rows());
  for (size_t row = 0; row < csv.rows(); ++row) {
    TracePod& pod = list.pods[row];
    RETURN_IF_ERROR(ReadHost(csv, columns.host, row, &pod));
    RETURN_IF_ERROR(ReadGpus(csv, columns, row, &pod));
    if (list.has_times) RETURN_IF_ERROR(ReadTimes(csv, columns, row, &pod));
  }
  return list;
}

Result<std::vector<TraceNode>> ReadNodes(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseNodes(text, path);
}

Result<PodList> ReadPods(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParsePods(text, path);
}

int64_t CapacityOf(const std::vector<TraceNode>& nodes) {
  int64_t gpus = 0;
  for (const TraceNode& node : nodes) gpus += node.gpus;
  return gpus * kWholeGpu.count();
}

}  // namespace tessera::replay
