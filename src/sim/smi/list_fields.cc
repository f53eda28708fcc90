// SPDX-License-Identifier: Apache-2.0
// Fields of all queries other than --query-gpu: processes, remapped rows, retired pages, clocks.
#include <fmt/format.h>

#include <algorithm>

#include "src/sim/smi/fields.h"

namespace tessera::smi {
namespace {

std::string Address(const RetiredPage& page) { return fmt::format("0x{:016x}", page.address); }

std::string Cause(const RetiredPage& page) {
  return page.cause == 0 ? "Single Bit ECC" : "Double Bit ECC";
}

}  // namespace

const std::vector<AppField>& AppFields() {
  static const std::vector<AppField> kFields = {
      {"timestamp", "", "", "When the query was made.",
       [](const NvmlGpu&, const ListedProcess&, const NodeValues& n) { return n.timestamp; }},
      {"gpu_name", "", "", "Product name of the GPU.",
       [](const NvmlGpu& g, const ListedProcess&, const NodeValues&) { return g.Name(); }},
      {"gpu_bus_id", "", "", "PCI bus id of the GPU.",
       [](const NvmlGpu& g, const ListedProcess&, const NodeValues&) { return g.BusId(); }},
      {"gpu_serial", "", "", "Serial number of the board.",
       [](const NvmlGpu& g, const ListedProcess&, const NodeValues&) { return g.Serial(); }},
      {"gpu_uuid", "", "", "Globally unique id of the GPU.",
       [](const NvmlGpu& g, const ListedProcess&, const NodeValues&) { return g.Uuid(); }},
      {"pid", "", "", "Process id of the compute application.",
       [](const NvmlGpu&, const ListedProcess& p, const NodeValues&) {
         return std::to_string(p.pid);
       }},
      {"process_name", "name", "", "Name of the process.",
       [](const NvmlGpu&, const ListedProcess& p, const NodeValues&) { return p.name; }},
      {"used_gpu_memory", "used_memory", "MiB", "Memory that the process uses.",
       [](const NvmlGpu&, const ListedProcess& p, const NodeValues&) { return p.memory_mib; }},
  };
  return kFields;
}

const std::vector<GpuField>& RowFields() {
  static const std::vector<GpuField> kFields = [] {
    std::vector<GpuField> table = {
        {"gpu_name", "", "", "Product name of the GPU.",
         [](const NvmlGpu& g, const NodeValues&) { return g.Name(); }},
        {"gpu_bus_id", "", "", "PCI bus id of the GPU.",
         [](const NvmlGpu& g, const NodeValues&) { return g.BusId(); }},
        {"gpu_serial", "", "", "Serial number of the board.",
         [](const NvmlGpu& g, const NodeValues&) { return g.Serial(); }},
        {"gpu_uuid", "", "", "Globally unique id of the GPU.",
         [](const NvmlGpu& g, const NodeValues&) { return g.Uuid(); }},
    };
    std::ranges::copy_if(GpuFields(), std::back_inserter(table), [](const GpuField& field) {
      return field.name.starts_with("remapped_rows.");
    });
    return table;
  }();
  return kFields;
}

const std::vector<PageField>& PageFields() {
  static const std::vector<PageField> kFields = {
      {"gpu_name", "", "", "Product name of the GPU.",
       [](const NvmlGpu& g, const RetiredPage&, const NodeValues&) { return g.Name(); }},
      {"gpu_bus_id", "", "", "PCI bus id of the GPU.",
       [](const NvmlGpu& g, const RetiredPage&, const NodeValues&) { return g.BusId(); }},
      {"gpu_serial", "", "", "Serial number of the board.",
       [](const NvmlGpu& g, const RetiredPage&, const NodeValues&) { return g.Serial(); }},
      {"gpu_uuid", "", "", "Globally unique id of the GPU.",
       [](const NvmlGpu& g, const RetiredPage&, const NodeValues&) { return g.Uuid(); }},
      {"retired_pages.address", "", "", "Address of the page.",
       [](const NvmlGpu&, const RetiredPage& page, const NodeValues&) { return Address(page); }},
      {"retired_pages.cause", "", "", "Why the page was retired.",
       [](const NvmlGpu&, const RetiredPage& page, const NodeValues&) { return Cause(page); }},
  };
  return kFields;
}

const std::vector<ClockField>& ClockFields() {
  static const std::vector<ClockField> kFields = {
      {"timestamp", "", "", "When the query was made.",
       [](const NvmlGpu&, const ClockPair&, const NodeValues& n) { return n.timestamp; }},
      {"gpu_name", "", "", "Product name of the GPU.",
       [](const NvmlGpu& g, const ClockPair&, const NodeValues&) { return g.Name(); }},
      {"gpu_bus_id", "", "", "PCI bus id of the GPU.",
       [](const NvmlGpu& g, const ClockPair&, const NodeValues&) { return g.BusId(); }},
      {"gpu_serial", "", "", "Serial number of the board.",
       [](const NvmlGpu& g, const ClockPair&, const NodeValues&) { return g.Serial(); }},
      {"gpu_uuid", "", "", "Globally unique id of the GPU.",
       [](const NvmlGpu& g, const ClockPair&, const NodeValues&) { return g.Uuid(); }},
      {"memory", "mem", "MHz", "Memory clock.",
       [](const NvmlGpu&, const ClockPair& c, const NodeValues&) {
         return std::to_string(c.memory);
       }},
      {"graphics", "gr", "MHz", "Graphics clock.",
       [](const NvmlGpu&, const ClockPair& c, const NodeValues&) {
         return std::to_string(c.graphics);
       }},
  };
  return kFields;
}

}  // namespace tessera::smi
