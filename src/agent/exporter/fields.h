// SPDX-License-Identifier: Apache-2.0
// The table of dcgm-exporter's fields: name, type and help as in its default-counters.csv, and the
// NVML call that returns the value. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tessera::agent {

enum class FieldSource : uint8_t {
  kNone,  // a field of DCGM for which the exporter has no value
  kSmClock,
  kMemoryClock,
  kTemperature,
  kPower,  // milliwatts
  kGpuPercent,
  kMemoryPercent,
  kEncoderPercent,
  kDecoderPercent,
  kMemoryTotal,  // bytes
  kMemoryFree,
  kMemoryUsed,
  kMemoryReserved,
  kMemoryUsedRatio,
  kPcieReplays,
  kField,          // `id` is the field ID for nvmlDeviceGetFieldValues
  kFieldPair,      // the sum of fields `id` and `id` + 1, over all links
  kGpm,            // `id` is the metric ID for nvmlGpmMetricsGet
  kLastXid,        // XIDs come from the driver's events
  kXidTotal,       // one series for each code
  kXidInWindow,    // one series for each code; counts the recent XIDs
  kDriverVersion,  // this source and the following sources are texts
  kNvmlVersion,
  kSerial,
  kVbiosVersion,
};

inline bool IsText(FieldSource source) { return source >= FieldSource::kDriverVersion; }

struct Field {
  std::string_view name;
  std::string_view type;  // Prometheus type, or "label"
  FieldSource source = FieldSource::kNone;
  unsigned id = 0;
  double factor = 1;        // converts the source's unit to the metric's
  bool is_double = false;   // DCGM's value is a double: printed with six decimals
  bool is_default = false;  // active in default-counters.csv
  std::string_view help;
  std::string_view newer_name = {};  // since DCGM 4.6; "": same as `name`
};

// Returns all fields, in the order of default-counters.csv.
std::span<const Field> AllFields();
// Finds a field by either of its names. Returns null for a name that DCGM does not have. For a
// field of DCGM that is not in the table, returns a Field without name and source.
const Field* FindField(std::string_view name);

}  // namespace tessera::agent
