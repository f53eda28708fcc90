// SPDX-License-Identifier: Apache-2.0
#include "src/sim/smi/changes.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <span>

#include "src/sim/smi/parse_text.h"

namespace tessera::smi {

struct ChangeKind {
  std::string_view short_name;
  std::string_view long_name;
  std::string_view target;  // for "Unable to set <target> for GPU"
  // Null: the option has no value.
  bool (*parse)(std::string_view text, Change* change);
  // On success, *message is the message for the GPU.
  nvml::Return (*apply)(const Change& change, const NvmlGpu& gpu, std::string* message);
};

namespace {

using nvml::Return;

using NoValueFn = Return (*)(nvml::Device);
using OneValueFn = Return (*)(nvml::Device, unsigned);
using TwoValuesFn = Return (*)(nvml::Device, unsigned, unsigned);

// Parses one of `names`, or its index.
bool ParseChoice(std::string_view text, std::span<const std::string_view> names, unsigned* value) {
  unsigned index = 0;
  for (const std::string_view name : names) {
    if (text == name || text == std::to_string(index)) return *value = index, true;
    ++index;
  }
  return false;
}

constexpr std::string_view kComputeModeWords[] = {"DEFAULT", "EXCLUSIVE_THREAD", "PROHIBITED",
                                                  "EXCLUSIVE_PROCESS"};

bool ParseComputeMode(std::string_view text, Change* change) {
  return ParseChoice(text, kComputeModeWords, &change->values[0]);
}

constexpr std::string_view kSwitchWords[] = {"DISABLED", "ENABLED"};
constexpr std::string_view kCounterWords[] = {"VOLATILE", "AGGREGATE"};

bool ParseSwitch(std::string_view text, Change* change) {
  return ParseChoice(text, kSwitchWords, &change->values[0]);
}

bool ParseEccCounter(std::string_view text, Change* change) {
  return ParseChoice(text, kCounterWords, &change->values[0]);
}

// Parses watts, with a fraction, to milliwatts.
bool ParsePower(std::string_view text, Change* change) {
  double watts = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, watts);
  if (error != std::errc() || stopped != end || watts <= 0 || watts > 1e6) return false;
  change->values[0] = static_cast<unsigned>(std::lround(watts * 1000));
  return true;
}

// Parses "MIN,MAX", or one number for both.
bool ParseRange(std::string_view text, Change* change) {
  const size_t comma = text.find(',');
  if (!ParseUnsigned(text.substr(0, comma), &change->values[0])) return false;
  change->values[1] = change->values[0];
  return comma == std::string_view::npos ||
         ParseUnsigned(text.substr(comma + 1), &change->values[1]);
}

// Parses "MEMORY,GRAPHICS".
bool ParsePair(std::string_view text, Change* change) {
  return text.find(',') != std::string_view::npos && ParseRange(text, change);
}

Return CallWithValue(const NvmlGpu& gpu, const char* function, const Change& change) {
  return gpu.client().Call<OneValueFn>(function, gpu.handle(), change.values[0]);
}

Return CallWithPair(const NvmlGpu& gpu, const char* function, const Change& change) {
  return gpu.client().Call<TwoValuesFn>(function, gpu.handle(), change.values[0], change.values[1]);
}

Return Reset(const NvmlGpu& gpu, const char* function, std::string_view target,
             std::string* message) {
  *message = fmt::format("{} reset for GPU {}.\n", target, gpu.BusId());
  return gpu.client().Call<NoValueFn>(function, gpu.handle());
}

Return SetComputeMode(const Change& change, const NvmlGpu& gpu, std::string* message) {
  *message = fmt::format("Set compute mode to {} for GPU {}.\n",
                         kComputeModeWords[change.values[0]], gpu.BusId());
  return CallWithValue(gpu, "nvmlDeviceSetComputeMode", change);
}

std::string_view EnabledText(const Change& change) {
  return change.values[0] != 0 ? "Enabled" : "Disabled";
}

Return SetPersistence(const Change& change, const NvmlGpu& gpu, std::string* message) {
  *message = fmt::format("{} persistence mode for GPU {}.\n", EnabledText(change), gpu.BusId());
  return CallWithValue(gpu, "nvmlDeviceSetPersistenceMode", change);
}

Return SetEcc(const Change& change, const NvmlGpu& gpu, std::string* message) {
  *message = fmt::format("{} ECC support for GPU {}.\n", EnabledText(change), gpu.BusId());
  return CallWithValue(gpu, "nvmlDeviceSetEccMode", change);
}

Return ResetEccErrors(const Change& change, const NvmlGpu& gpu, std::string* message) {
  *message = fmt::format("Reset {} ECC errors to zero for GPU {}.\n",
                         change.values[0] == 0 ? "volatile" : "aggregate", gpu.BusId());
  return CallWithValue(gpu, "nvmlDeviceClearEccErrorCounts", change);
}

Return SetPowerLimit(const Change& change, const NvmlGpu& gpu, std::string* message) {
  const NvmlAnswer<unsigned> before = gpu.Number("nvmlDeviceGetPowerManagementLimit");
  *message = fmt::format("Power limit for GPU {} was set to {:.2f} W from {}.\n", gpu.BusId(),
                         change.values[0] / 1000.0, ShowWatts(before));
  return CallWithValue(gpu, "nvmlDeviceSetPowerManagementLimit", change);
}

Return LockGpuClocks(const Change& change, const NvmlGpu& gpu, std::string* message) {
  *message = fmt::format("GPU clocks set to \"(gpuClkMin {}, gpuClkMax {})\" for GPU {}\n",
                         change.values[0], change.values[1], gpu.BusId());
  return CallWithPair(gpu, "nvmlDeviceSetGpuLockedClocks", change);
}

Return LockMemoryClocks(const Change& change, const NvmlGpu& gpu, std::string* message) {
  *message = fmt::format("Memory clocks set to \"(memClkMin {}, memClkMax {})\" for GPU {}\n",
                         change.values[0], change.values[1], gpu.BusId());
  return CallWithPair(gpu, "nvmlDeviceSetMemoryLockedClocks", change);
}

Return SetApplicationClocks(const Change& change, const NvmlGpu& gpu, std::string* message) {
  *message = fmt::format("Applications clocks set to \"(MEM {}, SM {})\" for GPU {}\n",
                         change.values[0], change.values[1], gpu.BusId());
  return CallWithPair(gpu, "nvmlDeviceSetApplicationsClocks", change);
}

Return UnlockGpuClocks(const Change&, const NvmlGpu& gpu, std::string* message) {
  return Reset(gpu, "nvmlDeviceResetGpuLockedClocks", "GPU clocks", message);
}
Return UnlockMemoryClocks(const Change&, const NvmlGpu& gpu, std::string* message) {
  return Reset(gpu, "nvmlDeviceResetMemoryLockedClocks", "Memory clocks", message);
}
Return ResetApplicationClocks(const Change&, const NvmlGpu& gpu, std::string* message) {
  return Reset(gpu, "nvmlDeviceResetApplicationsClocks", "Applications clocks", message);
}

using MigModeFn = Return (*)(nvml::Device, unsigned, Return*);

// If the GPU cannot change its mode now, the new mode is pending.
Return SetMigMode(const Change& change, const NvmlGpu& gpu, std::string* message) {
  Return activation = Return::kUnknown;
  const Return result = gpu.client().Call<MigModeFn>("nvmlDeviceSetMigMode", gpu.handle(),
                                                     change.values[0], &activation);
  *message = fmt::format("{} MIG Mode for GPU {}\n", EnabledText(change), gpu.BusId());
  if (activation == Return::kSuccess) return result;
  const std::string reason = gpu.client().ErrorText(activation);
  *message = fmt::format("Warning: MIG mode is in pending {} state for GPU {}:{}\n",
                         change.values[0] != 0 ? "enable" : "disable", gpu.BusId(), reason);
  return result;
}

constexpr ChangeKind kKinds[] = {
    {"-c", "--compute-mode", "compute mode", ParseComputeMode, SetComputeMode},
    {"-pm", "--persistence-mode", "persistence mode", ParseSwitch, SetPersistence},
    {"-e", "--ecc-config", "ECC mode", ParseSwitch, SetEcc},
    {"-p", "--reset-ecc-errors", "ECC errors to zero", ParseEccCounter, ResetEccErrors},
    {"-mig", "--multi-instance-gpu", "MIG Mode", ParseSwitch, SetMigMode},
    {"-pl", "--power-limit", "power management limit", ParsePower, SetPowerLimit},
    {"-lgc", "--lock-gpu-clocks", "GPU clocks", ParseRange, LockGpuClocks},
    {"-rgc", "--reset-gpu-clocks", "GPU clocks", nullptr, UnlockGpuClocks},
    {"-lmc", "--lock-memory-clocks", "memory clocks", ParseRange, LockMemoryClocks},
    {"-rmc", "--reset-memory-clocks", "memory clocks", nullptr, UnlockMemoryClocks},
    {"-ac", "--applications-clocks", "applications clocks", ParsePair, SetApplicationClocks},
    {"-rac", "--reset-applications-clocks", "applications clocks", nullptr, ResetApplicationClocks},
};

// The tool's message for a power limit outside of the constraints, which NVML reports as invalid.
std::string InvalidLimitText(const Change& change, const NvmlGpu& gpu) {
  if (change.kind->short_name != "-pl") return "";
  constexpr const char* kConstraints = "nvmlDeviceGetPowerManagementLimitConstraints";
  return fmt::format(
      "Provided power limit {:.2f} W is not a valid power limit which should be between {} and {} "
      "for GPU {}\n",
      change.values[0] / 1000.0, ShowWatts(gpu.FirstNumber(kConstraints)),
      ShowWatts(gpu.SecondNumber(kConstraints)), gpu.BusId());
}

std::string FailureText(const Change& change, const NvmlGpu& gpu, Return result) {
  const std::string invalid =
      result == Return::kInvalidArgument ? InvalidLimitText(change, gpu) : "";
  if (!invalid.empty()) return invalid;
  return fmt::format("Unable to set {} for GPU {}: {}\n", change.kind->target, gpu.BusId(),
                     gpu.client().ErrorText(result));
}

}  // namespace

bool FindChange(std::string_view option, Change* change) {
  for (const ChangeKind& kind : kKinds) {
    if (option != kind.short_name && option != kind.long_name) continue;
    return *change = {&kind, {}}, true;
  }
  return false;
}

bool TakesValue(const Change& change) { return change.kind->parse != nullptr; }

bool ParseChangeValue(const std::string& text, Change* change) {
  return change->kind->parse(text, change);
}

Return ApplyChange(const Change& change, const std::vector<NvmlGpu>& gpus, std::string* out) {
  for (const NvmlGpu& gpu : gpus) {
    std::string message;
    const Return result = change.kind->apply(change, gpu, &message);
    if (result != Return::kSuccess) {
      *out += FailureText(change, gpu, result) + "Terminating early due to previous errors.\n";
      return result;
    }
    *out += message;
  }
  *out += "All done.\n";
  if (change.kind->short_name == "-e") *out += "Reboot required.\n";
  return Return::kSuccess;
}

}  // namespace tessera::smi
