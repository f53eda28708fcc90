// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/node_hardware.h"

#include <algorithm>
#include <bitset>
#include <cstdint>

#include "src/base/file.h"
#include "src/base/strings.h"

namespace tessera::agent {
namespace {

constexpr std::string_view kNvidiaVendorId = "0x10de";

// The configuration space of PCI 3.0, §6.
constexpr size_t kConfigSpaceSize = 256;
constexpr size_t kStatusOffset = 0x06;
constexpr uint8_t kHasCapabilities = 0x10;
constexpr size_t kFirstCapability = 0x34;
constexpr uint8_t kVendorSpecific = 0x09;

// NVIDIA's vendor-specific capability: ID, next, length, "VF", then records of an ID, a length and
// data. Record 0 holds the host's driver version and branch, padded with zeros.
constexpr std::string_view kVgpuSignature = "VF";
constexpr size_t kSignatureOffset = 3;
constexpr size_t kRecordsOffset = 5;
constexpr size_t kVersionLength = 10;
constexpr size_t kBranchLength = 10;

uint8_t ByteAt(std::string_view bytes, size_t offset) {
  return offset < bytes.size() ? static_cast<uint8_t>(bytes[offset]) : 0;
}

std::string TextAt(std::string_view bytes, size_t offset, size_t length) {
  const std::string_view text = bytes.substr(offset, length);
  return std::string(text.substr(0, text.find('\0')));
}

// Empty without such a capability.
std::string_view VendorCapability(std::string_view config) {
  if ((ByteAt(config, kStatusOffset) & kHasCapabilities) == 0) return {};
  std::bitset<kConfigSpaceSize> visited;  // a broken device may link its capabilities in a circle
  for (size_t at = ByteAt(config, kFirstCapability); at != 0 && !visited[at];
       at = ByteAt(config, at + 1)) {
    visited[at] = true;
    if (ByteAt(config, at) == 0xff) break;  // the device is gone from the bus
    if (ByteAt(config, at) == kVendorSpecific) return config.substr(at, ByteAt(config, at + 2));
  }
  return {};
}

Result<PciDevice> ReadPciDevice(const std::string& devices, const std::string& bus_id) {
  const std::string dir = JoinPath(devices, bus_id);
  PciDevice device{.bus_id = bus_id};
  ASSIGN_OR_RETURN(const std::string class_text, ReadFile(JoinPath(dir, "class")));
  device.pci_class = std::string(Trim(class_text));
  // The kernel shows 64 bytes to a reader without CAP_SYS_ADMIN (pci_read_config in
  // drivers/pci/pci-sysfs.c).
  const Result<std::string> config = ReadFile(JoinPath(dir, "config"));
  device.vgpu_host = config.ok() ? ParseVgpuHost(*config) : config.status();
  return device;
}

}  // namespace

bool NodeHardware::HasGpu() const { return std::ranges::any_of(nvidia_devices, &PciDevice::IsGpu); }

const PciDevice* NodeHardware::Find(std::string_view bus_id) const {
  const auto device = std::ranges::find(nvidia_devices, bus_id, &PciDevice::bus_id);
  return device != nvidia_devices.end() ? &*device : nullptr;
}

NodeHardware ReadNodeHardware(const std::string& sys_root, const std::string& machine_type_file) {
  NodeHardware hardware;
  hardware.machine = std::string(Trim(ReadFile(machine_type_file).value_or("")));
  const std::string devices = JoinPath(sys_root, "bus/pci/devices");
  for (const std::string& bus_id : ListDir(devices).value_or({})) {
    const Result<std::string> vendor = ReadFile(JoinPath(devices, bus_id + "/vendor"));
    if (!vendor.ok() || Trim(*vendor) != kNvidiaVendorId) continue;
    // A device may leave the bus while it is read.
    if (auto device = ReadPciDevice(devices, bus_id); device.ok()) {
      hardware.nvidia_devices.push_back(*std::move(device));
    }
  }
  std::ranges::sort(hardware.nvidia_devices, {}, &PciDevice::bus_id);
  return hardware;
}

Result<std::optional<VgpuHost>> ParseVgpuHost(std::string_view config_space) {
  if (config_space.size() < kConfigSpaceSize) {
    return Error(Code::kOutOfRange,
                 "{} bytes of the PCI configuration space can be read, {} are needed: run as root",
                 config_space.size(), kConfigSpaceSize);
  }
  const std::string_view capability = VendorCapability(config_space.substr(0, kConfigSpaceSize));
  if (capability.size() <= kRecordsOffset ||
      capability.substr(kSignatureOffset, kVgpuSignature.size()) != kVgpuSignature) {
    return std::optional<VgpuHost>();
  }
  size_t record = kRecordsOffset;
  while (record < capability.size() && ByteAt(capability, record) != 0) {
    const uint8_t length = ByteAt(capability, record + 1);
    record = length == 0 ? capability.size() : record + length;
  }
  if (record + 2 + kVersionLength + kBranchLength > capability.size()) {
    return Error(Code::kDataLoss, "the vGPU capability does not name the host's driver");
  }
  return std::optional(
      VgpuHost{.driver_version = TextAt(capability, record + 2, kVersionLength),
               .driver_branch = TextAt(capability, record + 2 + kVersionLength, kBranchLength)});
}

}  // namespace tessera::agent
