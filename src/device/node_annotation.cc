// SPDX-License-Identifier: Apache-2.0
#include "src/device/node_annotation.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "src/base/strings.h"
#include "src/device/json_fields.h"
#include "src/device/mig_profile.h"
#include "src/device/plain_json.h"
#include "src/device/request.h"
#include "src/formats/json.h"

namespace tessera::device {
namespace {

constexpr size_t kMaxTextBytes = 200;
constexpr size_t kMaxNotes = 8;

void SetText(std::string_view key, std::string_view text, Json* object) {
  if (!text.empty()) object->Set(key, Json::String(TruncateUtf8(std::string(text), kMaxTextBytes)));
}

void SetNumber(std::string_view key, std::optional<int> number, Json* object) {
  if (number) object->Set(key, Json::Int(*number));
}

// The member "unhealthy" or "suspect" holds the reason; "state" holds any other state of a GPU that
// is not offered.
void EncodeHealth(const Health& health, Json* object) {
  if (health.state == Health::State::kHealthy) return;
  object->Set(health.ok() ? "suspect" : "unhealthy",
              Json::String(TruncateUtf8(health.reason, kMaxTextBytes)));
  if (health.ok() || health.state == Health::State::kUnhealthy) return;
  object->Set("state", Json::String(NameOf(health.state)));
}

Json EncodeMigSlice(const MigSlice& slice) {
  Json object = Json::MakeObject();
  object.Set("uuid", Json::String(slice.uuid));
  object.Set("profile", Json::String(slice.profile));
  object.Set("gi", Json::Int(slice.gpu_instance));
  object.Set("bytes", Json::Int(slice.memory.count()));
  EncodeHealth(slice.health, &object);
  return object;
}

Json EncodeGpu(const Gpu& gpu) {
  Json object = Json::MakeObject();
  object.Set("uuid", Json::String(gpu.uuid));
  object.Set("index", Json::Int(gpu.index));
  SetNumber("minor", gpu.minor, &object);
  SetText("model", gpu.model, &object);
  object.Set("bytes", Json::Int(gpu.memory.count()));
  SetText("pci", gpu.pci_bus_id, &object);
  SetNumber("numa", gpu.numa_node, &object);
  if (const auto& cc = gpu.compute_capability) {
    object.Set("cc", Json::String(fmt::format("{}.{}", cc->major, cc->minor)));
  }
  EncodeHealth(gpu.health, &object);
  if (gpu.mig) {
    Json slices = Json::MakeArray();
    for (const MigSlice& slice : *gpu.mig) slices.Append(EncodeMigSlice(slice));
    object.Set("mig", std::move(slices));
  }
  return object;
}

Json EncodeLinks(const LinkMatrix& links) {
  Json rows = Json::MakeArray();
  for (size_t row = 0; row < links.size(); ++row) {
    Json names = Json::MakeArray();
    for (size_t column = 0; column < row; ++column) {
      names.Append(Json::String(NameOf(links.At(row, column))));
    }
    rows.Append(std::move(names));
  }
  return rows;
}

std::optional<ComputeCapability> ParseCapability(std::string_view text) {
  ComputeCapability capability;
  const char* const end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), end, capability.major);
  if (major.ec != std::errc() || major.ptr == end || *major.ptr != '.') return std::nullopt;
  const auto minor = std::from_chars(major.ptr + 1, end, capability.minor);
  if (minor.ec != std::errc() || minor.ptr != end) return std::nullopt;
  if (capability.major < 0 || capability.minor < 0) return std::nullopt;
  return capability;
}

Status DecodeHealth(const JsonFields& reader, Health* health) {
  if (reader.Has("suspect")) {
    health->state = Health::State::kSuspect;
    RETURN_IF_ERROR(reader.ReadText("suspect", &health->reason));
  }
  if (!reader.Has("unhealthy")) return Status::Ok();
  *health = Health::Unhealthy("");
  std::string state;
  RETURN_IF_ERROR(reader.ReadText("state", &state));
  // States of later versions count as unhealthy, because they are not offered.
  for (const auto known : {Health::State::kRecovering, Health::State::kWithheld}) {
    if (state == NameOf(known)) health->state = known;
  }
  return reader.ReadText("unhealthy", &health->reason);
}

Result<MigSlice> DecodeMigSlice(const Json& json, const std::string& path) {
  if (!json.is_object()) return Error(Code::kInvalidArgument, "{}: must be an object", path);
  const JsonFields reader(json, path + ".");
  MigSlice slice;
  RETURN_IF_ERROR(reader.ReadText("uuid", &slice.uuid));
  if (slice.uuid.empty()) return reader.Invalid("uuid", "is missing");
  RETURN_IF_ERROR(reader.ReadText("profile", &slice.profile));
  if (!IsMigProfile(slice.profile)) {
    return reader.Invalid("profile", "\"{}\" is not a MIG profile such as 1g.10gb", slice.profile);
  }
  ASSIGN_OR_RETURN(const int64_t instance, reader.RequiredNumber("gi", kMaxSmallNumber));
  slice.gpu_instance = static_cast<int>(instance);
  ASSIGN_OR_RETURN(const int64_t bytes, reader.RequiredNumber("bytes", kMaxShareMemory.count()));
  slice.memory = Bytes(bytes);
  RETURN_IF_ERROR(DecodeHealth(reader, &slice.health));
  return slice;
}

// Without member "mig", MIG is off.
Status DecodeMig(const JsonFields& reader, const std::string& path,
                 std::optional<std::vector<MigSlice>>* mig) {
  if (!reader.Has("mig")) return Status::Ok();
  ASSIGN_OR_RETURN(const Json::Array* items, reader.Items("mig"));
  if (items->size() > kMaxMigSlices) {
    return reader.Invalid("mig", "{} are more than {}", items->size(), kMaxMigSlices);
  }
  mig->emplace();
  for (size_t i = 0; i < items->size(); ++i) {
    ASSIGN_OR_RETURN(MigSlice slice,
                     DecodeMigSlice((*items)[i], fmt::format("{}.mig[{}]", path, i)));
    (*mig)->push_back(std::move(slice));
  }
  return Status::Ok();
}

Result<Gpu> DecodeGpu(const Json& json, const std::string& path) {
  if (!json.is_object()) return Error(Code::kInvalidArgument, "{}: must be an object", path);
  const JsonFields reader(json, path + ".");
  Gpu gpu;
  RETURN_IF_ERROR(reader.ReadText("uuid", &gpu.uuid));
  if (gpu.uuid.empty()) return reader.Invalid("uuid", "is missing");
  std::optional<int> index;
  RETURN_IF_ERROR(reader.ReadSmallNumber("index", &index));
  if (!index) return reader.Invalid("index", "is missing");
  gpu.index = *index;
  RETURN_IF_ERROR(reader.ReadSmallNumber("minor", &gpu.minor));
  RETURN_IF_ERROR(reader.ReadText("model", &gpu.model));
  ASSIGN_OR_RETURN(const int64_t bytes, reader.RequiredNumber("bytes", kMaxShareMemory.count()));
  gpu.memory = Bytes(bytes);
  RETURN_IF_ERROR(reader.ReadText("pci", &gpu.pci_bus_id));
  RETURN_IF_ERROR(reader.ReadSmallNumber("numa", &gpu.numa_node));
  std::string capability;
  RETURN_IF_ERROR(reader.ReadText("cc", &capability));
  if (reader.Has("cc")) {
    gpu.compute_capability = ParseCapability(capability);
    if (!gpu.compute_capability)
      return reader.Invalid("cc", "\"{}\" is not a compute capability such as 8.0", capability);
  }
  RETURN_IF_ERROR(DecodeHealth(reader, &gpu.health));
  RETURN_IF_ERROR(DecodeMig(reader, path, &gpu.mig));
  return gpu;
}

Status CheckUuidsOnce(const Gpu& gpu, const std::string& path, std::set<std::string>* seen) {
  if (!seen->insert(gpu.uuid).second) {
    return Error(Code::kInvalidArgument, "{}.uuid: {} occurs twice", path, gpu.uuid);
  }
  if (!gpu.mig) return Status::Ok();
  for (size_t i = 0; i < gpu.mig->size(); ++i) {
    if (seen->insert((*gpu.mig)[i].uuid).second) continue;
    return Error(Code::kInvalidArgument, "{}.mig[{}].uuid: {} occurs twice", path, i,
                 (*gpu.mig)[i].uuid);
  }
  return Status::Ok();
}

Status DecodeGpus(const JsonFields& reader, std::vector<Gpu>* gpus) {
  ASSIGN_OR_RETURN(const Json::Array* items, reader.Items("gpus"));
  if (!reader.Has("gpus")) return reader.Invalid("gpus", "is missing");
  if (items->size() > kMaxNodeAnnotationGpus) {
    return reader.Invalid("gpus", "{} are more than {}", items->size(), kMaxNodeAnnotationGpus);
  }
  std::set<std::string> seen;
  for (size_t i = 0; i < items->size(); ++i) {
    const std::string path = fmt::format("gpus[{}]", i);
    ASSIGN_OR_RETURN(Gpu gpu, DecodeGpu((*items)[i], path));
    RETURN_IF_ERROR(CheckUuidsOnce(gpu, path, &seen));
    gpus->push_back(std::move(gpu));
  }
  return Status::Ok();
}

Status DecodeLinkRow(const Json& row, size_t number, LinkMatrix* links) {
  const std::string path = fmt::format("links[{}]", number);
  if (!row.is_array() || row.items().size() != number) {
    return Error(Code::kInvalidArgument, "{}: must be an array of {} links", path, number);
  }
  for (size_t column = 0; column < number; ++column) {
    const Json& name = row.items()[column];
    const std::optional<Link> link =
        name.is_string() ? LinkFromName(name.string_value()) : std::nullopt;
    if (!link) {
      return Error(Code::kInvalidArgument, "{}[{}]: {} is not a link", path, column,
                   name.Serialize());
    }
    links->Set(number, column, *link);
  }
  return Status::Ok();
}

// Without member "links", all links are unknown.
Status DecodeLinks(const JsonFields& reader, size_t gpu_count, LinkMatrix* links) {
  *links = LinkMatrix(gpu_count);
  if (!reader.Has("links")) return Status::Ok();
  ASSIGN_OR_RETURN(const Json::Array* rows, reader.Items("links"));
  if (rows->size() != gpu_count) {
    return reader.Invalid("links", "{} rows for {} GPUs", rows->size(), gpu_count);
  }
  for (size_t row = 0; row < rows->size(); ++row) {
    RETURN_IF_ERROR(DecodeLinkRow((*rows)[row], row, links));
  }
  return Status::Ok();
}

Status DecodeNotes(const JsonFields& reader, std::vector<std::string>* notes) {
  ASSIGN_OR_RETURN(const Json::Array* items, reader.Items("notes"));
  for (size_t i = 0; i < items->size(); ++i) {
    if (!(*items)[i].is_string()) {
      return Error(Code::kInvalidArgument, "notes[{}]: must be a string", i);
    }
    notes->push_back((*items)[i].string_value());
  }
  return Status::Ok();
}

}  // namespace

Result<std::string> EncodeNodeInventory(const NodeInventory& inventory) {
  if (inventory.gpus.size() > kMaxNodeAnnotationGpus) {
    return Error(Code::kResourceExhausted, "{} GPUs are more than {}", inventory.gpus.size(),
                 kMaxNodeAnnotationGpus);
  }
  for (const Gpu& gpu : inventory.gpus) {
    if (!gpu.mig || gpu.mig->size() <= kMaxMigSlices) continue;
    return Error(Code::kResourceExhausted, "{} MIG slices of {} are more than {}", gpu.mig->size(),
                 gpu.uuid, kMaxMigSlices);
  }
  Json object = Json::MakeObject();
  object.Set("version", Json::Int(kNodeAnnotationVersion));
  SetText("driver", inventory.driver_version, &object);
  if (inventory.cuda_version != 0) object.Set("cuda", Json::Int(inventory.cuda_version));
  Json gpus = Json::MakeArray();
  for (const Gpu& gpu : inventory.gpus) gpus.Append(EncodeGpu(gpu));
  object.Set("gpus", std::move(gpus));
  if (inventory.links.size() > 1) object.Set("links", EncodeLinks(inventory.links));
  if (inventory.unidentified != 0) object.Set("unidentified", Json::Int(inventory.unidentified));
  SetText("problem", inventory.problem, &object);
  SetText("runtime_problem", inventory.runtime_problem, &object);
  if (!inventory.notes.empty()) {
    Json notes = Json::MakeArray();
    const size_t count = std::min(inventory.notes.size(), kMaxNotes);
    for (size_t i = 0; i < count; ++i)
      notes.Append(Json::String(TruncateUtf8(inventory.notes[i], kMaxTextBytes)));
    object.Set("notes", std::move(notes));
  }
  std::string text = object.Serialize();
  if (text.size() > kMaxNodeAnnotationBytes) {
    return Error(Code::kResourceExhausted, "{} bytes for {} GPUs are more than {}", text.size(),
                 inventory.gpus.size(), kMaxNodeAnnotationBytes);
  }
  return text;
}

Result<NodeInventory> DecodeNodeInventory(std::string_view text) {
  if (auto plain = ReadPlainInventory(text)) return *std::move(plain);
  ASSIGN_OR_RETURN(const Json json, ParseAnnotation(text, kMaxNodeAnnotationBytes));
  const JsonFields reader(json, "");
  RETURN_IF_ERROR(reader.CheckVersion(kNodeAnnotationVersion));
  NodeInventory inventory;
  RETURN_IF_ERROR(reader.ReadText("driver", &inventory.driver_version));
  std::optional<int> cuda, unidentified;
  RETURN_IF_ERROR(reader.ReadSmallNumber("cuda", &cuda));
  RETURN_IF_ERROR(reader.ReadSmallNumber("unidentified", &unidentified));
  inventory.cuda_version = cuda.value_or(0);
  inventory.unidentified = unidentified.value_or(0);
  RETURN_IF_ERROR(DecodeGpus(reader, &inventory.gpus));
  RETURN_IF_ERROR(DecodeLinks(reader, inventory.gpus.size(), &inventory.links));
  RETURN_IF_ERROR(reader.ReadText("problem", &inventory.problem));
  RETURN_IF_ERROR(reader.ReadText("runtime_problem", &inventory.runtime_problem));
  RETURN_IF_ERROR(DecodeNotes(reader, &inventory.notes));
  return inventory;
}

}  // namespace tessera::device
