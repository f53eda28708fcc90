// SPDX-License-Identifier: Apache-2.0
// dmon and pmon: a line for each GPU or process, in columns of seven characters.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "src/sim/smi/views.h"

namespace tessera::smi {
namespace {

// A value, or "-" if the driver provides none.
std::string ValueOrDash(const std::string& value) { return value == kNotAvailable ? "-" : value; }
std::string ValueOrDash(const NvmlAnswer<unsigned>& answer) { return ValueOrDash(Show(answer)); }

std::string Cell(std::string_view text) { return fmt::format(" {:>6}", text); }

std::string Watts(const NvmlGpu& gpu) {
  const NvmlAnswer<unsigned> power = gpu.Number("nvmlDeviceGetPowerUsage");
  return power.ok() ? std::to_string(power.value / 1000) : "-";
}

std::string UsedMemory(const NvmlGpu& gpu) {
  const NvmlAnswer<nvml::MemoryV2> memory = gpu.Memory();
  return memory.ok() ? std::to_string(memory.value.used >> 20) : "-";
}

std::string UsedBar1(const NvmlGpu& gpu) {
  const NvmlAnswer<nvml::Bar1Memory> bar1 = gpu.Bar1();
  return bar1.ok() ? std::to_string(bar1.value.used >> 20) : "-";
}

std::string UtilizationText(const NvmlGpu& gpu, unsigned nvml::Utilization::*member) {
  const NvmlAnswer<nvml::Utilization> use = gpu.Utilization();
  return ValueOrDash(NvmlAnswer<unsigned>{use.result, use.value.*member});
}

std::string Clock(const NvmlGpu& gpu, unsigned type) {
  return ValueOrDash(gpu.Number("nvmlDeviceGetClockInfo", type));
}

bool HasReason(const NvmlGpu& gpu, std::uint64_t bits) {
  const auto reasons = gpu.Number64("nvmlDeviceGetCurrentClocksEventReasons");
  return reasons.ok() && (reasons.value & bits) != 0;
}

// Converts kilobytes per second to megabytes.
std::string Throughput(const NvmlGpu& gpu, unsigned counter) {
  const NvmlAnswer<unsigned> rate = gpu.Number("nvmlDeviceGetPcieThroughput", counter);
  return rate.ok() ? std::to_string(rate.value / 1000) : "-";
}

std::string EccErrors(const NvmlGpu& gpu, unsigned type) {
  return ValueOrDash(Show(gpu.EccErrors(type, 0)));
}

struct Column {
  char letter;  // of -s
  std::string_view name;
  std::string_view unit;
  std::string (*value)(const NvmlGpu& gpu);
};

#define GPU_VALUE(...) []([[maybe_unused]] const NvmlGpu& g) -> std::string { return __VA_ARGS__; }
constexpr Column kDeviceColumns[] = {
    {'p', "pwr", "W", Watts},
    {'p', "gtemp", "C", GPU_VALUE(ValueOrDash(g.Number("nvmlDeviceGetTemperature", 0)))},
    {'p', "mtemp", "C", GPU_VALUE(ValueOrDash(g.FieldNumber(nvml::kFieldMemoryTemp)))},
    {'u', "sm", "%", GPU_VALUE(UtilizationText(g, &nvml::Utilization::gpu))},
    {'u', "mem", "%", GPU_VALUE(UtilizationText(g, &nvml::Utilization::memory))},
    {'u', "enc", "%", GPU_VALUE(ValueOrDash(g.FirstNumber("nvmlDeviceGetEncoderUtilization")))},
    {'u', "dec", "%", GPU_VALUE(ValueOrDash(g.FirstNumber("nvmlDeviceGetDecoderUtilization")))},
    {'u', "jpg", "%", GPU_VALUE(ValueOrDash(g.FirstNumber("nvmlDeviceGetJpgUtilization")))},
    {'u', "ofa", "%", GPU_VALUE(ValueOrDash(g.FirstNumber("nvmlDeviceGetOfaUtilization")))},
    {'c', "mclk", "MHz", GPU_VALUE(Clock(g, nvml::kClockMem))},
    {'c', "pclk", "MHz", GPU_VALUE(Clock(g, nvml::kClockSm))},
    {'v', "pviol", "%", GPU_VALUE(HasReason(g, nvml::kReasonSwPowerCap) ? "100" : "0")},
    {'v', "tviol", "bool", GPU_VALUE(HasReason(g, nvml::kReasonsThermal) ? "1" : "0")},
    {'m', "fb", "MB", UsedMemory},
    {'m', "bar1", "MB", UsedBar1},
    {'m', "ccpm", "MB", GPU_VALUE("0")},
    {'e', "sbecc", "errs", GPU_VALUE(EccErrors(g, 0))},
    {'e', "dbecc", "errs", GPU_VALUE(EccErrors(g, 1))},
    {'e', "pci", "errs", GPU_VALUE(ValueOrDash(g.Number("nvmlDeviceGetPcieReplayCounter")))},
    {'t', "rxpci", "MB/s", GPU_VALUE(Throughput(g, 1))},
    {'t', "txpci", "MB/s", GPU_VALUE(Throughput(g, 0))},
};
#undef GPU_VALUE

bool IsSelected(const MonitorOptions& options, char letter) {
  return options.selected_letters.find(letter) != std::string_view::npos;
}

// The first columns of the two header lines: date, time and index of the GPU.
std::pair<std::string, std::string> HeaderStart(const MonitorOptions& options) {
  std::string first = "#";
  std::string second = "#";
  if (!options.date.empty()) {
    first += "Date       ";
    second += "YYYYMMDD   ";
  }
  if (!options.time.empty()) {
    first += "Time        ";
    second += "HH:MM:SS    ";
  }
  const bool stamped = first.size() > 1;
  return {first + (stamped ? "gpu" : " gpu"), second + (stamped ? "Idx" : " Idx")};
}

std::string LineStart(const MonitorOptions& options, const NvmlGpu& gpu) {
  std::string out;
  if (!options.date.empty()) out += fmt::format(" {}  ", options.date);
  if (!options.time.empty()) out += fmt::format(" {}  ", options.time);
  return out + fmt::format("{:>5}", gpu.index());
}

// Utilization of the GPU by a process, in percent.
struct ProcessUtilization {
  unsigned sm = 0, memory = 0;
};

std::map<unsigned, ProcessUtilization> ProcessUtilizations(const NvmlGpu& gpu) {
  std::map<unsigned, ProcessUtilization> uses;
  unsigned count = 0;
  if (NVML_CALL(gpu.client(), nvmlDeviceGetProcessUtilization, gpu.handle(), nullptr, &count,
                std::uint64_t{0}) != nvml::Return::kInsufficientSize) {
    return uses;
  }
  std::vector<nvml::ProcessUtilizationSample> samples(count + 16);  // more may start meanwhile
  count = static_cast<unsigned>(samples.size());
  if (NVML_CALL(gpu.client(), nvmlDeviceGetProcessUtilization, gpu.handle(), samples.data(), &count,
                std::uint64_t{0}) != nvml::Return::kSuccess) {
    return uses;
  }
  for (unsigned i = 0; i < count; ++i) uses[samples[i].pid] = {samples[i].sm, samples[i].memory};
  return uses;
}

// The name that pmon shows: the last part of the path.
std::string CommandName(const std::string& name) { return name.substr(name.rfind('/') + 1); }

std::string ProcessLine(const MonitorOptions& options, const NvmlGpu& gpu,
                        const ListedProcess* process, const ProcessUtilization* use) {
  std::string out = LineStart(options, gpu);
  out += fmt::format(" {:>10} {:>5}", process == nullptr ? "-" : std::to_string(process->pid),
                     process == nullptr ? "-" : process->type);
  if (IsSelected(options, 'u')) {
    out += Cell(use == nullptr ? "-" : std::to_string(use->sm));
    out += Cell(use == nullptr ? "-" : std::to_string(use->memory));
    for (int engine = 0; engine < 4; ++engine) out += Cell("-");
  }
  if (IsSelected(options, 'm')) {
    out += Cell(process == nullptr ? "-" : ValueOrDash(process->memory_mib));
    out += Cell(process == nullptr ? "-" : "0");
  }
  return out + fmt::format("    {:<15}\n", process == nullptr ? "-" : CommandName(process->name));
}

}  // namespace

std::string DeviceMonitorHeader(const MonitorOptions& options) {
  auto [first, second] = HeaderStart(options);
  for (const Column& column : kDeviceColumns) {
    if (!IsSelected(options, column.letter)) continue;
    first += Cell(column.name);
    second += Cell(column.unit);
  }
  return first + " \n" + second + " \n";
}

std::string DeviceMonitorView(const MonitorOptions& options, const std::vector<NvmlGpu>& gpus) {
  std::string out;
  for (const NvmlGpu& gpu : gpus) {
    out += LineStart(options, gpu);
    for (const Column& column : kDeviceColumns) {
      if (IsSelected(options, column.letter)) out += Cell(column.value(gpu));
    }
    out += " \n";
  }
  return out;
}

std::string ProcessMonitorHeader(const MonitorOptions& options) {
  auto [first, second] = HeaderStart(options);
  first += "         pid   type";
  second += "           #    C/G";
  if (IsSelected(options, 'u')) {
    for (const char* name : {"sm", "mem", "enc", "dec", "jpg", "ofa"}) {
      first += Cell(name);
      second += Cell("%");
    }
  }
  if (IsSelected(options, 'm')) {
    first += Cell("fb") + Cell("ccpm");
    second += Cell("MB") + Cell("MB");
  }
  return first + "    command \n" + second + "    name \n";
}

std::string ProcessMonitorView(const MonitorOptions& options, const std::vector<NvmlGpu>& gpus) {
  std::string out;
  for (const NvmlGpu& gpu : gpus) {
    const std::vector<ListedProcess> processes = gpu.Processes();
    const std::map<unsigned, ProcessUtilization> uses = ProcessUtilizations(gpu);
    for (const ListedProcess& process : processes) {
      const auto use = uses.find(process.pid);
      out += ProcessLine(options, gpu, &process, use == uses.end() ? nullptr : &use->second);
    }
    if (processes.empty()) out += ProcessLine(options, gpu, nullptr, nullptr);
  }
  return out;
}

}  // namespace tessera::smi
