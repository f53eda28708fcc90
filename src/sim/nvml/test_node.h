// SPDX-License-Identifier: Apache-2.0
// A simulated node in a temporary folder, and libnvidia-ml.so.1 loaded against it. For tests only.
#pragma once

#include <dlfcn.h>

#include <functional>
#include <memory>
#include <string>

#include "api/nvml_abi.h"
#include "src/sim/state.h"

namespace tessera::nvml {

// Four A100-like GPUs with device nodes 0–3 (a plain file each); 0–1 and 2–3 are joined by four
// NVLinks and share a NUMA node. The folder goes with the object.
class TestNode {
 public:
  TestNode();
  ~TestNode();

  // Changes facts before or after; the file is made anew by Write.
  sim::StateFile& image() { return *image_; }
  void Write();

  // The mapped state, as simgpu would open it.
  sim::State& state() { return state_; }
  void RemoveDeviceNode(int minor);
  const std::string& root() const { return root_; }
  // Sets the variables through which the libraries find this node.
  void Export() const;

 private:
  std::string root_;
  std::unique_ptr<sim::StateFile> image_;
  sim::State state_;
};

// libnvidia-ml.so.1, loaded once for each test program.
template <typename F>
F Function(const char* name) {
  static void* library = dlopen(SIM_NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  return library == nullptr ? nullptr : reinterpret_cast<F>(dlsym(library, name));
}
#define NVML(name) (::tessera::nvml::Function<::tessera::nvml::fn::name>(#name))

// A process that has a context and `bytes` on a GPU until it is told to end.
class GpuUser {
 public:
  GpuUser(const std::string& state_dir, std::uint32_t gpu, std::uint64_t bytes);
  ~GpuUser();

  int pid() const { return pid_; }
  void Kill();

 private:
  int pid_ = -1;
};

// Runs `body` in a child; its exit status, or 128 + the signal that ended it.
int InChild(const std::function<int()>& body);

}  // namespace tessera::nvml
