// SPDX-License-Identifier: Apache-2.0
#include "src/sim/nvml/session.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <new>
#include <string>

#include "src/sim/state_socket.h"

namespace tessera::nvml {
namespace {

// A mapped state file. It is never freed, because calls run without a lock.
struct MappedState {
  sim::State state;
  MappedState* earlier = nullptr;
};

DeviceTag g_devices[sim::kMaxGpus];
DeviceTag g_mig_devices[sim::kMaxGpus][sim::kMaxInstances];
MappedState* g_mapped = nullptr;
std::atomic<sim::State*> g_state{nullptr};  // an element of g_mapped
std::atomic<unsigned> g_references{0};
VisibleGpus g_visible;  // written while g_references is 0
// The state file, open while g_references > 0. Like /dev/nvidiactl of the real library, it shows
// users of the driver in /proc/<pid>/fd.
int g_session_fd = -1;
// nvmlInit and nvmlShutdown may race in a client's threads. Other calls do not take this lock.
pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;

class Lock {
 public:
  Lock() { pthread_mutex_lock(&g_mutex); }
  ~Lock() { pthread_mutex_unlock(&g_mutex); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
};

// Maps the node's state, unless the current file is mapped. REQUIRES: Lock.
Return OpenState() {
  const std::string dir = sim::State::FindDir(g_devices);
  if (dir.empty()) return Return::kDriverNotLoaded;
  struct stat info;
  const bool folder = stat((dir + "/state").c_str(), &info) == 0;
  if (!folder && !sim::IsSocket(dir)) return Return::kDriverNotLoaded;
  const sim::State* const current = g_state.load();
  if (current != nullptr &&
      (g_references.load() > 0 || (folder && info.st_ino == current->inode()))) {
    return Return::kSuccess;
  }
  auto* mapped = new (std::nothrow) MappedState();
  if (mapped == nullptr) return Return::kMemory;
  const int error = mapped->state.Open(dir);
  if (error != 0) {
    delete mapped;
    if (error == EPROTO) return Return::kLibRmVersionMismatch;
    return error == EACCES ? Return::kNoPermission : Return::kDriverNotLoaded;
  }
  if (current != nullptr && mapped->state.inode() == current->inode()) {
    delete mapped;
    return Return::kSuccess;
  }
  mapped->earlier = g_mapped;
  g_mapped = mapped;
  g_state.store(&mapped->state);
  return Return::kSuccess;
}

// The real kernel refuses devices outside of a container's cgroup; here the device node must exist.
void FindVisible(const sim::State& state) {
  g_visible.count = 0;
  for (std::uint32_t gpu = 0; gpu < state.gpu_count(); ++gpu) {
    g_devices[gpu].gpu = gpu;
    for (std::uint32_t i = 0; i < sim::kMaxInstances; ++i) g_mig_devices[gpu][i] = {gpu, i + 1};
    if (state.DeviceFileExists(gpu)) g_visible.gpus[g_visible.count++] = gpu;
  }
}

// The kernel module requires this capability, so root in an ordinary container may not change GPUs.
bool HasSysAdmin() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  return (data[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective & CAP_TO_MASK(CAP_SYS_ADMIN)) != 0;
}

// Finds the GPU and the compute instance of a handle. False: invalid handle.
bool FindGpu(Device device, const sim::State& state, std::uint32_t* gpu,
             std::uint32_t* instance_plus_1) {
  for (std::uint32_t i = 0; i < g_visible.count; ++i) {
    *gpu = g_visible.gpus[i];
    *instance_plus_1 = 0;
    if (device == &g_devices[*gpu]) return true;
    for (std::uint32_t instance = 0; instance < sim::kMaxInstances; ++instance) {
      if (device != &g_mig_devices[*gpu][instance]) continue;
      *instance_plus_1 = instance + 1;
      return state.file().gpu_states[*gpu].compute_instances[instance].present.load() != 0;
    }
  }
  return false;
}

}  // namespace

Return InitSession(const char* function) {
  {
    const Lock lock;
    const Return result = OpenState();
    if (result != Return::kSuccess) return result;
  }
  // Called without the lock, because an injected hang blocks here.
  const auto fault = static_cast<Return>(g_state.load()->CheckFault(function, sim::kAllGpus));
  if (fault != Return::kSuccess) return fault;
  const Lock lock;
  if (g_references.load() == 0) {
    FindVisible(*g_state.load());
    g_session_fd = open((g_state.load()->dir() + "/state").c_str(), O_RDONLY | O_CLOEXEC);
  }
  g_references.fetch_add(1);
  return Return::kSuccess;
}

Return ShutdownSession(const char* function) {
  const NodeCall call(function);
  if (call.result() != Return::kSuccess) return call.result();
  const Lock lock;
  if (g_references.load() == 0) return Return::kUninitialized;
  if (g_references.fetch_sub(1) == 1 && g_session_fd >= 0) {
    close(g_session_fd);
    g_session_fd = -1;
  }
  return Return::kSuccess;
}

unsigned CudaVersion() {
  const Lock lock;
  if (OpenState() != Return::kSuccess) return UINT_MAX;
  return g_state.load()->file().cuda_version;
}

NodeCall::NodeCall(const char* function, FaultCheck fault_check) {
  if (g_references.load() == 0) return;
  state_ = g_state.load();
  result_ = Return::kSuccess;
  if (fault_check == FaultCheck::kLater) return;
  result_ = static_cast<Return>(state_->CheckFault(function, sim::kAllGpus));
}

const VisibleGpus& NodeCall::visible() const { return g_visible; }

GpuCall::GpuCall(const char* function, Device device, WhenLost when_lost, MigDevice mig_device) {
  if (g_references.load() == 0) return;
  state_ = g_state.load();
  result_ = Return::kInvalidArgument;
  if (!FindGpu(device, *state_, &gpu_, &instance_plus_1_)) return;
  result_ = static_cast<Return>(state_->CheckFault(function, static_cast<std::int32_t>(gpu_)));
  if (result_ == Return::kSuccess && when_lost == WhenLost::kFail && state_->is_lost(gpu_)) {
    result_ = Return::kGpuIsLost;
  }
  if (result_ == Return::kSuccess && instance_plus_1_ != 0 &&
      mig_device == MigDevice::kNotSupported) {
    result_ = Return::kNotSupported;
  }
}

GpuCall::GpuCall(Device device) {
  if (g_references.load() == 0) return;
  state_ = g_state.load();
  result_ = FindGpu(device, *state_, &gpu_, &instance_plus_1_) ? Return::kSuccess
                                                               : Return::kInvalidArgument;
}

Device HandleOf(std::uint32_t gpu) { return &g_devices[gpu]; }

Device HandleOfMigDevice(std::uint32_t gpu, std::uint32_t compute_instance) {
  return &g_mig_devices[gpu][compute_instance];
}

bool MayChange(const GpuCall& gpu) { return HasSysAdmin() && gpu.state().writable(); }

Return CopyText(const char* text, char* buffer, unsigned length) {
  NVML_REQUIRE(buffer != nullptr);
  const size_t size = std::strlen(text);
  if (size == 0) return Return::kNotSupported;
  if (size + 1 > length) return Return::kInsufficientSize;
  std::memcpy(buffer, text, size + 1);
  return Return::kSuccess;
}

std::uint64_t NowUs() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000000 +
         static_cast<std::uint64_t>(now.tv_nsec) / 1000;
}

}  // namespace tessera::nvml
