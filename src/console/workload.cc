// SPDX-License-Identifier: Apache-2.0
#include "src/console/workload.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "api/names.h"
#include "src/base/strings.h"
#include "src/device/request.h"
#include "src/formats/text_edit.h"
#include "src/formats/yaml.h"

namespace tessera::console {
namespace {

constexpr int64_t kMaxGpus = 64;
constexpr int64_t kMaxReplicas = 10'000;
constexpr int64_t kMaxBlocks = 4096;  // 1 TiB
constexpr size_t kMaxManifest = 256 << 10;
// The page's fields for the amount of GPUs. FormEdit::fields has them together as "amount".
constexpr std::string_view kAmount = "amount";
constexpr std::string_view kAmountFields[] = {"whole", "gpus", "hundredths", "memoryBlocks"};

class FieldReader {
 public:
  FieldReader(const Json& json, FormEdit* edit, bool complete, FieldErrors* errors)
      : json_(json), edit_(*edit), complete_(complete), errors_(*errors) {}

  // Whether to read this field: the page has sent it, or must send all fields. Adds the field to
  // the edit.
  bool BeginField(std::string_view field) {
    const bool has =
        field == kAmount
            ? std::ranges::any_of(
                  kAmountFields, [&](std::string_view part) { return json_.Find(part) != nullptr; })
            : json_.Find(field) != nullptr;
    if (has || complete_) edit_.fields.emplace(field);
    return has || complete_;
  }
  void ReadNumber(const char* field, int64_t least, int64_t most, int64_t* number) {
    const Result<int64_t> read = json_.IntAt(field);
    if (read.ok() && *read >= least && *read <= most) {
      *number = *read;
    } else {
      errors_[field] = fmt::format("a whole number from {} to {}", least, most);
    }
  }
  void ReadDnsName(const char* field, std::string* name) {
    *name = TextAt(json_, {field});
    if (!IsDnsName(*name) || name->size() > 63) {
      errors_[field] = "lower-case letters, digits and '-', at most 63";
    }
  }

 private:
  const Json& json_;
  FormEdit& edit_;
  const bool complete_;
  FieldErrors& errors_;
};

Json LimitsOf(const WorkloadForm& form) {
  if (form.whole)
    return Json::MakeObject({{std::string(names::kResourceGpu), Json::Int(form.gpus)}});
  return Json::MakeObject(
      {{std::string(names::kResourceVcudaCore), Json::Int(form.hundredths)},
       {std::string(names::kResourceVcudaMemory), Json::Int(form.memory_blocks)}});
}

Json ContainersOf(const WorkloadForm& form) {
  Json container =
      Json::MakeObject({{"name", Json::String("main")},
                        {"image", Json::String(form.image)},
                        {"resources", Json::MakeObject({{"limits", LimitsOf(form)}})}});
  return Json::MakeArray({std::move(container)});
}

Json PodOf(const WorkloadForm& form) {
  Json meta = Json::MakeObject({{"name", Json::String(form.name)},
                                {"namespace", Json::String(form.ns)},
                                {"labels", Json::MakeObject({{"app", Json::String(form.name)}})}});
  if (!form.model.empty()) {
    meta.Set(
        "annotations",
        Json::MakeObject({{std::string(names::kAnnotationGpuModels), Json::String(form.model)}}));
  }
  return Json::MakeObject({{"apiVersion", Json::String("v1")},
                           {"kind", Json::String("Pod")},
                           {"metadata", std::move(meta)},
                           {"spec", Json::MakeObject({{"containers", ContainersOf(form)}})}});
}

// A Deployment of such pods. The annotations concern the pods, so they move to the template.
Json DeploymentOf(const Json& pod, int64_t replicas) {
  Json meta = *pod.Find("metadata");
  const Json* labels = meta.Find("labels");
  if (labels == nullptr || !labels->is_object() || labels->members().empty()) {
    meta.Set("labels", Json::MakeObject({{"app", Json::String(TextAt(meta, {"name"}))}}));
    labels = meta.Find("labels");
  }
  Json pod_meta = Json::MakeObject({{"labels", *labels}});
  if (const Json* annotations = meta.Find("annotations")) {
    pod_meta.Set("annotations", *annotations);
  }
  const Json* app = labels->Find("app");
  Json selected = app == nullptr ? *labels : Json::MakeObject({{"app", *app}});
  meta.Erase("annotations");
  Json pods = Json::MakeObject({{"metadata", std::move(pod_meta)}});
  if (const Json* spec = pod.Find("spec")) pods.Set("spec", *spec);
  Json deployment = pod;
  deployment.Set("apiVersion", Json::String("apps/v1"));
  deployment.Set("kind", Json::String("Deployment"));
  deployment.Set("metadata", std::move(meta));
  deployment.Set(
      "spec",
      Json::MakeObject({{"replicas", Json::Int(replicas)},
                        {"selector", Json::MakeObject({{"matchLabels", std::move(selected)}})},
                        {"template", std::move(pods)}}));
  return deployment;
}

// The GPU resources of limits or requests; empty if `resources` is null.
std::vector<std::string> GpuResourcesIn(const Json* resources) {
  std::vector<std::string> found;
  if (resources == nullptr || !resources->is_object()) return found;
  for (const auto& [name, value] : resources->members()) {
    if (device::IsGpuResource(name)) found.push_back(name);
  }
  return found;
}

std::string ScalarTextOf(const Json& value) {
  return value.is_string() ? value.string_value() : value.Serialize();
}

std::optional<UnreadField> ReadAmount(const Json* limits, WorkloadForm* form) {
  const std::vector<std::string> found = GpuResourcesIn(limits);
  if (found.empty()) return UnreadField{"no-gpus", ""};
  const auto text = [&](std::string_view name) {
    return fmt::format("{}: {}", name, ScalarTextOf(*limits->Find(name)));
  };
  const auto number = [&](std::string_view name) -> int64_t {
    const Json* value = limits->Find(name);
    if (value == nullptr) return 0;
    return (value->is_string() ? ParseInt(value->string_value()) : value->ToInt()).value_or(0);
  };
  const bool whole = found.front() == names::kResourceGpu;
  for (const std::string& name : found) {
    const bool part = name == names::kResourceVcudaCore || name == names::kResourceVcudaMemory;
    if (whole ? name != names::kResourceGpu : !part) return UnreadField{"other", text(name)};
  }
  form->whole = whole;
  if (whole) {
    form->gpus = number(names::kResourceGpu);
    return form->gpus > 0 ? std::nullopt : std::optional(UnreadField{"value", text(found.front())});
  }
  const int64_t core = number(names::kResourceVcudaCore);
  const int64_t blocks = number(names::kResourceVcudaMemory);
  if (core < 1 || core > 99) return UnreadField{"value", text(found.front())};
  if (blocks < 1) return UnreadField{"value", text(found.back())};
  form->hundredths = core;
  form->memory_blocks = blocks;
  return std::nullopt;
}

void ReadContainer(const Manifest& manifest, FormReading* reading) {
  const Json* list = FindPath(manifest.pod, {"spec", "containers"});
  if (list == nullptr || !list->is_array() || list->items().empty()) {
    reading->unread["image"] = reading->unread[std::string(kAmount)] = {"missing", ""};
    return;
  }
  const Json::Array& containers = list->items();
  const auto limits = [](const Json& container) {
    return FindPath(container, {"resources", "limits"});
  };
  const auto chosen = std::ranges::find_if(
      containers, [&](const Json& one) { return !GpuResourcesIn(limits(one)).empty(); });
  reading->containers = containers.size();
  reading->container =
      chosen == containers.end() ? 0 : static_cast<size_t>(chosen - containers.begin());
  const Json& container = containers[reading->container];
  reading->container_name = TextAt(container, {"name"});
  reading->form.image = TextAt(container, {"image"});
  if (reading->form.image.empty()) reading->unread["image"] = {"missing", ""};
  if (auto unread = ReadAmount(limits(container), &reading->form)) {
    reading->unread[std::string(kAmount)] = *std::move(unread);
  }
}

class EditMaker {
 public:
  EditMaker(const Manifest& manifest, const FormReading& before, const FormEdit& edit)
      : manifest_(manifest), before_(before), form_(edit.form), fields_(edit.fields) {
    if (manifest.deployment) pod_ = {"spec", "template"};
  }

  std::vector<TextEdit> Make() && {
    if (Changes("name")) Rename();
    if (Changes("namespace")) Set({"metadata", "namespace"}, Json::String(form_.ns));
    if (manifest_.deployment && Changes("replicas")) {
      Set({"spec", "replicas"}, Json::Int(form_.replicas));
    }
    if (Changes("model")) SetModel();
    if (before_.containers == 0) {
      if (Changes("image") || Changes(kAmount)) {
        Set(InPod({"spec", "containers"}), ContainersOf(form_));
      }
      return std::move(edits_);
    }
    if (Changes("image")) Set(InContainer({"image"}), Json::String(form_.image));
    if (Changes(kAmount)) SetAmount();
    return std::move(edits_);
  }

 private:
  bool Changes(std::string_view field) const { return fields_.contains(std::string(field)); }
  void Set(KeyPath path, Json value) {
    edits_.push_back({EditKind::kSet, std::move(path), std::move(value)});
  }
  void Remove(KeyPath path) { edits_.push_back({EditKind::kRemove, std::move(path), {}}); }
  KeyPath InPod(const KeyPath& rest) const {
    KeyPath path = pod_;
    path.insert(path.end(), rest.begin(), rest.end());
    return path;
  }
  KeyPath InContainer(const KeyPath& rest) const {
    KeyPath path = InPod({"spec", "containers", fmt::format("{}", before_.container)});
    path.insert(path.end(), rest.begin(), rest.end());
    return path;
  }
  // Removes the members of an object, and the object if nothing is left of it.
  void RemoveFrom(const KeyPath& path, const Json* object, const std::vector<std::string>& keys) {
    if (keys.empty()) return;
    if (keys.size() == object->members().size()) return Remove(path);
    for (const std::string& key : keys) {
      KeyPath member = path;
      member.push_back(key);
      Remove(std::move(member));
    }
  }

  // Also changes the labels "app" that have the old name: the form has created them.
  void Rename() {
    Set({"metadata", "name"}, Json::String(form_.name));
    std::set<KeyPath> labels = {{"metadata", "labels", "app"},
                                InPod({"metadata", "labels", "app"})};
    if (manifest_.deployment) labels.insert({"spec", "selector", "matchLabels", "app"});
    for (const KeyPath& path : labels) {
      const Json* app = FindPath(manifest_.object, path);
      if (app != nullptr && app->is_string() && app->string_value() == before_.form.name) {
        Set(path, Json::String(form_.name));
      }
    }
  }
  void SetModel() {
    const std::string key(names::kAnnotationGpuModels);
    if (!form_.model.empty()) {
      return Set(InPod({"metadata", "annotations", key}), Json::String(form_.model));
    }
    const Json* annotations = FindPath(manifest_.pod, {"metadata", "annotations"});
    if (annotations == nullptr || annotations->Find(key) == nullptr) return;
    RemoveFrom(InPod({"metadata", "annotations"}), annotations, {key});
  }
  void SetAmount() {
    const Json& container =
        FindPath(manifest_.pod, {"spec", "containers"})->items()[before_.container];
    const Json limits = LimitsOf(form_);
    for (const auto& [name, value] : limits.members()) {
      Set(InContainer({"resources", "limits", name}), value);
    }
    for (const std::string& name : GpuResourcesIn(FindPath(container, {"resources", "limits"}))) {
      if (limits.Find(name) == nullptr) Remove(InContainer({"resources", "limits", name}));
    }
    // Requests of GPUs must equal their limits. Without a request, the limit applies.
    const Json* requests = FindPath(container, {"resources", "requests"});
    RemoveFrom(InContainer({"resources", "requests"}), requests, GpuResourcesIn(requests));
  }

  const Manifest& manifest_;
  const FormReading& before_;
  const WorkloadForm& form_;
  const std::set<std::string>& fields_;
  KeyPath pod_;  // of the pod (template) in the manifest
  std::vector<TextEdit> edits_;
};

// A requirement of matchExpressions.
std::string RequirementOf(const Json& requirement) {
  const std::string key = TextAt(requirement, {"key"});
  const std::string op = TextAt(requirement, {"operator"});
  if (op == "Exists") return key;
  if (op == "DoesNotExist") return "!" + key;
  std::string values;
  for (const Json& value : ItemsAt(requirement, {"values"})) {
    values += (values.empty() ? "" : ",") + ScalarTextOf(value);
  }
  return fmt::format("{} {} ({})", key, op == "In" ? "in" : "notin", values);
}

}  // namespace

std::string SelectorOf(const Json& deployment) {
  std::string selector;
  const auto add = [&selector](const std::string& part) {
    selector += (selector.empty() ? "" : ",") + part;
  };
  for (const auto& [key, value] : MembersAt(deployment, {"spec", "selector", "matchLabels"})) {
    add(key + "=" + ScalarTextOf(value));
  }
  for (const Json& one : ItemsAt(deployment, {"spec", "selector", "matchExpressions"})) {
    add(RequirementOf(one));
  }
  return selector;
}

FormEdit ParseForm(const Json& json, const FormReading* base, FieldErrors* errors) {
  FormEdit edit;
  if (base != nullptr) edit.form = base->form;
  WorkloadForm& form = edit.form;
  FieldReader reader(json, &edit, base == nullptr, errors);
  if (reader.BeginField("name")) reader.ReadDnsName("name", &form.name);
  if (reader.BeginField("namespace")) reader.ReadDnsName("namespace", &form.ns);
  if (reader.BeginField("image")) {
    form.image = TextAt(json, {"image"});
    if (form.image.empty() || form.image.find_first_of(" \t\r\n") != std::string::npos) {
      (*errors)["image"] = "the name of an image, such as registry.example/team/image:1";
    }
  }
  if (reader.BeginField(kAmount)) {
    form.whole = json.BoolAt("whole").value_or(form.whole);
    if (form.whole) {
      reader.ReadNumber("gpus", 1, kMaxGpus, &form.gpus);
    } else {
      reader.ReadNumber("hundredths", 1, 99, &form.hundredths);
      reader.ReadNumber("memoryBlocks", 1, kMaxBlocks, &form.memory_blocks);
    }
  }
  if (reader.BeginField("model")) form.model = TextAt(json, {"model"});
  if (reader.BeginField("replicas")) reader.ReadNumber("replicas", 1, kMaxReplicas, &form.replicas);
  return edit;
}

FormReading ReadForm(const Manifest& manifest) {
  FormReading reading;
  reading.form.name = manifest.name;
  if (manifest.name.empty()) reading.unread["name"] = {"missing", ""};
  reading.form.ns = manifest.ns;
  const Json* replicas =
      manifest.deployment ? FindPath(manifest.object, {"spec", "replicas"}) : nullptr;
  if (replicas != nullptr) {
    const Result<int64_t> number = replicas->ToInt();
    reading.form.replicas = number.value_or(1);
    if (!number.ok()) reading.unread["replicas"] = {"value", ScalarTextOf(*replicas)};
  }
  const Json* model =
      FindPath(manifest.pod, {"metadata", "annotations", names::kAnnotationGpuModels});
  if (model != nullptr && model->is_string()) {
    reading.form.model = model->string_value();
  } else if (model != nullptr) {
    reading.unread["model"] = {"value", ScalarTextOf(*model)};
  }
  ReadContainer(manifest, &reading);
  return reading;
}

Json JsonOf(const FormReading& reading) {
  const WorkloadForm& form = reading.form;
  Json unread = Json::MakeObject();
  for (const auto& [field, why] : reading.unread) {
    unread.Set(field, Json::MakeObject(
                          {{"why", Json::String(why.why)}, {"found", Json::String(why.found)}}));
  }
  Json json =
      Json::MakeObject({{"form", Json::MakeObject({{"name", Json::String(form.name)},
                                                   {"namespace", Json::String(form.ns)},
                                                   {"image", Json::String(form.image)},
                                                   {"whole", Json::Bool(form.whole)},
                                                   {"gpus", Json::Int(form.gpus)},
                                                   {"hundredths", Json::Int(form.hundredths)},
                                                   {"memoryBlocks", Json::Int(form.memory_blocks)},
                                                   {"model", Json::String(form.model)},
                                                   {"replicas", Json::Int(form.replicas)}})},
                        {"unread", std::move(unread)}});
  if (reading.containers > 1) json.Set("container", Json::String(reading.container_name));
  return json;
}

std::string ManifestOf(const WorkloadForm& form) {
  const Json pod = PodOf(form);
  return WriteYaml(form.replicas == 1 ? pod : DeploymentOf(pod, form.replicas));
}

Result<std::string> WithEdit(const Manifest& manifest, const FormReading& before,
                             const FormEdit& edit) {
  // A text that the form generated and the user has not edited is generated again.
  if (before.unread.empty() && manifest.text == ManifestOf(before.form)) {
    return ManifestOf(edit.form);
  }
  ASSIGN_OR_RETURN(std::string text,
                   PatchYaml(manifest.text, EditMaker(manifest, before, edit).Make()));
  if (manifest.deployment || edit.form.replicas == 1) return text;
  ASSIGN_OR_RETURN(const Json pod, ParseYaml(text));
  return WriteYaml(DeploymentOf(pod, edit.form.replicas));
}

std::string Manifest::WithLine(std::string_view message) const {
  // strict decoding error: unknown field "spec.containers[0].imag"
  constexpr std::string_view kUnknown = "unknown field \"";
  const size_t at = message.find(kUnknown);
  if (at == std::string_view::npos) return std::string(message);
  std::string_view path = message.substr(at + kUnknown.size());
  path = path.substr(0, path.find('"'));
  if (path.empty()) return std::string(message);
  const Json* field = &object;
  while (field != nullptr && !path.empty()) {
    const size_t end = std::min(path.find_first_of(".[]"), path.size());
    const std::string_view key = path.substr(0, end);
    path.remove_prefix(std::min(end + 1, path.size()));
    if (key.empty()) continue;
    if (!field->is_array()) {
      field = field->Find(key);
      continue;
    }
    const auto item = static_cast<size_t>(ParseInt(key).value_or(-1));
    field = item < field->items().size() ? &field->items()[item] : nullptr;
  }
  if (field == nullptr || field->line() == 0) return std::string(message);
  return fmt::format("line {}: {}", field->line(), message.substr(at));
}

Result<Manifest> ParseManifest(std::string_view yaml) {
  if (yaml.size() > kMaxManifest) {
    return Error(Code::kInvalidArgument, "the manifest is longer than {} KiB", kMaxManifest >> 10);
  }
  Manifest manifest{.text = std::string(yaml)};
  ASSIGN_OR_RETURN(manifest.object, ParseYaml(yaml));
  const std::string kind = manifest.object.is_object() ? TextAt(manifest.object, {"kind"}) : "";
  const std::string version = kind.empty() ? "" : TextAt(manifest.object, {"apiVersion"});
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
  manifest.name = TextAt(*meta, {"name"});
  manifest.ns = TextAt(*meta, {"namespace"});
  if (manifest.ns.empty()) manifest.ns = "default";
  manifest.pod = manifest.object;
  if (!manifest.deployment) return manifest;
  const Json* pods = FindPath(manifest.object, {"spec", "template"});
  if (pods == nullptr || !pods->is_object()) {
    return Error(Code::kInvalidArgument, "the Deployment has no spec.template: add it");
  }
  manifest.pod = *pods;
  return manifest;
}

}  // namespace tessera::console
