// SPDX-License-Identifier: Apache-2.0
#pragma once

// The return codes, handles, enumerations, field ids and sizes of NVML's ABI; see nvml_abi.h.

#include <cstdint>
#include <string_view>

namespace tessera::nvml {

enum class Return : int {
  kSuccess = 0,
#define NVML_ERROR(code, enumerator, name, since, text) enumerator = code,
#include "api/nvml_errors.inc"
#undef NVML_ERROR
};

// The vendor's names of errors, without "NVML_ERROR_".
struct ReturnName {
  Return value;
  std::string_view name;
};
inline constexpr ReturnName kReturnNames[] = {
#define NVML_ERROR(code, enumerator, name, since, text) {Return::enumerator, #name},
#include "api/nvml_errors.inc"
#undef NVML_ERROR
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

// Bits of the reasons why clocks are below their maximum.
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

// Results and arguments of nvmlDeviceGetP2PStatus.
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

// FabricInfoV3::health_mask without problems: two bits each for degraded bandwidth, route recovery,
// unhealthy routes and timeout recovery (2: no), then four bits for the configuration (1: correct).
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

// Field ids of nvmlDeviceGetFieldValues that the agent reads or the simulated driver answers.
enum FieldId : unsigned {
  kFieldEccCurrent = 1,
  kFieldEccPending = 2,
  kFieldEccSbeVolatile = 3,
  kFieldEccDbeVolatile = 4,
  kFieldEccSbeAggregate = 5,
  kFieldEccDbeAggregate = 6,
  // The counters of each memory (L1 cache, device memory, registers, …) are the fields from here to
  // kFieldEccLastLocation.
  kFieldEccFirstLocation = 7,
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
  kFieldNvLinkSpeedFirst = 84,  // link 0; then links 1 to 5
  kFieldNvLinkSpeedCommon = 90,
  kFieldNvLinkCount = 91,
  kFieldRetiredPendingSbe = 92,
  kFieldRetiredPendingDbe = 93,
  kFieldPcieReplay = 94,
  kFieldNvLinkSpeedSeventh = 132,  // link 6; then links 7 to 11
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
  kFieldHwThermalSlowdownNew = 270,  // after NVML 13.0
};

// Values of kFieldRecoveryAction.
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

}  // namespace tessera::nvml
