// SPDX-License-Identifier: Apache-2.0
#include "src/sim/simgpu/pci_files.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <utility>
#include <vector>

#include <unistd.h>

#include "api/nvml_abi.h"
#include "src/base/file.h"

namespace tessera::sim {
namespace {

constexpr size_t kConfigBytes = 4096;
constexpr size_t kRegions = 13;  // 6 base address registers, the ROM, 6 for virtual functions
constexpr size_t kBaseRegisters = 6;

// Bits of a base address register.
constexpr uint32_t kRegister64Bit = 0x4;
constexpr uint32_t kRegisterPrefetchable = 0x8;
// The kernel's flags of a region: memory, aligned to its size; prefetchable; 64-bit.
constexpr uint64_t kRegionMemory = 0x40200;
constexpr uint64_t kRegionPrefetchable = 0x2000;
constexpr uint64_t kRegion64Bit = 0x100000;

constexpr uint64_t kControlBytes = 16 << 20;  // the registers of the chip
constexpr uint64_t kPrivateBytes = 32 << 20;  // instance memory
constexpr uint64_t kControlBase = 0xE0000000;
constexpr uint64_t kMemoryBase = uint64_t{32} << 40;

// Groups 0 and 1 are for the host bridge and the CPU.
constexpr uint32_t kFirstIommuGroup = 2;

struct Region {
  uint64_t start = 0, size = 0;
  uint32_t bits = 0;  // flags of its register

  uint64_t flags() const {
    return kRegionMemory | bits | ((bits & kRegisterPrefetchable) != 0 ? kRegionPrefetchable : 0) |
           ((bits & kRegister64Bit) != 0 ? kRegion64Bit : 0);
  }
};
using Regions = std::array<Region, kRegions>;

// Up to Ada, region 0 has the registers of the chip below 4 GiB, and regions 1 and 3 the device's
// memory. On Hopper and later, all regions have 64 bits and take two registers each.
Regions RegionsOf(const GpuFacts& gpu, uint32_t gpu_index) {
  constexpr uint32_t kWide = kRegister64Bit | kRegisterPrefetchable;
  const uint64_t memory = std::bit_ceil(gpu.bar1_bytes);
  const uint64_t span = std::max(memory, 2 * kPrivateBytes);  // each region is aligned to its size
  const uint64_t base = kMemoryBase + gpu_index * 2 * span;
  Regions regions;
  if (gpu.architecture >= nvml::kArchHopper) {
    regions[0] = {base + span + kPrivateBytes, kControlBytes, kWide};
    regions[2] = {base, memory, kWide};
    regions[4] = {base + span, kPrivateBytes, kWide};
  } else {
    regions[0] = {kControlBase + gpu_index * kControlBytes, kControlBytes, 0};
    regions[1] = {base, memory, kWide};
    regions[3] = {base + span, kPrivateBytes, kWide};
  }
  return regions;
}

// Builder of a configuration space, little-endian like PCI.
class ConfigSpace {
 public:
  void Put8(size_t at, uint32_t value) { bytes_[at] = char(value & 0xFF); }
  void Put16(size_t at, uint32_t value) {
    Put8(at, value);
    Put8(at + 1, value >> 8);
  }
  void Put32(size_t at, uint32_t value) {
    Put16(at, value);
    Put16(at + 2, value >> 16);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_ = std::string(kConfigBytes, '\0');
};

// Offsets of the capabilities of NVIDIA's GPUs.
enum Capability : uint8_t {
  kPowerManagementAt = 0x60,
  kMsiAt = 0x68,
  kExpressAt = 0x78,
  kVendorAt = 0xB4,
  kMsixAt = 0xC8,
};

void PutHeader(const GpuFacts& gpu, ConfigSpace* config) {
  config->Put16(0x00, gpu.pci_device_id);
  config->Put16(0x02, gpu.pci_device_id >> 16);
  config->Put16(0x04, 0x0406);  // memory and bus mastering on, interrupt pin off
  config->Put16(0x06, 0x0010);  // has a list of capabilities
  config->Put8(0x08, 0xA1);     // revision
  config->Put8(0x09, gpu.pci_class);
  config->Put16(0x0A, gpu.pci_class >> 8);
  config->Put16(0x2C, gpu.pci_subsystem_id);
  config->Put16(0x2E, gpu.pci_subsystem_id >> 16);
  config->Put8(0x34, kPowerManagementAt);
  config->Put8(0x3C, 0xFF);  // no interrupt line
  config->Put8(0x3D, 0x01);  // pin A
}

void PutRegions(const Regions& regions, ConfigSpace* config) {
  constexpr size_t kFirstRegister = 0x10;
  for (size_t i = 0; i < kBaseRegisters; ++i) {
    const Region& region = regions[i];
    if (region.size == 0) continue;
    const size_t at = kFirstRegister + 4 * i;
    config->Put32(at, uint32_t(region.start) | region.bits);
    if ((region.bits & kRegister64Bit) != 0) config->Put32(at + 4, uint32_t(region.start >> 32));
  }
}

// Writes the PCI Express capability of a link at full speed.
void PutExpress(const GpuFacts& gpu, ConfigSpace* config) {
  const uint32_t link = gpu.pcie_gen_max | gpu.pcie_width_max << 4;
  config->Put16(kExpressAt, 0x10 | kVendorAt << 8);
  config->Put16(kExpressAt + 0x02, 0x0002);  // version 2, endpoint
  config->Put32(kExpressAt + 0x0C, link);
  config->Put16(kExpressAt + 0x12, link);
  config->Put32(kExpressAt + 0x2C, ((1u << gpu.pcie_gen_max) - 1) << 1);  // speeds
}

void PutCapabilities(const GpuFacts& gpu, ConfigSpace* config) {
  constexpr uint32_t kVendorBytes = 0x14;
  config->Put16(kPowerManagementAt, 0x01 | kMsiAt << 8);
  config->Put16(kPowerManagementAt + 2, 0x0003);  // version 3, no wake-up
  config->Put16(kMsiAt, 0x05 | kExpressAt << 8);
  config->Put16(kMsiAt + 2, 0x0080);  // addresses of 64 bits
  PutExpress(gpu, config);
  // A vGPU has "VF" here, and the version of the host's driver; a physical GPU has neither.
  config->Put16(kVendorAt, 0x09 | kMsixAt << 8);
  config->Put8(kVendorAt + 2, kVendorBytes);
  config->Put8(kVendorAt + 3, 0x01);
  config->Put16(kMsixAt, 0x11);
  config->Put16(kMsixAt + 2, 0x8005);  // on, 6 vectors
  config->Put32(kMsixAt + 4, 0x00B90000);
  config->Put32(kMsixAt + 8, 0x00BA0000);
  // Extended capabilities: a virtual channel, then error reporting.
  config->Put32(0x100, 0x0002 | 1 << 16 | 0x420 << 20);
  config->Put32(0x420, 0x0001 | 2 << 16);
}

// "16.0 GT/s PCIe" for generation 4.
std::string LinkSpeed(uint32_t generation) {
  constexpr std::array kSpeeds = {"2.5", "5.0", "8.0", "16.0", "32.0", "64.0"};
  if (generation == 0 || generation > kSpeeds.size()) return "Unknown\n";
  return fmt::format("{} GT/s PCIe\n", kSpeeds[generation - 1]);
}

std::string Uevent(const GpuFacts& gpu) {
  return fmt::format(
      "DRIVER=nvidia\nPCI_CLASS={:X}\nPCI_ID={:04X}:{:04X}\nPCI_SUBSYS_ID={:04X}:{:04X}\n"
      "PCI_SLOT_NAME={}\n",
      gpu.pci_class, gpu.pci_device_id & 0xFFFF, gpu.pci_device_id >> 16,
      gpu.pci_subsystem_id & 0xFFFF, gpu.pci_subsystem_id >> 16, PciAddressText(gpu.pci));
}

std::vector<std::pair<std::string, std::string>> FilesOf(const GpuFacts& gpu, uint32_t gpu_index) {
  const std::string speed = LinkSpeed(gpu.pcie_gen_max);
  const std::string width = fmt::format("{}\n", gpu.pcie_width_max);
  return {
      {"class", fmt::format("0x{:06x}\n", gpu.pci_class)},
      {"vendor", fmt::format("0x{:04x}\n", gpu.pci_device_id & 0xFFFF)},
      {"device", fmt::format("0x{:04x}\n", gpu.pci_device_id >> 16)},
      {"subsystem_vendor", fmt::format("0x{:04x}\n", gpu.pci_subsystem_id & 0xFFFF)},
      {"subsystem_device", fmt::format("0x{:04x}\n", gpu.pci_subsystem_id >> 16)},
      {"revision", "0xa1\n"},
      {"numa_node", fmt::format("{}\n", gpu.numa_node)},
      {"current_link_speed", speed},
      {"max_link_speed", speed},
      {"current_link_width", width},
      {"max_link_width", width},
      {"uevent", Uevent(gpu)},
      {"config", PciConfigSpace(gpu, gpu_index)},
      {"resource", PciResources(gpu, gpu_index)},
  };
}

Status WriteText(const std::string& path, std::string_view text) {
  ASSIGN_OR_RETURN(const Fd file, OpenOutput(path));
  return WriteOutput(file.get(), text).Annotate(path);
}

// Creates `path` as a link to `target`, and the folder `target`.
Status LinkToFolder(const std::string& path, const std::string& target) {
  RETURN_IF_ERROR(MakeDirs(JoinPath(DirName(path), target)));
  if (symlink(target.c_str(), path.c_str()) != 0) return Status::FromErrno(path, errno);
  return {};
}

}  // namespace

std::string PciAddressText(const PciAddress& address) {
  return fmt::format("{:04x}:{:02x}:{:02x}.{}", address.domain, address.bus, address.device,
                     address.function);
}

std::string PciConfigSpace(const GpuFacts& gpu, uint32_t gpu_index) {
  ConfigSpace config;
  PutHeader(gpu, &config);
  PutRegions(RegionsOf(gpu, gpu_index), &config);
  PutCapabilities(gpu, &config);
  return config.Take();
}

std::string PciResources(const GpuFacts& gpu, uint32_t gpu_index) {
  std::string text;
  for (const Region& region : RegionsOf(gpu, gpu_index)) {
    const bool used = region.size != 0;
    text += fmt::format("0x{:016x} 0x{:016x} 0x{:016x}\n", region.start,
                        used ? region.start + region.size - 1 : 0, used ? region.flags() : 0);
  }
  return text;
}

Status WritePciFiles(const std::string& root, const StateFile& state) {
  const std::string devices = JoinPath(root, "sys/bus/pci/devices");
  for (uint32_t i = 0; i < state.gpu_count; ++i) {
    const GpuFacts& gpu = state.facts[i];
    const std::string device = JoinPath(devices, PciAddressText(gpu.pci));
    RETURN_IF_ERROR(MakeDirs(device));
    for (const auto& [name, text] : FilesOf(gpu, i)) {
      RETURN_IF_ERROR(WriteText(JoinPath(device, name), text));
    }
    RETURN_IF_ERROR(LinkToFolder(device + "/driver", "../../drivers/nvidia"));
    RETURN_IF_ERROR(
        LinkToFolder(device + "/iommu_group",
                     fmt::format("../../../../kernel/iommu_groups/{}", kFirstIommuGroup + i)));
  }
  return {};
}

}  // namespace tessera::sim
