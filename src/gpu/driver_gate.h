// SPDX-License-Identifier: Apache-2.0
// Prevents sessions with the driver. While the gate is closed, loading the driver through it fails,
// so all NVML sessions behind it end and no new session opens. Threads: any.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "src/gpu/nvml.h"

namespace tessera::gpu {

class DriverGate {
 public:
  // `reason` is the error message while the gate is closed.
  explicit DriverGate(std::string reason) : reason_(std::move(reason)) {}

  void SetClosed(bool closed) { closed_ = closed; }
  bool closed() const { return closed_; }
  const std::string& reason() const { return reason_; }

 private:
  const std::string reason_;
  std::atomic<bool> closed_{false};
};

// Puts a gate in front of another loader.
class GatedLoader final : public NvmlLoader {
 public:
  GatedLoader(std::shared_ptr<const DriverGate> gate, std::shared_ptr<NvmlLoader> loader)
      : gate_(std::move(gate)), loader_(std::move(loader)) {}

  // UNAVAILABLE while the gate is closed.
  Result<std::shared_ptr<Nvml>> Load() override {
    if (gate_->closed()) return Status(Code::kUnavailable, gate_->reason());
    return loader_->Load();
  }
  std::string Fingerprint() override { return gate_->closed() ? "" : loader_->Fingerprint(); }

 private:
  const std::shared_ptr<const DriverGate> gate_;
  const std::shared_ptr<NvmlLoader> loader_;
};

}  // namespace tessera::gpu
