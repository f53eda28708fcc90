// SPDX-License-Identifier: Apache-2.0
// nvlink -s, -c and -e: speed, capabilities and errors of each NVLink.
#include <fmt/format.h>

#include <array>
#include <functional>

#include "src/sim/smi/views.h"

namespace tessera::smi {
namespace {

struct NamedNumber {
  unsigned number;
  const char* name;
};

// NVML's numbers in the order of the tool.
constexpr std::array kCapabilities = {
    NamedNumber{nvml::kNvLinkP2p, "P2P is supported"},
    NamedNumber{nvml::kNvLinkSysmemAccess, "Access to system memory supported"},
    NamedNumber{nvml::kNvLinkP2pAtomics, "P2P atomics supported"},
    NamedNumber{nvml::kNvLinkSysmemAtomics, "System memory atomics supported"},
    NamedNumber{nvml::kNvLinkSliBridge, "SLI is supported"},
    NamedNumber{nvml::kNvLinkValid, "Link is supported"}};
constexpr std::array kErrors = {NamedNumber{nvml::kNvLinkReplayErrors, "Replay"},
                                NamedNumber{nvml::kNvLinkRecoveryErrors, "Recovery"},
                                NamedNumber{nvml::kNvLinkCrcFlitErrors, "CRC"}};

// Returns the `lines` of each link below the name of its GPU. Skips GPUs without NVLink.
std::string RenderLinks(
    const std::vector<NvmlGpu>& gpus,
    const std::function<std::string(const NvmlGpu&, unsigned link, bool up)>& lines) {
  std::string out;
  for (const NvmlGpu& gpu : gpus) {
    for (unsigned link = 0; link < nvml::kNvLinkMaxLinks; ++link) {
      const NvmlAnswer<unsigned> state = gpu.Number("nvmlDeviceGetNvLinkState", link);
      if (!state.ok()) break;
      if (link == 0) {
        out += fmt::format("GPU {}: {} (UUID: {})\n", gpu.index(), gpu.Name(), gpu.Uuid());
      }
      out += lines(gpu, link, state.value != 0);
    }
  }
  return out;
}

std::string SpeedLine(const NvmlGpu& gpu, unsigned link, bool up) {
  const NvmlAnswer<unsigned> mbps = gpu.FieldNumber(nvml::kFieldNvLinkGetSpeed, link);
  if (!up || !mbps.ok()) return fmt::format("\t Link {}: <inactive>\n", link);
  return fmt::format("\t Link {}: {:.6g} GB/s\n", link, mbps.value / 1000.0);
}

std::string CapabilityLines(const NvmlGpu& gpu, unsigned link, bool up) {
  std::string out;
  if (!up) return out;
  for (const NamedNumber& capability : kCapabilities) {
    const auto has = NVML_READ(gpu.client(), 0u, nvmlDeviceGetNvLinkCapability, gpu.handle(), link,
                               capability.number);
    if (!has.ok()) continue;
    out += fmt::format("\t Link {}, {}: {}\n", link, capability.name, has.value != 0);
  }
  return out;
}

std::string ErrorLines(const NvmlGpu& gpu, unsigned link, bool up) {
  std::string out;
  if (!up) return out;
  for (const NamedNumber& error : kErrors) {
    const auto count = NVML_READ(gpu.client(), std::uint64_t{0}, nvmlDeviceGetNvLinkErrorCounter,
                                 gpu.handle(), link, error.number);
    if (!count.ok()) continue;
    out += fmt::format("\t Link {}: {} Errors: {}\n", link, error.name, count.value);
  }
  return out + "\n";
}

}  // namespace

std::string NvLinkStatusView(const std::vector<NvmlGpu>& gpus) {
  return RenderLinks(gpus, SpeedLine);
}
std::string NvLinkCapabilitiesView(const std::vector<NvmlGpu>& gpus) {
  return RenderLinks(gpus, CapabilityLines);
}
std::string NvLinkErrorsView(const std::vector<NvmlGpu>& gpus) {
  return RenderLinks(gpus, ErrorLines);
}

}  // namespace tessera::smi
