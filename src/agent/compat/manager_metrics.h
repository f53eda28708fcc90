// SPDX-License-Identifier: Apache-2.0
// The metrics of TKEStack's gpu-manager, for dashboards that read its port 5678. /metric has four
// series for each container; /usage and /graph have gpu-manager's JSON. Usage comes from the
// driver, limits come from the grants. Decimals are exact: 0.3 where gpu-manager wrote
// 0.30000001192092896.
//
//   container_gpu_memory_total{…,gpu_memory="gpu0"|"total"}     MiB in use
//   container_gpu_utilization{…,gpu="gpu0"|"total"}             percent of a GPU
//   container_request_gpu_memory{…,req_of_gpu_memory="total"}   limit of the container in MiB
//   container_request_gpu_utilization{…,req_of_gpu="total"}     limit of the container in GPUs: 0.3
//
// The use of a GPU that does not answer is unknown: it has no series and no fields, and its
// containers have no total.
//
// Tessera's own metrics are in agent/metrics.h. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/uid.h"
#include "src/base/units.h"
#include "src/formats/json.h"

namespace tessera::agent {

// The use of one GPU by one container.
struct ManagerGpuUse {
  int index = 0;
  std::string pci_bus_id;
  Bytes total;  // memory of the GPU
  // Whether the driver has returned the processes of the GPU. If not, `used`, `percent` and `pids`
  // are empty.
  bool is_known = true;
  Bytes used;  // memory that the container uses
  int percent = 0;
  std::vector<int> pids;  // the container's processes on this GPU, ascending
};

struct ManagerContainer {
  Uid pod_uid;
  std::string ns;
  std::string pod;
  std::string container;
  int64_t milli = 0;  // limit over all its GPUs; a whole GPU counts 1000
  Bytes memory;       // limit over all its GPUs
  std::vector<ManagerGpuUse> gpus;
};

// A GPU of the node, for /graph.
struct ManagerGpu {
  int index = 0;
  bool is_known = true;  // see ManagerGpuUse
  std::vector<int> pids;
  Bytes used;  // memory that all processes use
  Bytes total;
  int64_t free_milli = 0;  // compute that is not granted
  Bytes free;
};

struct ManagerState {
  std::string node;
  std::string problem;  // why the use of all GPUs is unknown; limits are known
  std::vector<ManagerContainer> containers;
  std::vector<ManagerGpu> gpus;
};

// Prometheus text.
std::string ManagerMetricPage(const ManagerState& state);
// {"usage":{"<pod uid>":{"stat":{"<container>":{"dev":[…]}},"project":"<namespace>","spec":{…}}}}
Json ManagerUsage(const ManagerState& state);
// {"graph":"ROOT:8\n|---GPU0 (pids: [], usedMemory: 0, …"}
Json ManagerGraph(const ManagerState& state);

}  // namespace tessera::agent
