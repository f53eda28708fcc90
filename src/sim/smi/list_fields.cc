// SPDX-License-Identifier: Apache-2.0
// Fields of all queries other than --query-gpu: processes, remapped rows, retired pages, clocks.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "src/sim/smi/fields.h"

namespace tessera::smi {
namespace {

constexpr QueryField kTimestamp = {"timestamp", "", "", "When the query was made.",
                                   OF_LINE(line.node.timestamp)};
constexpr QueryField kGpuName = {"gpu_name", "", "", "Product name of the GPU.", OF_GPU(g.Name())};
constexpr QueryField kGpuBusId = {"gpu_bus_id", "", "", "PCI bus id of the GPU.",
                                  OF_GPU(g.BusId())};
constexpr QueryField kGpuSerial = {"gpu_serial", "", "", "Serial number of the board.",
                                   OF_GPU(g.Serial())};
constexpr QueryField kGpuUuid = {"gpu_uuid", "", "", "Globally unique id of the GPU.",
                                 OF_GPU(g.Uuid())};

}  // namespace

const std::vector<QueryField>& AppFields() {
  static const std::vector<QueryField> kFields = {
      kTimestamp,
      kGpuName,
      kGpuBusId,
      kGpuSerial,
      kGpuUuid,
      {"pid", "", "", "Process id of the compute application.",
       OF_LINE(std::to_string(line.process.pid))},
      {"process_name", "name", "", "Name of the process.", OF_LINE(line.process.name)},
      {"used_gpu_memory", "used_memory", "MiB", "Memory that the process uses.",
       OF_LINE(line.process.memory_mib)},
  };
  return kFields;
}

const std::vector<QueryField>& RowFields() {
  static const std::vector<QueryField> kFields = [] {
    std::vector<QueryField> table = {kGpuName, kGpuBusId, kGpuSerial, kGpuUuid};
    std::ranges::copy_if(GpuFields(), std::back_inserter(table), [](const QueryField& field) {
      return field.name.starts_with("remapped_rows.");
    });
    return table;
  }();
  return kFields;
}

const std::vector<QueryField>& PageFields() {
  static const std::vector<QueryField> kFields = {
      kGpuName,
      kGpuBusId,
      kGpuSerial,
      kGpuUuid,
      {"retired_pages.address", "", "", "Address of the page.",
       OF_LINE(fmt::format("0x{:016x}", line.page.address))},
      {"retired_pages.cause", "", "", "Why the page was retired.",
       OF_LINE(line.page.cause == 0 ? "Single Bit ECC" : "Double Bit ECC")},
  };
  return kFields;
}

const std::vector<QueryField>& ClockFields() {
  static const std::vector<QueryField> kFields = {
      kTimestamp,
      kGpuName,
      kGpuBusId,
      kGpuSerial,
      kGpuUuid,
      {"memory", "mem", "MHz", "Memory clock.", OF_LINE(std::to_string(line.clocks.memory))},
      {"graphics", "gr", "MHz", "Graphics clock.", OF_LINE(std::to_string(line.clocks.graphics))},
  };
  return kFields;
}

}  // namespace tessera::smi
