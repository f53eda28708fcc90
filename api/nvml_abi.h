// SPDX-License-Identifier: Apache-2.0
#pragma once

// The C ABI of NVML (libnvidia-ml.so.1) on x86-64 Linux, in our own declarations: handles, return
// codes, structs and the signatures of the functions that Tessera calls (src/gpu) or simulates
// (src/sim). Not for: loading the library, nor for any behaviour.
//
// Rules of the ABI: every function returns a Return as int, but nvmlErrorString. Strings are
// NUL-terminated into the caller's buffer, else kInsufficientSize. A struct with a `version` word
// carries VersionOf<T, n>(), which the caller sets; a mismatch is kArgumentVersionMismatch.
// Sizes and offsets are asserted below, since a wrong one corrupts the caller's stack.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera::nvml {

enum class Return : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNoPermission = 4,
  kAlreadyInitialized = 5,
  kNotFound = 6,
  kInsufficientSize = 7,
  kInsufficientPower = 8,
  kDriverNotLoaded = 9,
  kTimeout = 10,
  kIrqIssue = 11,
  kLibraryNotFound = 12,
  kFunctionNotFound = 13,
  kCorruptedInforom = 14,
  kGpuIsLost = 15,
  kResetRequired = 16,
  kOperatingSystem = 17,
  kLibRmVersionMismatch = 18,
  kInUse = 19,
  kMemory = 20,
  kNoData = 21,
  kVgpuEccNotSupported = 22,
  kInsufficientResources = 23,
  kFreqNotSupported = 24,
  kArgumentVersionMismatch = 25,
  kDeprecated = 26,
  kNotReady = 27,
  kGpuNotFound = 28,
  kInvalidState = 29,
  kResetTypeNotSupported = 30,
  kUnknown = 999,
};

// The vendor's names, without "NVML_ERROR_".
struct ReturnName {
  Return value;
  std::string_view name;
};
inline constexpr ReturnName kReturnNames[] = {
    {Return::kUninitialized, "UNINITIALIZED"},
    {Return::kInvalidArgument, "INVALID_ARGUMENT"},
    {Return::kNotSupported, "NOT_SUPPORTED"},
    {Return::kNoPermission, "NO_PERMISSION"},
    {Return::kAlreadyInitialized, "ALREADY_INITIALIZED"},
    {Return::kNotFound, "NOT_FOUND"},
    {Return::kInsufficientSize, "INSUFFICIENT_SIZE"},
    {Return::kInsufficientPower, "INSUFFICIENT_POWER"},
    {Return::kDriverNotLoaded, "DRIVER_NOT_LOADED"},
    {Return::kTimeout, "TIMEOUT"},
    {Return::kIrqIssue, "IRQ_ISSUE"},
    {Return::kLibraryNotFound, "LIBRARY_NOT_FOUND"},
    {Return::kFunctionNotFound, "FUNCTION_NOT_FOUND"},
    {Return::kCorruptedInforom, "CORRUPTED_INFOROM"},
    {Return::kGpuIsLost, "GPU_IS_LOST"},
    {Return::kResetRequired, "RESET_REQUIRED"},
    {Return::kOperatingSystem, "OPERATING_SYSTEM"},
    {Return::kLibRmVersionMismatch, "LIB_RM_VERSION_MISMATCH"},
    {Return::kInUse, "IN_USE"},
    {Return::kMemory, "MEMORY"},
    {Return::kNoData, "NO_DATA"},
    {Return::kVgpuEccNotSupported, "VGPU_ECC_NOT_SUPPORTED"},
    {Return::kInsufficientResources, "INSUFFICIENT_RESOURCES"},
    {Return::kFreqNotSupported, "FREQ_NOT_SUPPORTED"},
    {Return::kArgumentVersionMismatch, "ARGUMENT_VERSION_MISMATCH"},
    {Return::kDeprecated, "DEPRECATED"},
    {Return::kNotReady, "NOT_READY"},
    {Return::kGpuNotFound, "GPU_NOT_FOUND"},
    {Return::kInvalidState, "INVALID_STATE"},
    {Return::kResetTypeNotSupported, "RESET_TYPE_NOT_SUPPORTED"},
    {Return::kUnknown, "UNKNOWN"},
};

// Handles are opaque; they stay valid until the last nvmlShutdown of the process.
struct DeviceTag;
struct EventSetTag;
struct GpuInstanceTag;
struct ComputeInstanceTag;
struct UnitTag;
using Device = DeviceTag*;
using EventSet = EventSetTag*;
using GpuInstance = GpuInstanceTag*;
using ComputeInstance = ComputeInstanceTag*;
using Unit = UnitTag*;

// Enumerations cross the ABI as unsigned int; their values are named here.
inline constexpr unsigned kFeatureDisabled = 0;
inline constexpr unsigned kFeatureEnabled = 1;

enum InitFlag : unsigned { kInitNoGpus = 1, kInitNoAttach = 2, kInitForce = 4 };

enum TopologyLevel : unsigned {
  kTopologyInternal = 0,
  kTopologySingle = 10,
  kTopologyMultiple = 20,
  kTopologyHostBridge = 30,
  kTopologyNode = 40,
  kTopologySystem = 50,
};

enum EventType : std::uint64_t {
  kEventSingleBitEcc = 0x1,
  kEventDoubleBitEcc = 0x2,
  kEventPState = 0x4,
  kEventXid = 0x8,
  kEventClock = 0x10,
  kEventPowerSource = 0x80,
  kEventMigConfig = 0x100,
};

enum NvLinkDeviceType : unsigned {
  kNvLinkGpu = 0,
  kNvLinkIbmNpu = 1,
  kNvLinkSwitch = 2,
  kNvLinkUnknown = 0xFF,
};

enum NvLinkCapability : unsigned {
  kNvLinkP2p = 0,
  kNvLinkSysmemAccess = 1,
  kNvLinkP2pAtomics = 2,
  kNvLinkSysmemAtomics = 3,
  kNvLinkSliBridge = 4,
  kNvLinkValid = 5,
};

// Counters of nvmlDeviceGetNvLinkErrorCounter.
enum NvLinkErrorCounter : unsigned {
  kNvLinkReplayErrors = 0,
  kNvLinkRecoveryErrors = 1,
  kNvLinkCrcFlitErrors = 2,
  kNvLinkCrcDataErrors = 3,
  kNvLinkEccDataErrors = 4,
};

// Bits of what holds the clocks down.
enum ClocksEventReason : std::uint64_t {
  kReasonGpuIdle = 0x1,
  kReasonApplicationsClocks = 0x2,
  kReasonSwPowerCap = 0x4,
  kReasonHwSlowdown = 0x8,
  kReasonSyncBoost = 0x10,
  kReasonSwThermal = 0x20,
  kReasonHwThermal = 0x40,
  kReasonHwPowerBrake = 0x80,
  kReasonDisplayClocks = 0x100,
};
inline constexpr std::uint64_t kReasonsThermal = kReasonSwThermal | kReasonHwThermal;

// Status of nvmlDeviceGetP2PStatus, and what is asked for.
enum P2pStatus : unsigned {
  kP2pOk = 0,
  kP2pChipsetNotSupported = 1,
  kP2pGpuNotSupported = 2,
  kP2pTopologyNotSupported = 3,
  kP2pDisabled = 4,
  kP2pNotSupported = 5,
  kP2pUnknown = 6,
};
enum P2pIndex : unsigned { kP2pRead, kP2pWrite, kP2pNvLink, kP2pAtomics, kP2pPci, kP2pIndexes };

enum FabricState : unsigned char {
  kFabricNotSupported = 0,
  kFabricNotStarted = 1,
  kFabricInProgress = 2,
  kFabricCompleted = 3,
};

// FabricInfoV3::health_mask, two bits for each of bandwidth, recovery of routes, health of routes
// and recovery from time-outs (2: no trouble), then four for the configuration (1: right).
inline constexpr unsigned kFabricHealthy = 0x1AA;
inline constexpr unsigned char kFabricSummaryHealthy = 1;

enum Architecture : unsigned {
  kArchKepler = 2,
  kArchMaxwell = 3,
  kArchPascal = 4,
  kArchVolta = 5,
  kArchTuring = 6,
  kArchAmpere = 7,
  kArchAda = 8,
  kArchHopper = 9,
  kArchBlackwell = 10,
  kArchRubin = 13,
  kArchUnknown = 0xFFFFFFFF,
};

enum Brand : unsigned { kBrandUnknown = 0, kBrandTesla = 2, kBrandNvidia = 14 };

enum ClockType : unsigned { kClockGraphics = 0, kClockSm = 1, kClockMem = 2, kClockVideo = 3 };

enum ComputeMode : unsigned {
  kComputeDefault = 0,
  kComputeExclusiveThread = 1,
  kComputeProhibited = 2,
  kComputeExclusiveProcess = 3,
};

enum ValueType : unsigned {
  kValueDouble = 0,
  kValueUnsignedInt = 1,
  kValueUnsignedLong = 2,
  kValueUnsignedLongLong = 3,
  kValueSignedLongLong = 4,
  kValueSignedInt = 5,
  kValueUnsignedShort = 6,
};

// Field ids of nvmlDeviceGetFieldValues that somebody here reads or answers.
enum FieldId : unsigned {
  kFieldEccCurrent = 1,
  kFieldEccPending = 2,
  kFieldEccSbeVolatile = 3,
  kFieldEccDbeVolatile = 4,
  kFieldEccSbeAggregate = 5,
  kFieldEccDbeAggregate = 6,
  kFieldEccFirstLocation = 7,  // by memory, to kFieldEccLastLocation
  kFieldEccSbeVolatileDevice = 11,
  kFieldEccDbeVolatileDevice = 12,
  kFieldEccSbeAggregateDevice = 22,
  kFieldEccDbeAggregateDevice = 23,
  kFieldEccLastLocation = 28,
  kFieldRetiredSbe = 29,
  kFieldRetiredDbe = 30,
  kFieldRetiredPending = 31,
  kFieldPowerViolation = 74,
  kFieldThermalViolation = 75,
  kFieldMemoryTemp = 82,
  kFieldTotalEnergy = 83,
  kFieldNvLinkSpeedFirst = 84,  // of links 0 to 5
  kFieldNvLinkSpeedCommon = 90,
  kFieldNvLinkCount = 91,
  kFieldRetiredPendingSbe = 92,
  kFieldRetiredPendingDbe = 93,
  kFieldPcieReplay = 94,
  kFieldNvLinkSpeedSeventh = 132,  // of links 6 to 11
  kFieldRemappedCorrectable = 142,
  kFieldRemappedUncorrectable = 143,
  kFieldRemappedPending = 144,
  kFieldRemappedFailure = 145,
  kFieldNvLinkRemoteLink = 146,
  kFieldNvSwitchConnectedLinks = 147,
  kFieldNvLinkGetSpeed = 164,
  kFieldNvLinkGetState = 165,
  kFieldNvLinkGetVersion = 166,
  kFieldC2cLinkCount = 170,
  kFieldPowerAverage = 185,
  kFieldPowerInstant = 186,
  kFieldPowerMinLimit = 187,
  kFieldPowerMaxLimit = 188,
  kFieldPowerDefaultLimit = 189,
  kFieldPowerCurrentLimit = 190,
  kFieldEnergy = 191,
  kFieldPowerRequestedLimit = 192,
  kFieldResetStatus = 226,
  kFieldDrainAndResetStatus = 227,
  kFieldRecoveryAction = 230,
  kFieldHwThermalSlowdown = 252,     // up to NVML 13.0
  kFieldHwThermalSlowdownNew = 270,  // since
};

// What kFieldRecoveryAction answers.
enum RecoveryAction : unsigned {
  kRecoveryNone = 0,
  kRecoveryResetGpu = 1,
  kRecoveryReboot = 2,
  kRecoveryDrainP2p = 3,
  kRecoveryDrainAndReset = 4,
};

inline constexpr unsigned kNvLinkMaxLinks = 36;
inline constexpr unsigned kUuidBufferSize = 96;
inline constexpr unsigned kNameBufferSize = 96;
inline constexpr unsigned kVersionBufferSize = 80;
inline constexpr unsigned kSerialBufferSize = 30;
inline constexpr unsigned kNoInstance = 0xFFFFFFFF;
inline constexpr std::uint64_t kMemoryNotAvailable = ~std::uint64_t{0};

struct PciInfo {
  char bus_id_legacy[16];  // "0000:07:00.0"
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;     // device << 16 | vendor
  unsigned pci_subsystem_id;  // likewise
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

// Of nvmlEventSetWait_v2. The v1 call leaves the two instance ids untouched.
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

struct Placement {
  unsigned start;
  unsigned size;
};

struct GpuInstanceProfileInfo {
  unsigned id;
  unsigned p2p_supported;
  unsigned slices;
  unsigned instances;
  unsigned multiprocessors;
  unsigned copy_engines;
  unsigned decoders;
  unsigned encoders;
  unsigned jpegs;
  unsigned ofas;
  std::uint64_t memory_mb;
};
static_assert(sizeof(GpuInstanceProfileInfo) == 48);

struct GpuInstanceInfo {
  Device device;
  unsigned id;
  unsigned profile_id;
  Placement placement;
};
static_assert(sizeof(GpuInstanceInfo) == 24);

struct ComputeInstanceInfo {
  Device device;
  GpuInstance gpu_instance;
  unsigned id;
  unsigned profile_id;
  Placement placement;
};
static_assert(sizeof(ComputeInstanceInfo) == 32);

struct ComputeInstanceProfileInfo {
  unsigned id;
  unsigned slices;
  unsigned instances;
  unsigned multiprocessors;
  unsigned shared_copy_engines;
  unsigned shared_decoders;
  unsigned shared_encoders;
  unsigned shared_jpegs;
  unsigned shared_ofas;
};
static_assert(sizeof(ComputeInstanceProfileInfo) == 36);

// Since 510, with a name; version 3 has capabilities instead of p2p_supported.
struct GpuInstanceProfileInfoV2 {
  unsigned version;
  unsigned id;
  unsigned p2p_supported;
  unsigned slices;
  unsigned instances;
  unsigned multiprocessors;
  unsigned copy_engines;
  unsigned decoders;
  unsigned encoders;
  unsigned jpegs;
  unsigned ofas;
  std::uint64_t memory_mb;
  char name[96];
};
static_assert(sizeof(GpuInstanceProfileInfoV2) == 152);

struct GpuInstanceProfileInfoV3 {
  unsigned version;
  unsigned id;
  unsigned slices;
  unsigned instances;
  unsigned multiprocessors;
  unsigned copy_engines;
  unsigned decoders;
  unsigned encoders;
  unsigned jpegs;
  unsigned ofas;
  std::uint64_t memory_mb;
  char name[96];
  unsigned capabilities;
};
static_assert(sizeof(GpuInstanceProfileInfoV3) == 152);

struct ComputeInstanceProfileInfoV2 {
  unsigned version;
  unsigned id;
  unsigned slices;
  unsigned instances;
  unsigned multiprocessors;
  unsigned shared_copy_engines;
  unsigned shared_decoders;
  unsigned shared_encoders;
  unsigned shared_jpegs;
  unsigned shared_ofas;
  char name[96];
};
static_assert(sizeof(ComputeInstanceProfileInfoV2) == 136);

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
