// SPDX-License-Identifier: Apache-2.0
// The pictures of nvidia-smi that are not CSV or log: the list of -L, the table that it prints
// without arguments, and the matrix of topo -m.
#pragma once

#include <string>
#include <vector>

#include "src/sim/smi/gpu.h"

namespace tessera::smi {

struct Versions {
  std::string driver;  // "580.95.05"
  std::string cuda;    // "13.0"
};

std::string ListView(const std::vector<Gpu>& gpus);
// `date` is the line above the table, "Sat Nov 21 11:41:50 2026".
std::string TableView(const std::string& date, const Versions& versions,
                      const std::vector<Gpu>& gpus);
std::string TopologyView(const std::vector<Gpu>& gpus);

}  // namespace tessera::smi
