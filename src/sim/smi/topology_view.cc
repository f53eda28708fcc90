// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "src/sim/smi/views.h"

namespace tessera::smi {
namespace {

constexpr unsigned kAffinityWords = 16;  // 1024 CPUs or nodes

constexpr const char* kLegend = R"(
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
)";

constexpr const char* kP2pLegend = R"(
Legend:

  X    = Self
  OK   = Status Ok
  CNS  = Chipset not supported
  GNS  = GPU not supported
  TNS  = Topology not supported
  NS   = Not supported
  U    = Unknown

)";

// The remote ends of a GPU's active NVLinks: switches, or other GPUs.
struct RemoteEnds {
  unsigned switch_links = 0;
  std::vector<std::string> peer_bus_ids;  // one for each link to a GPU
};

RemoteEnds RemoteEndsOf(const NvmlGpu& gpu) {
  RemoteEnds ends;
  for (unsigned link = 0; link < nvml::kNvLinkMaxLinks; ++link) {
    const NvmlAnswer<unsigned> active = gpu.Number("nvmlDeviceGetNvLinkState", link);
    if (!active.ok() || active.value == 0) continue;
    const NvmlAnswer<unsigned> type = gpu.Number("nvmlDeviceGetNvLinkRemoteDeviceType", link);
    if (type.ok() && type.value == nvml::kNvLinkSwitch) {
      ++ends.switch_links;
      continue;
    }
    nvml::PciInfo pci;
    const nvml::Return result =
        NVML_CALL(gpu.client(), nvmlDeviceGetNvLinkRemotePciInfo_v2, gpu.handle(), link, &pci);
    if (result == nvml::Return::kSuccess) ends.peer_bus_ids.emplace_back(pci.bus_id);
  }
  return ends;
}

std::string PcieConnection(const NvmlGpu& a, const NvmlGpu& b) {
  unsigned level = 0;
  const nvml::Return result =
      NVML_CALL(a.client(), nvmlDeviceGetTopologyCommonAncestor, a.handle(), b.handle(), &level);
  if (result != nvml::Return::kSuccess) return "N/A";
  switch (level) {
    case nvml::kTopologyInternal:
    case nvml::kTopologySingle:
      return "PIX";
    case nvml::kTopologyMultiple:
      return "PXB";
    case nvml::kTopologyHostBridge:
      return "PHB";
    case nvml::kTopologyNode:
      return "NODE";
    default:
      return "SYS";
  }
}

std::string Connection(const NvmlGpu& a, const RemoteEnds& a_links, const NvmlGpu& b,
                       const RemoteEnds& b_links) {
  auto count = static_cast<unsigned>(
      std::count(a_links.peer_bus_ids.begin(), a_links.peer_bus_ids.end(), b.BusId()));
  count += std::min(a_links.switch_links, b_links.switch_links);
  return count > 0 ? fmt::format("NV{}", count) : PcieConnection(a, b);
}

// Formats the set bits as ranges, such as "0-3,8-11".
std::string FormatRanges(const std::array<unsigned long, kAffinityWords>& bits) {
  auto set = [&bits](unsigned i) {
    return i < kAffinityWords * 64 && ((bits[i / 64] >> (i % 64)) & 1) != 0;
  };
  std::string out;
  for (unsigned i = 0; i < kAffinityWords * 64; ++i) {
    if (!set(i)) continue;
    unsigned last = i;
    while (set(last + 1)) ++last;
    if (!out.empty()) out += ',';
    out += last == i ? std::to_string(i) : fmt::format("{}-{}", i, last);
    i = last;
  }
  return out.empty() ? "N/A" : out;
}

std::string CpuAffinity(const NvmlGpu& gpu) {
  std::array<unsigned long, kAffinityWords> bits{};
  const nvml::Return result =
      NVML_CALL(gpu.client(), nvmlDeviceGetCpuAffinity, gpu.handle(), kAffinityWords, bits.data());
  return result == nvml::Return::kSuccess ? FormatRanges(bits) : "N/A";
}

std::string NumaAffinity(const NvmlGpu& gpu) {
  std::array<unsigned long, kAffinityWords> bits{};
  const nvml::Return result = NVML_CALL(gpu.client(), nvmlDeviceGetMemoryAffinity, gpu.handle(),
                                        kAffinityWords, bits.data(), 0U);
  return result == nvml::Return::kSuccess ? FormatRanges(bits) : "N/A";
}

// The status of the first requested P2P capability that is not OK; OK if all are.
std::string P2pStatusOf(std::string_view selected_letters, const NvmlGpu& a, const NvmlGpu& b) {
  static constexpr const char* kNames[] = {"OK", "CNS", "GNS", "TNS", "DR", "NS", "U"};
  constexpr std::string_view kLetters = "rwnap";  // position: NVML number of the P2P capability
  for (const char letter : selected_letters) {
    unsigned status = nvml::kP2pUnknown;
    const nvml::Return result =
        NVML_CALL(a.client(), nvmlDeviceGetP2PStatus, a.handle(), b.handle(),
                  static_cast<unsigned>(kLetters.find(letter)), &status);
    if (result != nvml::Return::kSuccess || status > nvml::kP2pUnknown) return "U";
    if (status != nvml::kP2pOk) return kNames[status];
  }
  return "OK";
}

}  // namespace

std::string P2pView(std::string_view selected_letters, const std::vector<NvmlGpu>& gpus) {
  std::string out;
  for (const NvmlGpu& gpu : gpus) out += fmt::format("\tGPU{}", gpu.index());
  out += "\t\n";
  for (size_t i = 0; i < gpus.size(); ++i) {
    out += fmt::format(" GPU{}\t", gpus[i].index());
    for (size_t j = 0; j < gpus.size(); ++j) {
      out += i == j ? "X" : P2pStatusOf(selected_letters, gpus[i], gpus[j]);
      out += '\t';
    }
    out += '\n';
  }
  return out + kP2pLegend;
}

std::string TopologyView(const std::vector<NvmlGpu>& gpus) {
  std::vector<RemoteEnds> links;
  for (const NvmlGpu& gpu : gpus) links.push_back(RemoteEndsOf(gpu));
  std::string out;
  for (const NvmlGpu& gpu : gpus) out += fmt::format("\tGPU{}", gpu.index());
  out += "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n";
  for (size_t i = 0; i < gpus.size(); ++i) {
    out += fmt::format("GPU{}", gpus[i].index());
    for (size_t j = 0; j < gpus.size(); ++j) {
      out += '\t';
      out += i == j ? " X " : Connection(gpus[i], links[i], gpus[j], links[j]);
    }
    out += fmt::format("\t{}\t{}\t\t{}\n", CpuAffinity(gpus[i]), NumaAffinity(gpus[i]),
                       Show(gpus[i].Number("nvmlDeviceGetNumaNodeId")));
  }
  return out + kLegend;
}

}  // namespace tessera::smi
