// SPDX-License-Identifier: Apache-2.0
#pragma once

// The C ABI of NVML (libnvidia-ml.so.1) on x86-64 Linux, in our own declarations: structs, and
// signatures of the functions that Tessera calls (src/gpu) or simulates (src/sim). nvml_values.h
// has the values, nvml_mig.h the structs of MIG. Not for: loading the library, nor for any
// behavior.
//
// Rules of the ABI:
// - Every function except nvmlErrorString returns a Return, as int.
// - A string is copied into the caller's buffer with a NUL at its end. A function whose buffer is
//   too small returns kInsufficientSize.
// - If a struct has a member `version`, the caller sets it to VersionOf<T>(n), unless the comment
//   of the struct states otherwise. Another value gives kArgumentVersionMismatch.
// - A wrong size or offset would corrupt the caller's stack, so both are asserted below.

#include <cstddef>
#include <cstdint>

#include "api/nvml_mig.h"
#include "api/nvml_values.h"

namespace tessera::nvml {

struct PciInfo {
  char bus_id_legacy[16];  // "0000:07:00.0"
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;     // device << 16 | vendor
  unsigned pci_subsystem_id;  // subsystem << 16 | its vendor
  char bus_id[32];            // "00000000:07:00.0"
};
static_assert(sizeof(PciInfo) == 68 && offsetof(PciInfo, bus_id) == 36);

struct PciInfoExt {
  unsigned version;
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_subsystem_id;
  unsigned base_class;
  unsigned sub_class;
  char bus_id[32];
};
static_assert(sizeof(PciInfoExt) == 64);

struct Memory {
  std::uint64_t total;
  std::uint64_t free;
  std::uint64_t used;  // includes what the driver reserves
};
static_assert(sizeof(Memory) == 24 && offsetof(Memory, used) == 16);

struct MemoryV2 {
  unsigned version;
  std::uint64_t total;
  std::uint64_t reserved;
  std::uint64_t free;
  std::uint64_t used;  // without reserved
};
static_assert(sizeof(MemoryV2) == 40 && offsetof(MemoryV2, free) == 24);

struct Bar1Memory {
  std::uint64_t total;
  std::uint64_t free;
  std::uint64_t used;
};
static_assert(sizeof(Bar1Memory) == 24);

struct Utilization {
  unsigned gpu;
  unsigned memory;
};
static_assert(sizeof(Utilization) == 8);

// The result of nvmlEventSetWait_v2. nvmlEventSetWait does not write the two instance ids.
struct EventData {
  Device device;
  std::uint64_t event_type;
  std::uint64_t event_data;  // the XID of kEventXid
  unsigned gpu_instance_id;
  unsigned compute_instance_id;
};
static_assert(sizeof(EventData) == 32 && offsetof(EventData, gpu_instance_id) == 24);

struct ProcessInfoV1 {
  unsigned pid;
  std::uint64_t used_gpu_memory;
};
static_assert(sizeof(ProcessInfoV1) == 16);

struct ProcessInfo {  // _v2 and _v3
  unsigned pid;
  std::uint64_t used_gpu_memory;  // or kMemoryNotAvailable
  unsigned gpu_instance_id;
  unsigned compute_instance_id;
};
static_assert(sizeof(ProcessInfo) == 24 && offsetof(ProcessInfo, compute_instance_id) == 20);

struct ProcessDetail {
  unsigned pid;
  std::uint64_t used_gpu_memory;
  unsigned gpu_instance_id;
  unsigned compute_instance_id;
  std::uint64_t used_protected_memory;
};
static_assert(sizeof(ProcessDetail) == 32);

struct ProcessDetailList {
  unsigned version;
  unsigned mode;  // 0 compute, 1 graphics, 2 MPS
  unsigned count;
  ProcessDetail* entries;
};
static_assert(sizeof(ProcessDetailList) == 24);

struct ProcessUtilizationSample {
  unsigned pid;
  std::uint64_t timestamp;  // microseconds
  unsigned sm;
  unsigned memory;
  unsigned encoder;
  unsigned decoder;
};
static_assert(sizeof(ProcessUtilizationSample) == 32);

struct ProcessUtilizationInfo {
  std::uint64_t timestamp;
  unsigned pid;
  unsigned sm;
  unsigned memory;
  unsigned encoder;
  unsigned decoder;
  unsigned jpeg;
  unsigned ofa;
};
static_assert(sizeof(ProcessUtilizationInfo) == 40);

struct ProcessesUtilizationInfo {
  unsigned version;
  unsigned count;
  std::uint64_t last_seen_timestamp;
  ProcessUtilizationInfo* entries;
};
static_assert(sizeof(ProcessesUtilizationInfo) == 24);

union Value {
  double d;
  int si;
  unsigned ui;
  unsigned long ul;
  std::uint64_t ull;
  std::int64_t sll;
  unsigned short us;
};
static_assert(sizeof(Value) == 8);

struct Sample {
  std::uint64_t timestamp;
  Value value;
};
static_assert(sizeof(Sample) == 16);

struct FieldValue {
  unsigned field_id;
  unsigned scope_id;
  std::int64_t timestamp;
  std::int64_t latency_us;
  unsigned value_type;
  Return result;
  Value value;
};
static_assert(sizeof(FieldValue) == 40 && offsetof(FieldValue, value) == 32);

struct DeviceAttributes {
  unsigned multiprocessor_count;
  unsigned shared_copy_engines;
  unsigned shared_decoders;
  unsigned shared_encoders;
  unsigned shared_jpegs;
  unsigned shared_ofas;
  unsigned gpu_instance_slices;
  unsigned compute_instance_slices;
  std::uint64_t memory_mb;
};
static_assert(sizeof(DeviceAttributes) == 40);

struct FabricInfo {
  unsigned char cluster_uuid[16];
  Return status;
  unsigned clique_id;
  unsigned char state;
};
static_assert(sizeof(FabricInfo) == 28);

struct FabricInfoV3 {  // v2 is the same without health_summary
  unsigned version;
  unsigned char cluster_uuid[16];
  Return status;
  unsigned clique_id;
  unsigned char state;
  unsigned health_mask;
  unsigned char health_summary;
};
static_assert(sizeof(FabricInfoV3) == 40 && offsetof(FabricInfoV3, health_mask) == 32 &&
              offsetof(FabricInfoV3, health_summary) == 36);
inline constexpr unsigned kFabricInfoV2Size = 36;

struct EccErrorCounts {
  std::uint64_t l1_cache;
  std::uint64_t l2_cache;
  std::uint64_t device_memory;
  std::uint64_t register_file;
};
static_assert(sizeof(EccErrorCounts) == 32);

struct EccSramErrorStatus {
  unsigned version;
  std::uint64_t aggregate_unc_parity;
  std::uint64_t aggregate_unc_secded;
  std::uint64_t aggregate_cor;
  std::uint64_t volatile_unc_parity;
  std::uint64_t volatile_unc_secded;
  std::uint64_t volatile_cor;
  std::uint64_t aggregate_unc_l2;
  std::uint64_t aggregate_unc_sm;
  std::uint64_t aggregate_unc_pcie;
  std::uint64_t aggregate_unc_mcu;
  std::uint64_t aggregate_unc_other;
  unsigned threshold_exceeded;
};
static_assert(sizeof(EccSramErrorStatus) == 104);

struct RowRemapperHistogram {
  unsigned max;
  unsigned high;
  unsigned partial;
  unsigned low;
  unsigned none;
};
static_assert(sizeof(RowRemapperHistogram) == 20);

struct ViolationTime {
  std::uint64_t reference_time;
  std::uint64_t violation_time;
};
static_assert(sizeof(ViolationTime) == 16);

struct AccountingStats {
  unsigned gpu_utilization;
  unsigned memory_utilization;
  std::uint64_t max_memory_usage;
  std::uint64_t time;
  std::uint64_t start_time;
  unsigned is_running;
  unsigned reserved[5];
};
static_assert(sizeof(AccountingStats) == 56);

struct Temperature {
  unsigned version;
  unsigned sensor;
  int temperature;
};
static_assert(sizeof(Temperature) == 12);

struct MarginTemperature {
  unsigned version;
  int margin;
};
static_assert(sizeof(MarginTemperature) == 8);

struct DriverBranchInfo {
  unsigned version;
  char branch[80];
};
static_assert(sizeof(DriverBranchInfo) == 84);

struct Uuid {
  unsigned version;
  unsigned type;  // 0 none, 1 ASCII, 2 binary
  union {
    char text[41];
    unsigned char bytes[16];
  } value;
};
static_assert(sizeof(Uuid) == 52);

struct GpmSupport {
  unsigned version;  // 1, not VersionOf
  unsigned is_supported;
};

struct GpmSampleTag;
using GpmSample = GpmSampleTag*;

struct GpmMetric {
  unsigned id;
  Return result;
  double value;
  const char* short_name;
  const char* long_name;
  const char* unit;
};
static_assert(sizeof(GpmMetric) == 40);

struct GpmMetrics {
  unsigned version;  // 1, not VersionOf
  unsigned count;
  GpmSample earlier;
  GpmSample later;
  GpmMetric metrics[1];  // as many as `count`
};
static_assert(offsetof(GpmMetrics, metrics) == 24);

struct PowerValue {  // nvmlPowerValue_v2_t
  unsigned version;
  unsigned char scope;  // 0 GPU, 1 module, 2 memory
  unsigned milliwatts;
};
static_assert(sizeof(PowerValue) == 12 && offsetof(PowerValue, milliwatts) == 8);

struct AddressingMode {
  unsigned version;
  unsigned value;  // 0 none, 1 HMM, 2 ATS
};
static_assert(sizeof(AddressingMode) == 8);

struct FbcStats {
  unsigned sessions;
  unsigned average_fps;
  unsigned average_latency;
};
static_assert(sizeof(FbcStats) == 12);

struct ConfComputeState {
  unsigned environment;
  unsigned feature;
  unsigned developer_tools;
};
static_assert(sizeof(ConfComputeState) == 12);

struct HwbcEntry {
  unsigned id;
  char firmware_version[32];
};

// The version word that a caller puts into a versioned struct.
template <typename T>
constexpr unsigned VersionOf(unsigned version) {
  return static_cast<unsigned>(sizeof(T)) | (version << 24);
}
static_assert(VersionOf<MemoryV2>(2) == 0x02000028);
static_assert(VersionOf<FabricInfoV3>(3) == 0x03000028);

// fn::<name> is the type of a pointer to the function <name> of the library, for dlsym.
namespace fn {
#define NVML_FUNCTION(name, parameters) using name = Return(*) parameters;
#include "api/nvml_functions.inc"
#undef NVML_FUNCTION
using nvmlErrorString = const char* (*)(Return);
}  // namespace fn

}  // namespace tessera::nvml
