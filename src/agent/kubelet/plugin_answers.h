// SPDX-License-Identifier: Apache-2.0
// The answers to GetPreferredAllocation and Allocate with late binding: Allocate returns a token.
// bound_answers.h has the answers with --binding=allocate. Error texts equal the texts of NVIDIA's
// device plugin, because people and tools search for them. Pure; any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/agent/kubelet/admission_order.h"
#include "src/agent/kubelet/device_set.h"
#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/grant/token.h"

namespace tessera::agent {

// What gives a container its GPUs.
enum class BindingMode {
  kLate,      // tessera-runtime, which presents the token of Allocate to the grant service
  kAllocate,  // Allocate itself, for engines with NVIDIA's runtime (bound_answers.h)
};

struct EnvEntry {
  std::string name;
  std::string value;
  bool operator==(const EnvEntry&) const = default;
};

struct DeviceSpec {
  std::string container_path;
  std::string host_path;
  bool operator==(const DeviceSpec&) const = default;
};

// The answer to Allocate for one container.
struct ContainerAllocation {
  std::vector<EnvEntry> env;
  std::vector<DeviceSpec> devices;
  std::vector<EnvEntry> annotations;  // annotations of the container in the engine
};

// Answers the kubelet's calls for one resource. Any thread.
class PluginResponder {
 public:
  using OnAllocated = std::function<void(Result<ContainerAllocation>)>;
  using OnChecked = std::function<void(Status)>;

  virtual ~PluginResponder() = default;
  // UNKNOWN: an ID that is not offered.
  virtual Status CheckIds(const DeviceSet& set, const std::vector<std::string>& ids) const = 0;
  // Calls `done` once, now or later, on any thread, or drops it when the agent stops. Errors: see
  // CheckIds.
  virtual void Answer(const DeviceSet& set, const std::vector<std::string>& ids,
                      OnAllocated done) const = 0;
  // Whether the kubelet must call PreStartContainer. If so, Check answers that call; it calls
  // `done` like Answer.
  virtual bool requires_pre_start() const { return false; }
  virtual void Check(const std::vector<std::string>&, OnChecked done) const { done(Status::Ok()); }
  // Whether the kubelet calls GetPreferredAllocation.
  virtual bool has_preference() const = 0;
  virtual Result<std::vector<std::string>> Prefer(const DeviceSet& set,
                                                  const std::vector<std::string>& available,
                                                  const std::vector<std::string>& must_include,
                                                  int size) const = 0;
};

// The answers with late binding: Allocate signs the IDs into a token.
class TokenResponder final : public PluginResponder {
 public:
  enum class Ids {
    kGpus,        // UUIDs of whole GPUs
    kShareUnits,  // units of a resource that shares GPUs (share_units.h)
  };

  // The arguments must outlive the object. `admission_order` serves whole GPUs and may be null.
  TokenResponder(std::string resource, Ids ids, const grant::TokenSigner* signer,
                 const Clock* clock, AdmissionOrder* admission_order = nullptr);

  Status CheckIds(const DeviceSet& set, const std::vector<std::string>& ids) const override;
  // Errors: see CheckIds. Ignores repeated IDs.
  Result<ContainerAllocation> Allocate(const DeviceSet& set,
                                       const std::vector<std::string>& ids) const;
  void Answer(const DeviceSet& set, const std::vector<std::string>& ids,
              OnAllocated done) const override {
    done(Allocate(set, ids));
  }
  // Units of a share are interchangeable.
  bool has_preference() const override { return ids_ == Ids::kGpus; }
  // Returns no IDs if fewer IDs are available than requested. UNKNOWN: an ID is unknown.
  Result<std::vector<std::string>> Prefer(const DeviceSet& set,
                                          const std::vector<std::string>& available,
                                          const std::vector<std::string>& must_include,
                                          int size) const override;

 private:
  const std::string resource_;
  const Ids ids_;
  const grant::TokenSigner* const signer_;
  const Clock* const clock_;
  AdmissionOrder* const admission_order_;
};

// Returns `ids` without duplicates, in the same order.
std::vector<std::string> WithoutRepeats(const std::vector<std::string>& ids);
// The IDs of a share in a token: the smallest ID and the number of the others, because thousands of
// IDs would not fit into an environment. The kubelet passes equal IDs in another order each time.
std::vector<std::string> ShareTokenIds(const std::vector<std::string>& ids);
// The number of units that a token with these IDs stands for.
int64_t UnitsOfToken(const std::vector<std::string>& ids);

// "/dev/nvidia3" below `root`.
std::string DevicePath(const std::string& root, int minor);

}  // namespace tessera::agent
