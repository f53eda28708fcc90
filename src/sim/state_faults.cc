// SPDX-License-Identifier: Apache-2.0
// Injected failures of NVML calls.
#include <errno.h>
#include <string.h>

#include "src/sim/futex.h"
#include "src/sim/state.h"

namespace tessera::sim {
namespace {

constexpr uint64_t kRecheckNs = 60'000'000'000;

bool Matches(const Fault& fault, const char* function, int32_t gpu) {
  const int32_t wanted = fault.gpu.load();
  if (wanted != kAllGpus && wanted != gpu) return false;
  return strcmp(fault.function, "*") == 0 || strcmp(fault.function, function) == 0;
}

// Counts the call. True: the fault applies to it.
bool CountCall(Fault& fault) {
  const uint64_t call = fault.calls.fetch_add(1) + 1;
  const uint64_t after = fault.after.load();
  const uint64_t times = fault.times.load();
  return call > after && (times == 0 || call <= after + times);
}

}  // namespace

uint32_t State::SlowCheckFault(const char* function, int32_t gpu) {
  if (!writable_) return 0;
  for (Fault& fault : file_->faults) {
    if (fault.state.load() != kFaultActive || !Matches(fault, function, gpu) || !CountCall(fault))
      continue;
    if (fault.hang.load() == 0) return fault.result.load();
    while (true) {
      const uint32_t signal = file_->fault_signal.load();
      if (fault.state.load() != kFaultActive) break;
      FutexWait(&file_->fault_signal, signal, kRecheckNs);
    }
  }
  return 0;
}

int State::AddFault(const char* function, int32_t gpu, uint32_t result, bool hang,
                    uint64_t skipped_calls, uint64_t times) {
  if (strlen(function) >= sizeof(Fault::function)) return EINVAL;
  for (Fault& fault : file_->faults) {
    uint32_t free = kFaultFree;
    if (!fault.state.compare_exchange_strong(free, kFaultClaimed)) continue;
    strcpy(fault.function, function);
    fault.gpu.store(gpu);
    fault.result.store(result);
    fault.hang.store(hang ? 1 : 0);
    fault.after.store(skipped_calls);
    fault.times.store(times);
    fault.calls.store(0);
    fault.state.store(kFaultActive);
    file_->active_faults.fetch_add(1);
    return 0;
  }
  return ENOSPC;
}

void State::ClearFaults(const char* function, int32_t gpu) {
  for (Fault& fault : file_->faults) {
    if (function != nullptr && (strcmp(fault.function, function) != 0 || fault.gpu.load() != gpu)) {
      continue;
    }
    uint32_t active = kFaultActive;
    if (fault.state.compare_exchange_strong(active, kFaultFree)) file_->active_faults.fetch_sub(1);
  }
  file_->fault_signal.fetch_add(1);
  FutexWakeAll(&file_->fault_signal);
}

}  // namespace tessera::sim
