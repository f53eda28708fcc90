// SPDX-License-Identifier: Apache-2.0
// One reading of one GPU, and who makes it. Not for when GPUs are read (sampler.h).
//
// Threads: a GpuReader is used by one thread at a time. Any call may block for ever.
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
  int index = 0;  // in the driver's order
  std::string uuid;
  std::string model;
  std::string pci_bus_id;  // "00000000:07:00.0", as DCGM spells it
  // By position in the counters; nothing where the GPU has no value. In the metric's unit.
  std::vector<std::optional<double>> numbers;
  std::vector<std::string> texts;  // likewise; "" where there is none
  // For ContainerMeter, whatever the counters are.
  std::optional<uint64_t> energy_mj;    // since the driver was loaded
  std::optional<double> busy_fraction;  // of the time, by NVML
};

class GpuReader {
 public:
  // `nvml` outlives it and is initialized.
  GpuReader(gpu::Nvml* nvml, int index, std::shared_ptr<const CounterSpecs> counters);

  // What the GPU or the driver does not support is asked for once and left out. Errors: the GPU
  // does not tell who it is, or gives no value at all; FAILED_PRECONDITION: the session is dead.
  Result<GpuSample> Read();

 private:
  Status Identify();
  void ReadMemory(std::vector<std::optional<double>>* numbers);
  void ReadFields(GpuSample* sample);
  void ReadGpm(std::vector<std::optional<double>>* numbers);
  std::optional<double> ReadOne(Source source);
  std::string ReadText(Source source);
  // The value; nothing for an error, which is noted.
  template <typename T>
  std::optional<T> Take(Result<T> result);
  bool Wants(Source source) const { return sources_.contains(source); }

  gpu::Nvml* const nvml_;
  const int index_;
  const std::shared_ptr<const CounterSpecs> counters_;
  std::set<Source> sources_;  // that are read and that the GPU supports
  std::vector<gpu::FieldQuery> field_queries_;
  std::vector<unsigned> gpm_metrics_;

  gpu::NvmlDevice device_ = nullptr;
  GpuSample identity_;
  std::unique_ptr<gpu::GpmSample> gpm_before_;

  // Of the reading under way.
  bool unsupported_ = false;  // the last call of Take
  bool answered_ = false;     // any call
  Status problem_;            // the last error other than UNIMPLEMENTED
};

}  // namespace tessera::agent
