// SPDX-License-Identifier: Apache-2.0
// A sample of one GPU's metrics, and the reader that takes it. sampler.h decides when GPUs are
// read.
//
// Threads: a GpuReader is used by one thread at a time. Any call may block forever.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/agent/exporter/counters.h"
#include "src/base/status.h"
#include "src/gpu/nvml.h"

namespace tessera::agent {

struct GpuSample {
  int index = 0;  // the driver's index
  std::string uuid;
  std::string model;
  std::string pci_bus_id;  // "00000000:07:00.0", as DCGM spells it
  // In the order of the counters and in the metric's unit; nullopt if the GPU has no value.
  std::vector<std::optional<double>> numbers;
  std::vector<std::string> texts;  // in the same order; "" if the GPU has no text
  // For ContainerMeter; read even if no counter needs them.
  std::optional<uint64_t> energy_mj;    // since the driver was loaded
  std::optional<double> busy_fraction;  // of the time, by NVML
};

class GpuReader {
 public:
  // `nvml` is initialized and must outlive the reader.
  GpuReader(gpu::Nvml* nvml, int index, std::shared_ptr<const CounterSpecs> counters);

  // A value that the GPU or the driver does not support is queried once and left out. Errors: the
  // GPU does not report its identity, or no value at all. FAILED_PRECONDITION: the NVML session is
  // dead; see gpu/nvml.h.
  Result<GpuSample> Read();

 private:
  Status Identify();
  void ReadMemory(std::vector<std::optional<double>>* numbers);
  void ReadFields(GpuSample* sample);
  void ReadGpm(std::vector<std::optional<double>>* numbers);
  std::optional<double> ReadNumber(FieldSource source);
  std::string ReadText(FieldSource source);
  // The value; nullopt after an error, which is recorded.
  template <typename T>
  std::optional<T> ValueOrRecord(Result<T> result);
  bool Wants(FieldSource source) const { return sources_.contains(source); }

  gpu::Nvml* const nvml_;
  const int index_;
  const std::shared_ptr<const CounterSpecs> counters_;
  // The sources that the counters or ContainerMeter need, without those that the GPU does not
  // support.
  std::set<FieldSource> sources_;
  std::vector<gpu::FieldQuery> field_queries_;
  std::vector<unsigned> gpm_metrics_;

  gpu::NvmlDevice device_ = nullptr;
  GpuSample identity_;
  std::unique_ptr<gpu::GpmSample> gpm_before_;

  // State of the current Read.
  bool unsupported_ = false;  // the last call of ValueOrRecord was unsupported
  bool answered_ = false;     // a call has succeeded or was unsupported
  Status problem_;            // the last error other than UNIMPLEMENTED
};

}  // namespace tessera::agent
