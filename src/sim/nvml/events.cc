// SPDX-License-Identifier: Apache-2.0
// Event sets. A set stores its position in the node's ring of events, so every set of every process
// gets every event once. Waiting uses a futex on the state, without a thread or polling.
#include <atomic>
#include <ctime>
#include <new>

#include "src/sim/nvml/session.h"

namespace tessera::nvml {

struct EventSetTag {
  std::uint64_t magic;
  std::atomic<std::uint64_t> last_read;  // sequence of the last read event
  // For each GPU: registered event types, and the event from which they count.
  std::atomic<std::uint64_t> types[sim::kMaxGpus];
  std::atomic<std::uint64_t> registered_at[sim::kMaxGpus];
};

namespace {

constexpr std::uint64_t kLiveSet = 0x74657373534554;
constexpr std::uint64_t kEccTypes = kEventSingleBitEcc | kEventDoubleBitEcc;

std::uint64_t SupportedTypes(const GpuCall& gpu) {
  return kEventXid | (gpu.facts().ecc_enabled != 0 ? kEccTypes : 0);
}

bool IsLive(EventSet set) { return set != nullptr && set->magic == kLiveSet; }

bool IsRegistered(const EventSetTag& set, const sim::EventView& event) {
  return event.gpu < sim::kMaxGpus && (set.types[event.gpu].load() & event.type) != 0 &&
         event.sequence > set.registered_at[event.gpu].load();
}

// Waits for a registered event that no other thread takes from the set.
bool WaitForRegistered(sim::State* state, EventSetTag* set, unsigned timeout_ms,
                       sim::EventView* event) {
  const std::uint64_t start_ms = sim::MonotonicNs() / 1000000;
  while (true) {
    const std::uint64_t waited_ms = sim::MonotonicNs() / 1000000 - start_ms;
    const unsigned remaining_ms =
        waited_ms >= timeout_ms ? 0 : timeout_ms - static_cast<unsigned>(waited_ms);
    std::uint64_t last = set->last_read.load();
    std::uint64_t next = last;
    const bool found = state->WaitEvent(&next, remaining_ms, event);
    // If several threads read the same event, the thread that advances `last` gets it.
    const bool is_first = set->last_read.compare_exchange_strong(last, next);
    if (!found) return false;
    if (is_first && IsRegistered(*set, *event)) return true;
  }
}

Return Wait(const char* function, EventSet set, EventData* data, unsigned timeout_ms,
            bool with_instances) {
  const NodeCall call(function);
  if (call.result() != Return::kSuccess) return call.result();
  NVML_REQUIRE(IsLive(set) && data != nullptr);
  sim::EventView event;
  if (!WaitForRegistered(&call.state(), set, timeout_ms, &event)) return Return::kTimeout;
  data->device = HandleOf(event.gpu);
  data->event_type = event.type;
  data->event_data = event.data;
  if (with_instances) {
    data->gpu_instance_id = kNoInstance;
    data->compute_instance_id = kNoInstance;
  }
  return Return::kSuccess;
}

}  // namespace

Return nvmlEventSetCreate(EventSet* set) {
  NVML_ENTER(call);
  NVML_REQUIRE(set != nullptr);
  auto* created = new (std::nothrow) EventSetTag{};
  if (created == nullptr) return Return::kMemory;
  created->magic = kLiveSet;
  created->last_read.store(call.state().event_count());
  *set = created;
  return Return::kSuccess;
}

Return nvmlEventSetFree(EventSet set) {
  NVML_ENTER(call);
  NVML_REQUIRE(IsLive(set));
  set->magic = 0;
  delete set;
  return Return::kSuccess;
}

Return nvmlEventSetWait(EventSet set, EventData* data, unsigned timeout_ms) {
  return Wait(__func__, set, data, timeout_ms, /*with_instances=*/false);
}
Return nvmlEventSetWait_v2(EventSet set, EventData* data, unsigned timeout_ms) {
  return Wait(__func__, set, data, timeout_ms, /*with_instances=*/true);
}

NVML_VALUE(nvmlDeviceGetSupportedEventTypes, std::uint64_t, SupportedTypes(gpu))

// NVML's documentation: "All events that occurred before this call are not recorded."
Return nvmlDeviceRegisterEvents(Device device, std::uint64_t types, EventSet set) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(IsLive(set) && types != 0);
  if ((types & ~SupportedTypes(gpu)) != 0) return Return::kNotSupported;
  if (set->types[gpu.gpu_index()].load() == 0) {
    set->registered_at[gpu.gpu_index()].store(gpu.state().event_count());
  }
  set->types[gpu.gpu_index()].fetch_or(types);
  return Return::kSuccess;
}

}  // namespace tessera::nvml
