// SPDX-License-Identifier: Apache-2.0
// The environment variables of NVIDIA's container toolkit, by which containers outside Kubernetes
// request GPUs. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/oci/capabilities.h"
#include "src/oci/config_document.h"
#include "src/oci/driver_root.h"

namespace tessera::runtime {

// The value of NVIDIA_VISIBLE_DEVICES.
struct VisibleDevices {
  enum class Kind {
    kNothing,     // unset, empty or void: the container is not edited
    kDriverOnly,  // none: the driver's files without a GPU
    kAll,
    kListed,
  };
  Kind kind = Kind::kNothing;
  std::vector<std::string> items;  // for kListed: indices and UUIDs
};

// Whether the image predates NVIDIA_REQUIRE_CUDA: it sets CUDA_VERSION but not NVIDIA_REQUIRE_CUDA.
// Unset variables then mean all GPUs and all capabilities.
bool IsLegacyCudaImage(const oci::ConfigDocument& document);

VisibleDevices ReadVisibleDevices(const oci::ConfigDocument& document);

// INVALID_ARGUMENT: the value is invalid; the message names the variable.
Result<oci::Capabilities> ReadCapabilities(const oci::ConfigDocument& document);

// Names and values of the image's requirements; empty if NVIDIA_DISABLE_REQUIRE is true.
std::vector<std::pair<std::string, std::string>> ReadRequirements(
    const oci::ConfigDocument& document);

// Each GPU occurs once, in the order of `gpus`. NOT_FOUND: the node has no GPU for an item; the
// message names the item and the node's GPUs. UNIMPLEMENTED for MIG devices and names of the
// Container Device Interface (CDI).
Result<std::vector<oci::ProcGpu>> SelectGpus(const VisibleDevices& visible,
                                             const std::vector<oci::ProcGpu>& gpus);

}  // namespace tessera::runtime
