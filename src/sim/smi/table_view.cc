// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <string_view>

#include "src/sim/smi/mig.h"
#include "src/sim/smi/views.h"

namespace tessera::smi {
namespace {

constexpr std::string_view kThinRule =
    "+-----------------------------------------------------------------------------------------+\n";
constexpr std::string_view kColumnRule =
    "+-----------------------------------------+------------------------+----------------------+\n";

std::string Shorten(std::string text, size_t width) {
  if (text.size() > width) text = "..." + text.substr(text.size() - (width - 3));
  return text;
}

std::string OnOff(const NvmlAnswer<unsigned>& answer) {
  if (!answer.ok()) return kNotAvailable;
  return answer.value != 0 ? "On" : "Off";
}

std::string WholeWatts(const NvmlAnswer<unsigned>& answer) {
  return answer.ok() ? fmt::format("{}W", (answer.value + 500) / 1000) : kNotAvailable;
}

std::string ShortComputeMode(const NvmlGpu& gpu) {
  const std::string mode = gpu.ComputeMode();
  if (mode == "Exclusive_Process") return "E. Process";
  if (mode == "Exclusive_Thread") return "E. Thread";
  return mode;
}

std::string GpuRows(const NvmlGpu& gpu) {
  const NvmlAnswer<nvml::MemoryV2> memory = gpu.Memory();
  const NvmlAnswer<nvml::Utilization> utilization = gpu.Utilization();
  const NvmlAnswer<unsigned> temperature = gpu.Number("nvmlDeviceGetTemperature", 0);
  const NvmlAnswer<unsigned> fan = gpu.Number("nvmlDeviceGetFanSpeed");
  const std::string used = memory.ok() ? fmt::format("{}MiB", memory.value.used >> 20) : "N/A";
  const std::string total = memory.ok() ? fmt::format("{}MiB", memory.value.total >> 20) : "N/A";
  std::string out;
  out += fmt::format("| {:>3}  {:<26} {:>7} |   {:<16} {:>3} | {:>20} |\n", gpu.index(),
                     Shorten(gpu.Name(), 26), OnOff(gpu.Number("nvmlDeviceGetPersistenceMode")),
                     gpu.BusId(), OnOff(gpu.Number("nvmlDeviceGetDisplayActive")),
                     Show(gpu.EccErrors(1, 0)));
  out += fmt::format(
      "| {:<4} {:>4}    {:<3}          {:>5} / {:>5} | {:>10} / {:>9} | "
      "{:>7}  {:>11} |\n",
      fan.ok() ? fmt::format("{}%", fan.value) : "N/A",
      temperature.ok() ? fmt::format("{}C", temperature.value) : "N/A", gpu.PerformanceState(),
      WholeWatts(gpu.Number("nvmlDeviceGetPowerUsage")),
      WholeWatts(gpu.Number("nvmlDeviceGetEnforcedPowerLimit")), used, total,
      utilization.ok() ? fmt::format("{}%", utilization.value.gpu) : "N/A", ShortComputeMode(gpu));
  out += fmt::format("|{:41}|{:24}| {:>20} |\n", "", "",
                     ShowEnabled(gpu.FirstNumber("nvmlDeviceGetMigMode")));
  return out;
}

std::string ProcessRows(const std::vector<NvmlGpu>& gpus) {
  std::string out;
  for (const NvmlGpu& gpu : gpus) {
    for (const ListedProcess& process : gpu.Processes()) {
      const std::string memory =
          process.memory_mib == kNotAvailable ? kNotAvailable : process.memory_mib + "MiB";
      out += fmt::format("| {:>4}   N/A  N/A {:>15} {:>6}   {:<36} {:>9} |\n", gpu.index(),
                         process.pid, process.type, Shorten(process.name, 36), memory);
    }
  }
  if (out.empty()) out = fmt::format("|  {:<87}|\n", "No running processes found");
  return out;
}

}  // namespace

std::string ListView(const std::vector<NvmlGpu>& gpus) {
  std::string out;
  for (const NvmlGpu& gpu : gpus) {
    out += fmt::format("GPU {}: {} (UUID: {})\n", gpu.index(), gpu.Name(), gpu.Uuid());
    out += MigDeviceLines(gpu);
  }
  return out;
}

std::string TableView(const std::string& date, const Versions& versions,
                      const std::vector<NvmlGpu>& gpus) {
  std::string out = fmt::format("{:<31}\n", date);
  out += kThinRule;
  out += fmt::format("| NVIDIA-SMI {:<22} Driver Version: {:<14} CUDA Version: {:<9}|\n",
                     versions.driver, versions.driver, versions.cuda);
  out += kColumnRule;
  out +=
      "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC "
      "|\n"
      "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. "
      "|\n"
      "|                                         |                        |               MIG M. "
      "|\n"
      "|=========================================+========================+======================|"
      "\n";
  for (const NvmlGpu& gpu : gpus) {
    out += GpuRows(gpu);
    out += kColumnRule;
  }
  out += '\n';
  out += kThinRule;
  out +=
      "| Processes:                                                                              "
      "|\n"
      "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory "
      "|\n"
      "|        ID   ID                                                               Usage      "
      "|\n"
      "|=========================================================================================|"
      "\n";
  out += ProcessRows(gpus);
  out += kThinRule;
  return out;
}

}  // namespace tessera::smi
