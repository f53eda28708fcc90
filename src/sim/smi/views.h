// SPDX-License-Identifier: Apache-2.0
// The views of nvidia-smi other than CSV and log: the list of -L, the table without arguments, the
// matrices of topo, the lists of nvlink, and the lines of dmon and pmon.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/sim/smi/gpu.h"

namespace tessera::smi {

struct Versions {
  std::string driver;  // "580.95.05"
  std::string cuda;    // "13.0"
};

std::string ListView(const std::vector<NvmlGpu>& gpus);
// `date` is the line above the table, "Sat Nov 21 11:41:50 2026".
std::string TableView(const std::string& date, const Versions& versions,
                      const std::vector<NvmlGpu>& gpus);
std::string TopologyView(const std::vector<NvmlGpu>& gpus);
// `selected_letters` contains letters of "rwnap". The view shows OK for two GPUs if the
// capabilities of all selected letters are OK.
std::string P2pView(std::string_view selected_letters, const std::vector<NvmlGpu>& gpus);

std::string NvLinkStatusView(const std::vector<NvmlGpu>& gpus);
std::string NvLinkCapabilitiesView(const std::vector<NvmlGpu>& gpus);
std::string NvLinkErrorsView(const std::vector<NvmlGpu>& gpus);

struct MonitorOptions {
  std::string_view selected_letters;  // letters of -s, which select columns
  std::string date;                   // "20261123"; "" for none
  std::string time;                   // "13:05:59"; "" for none
};
std::string DeviceMonitorHeader(const MonitorOptions& options);
std::string DeviceMonitorView(const MonitorOptions& options, const std::vector<NvmlGpu>& gpus);
std::string ProcessMonitorHeader(const MonitorOptions& options);
std::string ProcessMonitorView(const MonitorOptions& options, const std::vector<NvmlGpu>& gpus);

}  // namespace tessera::smi
