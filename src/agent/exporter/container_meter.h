// SPDX-License-Identifier: Apache-2.0
// For each container and GPU, counts the time for which the container has held the GPU, the part of
// this time in which it ran no kernel, and the energy that it used. The energy of a GPU between two
// readings is divided by the fractions of the GPU's time that its containers used; the rest belongs
// to no pod. So the sum over all containers and the rest grows by exactly as much as the GPU's
// counter.
//
// The use of a share is the use that the driver or the limiters report. If the use of the only
// container of a GPU is not reported, the GPU's use takes its place. If several containers hold a
// GPU whole, their uses are unknown, and their energy is in the rest. The series of a container end
// when the container ends.
//
// sampler.h reads the GPUs. Threads: one. Cost: about 0.1 µs per container and call.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "src/agent/exporter/holders.h"
#include "src/base/clock.h"
#include "src/base/metrics.h"

namespace tessera::agent {

class ContainerMeter {
 public:
  struct ContainerRecord {
    MonotonicTime since{};              // first time that the container held the GPU
    MonotonicTime until{};              // last time that it held the GPU
    std::optional<Duration> idle_time;  // nullopt while the container's use is unknown
    std::optional<uint64_t> energy_mj;  // nullopt while the container's use is unknown
    std::optional<double> last_use;     // fraction of the GPU's time, as reported last
    double use_sum = 0;                 // sum of all reports since the last reading
    int reports = 0;
    bool ran_kernel = false;  // whether a report since the last reading shows a kernel

    Duration allocated() const { return until - since; }
  };
  struct MeteredGpu {
    std::optional<MonotonicTime> read_at;
    std::optional<uint64_t> energy_mj;  // the device's counter
    std::optional<uint64_t> rest_mj;    // energy that no container used, since the first reading
    std::map<ContainerName, ContainerRecord> containers;
  };
  struct Reading {
    MonotonicTime at{};
    std::optional<uint64_t> energy_mj;  // the device's counter; nullopt if the GPU has none
    std::optional<double> use;          // fraction of the time in which a kernel ran, by NVML
  };

  // Two readings show that a container was idle between them only if they are at most
  // `max_reading_interval` apart.
  explicit ContainerMeter(Duration max_reading_interval)
      : max_reading_interval_(max_reading_interval) {}

  // Replaces the holders. The time since the last call belongs to the previous holders.
  void SetHolders(MonotonicTime now, const Holdings& holdings);
  // `uses` holds all uses that are known now.
  void AddUses(const ContainerUses& uses);
  // A reading that is not newer than the last reading of its GPU is ignored. A counter that has
  // decreased was reset to 0.
  void AddReading(const std::string& uuid, const Reading& reading);

  // By UUID: all GPUs that have been held or read.
  const std::map<std::string, MeteredGpu>& gpus() const { return gpus_; }
  // Families with labels namespace, pod, container and uuid.
  void Write(MetricsText* text) const;

 private:
  void DivideEnergy(uint64_t energy_mj, const Reading& reading, MeteredGpu* gpu) const;
  void AddIdle(const Reading& reading, MeteredGpu* gpu) const;

  Duration max_reading_interval_;
  std::map<std::string, MeteredGpu> gpus_;
};

}  // namespace tessera::agent
