// SPDX-License-Identifier: Apache-2.0
// The form "create a workload" beside its manifest, a Pod or a Deployment. The form makes a new
// manifest, reads its fields from any manifest, and changes them in the text of a manifest. An edit
// keeps the rest of the text. Pure; any thread.
//
// A part of a GPU becomes tencent.com/vcuda-core (hundredths) and tencent.com/vcuda-memory (blocks
// of 256 MiB), whole GPUs become nvidia.com/gpu.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/formats/json.h"

namespace tessera::console {

// A Deployment's selector as a labelSelector of the API server's queries: "app=web,!old".
std::string SelectorOf(const Json& deployment);

struct WorkloadForm {
  std::string name;
  std::string ns = "default";
  std::string image;
  bool whole = true;          // true: whole GPUs; false: a part of one GPU
  int64_t gpus = 1;           // whole
  int64_t hundredths = 30;    // a part: 1 to 99 of one GPU
  int64_t memory_blocks = 4;  // a part: n × 256 MiB
  std::string model;          // "": any
  int64_t replicas = 1;
  bool operator==(const WorkloadForm&) const = default;
};

// Messages by field of the form: "name", "image", "gpus"…
using FieldErrors = std::map<std::string, std::string>;

// The parts of a manifest that the console uses.
struct Manifest {
  std::string text;
  Json object;
  bool deployment = false;
  std::string ns;
  std::string name;
  Json pod;  // the Pod, or the pod template of the Deployment

  // The API server's message with the manifest's line of the first unknown field that it names.
  std::string WithLine(std::string_view message) const;
};
// INVALID_ARGUMENT names the line if the text is neither a Pod nor a Deployment.
Result<Manifest> ParseManifest(std::string_view yaml);

// Why a field of the form cannot be read from a manifest: a code for the page, and the text that
// the manifest has instead.
//   missing   the manifest does not have the field
//   no-gpus   the container requests no GPU
//   other     the container requests GPUs by `found`, for which the form has no field
//   value     `found` is a value that the form does not have
struct UnreadField {
  std::string why;
  std::string found;
  bool operator==(const UnreadField&) const = default;
};

// The fields of the form as read from a manifest.
struct FormReading {
  WorkloadForm form;
  std::map<std::string, UnreadField> unread;  // by field; "amount" for GPUs and memory
  // Index of the container that the form shows: the first that requests GPUs, else 0.
  size_t container = 0;
  size_t containers = 0;  // number in the pod
  std::string container_name;
};
FormReading ReadForm(const Manifest& manifest);
Json JsonOf(const FormReading& reading);

// A change of some fields, which `fields` names as in FormReading::unread.
struct FormEdit {
  WorkloadForm form;
  std::set<std::string> fields;
};
// Reads the fields that `json` has. `base`: the values of the other fields; null if `json` must
// have all fields. Stores problems in `errors`; a field with a problem has an unspecified value.
FormEdit ParseForm(const Json& json, const FormReading* base, FieldErrors* errors);

// A new manifest with all fields of the form: a Pod, or a Deployment for several replicas.
std::string ManifestOf(const WorkloadForm& form);
// The text of the manifest with the changed fields. A Pod with several replicas becomes a
// Deployment; then, and where PatchYaml cannot keep the layout, the text loses its comments.
Result<std::string> WithEdit(const Manifest& manifest, const FormReading& before,
                             const FormEdit& edit);

}  // namespace tessera::console
