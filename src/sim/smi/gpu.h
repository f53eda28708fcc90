// SPDX-License-Identifier: Apache-2.0
// A GPU with all values as texts of nvidia-smi. A value that the driver does not provide is "N/A".
// Only this class converts values, so that the table, the CSV and the log agree. Threads: one.
// The NvmlClient must outlive the object.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/sim/smi/client.h"

namespace tessera::smi {

inline constexpr const char* kNotAvailable = "N/A";

struct ListedProcess {
  unsigned pid = 0;
  std::string type;  // "C", "G"
  std::string name;
  std::string memory_mib;  // "1024", or N/A
};

// A supported pair of clocks, in MHz.
struct ClockPair {
  unsigned memory = 0;
  unsigned graphics = 0;
};

struct RetiredPage {
  std::uint64_t address = 0;
  unsigned cause = 0;
};

struct RemappedRows {
  unsigned correctable = 0;
  unsigned uncorrectable = 0;
  unsigned pending = 0;
  unsigned failure = 0;
};

class NvmlGpu {
 public:
  NvmlGpu(const NvmlClient* client, nvml::Device device, unsigned index)
      : client_(client), device_(device), index_(index) {}

  const NvmlClient& client() const { return *client_; }
  nvml::Device handle() const { return device_; }
  unsigned index() const { return index_; }

  std::string Name() const;
  std::string Uuid() const;
  std::string Serial() const;
  std::string Vbios() const;
  std::string PartNumber() const;
  std::string GspFirmware() const;
  std::string InforomImage() const;
  std::string Inforom(unsigned object) const;
  std::string Architecture() const;
  std::string Brand() const;
  std::string ComputeCapability() const;
  std::string MinorNumber() const;
  std::string ComputeMode() const;
  std::string Virtualization() const;
  std::string PerformanceState() const;
  std::string RecoveryAction() const;
  std::string AddressingMode() const;
  // "Active" or "Not Active" for one bit of ClocksEventReason.
  std::string EventReason(std::uint64_t bit) const;
  std::string FabricState() const;
  std::string FabricStatus() const;
  std::string FabricClique() const;
  std::string FabricCluster() const;

  NvmlAnswer<nvml::PciInfo> Pci() const;
  std::string BusId() const;  // "00000000:07:00.0"
  NvmlAnswer<nvml::MemoryV2> Memory() const;
  NvmlAnswer<nvml::Bar1Memory> Bar1() const;
  NvmlAnswer<nvml::Utilization> Utilization() const;
  NvmlAnswer<nvml::FabricInfoV3> Fabric() const;
  // Video encoder sessions, and frame buffer capture (FBC) sessions.
  NvmlAnswer<nvml::FbcStats> Encoder() const;
  NvmlAnswer<nvml::FbcStats> FrameCapture() const;

  // The result of a function (device, unsigned*).
  NvmlAnswer<unsigned> Number(const char* function) const;
  NvmlAnswer<unsigned> Number(const char* function, unsigned argument) const;
  NvmlAnswer<std::uint64_t> Number64(const char* function) const;
  // The first and the second result of a function (device, unsigned*, unsigned*).
  NvmlAnswer<unsigned> FirstNumber(const char* function) const;
  NvmlAnswer<unsigned> SecondNumber(const char* function) const;
  NvmlAnswer<std::uint64_t> EccErrors(unsigned type, unsigned counter_type) const;
  NvmlAnswer<std::uint64_t> EccErrorsAt(unsigned type, unsigned counter_type,
                                        unsigned location) const;
  // Number and addresses of pages retired for a cause: 0 corrected errors, 1 an uncorrected error.
  NvmlAnswer<unsigned> RetiredPageCount(unsigned cause) const;
  std::vector<RetiredPage> RetiredPages() const;
  // Sorted by descending memory clock, then by descending graphics clock.
  std::vector<ClockPair> SupportedClocks() const;
  NvmlAnswer<RemappedRows> RemappedRowCounts() const;
  NvmlAnswer<nvml::RowRemapperHistogram> RowHistogram() const;
  NvmlAnswer<nvml::EccSramErrorStatus> SramErrors() const;
  // `scope` is the number of the link, for fields of a link.
  NvmlAnswer<nvml::FieldValue> Field(unsigned id, unsigned scope = 0) const;
  NvmlAnswer<unsigned> FieldNumber(unsigned id, unsigned scope = 0) const;

  std::vector<ListedProcess> Processes() const;

 private:
  std::string Text(const char* function, unsigned size) const;

  const NvmlClient* client_;
  nvml::Device device_;
  unsigned index_;
};

// "12", "12 MiB", N/A.
std::string Show(const NvmlAnswer<unsigned>& answer, const char* unit = "");
std::string Show(const NvmlAnswer<std::uint64_t>& answer, const char* unit = "");
// "Enabled", "Disabled", N/A; "Yes", "No", N/A.
std::string ShowEnabled(const NvmlAnswer<unsigned>& answer);
std::string ShowYesNo(const NvmlAnswer<unsigned>& answer);
// Milliwatts as "62.34 W".
std::string ShowWatts(const NvmlAnswer<unsigned>& answer);
std::string ShowMib(bool known, std::uint64_t bytes);
// "0x07"
std::string Hex(unsigned value, int digits);

}  // namespace tessera::smi
