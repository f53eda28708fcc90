// SPDX-License-Identifier: Apache-2.0
// For tests: a simulated node in a temporary folder, and libnvidia-ml.so.1 loaded against it.
#pragma once

#include <dlfcn.h>

#include <functional>
#include <memory>
#include <string>

#include "api/nvml_abi.h"
#include "src/sim/state.h"

namespace tessera::nvml {

// Four A100-like GPUs with device nodes 0–3 (plain files). GPUs 0–1 and 2–3 have four NVLinks and
// share a NUMA node. The destructor removes the folder.
class TestNode {
 public:
  TestNode();
  ~TestNode();

  // The contents of the state file. A test may change them; Write then creates the file again.
  sim::StateFile& image() { return *image_; }
  void Write();

  // The mapped state, as in simgpu.
  sim::State& state() { return state_; }
  void RemoveDeviceNode(int minor);
  const std::string& root() const { return root_; }
  // Sets the environment variables by which libraries find this node.
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

// A process that has a context and `bytes` on a GPU until the destructor or Kill.
class GpuUser {
 public:
  GpuUser(const std::string& state_dir, std::uint32_t gpu, std::uint64_t bytes);
  ~GpuUser();

  int pid() const { return pid_; }
  void Kill();

 private:
  int pid_ = -1;
};

// Runs `body` in a child. Returns its exit status, or 128 + the signal that ended it.
int InChild(const std::function<int()>& body);

}  // namespace tessera::nvml
