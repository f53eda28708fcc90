// SPDX-License-Identifier: Apache-2.0
// The text of dcgm-exporter's metrics, in the order of the counters, then of the GPUs. Numbers have
// dcgm-exporter's format, and labels its names and order:
//
//   1. gpu, UUID, pci_bus_id, device, modelName, hostname
//   2. the fields of type label, sorted by name
//   3. container, err_code, err_msg, namespace, pod, window_size_in_ms, xid, where they apply
//
// Label values are escaped. Pure. Cost: about 0.1 µs for each series.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/agent/exporter/counters.h"
#include "src/agent/exporter/gpu_sample.h"
#include "src/agent/exporter/holders.h"
#include "src/base/clock.h"

namespace tessera::agent {

// XIDs of a GPU since the agent started.
struct XidCounts {
  uint64_t last = 0;  // 0: none
  std::map<uint64_t, uint64_t> total;
  std::map<uint64_t, uint64_t> in_window;  // like `total`, for XIDs of the last xid_window
};
using XidsByUuid = std::map<std::string, XidCounts, std::less<>>;

// dcgm-exporter's options for the form of labels.
struct LabelStyle {
  bool no_hostname = false;
  bool old_names = false;       // uuid, pod_name, pod_namespace, container_name
  bool replace_blanks = false;  // replace blanks in the model's name by -
};

struct PageOptions {
  std::shared_ptr<const CounterSpecs> counters;
  LabelStyle style;
  std::string hostname;      // "": no label
  bool exports_xids = true;  // false: XIDs are not watched, and their series are absent
  Duration xid_window = std::chrono::minutes(5);  // of DCGM_EXP_XID_ERRORS_COUNT
};

// The caller leaves out GPUs without a sample. A family without a value is left out.
std::string RenderPage(const PageOptions& options,
                       const std::vector<std::shared_ptr<const GpuSample>>& gpus,
                       const HoldersByUuid& holders, const XidsByUuid& xids);

}  // namespace tessera::agent
