// SPDX-License-Identifier: Apache-2.0
// Converts the form "create a workload" to its manifest and back. A manifest is a Pod, or a
// Deployment for several replicas. Pure; any thread.
//
// A part of a GPU becomes tencent.com/vcuda-core (hundredths) and tencent.com/vcuda-memory (blocks
// of 256 MiB), whole GPUs become nvidia.com/gpu.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/formats/json.h"

namespace tessera::console {

struct WorkloadForm {
  std::string name;
  std::string ns = "default";
  std::string image;
  bool whole = true;
  int64_t gpus = 1;           // whole
  int64_t hundredths = 30;    // a part: 1 to 99 of one GPU
  int64_t memory_blocks = 4;  // a part: n × 256 MiB
  std::string model;          // "": any
  int64_t replicas = 1;
  bool operator==(const WorkloadForm&) const = default;
};

// Messages by field of the form: "name", "image", "gpus"…
using FieldErrors = std::map<std::string, std::string>;

// Reads the form of the page. Stores problems in `errors`; the returned form then has default
// values.
WorkloadForm ParseForm(const Json& json, FieldErrors* errors);
Json JsonOfForm(const WorkloadForm& form);

Json ManifestOf(const WorkloadForm& form);
// The form of which this is the manifest; nullopt if the form cannot express the manifest.
std::optional<WorkloadForm> FormOf(const Json& manifest);

// The parts of a manifest that the console uses.
struct Manifest {
  Json object;
  bool deployment = false;
  std::string ns;
  std::string name;
  int64_t replicas = 1;
  Json pod;  // what one of its pods looks like
};
// INVALID_ARGUMENT names the line if the text is neither a Pod nor a Deployment.
Result<Manifest> ParseManifest(std::string_view yaml);

}  // namespace tessera::console
