// SPDX-License-Identifier: Apache-2.0
#include "src/console/workload.h"

#include <utility>

#include "api/names.h"
#include "src/base/strings.h"
#include "src/formats/yaml.h"

namespace tessera::console {
namespace {

constexpr int64_t kMostGpus = 64;
constexpr int64_t kMostReplicas = 10'000;
constexpr int64_t kMostBlocks = 4096;  // 1 TiB
constexpr size_t kMostManifest = 256 << 10;

std::string TextAt(const Json& json, std::string_view key) {
  return json.StringAt(key).value_or("");
}

const Json* At(const Json& json, std::initializer_list<std::string_view> path) {
  const Json* at = &json;
  for (const std::string_view key : path) {
    if (at != nullptr) at = at->Find(key);
  }
  return at;
}

class FormReader {
 public:
  FormReader(const Json& json, FieldErrors* errors) : json_(json), errors_(*errors) {}

  int64_t Number(const char* field, int64_t least, int64_t most) {
    const Result<int64_t> number = json_.IntAt(field);
    if (number.ok() && *number >= least && *number <= most) return *number;
    errors_[field] = fmt::format("a whole number from {} to {}", least, most);
    return least;
  }
  std::string DnsName(const char* field) {
    std::string text = TextAt(json_, field);
    if (!IsDnsName(text) || text.size() > 63) {
      errors_[field] = "lower-case letters, digits and '-', at most 63";
    }
    return text;
  }

 private:
  const Json& json_;
  FieldErrors& errors_;
};

Json ResourcesOf(const WorkloadForm& form) {
  Json limits = Json::MakeObject();
  if (form.whole) {
    limits.Set(names::kResourceGpu, Json::Int(form.gpus));
  } else {
    limits.Set(names::kResourceVcudaCore, Json::Int(form.hundredths));
    limits.Set(names::kResourceVcudaMemory, Json::Int(form.memory_blocks));
  }
  return Json::MakeObject({{"limits", std::move(limits)}});
}

Json MetaOf(const WorkloadForm& form, bool named) {
  Json meta = Json::MakeObject();
  if (named) {
    meta.Set("name", Json::String(form.name));
    meta.Set("namespace", Json::String(form.ns));
  }
  meta.Set("labels", Json::MakeObject({{"app", Json::String(form.name)}}));
  return meta;
}

Json SpecOf(const WorkloadForm& form) {
  Json container = Json::MakeObject({{"name", Json::String("main")},
                                     {"image", Json::String(form.image)},
                                     {"resources", ResourcesOf(form)}});
  return Json::MakeObject({{"containers", Json::MakeArray({std::move(container)})}});
}

// The metadata of the pods, with the annotation that asks for a model.
Json PodMetaOf(const WorkloadForm& form, bool named) {
  Json meta = MetaOf(form, named);
  if (!form.model.empty()) {
    meta.Set(
        "annotations",
        Json::MakeObject({{std::string(names::kAnnotationGpuModels), Json::String(form.model)}}));
  }
  return meta;
}

void ReadLimits(const Json& limits, WorkloadForm* form) {
  const auto number = [&](std::string_view key) -> int64_t {
    const Json* value = limits.Find(key);
    if (value == nullptr) return 0;
    const Result<int64_t> parsed =
        value->is_string() ? ParseInt(value->string_value()) : value->ToInt();
    return parsed.value_or(0);
  };
  form->whole = limits.Find(names::kResourceGpu) != nullptr;
  if (form->whole) {
    form->gpus = number(names::kResourceGpu);
  } else {
    form->hundredths = number(names::kResourceVcudaCore);
    form->memory_blocks = number(names::kResourceVcudaMemory);
  }
}

}  // namespace

WorkloadForm ParseForm(const Json& json, FieldErrors* errors) {
  WorkloadForm form;
  FormReader reader(json, errors);
  form.name = reader.DnsName("name");
  form.ns = reader.DnsName("namespace");
  form.image = TextAt(json, "image");
  if (form.image.empty() || form.image.find_first_of(" \t\r\n") != std::string::npos) {
    (*errors)["image"] = "the name of an image, such as registry.example/team/image:1";
  }
  form.whole = json.BoolAt("whole").value_or(true);
  if (form.whole) {
    form.gpus = reader.Number("gpus", 1, kMostGpus);
  } else {
    form.hundredths = reader.Number("hundredths", 1, 99);
    form.memory_blocks = reader.Number("memoryBlocks", 1, kMostBlocks);
  }
  form.model = TextAt(json, "model");
  form.replicas = reader.Number("replicas", 1, kMostReplicas);
  return form;
}

Json JsonOfForm(const WorkloadForm& form) {
  return Json::MakeObject({{"name", Json::String(form.name)},
                           {"namespace", Json::String(form.ns)},
                           {"image", Json::String(form.image)},
                           {"whole", Json::Bool(form.whole)},
                           {"gpus", Json::Int(form.gpus)},
                           {"hundredths", Json::Int(form.hundredths)},
                           {"memoryBlocks", Json::Int(form.memory_blocks)},
                           {"model", Json::String(form.model)},
                           {"replicas", Json::Int(form.replicas)}});
}

Json ManifestOf(const WorkloadForm& form) {
  if (form.replicas == 1) {
    return Json::MakeObject({{"apiVersion", Json::String("v1")},
                             {"kind", Json::String("Pod")},
                             {"metadata", PodMetaOf(form, true)},
                             {"spec", SpecOf(form)}});
  }
  Json selector =
      Json::MakeObject({{"matchLabels", Json::MakeObject({{"app", Json::String(form.name)}})}});
  Json pods = Json::MakeObject({{"metadata", PodMetaOf(form, false)}, {"spec", SpecOf(form)}});
  return Json::MakeObject({{"apiVersion", Json::String("apps/v1")},
                           {"kind", Json::String("Deployment")},
                           {"metadata", MetaOf(form, true)},
                           {"spec", Json::MakeObject({{"replicas", Json::Int(form.replicas)},
                                                      {"selector", std::move(selector)},
                                                      {"template", std::move(pods)}})}});
}

std::optional<WorkloadForm> FormOf(const Json& manifest) {
  WorkloadForm form;
  const Json* meta = manifest.Find("metadata");
  if (meta == nullptr) return std::nullopt;
  form.name = TextAt(*meta, "name");
  form.ns = TextAt(*meta, "namespace");
  const Json* pod = &manifest;
  if (TextAt(manifest, "kind") == "Deployment") {
    pod = At(manifest, {"spec", "template"});
    const Json* replicas = At(manifest, {"spec", "replicas"});
    if (pod == nullptr || replicas == nullptr) return std::nullopt;
    form.replicas = replicas->ToInt().value_or(0);
  }
  const Json* model = At(*pod, {"metadata", "annotations", names::kAnnotationGpuModels});
  if (model != nullptr && model->is_string()) form.model = model->string_value();
  const Json* containers = At(*pod, {"spec", "containers"});
  if (containers == nullptr || !containers->is_array() || containers->items().size() != 1) {
    return std::nullopt;
  }
  const Json& container = containers->items()[0];
  form.image = TextAt(container, "image");
  const Json* limits = At(container, {"resources", "limits"});
  if (limits == nullptr) return std::nullopt;
  ReadLimits(*limits, &form);
  // A manifest with anything that the form does not have is different from the form's manifest.
  if (ManifestOf(form) != manifest) return std::nullopt;
  return form;
}

Result<Manifest> ParseManifest(std::string_view yaml) {
  if (yaml.size() > kMostManifest) {
    return Error(Code::kInvalidArgument, "the manifest is longer than {} KiB", kMostManifest >> 10);
  }
  Manifest manifest;
  ASSIGN_OR_RETURN(manifest.object, ParseYaml(yaml));
  const std::string kind = manifest.object.is_object() ? TextAt(manifest.object, "kind") : "";
  const std::string version = kind.empty() ? "" : TextAt(manifest.object, "apiVersion");
  manifest.deployment = kind == "Deployment" && version == "apps/v1";
  if (!manifest.deployment && (kind != "Pod" || version != "v1")) {
    return Error(Code::kInvalidArgument,
                 "{} \"{}\" cannot be created here: want a Pod of v1 or a Deployment of apps/v1",
                 version, kind);
  }
  const Json* meta = manifest.object.Find("metadata");
  if (meta == nullptr || !meta->is_object()) {
    return Error(Code::kInvalidArgument, "the manifest has no metadata: add a name");
  }
  manifest.name = TextAt(*meta, "name");
  manifest.ns = TextAt(*meta, "namespace");
  if (manifest.ns.empty()) manifest.ns = "default";
  manifest.pod = manifest.object;
  if (!manifest.deployment) return manifest;
  const Json* pods = At(manifest.object, {"spec", "template"});
  if (pods == nullptr || !pods->is_object()) {
    return Error(Code::kInvalidArgument, "the Deployment has no spec.template: add it");
  }
  manifest.pod = *pods;
  if (const Json* replicas = At(manifest.object, {"spec", "replicas"})) {
    manifest.replicas = replicas->ToInt().value_or(1);
  }
  return manifest;
}

}  // namespace tessera::console
