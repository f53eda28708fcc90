// SPDX-License-Identifier: Apache-2.0
// How containers outside Kubernetes ask for GPUs: the environment variables that NVIDIA's container
// toolkit made common. Pure; any thread.
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

// What NVIDIA_VISIBLE_DEVICES says.
struct VisibleDevices {
  enum class Kind {
    kNothing,     // unset, empty or void: the container is none of our business
    kDriverOnly,  // none: the driver's files, but no GPU
    kAll,
    kListed,
  };
  Kind kind = Kind::kNothing;
  std::vector<std::string> items;  // of kListed: indices and UUIDs
};

// An image from before NVIDIA_REQUIRE_CUDA: CUDA_VERSION is set and NVIDIA_REQUIRE_CUDA is not.
// Unset then means everything.
bool IsLegacyCudaImage(const oci::ConfigDocument& document);

VisibleDevices ReadVisibleDevices(const oci::ConfigDocument& document);

// INVALID_ARGUMENT names the variable.
Result<oci::Capabilities> ReadCapabilities(const oci::ConfigDocument& document);

// Names and values of what the image requires; empty where NVIDIA_DISABLE_REQUIRE says so.
std::vector<std::pair<std::string, std::string>> ReadRequirements(
    const oci::ConfigDocument& document);

// NOT_FOUND names the item and the GPUs that there are. UNIMPLEMENTED for MIG devices and names of
// the Container Device Interface. Each GPU comes once, in the order of `gpus`.
Result<std::vector<oci::ProcGpu>> SelectGpus(const VisibleDevices& visible,
                                             const std::vector<oci::ProcGpu>& gpus);

}  // namespace tessera::runtime
