// SPDX-License-Identifier: Apache-2.0
// Cluster traces in the format of the openb traces: a CSV file of nodes and one of pods, with
// columns identified by the names in the first line.
//
//   nodes: sn, cpu_milli, memory_mib, gpu, model
//   pods:  name, cpu_milli, memory_mib, num_gpu, gpu_milli
//          and, where the file has them, gpu_spec ("T4|P100"), creation_time, deletion_time
//
// Fields may be quoted as in RFC 4180. Numbers are whole. An invalid row is rejected with file,
// line, column and reason; a pod larger than any node, or for a model that no node has, is valid.
//
// Threads: pure functions.
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
  MilliGpu per_gpu;                  // 0 without GPUs
  std::vector<std::string> models;   // allowed models; empty: any model
  int64_t created = 0, deleted = 0;  // seconds; for lists with times

  int64_t milli() const { return gpus * per_gpu.count(); }
};

struct PodList {
  std::vector<TracePod> pods;
  bool has_times = false;  // the file has creation_time and deletion_time
};

// `file`: the name of the file for messages. INVALID_ARGUMENT as described above, and for a list
// without rows.
Result<std::vector<TraceNode>> ParseNodes(std::string_view text, std::string_view file);
Result<PodList> ParsePods(std::string_view text, std::string_view file);

// Read and parse a file. File system errors are those of ReadFile.
Result<std::vector<TraceNode>> ReadNodes(const std::string& path);
Result<PodList> ReadPods(const std::string& path);

// The compute of all GPUs, in thousandths of a GPU.
int64_t CapacityOf(const std::vector<TraceNode>& nodes);

}  // namespace tessera::replay
