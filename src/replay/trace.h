// SPDX-License-Identifier: Apache-2.0
// Cluster traces as the openb traces write them: one CSV file of nodes and one of pods, columns
// found by the names in the first line.
//
//   nodes: sn, cpu_milli, memory_mib, gpu, model
//   pods:  name, cpu_milli, memory_mib, num_gpu, gpu_milli
//          and, where the file has them, gpu_spec ("T4|P100"), creation_time, deletion_time
//
// Fields may be quoted as RFC 4180 has it. Numbers are whole. A row that cannot be true is refused
// with file, line, column and reason; a pod larger than any node, or for a model that no node has,
// is a fact.
//
// Threads: pure functions; values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/base/units.h"

namespace tessera::replay {

struct TraceNode {
  std::string name;
  int64_t cpu_milli = 0;
  Bytes memory;
  int gpus = 0;
  std::string model;
};

struct TracePod {
  std::string name;
  int64_t cpu_milli = 0;
  Bytes memory;
  int gpus = 0;
  MilliGpu per_gpu;                  // 0 where it wants no GPU
  std::vector<std::string> models;   // of which its GPUs may be; none means any
  int64_t created = 0, deleted = 0;  // seconds; of a list with times

  int64_t milli() const { return gpus * per_gpu.count(); }
};

struct PodList {
  std::vector<TracePod> pods;
  bool has_times = false;  // the file has creation_time and deletion_time
};

// `file` is for messages. INVALID_ARGUMENT as above; also for a list without rows.
Result<std::vector<TraceNode>> ParseNodes(std::string_view text, std::string_view file);
Result<PodList> ParsePods(std::string_view text, std::string_view file);

// The same from files; errors of the file system as ReadFile has them.
Result<std::vector<TraceNode>> ReadNodes(const std::string& path);
Result<PodList> ReadPods(const std::string& path);

// Thousandths of all GPUs.
int64_t CapacityOf(const std::vector<TraceNode>& nodes);

}  // namespace tessera::replay
