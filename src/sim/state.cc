// SPDX-License-Identifier: Apache-2.0
#include "src/sim/state.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <iterator>
#include <vector>

#include "src/sim/futex.h"
#include "src/sim/state_socket.h"

namespace tessera::sim {
namespace {

constexpr uint64_t kLoadWindowNs = 1'000'000'000;

uint64_t RealtimeNs() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return uint64_t(now.tv_sec) * 1'000'000'000 + uint64_t(now.tv_nsec);
}

// The busy time before `at`. `total` is the busy time before `until`. REQUIRES: busy from `at` to
// `until`.
uint64_t BusyBefore(uint64_t total, uint64_t until, uint64_t at) {
  const uint64_t to_come = until > at ? until - at : 0;
  return total > to_come ? total - to_come : 0;
}

// The descriptor of a `slots` file, one for the whole process and never closed (state.h). It keeps
// the inode alive, so device and inode identify the file. `open_file` opens a file that is not open
// yet; -1: errno has the reason.
template <typename Open>
int SharedSlotsFd(dev_t device, ino_t inode, Open open_file) {
  struct OpenFile {
    dev_t device;
    ino_t inode;
    int fd;
  };
  static std::mutex mutex;
  static OpenFile open_files[256];
  static size_t count = 0;
  std::lock_guard lock(mutex);
  for (size_t i = 0; i < count; ++i) {
    if (open_files[i].device == device && open_files[i].inode == inode) return open_files[i].fd;
  }
  if (count == std::size(open_files)) return errno = EMFILE, -1;
  struct stat info;
  const int fd = open_file();
  if (fd < 0 || fstat(fd, &info) != 0) return -1;
  open_files[count++] = {info.st_dev, info.st_ino, fd};
  return fd;
}

// The files of a node. `slots` is shared and never closed.
struct OpenedFiles {
  int state = -1, slots = -1;
  int slots_error = 0;
  bool writable = true;
};

int OpenFolder(const std::string& dir, OpenedFiles* files) {
  const std::string path = dir + "/state", slots = dir + "/slots";
  files->state = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (files->state < 0 && (errno == EACCES || errno == EROFS || errno == EPERM)) {
    files->writable = false;
    files->state = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  }
  if (files->state < 0) return errno;
  struct stat info;
  if (stat(slots.c_str(), &info) == 0) {
    files->slots = SharedSlotsFd(info.st_dev, info.st_ino, [&] {
      const int fd = open(slots.c_str(), O_RDWR | O_CLOEXEC);
      return fd >= 0 ? fd : open(slots.c_str(), O_RDONLY | O_CLOEXEC);
    });
  }
  if (files->slots < 0) files->slots_error = errno;
  return 0;
}

int ReceiveFiles(const std::string& path, OpenedFiles* files) {
  const int socket = ConnectTo(path);
  if (socket < 0) return errno;
  SlotsFileId node = {};
  int error = 0;
  if (ReceiveFile(socket, &node, sizeof(node), &files->state)) {
    files->slots = SharedSlotsFd(node.slots_device, node.slots_inode, [&] {
      char more = 0;
      int fd = -1;
      return ReceiveFile(socket, &more, sizeof(more), &fd) ? fd : -1;
    });
  }
  if (files->slots < 0) error = errno;
  close(socket);
  return error;
}

// Writes all of `size` bytes.
bool WriteAll(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t written = write(fd, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    data += written;
    size -= size_t(written);
  }
  return true;
}

// Begins or ends a period of throttling.
void UpdateThrottlingPeriod(bool is_throttled, AtomicU64* since_ns, AtomicU64* before_ns) {
  if (is_throttled) {
    uint64_t none = 0;
    since_ns->compare_exchange_strong(none, MonotonicNs());
    return;
  }
  const uint64_t since = since_ns->exchange(0);
  if (since != 0) before_ns->fetch_add(MonotonicNs() - since);
}

uint64_t ThrottlingNs(const AtomicU64& since_ns, const AtomicU64& before_ns) {
  const uint64_t since = since_ns.load();
  return before_ns.load() + (since != 0 ? MonotonicNs() - since : 0);
}

// The counter of that name, which is added if it is new. Null: the table is full. Other processes
// may add counters at the same time.
AtomicU64* FindCounter(NamedCounter (&counters)[kMaxCounters], const char* name) {
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < sizeof(NamedCounter::name) - 1 && name[i] != '\0'; ++i) {
    hash = (hash ^ uint8_t(name[i])) * 16777619u;
  }
  for (uint32_t step = 0; step < kMaxCounters; ++step) {
    NamedCounter& counter = counters[(hash + step) % kMaxCounters];
    uint32_t free = kCounterFree;
    if (counter.state.load() == kCounterFree &&
        counter.state.compare_exchange_strong(free, kCounterClaimed)) {
      strncpy(counter.name, name, sizeof(counter.name) - 1);
      counter.state.store(kCounterReady);
    }
    // If another process writes the same name at this moment, the table has two entries of that
    // name. Readers add them up.
    if (counter.state.load() == kCounterReady &&
        strncmp(counter.name, name, sizeof(counter.name) - 1) == 0) {
      return &counter.count;
    }
  }
  return nullptr;
}

}  // namespace

uint64_t MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1'000'000'000 + uint64_t(now.tv_nsec);
}

std::string State::FindDir(const void* address) {
  if (const char* dir = getenv("SIMGPU_STATE_DIR"); dir != nullptr && *dir != '\0') return dir;
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "";
  // The real path, because a SONAME link may be outside of the driver root.
  char* real = realpath(info.dli_fname, nullptr);
  std::string path = real != nullptr ? real : info.dli_fname;
  free(real);
  for (size_t slash = path.rfind('/'); slash != std::string::npos; slash = path.rfind('/')) {
    path.resize(slash);
    const std::string dir = path + "/run/simgpu";
    if (access((dir + "/state").c_str(), F_OK) == 0) return dir;
  }
  return IsSocket(kStateSocket) ? kStateSocket : "";
}

State::~State() {
  if (file_ != nullptr) munmap(file_, sizeof(StateFile));
}

int State::Open(const std::string& dir) {
  OpenedFiles files;
  int error = IsSocket(dir) ? ReceiveFiles(dir, &files) : OpenFolder(dir, &files);
  struct stat info;
  void* memory = MAP_FAILED;
  if (error == 0 && fstat(files.state, &info) != 0) error = errno;
  if (error == 0 && size_t(info.st_size) < sizeof(StateFile)) error = EPROTO;
  if (error == 0) error = files.slots_error;
  if (error == 0) {
    const int protection = files.writable ? PROT_READ | PROT_WRITE : PROT_READ;
    memory = mmap(nullptr, sizeof(StateFile), protection, MAP_SHARED, files.state, 0);
    if (memory == MAP_FAILED) error = errno;
  }
  if (files.state >= 0) close(files.state);
  if (error != 0) return error;
  auto* file = static_cast<StateFile*>(memory);
  if (file->magic != kStateMagic || file->version != kStateVersion ||
      file->size != sizeof(StateFile) || file->gpu_count > kMaxGpus) {
    munmap(memory, sizeof(StateFile));
    return EPROTO;
  }
  dir_ = dir;
  file_ = file;
  slots_fd_ = files.slots;
  writable_ = files.writable;
  inode_ = info.st_ino;
  return 0;
}

int State::Create(const std::string& dir, const StateFile& image) {
  // Every user of a container may use its GPUs, so all users may write the files.
  const std::string slots = dir + "/slots";
  int fd = open(slots.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0 || fchmod(fd, 0666) != 0) return errno;
  close(fd);
  const std::string path = dir + "/state";
  const std::string fresh = path + ".new";
  fd = open(fresh.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return errno;
  int error = 0;
  // Slots are zero, so they stay a hole in the file.
  const size_t head = offsetof(StateFile, slots);
  if (!WriteAll(fd, reinterpret_cast<const char*>(&image), head) ||
      ftruncate(fd, sizeof(StateFile)) != 0 || fchmod(fd, 0666) != 0 ||
      rename(fresh.c_str(), path.c_str()) != 0) {
    error = errno;
    unlink(fresh.c_str());
  }
  close(fd);
  return error;
}

std::string State::DevicePath(const char* name) {
  const char* root = getenv("SIMGPU_DEV_ROOT");
  return std::string(root == nullptr ? "" : root) + "/dev/" + name;
}

bool State::DeviceFileExists(uint32_t gpu) const {
  const std::string name = "nvidia" + std::to_string(facts(gpu).minor);
  return access(DevicePath(name.c_str()).c_str(), F_OK) == 0;
}

int State::HolderOf(uint32_t byte) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = off_t(byte);
  lock.l_len = 1;
  if (fcntl(slots_fd_, F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return -1;
  return lock.l_pid < 0 ? 0 : lock.l_pid;
}

uint64_t State::SumBytes(uint32_t gpu, bool only_live, uint32_t gpu_instance) {
  uint64_t sum = 0;
  const SimGpuState& gpu_state = file_->gpu_states[gpu];
  const uint32_t used = file_->slots_end.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < used && i < kMaxSlots; ++i) {
    const SlotRecord& slot = file_->slots[i];
    const uint64_t bytes = slot.gpus[gpu].bytes.load(std::memory_order_relaxed);
    if (bytes == 0 || slot.claim_id.load(std::memory_order_relaxed) == 0) continue;
    if (gpu_instance != kWholeGpu) {
      const uint32_t instance_plus_1 =
          slot.gpus[gpu].instance_plus_1.load(std::memory_order_relaxed);
      if (instance_plus_1 == 0 ||
          gpu_state.compute_instances[instance_plus_1 - 1].gpu_instance.load() != gpu_instance)
        continue;
    }
    if (!only_live || HolderOf(i) >= 0) sum += bytes;
  }
  const uint32_t shared = file_->shared_end[gpu].load();
  for (uint32_t i = 0; i < shared; ++i) {
    const SharedMemory& memory = file_->shared[gpu][i];
    if (gpu_instance != kWholeGpu && memory.gpu_instance_plus_1.load() != gpu_instance + 1)
      continue;
    if (FirstHolder(memory, only_live) != kMaxSlots) sum += memory.bytes.load();
  }
  return sum;
}

uint32_t State::Processes(uint32_t gpu, ProcessView* views, uint32_t capacity) {
  uint32_t count = 0;
  const uint64_t now = MonotonicNs();
  const uint64_t newest = NewestProcessTimeSample(now);
  const uint32_t shared = file_->shared_end[gpu].load();
  std::vector<uint32_t> payers(shared);
  for (uint32_t i = 0; i < shared; ++i)
    payers[i] = FirstHolder(file_->shared[gpu][i], /*only_live=*/true);
  const uint32_t used = file_->slots_end.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < used && i < kMaxSlots; ++i) {
    const SlotRecord& slot = file_->slots[i];
    const SlotGpu& slot_gpu = slot.gpus[gpu];
    uint64_t bytes = slot_gpu.bytes.load();
    for (uint32_t k = 0; k < shared; ++k) {
      if (payers[k] == i) bytes += file_->shared[gpu][k].bytes.load();
    }
    if (slot.claim_id.load() == 0 || (bytes == 0 && slot_gpu.contexts.load() == 0)) continue;
    const int pid = HolderOf(i);
    if (pid < 0) continue;
    if (count < capacity) {
      ProcessView& view = views[count];
      view.slot = i;
      view.pid = pid;
      view.bytes = bytes;
      view.contexts = slot_gpu.contexts.load();
      view.instance_plus_1 = slot_gpu.instance_plus_1.load();
      const uint64_t turns = slot_gpu.turn_count.load();
      const uint64_t until =
          turns == 0 ? 0 : slot_gpu.turns[(turns - 1) % kTurnRecords].end_ns.load();
      view.busy_ns = BusyBefore(slot_gpu.turns_ns.load(), until, now);
      view.sample_index = newest;
      const ProcessTimeSample& sample = slot_gpu.samples[newest % kProcessTimeSamples];
      view.sample_busy_ns = sample.index.load() == newest ? sample.busy_ns.load() : 0;
      memcpy(view.name, slot.name, sizeof(view.name));
      view.name[sizeof(view.name) - 1] = '\0';
    }
    ++count;
  }
  return count;
}

uint64_t State::NewestProcessTimeSample(uint64_t now_ns) {
  const uint64_t shown_until = now_ns > kSampleDelayNs ? now_ns - kSampleDelayNs : 0;
  return shown_until < kSamplePeriodNs ? 0 : shown_until / kSamplePeriodNs - 1;
}

uint64_t State::BusyNs(uint32_t gpu) {
  const uint64_t now = MonotonicNs();
  const SimGpuState& gpu_state = file_->gpu_states[gpu];
  uint64_t sum =
      BusyBefore(gpu_state.turns.busy_ns.load(), gpu_state.turns.busy_until_ns.load(), now);
  for (const ComputeInstance& instance : gpu_state.compute_instances) {
    const TurnQueue& turns = instance.turns;
    sum += BusyBefore(turns.busy_ns.load(), turns.busy_until_ns.load(), now);
  }
  return sum;
}

uint32_t State::PowerLimitMw(uint32_t gpu) const {
  const uint32_t chosen = file_->gpu_states[gpu].power_limit_mw.load();
  return chosen != 0 ? chosen : facts(gpu).power_limit_mw;
}

bool State::IsThermallyThrottled(uint32_t gpu) const {
  const uint32_t injected_c = file_->gpu_states[gpu].temperature_c.load();
  const uint32_t slowdown = facts(gpu).temperature_slowdown_c;
  return injected_c != kDerived && slowdown != 0 && injected_c >= slowdown;
}

bool State::IsPowerThrottled(uint32_t gpu) const {
  const uint32_t injected_mw = file_->gpu_states[gpu].power_mw.load();
  return injected_mw != kDerived && injected_mw >= PowerLimitMw(gpu);
}

void State::UpdateThrottling(uint32_t gpu) {
  SimGpuState& gpu_state = file_->gpu_states[gpu];
  UpdateThrottlingPeriod(IsThermallyThrottled(gpu), &gpu_state.thermal_throttling_since_ns,
                         &gpu_state.thermal_throttling_before_ns);
  UpdateThrottlingPeriod(IsPowerThrottled(gpu), &gpu_state.power_throttling_since_ns,
                         &gpu_state.power_throttling_before_ns);
}

uint64_t State::ThermalThrottlingNs(uint32_t gpu) const {
  const SimGpuState& gpu_state = file_->gpu_states[gpu];
  return ThrottlingNs(gpu_state.thermal_throttling_since_ns,
                      gpu_state.thermal_throttling_before_ns);
}

uint64_t State::PowerThrottlingNs(uint32_t gpu) const {
  const SimGpuState& gpu_state = file_->gpu_states[gpu];
  return ThrottlingNs(gpu_state.power_throttling_since_ns, gpu_state.power_throttling_before_ns);
}

GpuUtilization State::Utilization(uint32_t gpu) {
  const SimGpuState& gpu_state = file_->gpu_states[gpu];
  const uint64_t now = MonotonicNs();
  const uint64_t from = now > kLoadWindowNs ? now - kLoadWindowNs : 0;
  const uint64_t busy_now = BusyNs(gpu);
  // The last sample at or before the start of the window has the busy time until then.
  uint64_t busy_then = 0;
  const uint64_t samples = gpu_state.turns.busy_sample_count.load();
  bool found = false;
  for (uint64_t i = samples; i > 0 && i + kBusySamples > samples && !found; --i) {
    const BusySample& sample = gpu_state.turns.busy_samples[(i - 1) % kBusySamples];
    busy_then = BusyBefore(sample.total_ns.load(), sample.until_ns.load(), from);
    found = sample.time_ns.load() <= from;
  }
  // A process that is killed leaves no sample of its last turns; they end at `busy_until_ns`.
  busy_then = std::max(busy_then, BusyBefore(gpu_state.turns.busy_ns.load(),
                                             gpu_state.turns.busy_until_ns.load(), from));
  uint64_t percent = busy_now > busy_then ? (busy_now - busy_then) * 100 / kLoadWindowNs : 0;
  if (percent > 100) percent = 100;
  GpuUtilization load;
  const uint32_t injected_gpu = gpu_state.utilization_gpu.load();
  const uint32_t injected_memory = gpu_state.utilization_memory.load();
  load.gpu = injected_gpu != kDerived ? injected_gpu : uint32_t(percent);
  load.memory = injected_memory != kDerived ? injected_memory : load.gpu / 2;
  return load;
}

void State::PostEvent(uint32_t gpu, uint64_t type, uint64_t data) {
  const uint64_t sequence = file_->event_count.fetch_add(1) + 1;
  Event& event = file_->events[sequence % kMaxEvents];
  event.sequence.store(0);
  event.type.store(type);
  event.data.store(data);
  event.time_ns.store(RealtimeNs());
  event.gpu.store(gpu);
  event.sequence.store(sequence);
  file_->event_signal.fetch_add(1);
  FutexWakeAll(&file_->event_signal);
}

bool State::WaitEvent(uint64_t* last, uint32_t timeout_ms, EventView* view) {
  const uint64_t deadline = MonotonicNs() + uint64_t(timeout_ms) * 1'000'000;
  while (true) {
    const uint32_t signal = file_->event_signal.load();
    const uint64_t count = file_->event_count.load();
    if (count > *last + kMaxEvents - 1) *last = count - (kMaxEvents - 1);
    if (count > *last) {
      const Event& event = file_->events[(*last + 1) % kMaxEvents];
      const uint64_t sequence = event.sequence.load();
      *view = {sequence, event.type.load(), event.data.load(), event.time_ns.load(),
               event.gpu.load()};
      // A writer may have overwritten the event meanwhile.
      if (sequence == *last + 1 && event.sequence.load() == sequence) {
        ++*last;
        return true;
      }
    }
    const uint64_t now = MonotonicNs();
    if (now >= deadline) {
      // Skips an event whose writer died before it was complete.
      if (count > *last && timeout_ms > 0) ++*last;
      return false;
    }
    FutexWait(&file_->event_signal, signal, deadline - now);
  }
}

void State::CountUnimplemented(const char* function) {
  if (!writable_) return;
  if (AtomicU64* counter = FindCounter(file_->counters, function)) counter->fetch_add(1);
}

AtomicU64* State::KernelCounter(const char* name) {
  return writable_ ? FindCounter(file_->kernel_counters, name) : nullptr;
}

}  // namespace tessera::sim
