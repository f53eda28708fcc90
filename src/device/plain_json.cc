// SPDX-License-Identifier: Apache-2.0
#include "src/device/plain_json.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>
#include <utility>

#include "src/base/strings.h"
#include "src/device/json_fields.h"
#include "src/device/node_annotation.h"
#include "src/device/request.h"
#include "src/formats/json_reader.h"

namespace tessera::device {
namespace {

constexpr int64_t kMaxNumber = std::numeric_limits<int64_t>::max();

// Reads one object with known members, each at most once. Clears `*plain` if the text has another
// form. Next then returns false, so callers check `*plain` only at the end.
class PlainObject {
 public:
  PlainObject(JsonReader* reader, bool* plain) : reader_(*reader), plain_(*plain) {
    reader_.BeginObject();
  }

  // False at the object's end.
  bool Next() {
    if (!plain_) return false;
    return reader_.NextMember(&key_);
  }
  // Whether the current member has this name. `bit` is the number of the name among the known
  // members.
  bool TakeMember(std::string_view name, unsigned bit) {
    if (key_ != name) return false;
    if ((seen_ >> bit & 1) != 0) plain_ = false;
    seen_ |= 1u << bit;
    return plain_;
  }
  bool HasSeen(unsigned bit) const { return (seen_ >> bit & 1) != 0; }
  void RejectUnknown() { plain_ = false; }

  void ReadText(std::string* out) { *out = reader_.String(); }
  // Accepts digits without a leading zero, which all parsers read in the same way.
  int64_t ReadNumber(int64_t max) {
    const std::string_view word = reader_.Skip();
    int64_t value = 0;
    const char* const end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, value);
    const bool is_valid = error == std::errc() && stop == end && !word.starts_with('-') &&
                          (word.size() == 1 || !word.starts_with('0')) && value <= max;
    if (!is_valid) plain_ = false;
    return value;
  }
  int ReadSmallNumber() { return static_cast<int>(ReadNumber(kMaxSmallNumber)); }

 private:
  JsonReader& reader_;
  bool& plain_;
  std::string_view key_;
  unsigned seen_ = 0;
};

bool IsPlain(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c != '\\' && static_cast<unsigned char>(c) < 0x80; });
}

// "8.0"
std::optional<ComputeCapability> CapabilityOf(std::string_view text) {
  if (text.size() != 3 || text[1] != '.') return std::nullopt;
  if (!IsDigit(text[0]) || !IsDigit(text[2])) return std::nullopt;
  return ComputeCapability{text[0] - '0', text[2] - '0'};
}

Gpu ReadGpu(JsonReader* reader, bool* plain) {
  Gpu gpu;
  PlainObject object(reader, plain);
  while (object.Next()) {
    if (object.TakeMember("uuid", 0)) {
      object.ReadText(&gpu.uuid);
    } else if (object.TakeMember("index", 1)) {
      gpu.index = object.ReadSmallNumber();
    } else if (object.TakeMember("minor", 2)) {
      gpu.minor = object.ReadSmallNumber();
    } else if (object.TakeMember("model", 3)) {
      object.ReadText(&gpu.model);
    } else if (object.TakeMember("bytes", 4)) {
      gpu.memory = Bytes(object.ReadNumber(kMaxShareMemory.count()));
    } else if (object.TakeMember("pci", 5)) {
      object.ReadText(&gpu.pci_bus_id);
    } else if (object.TakeMember("numa", 6)) {
      gpu.numa_node = object.ReadSmallNumber();
    } else if (object.TakeMember("cc", 7)) {
      gpu.compute_capability = CapabilityOf(reader->String());
      if (!gpu.compute_capability) *plain = false;
    } else {
      object.RejectUnknown();
    }
  }
  if (gpu.uuid.empty() || !object.HasSeen(1) || !object.HasSeen(4)) *plain = false;
  return gpu;
}

void ReadGpus(JsonReader* reader, bool* plain, std::vector<Gpu>* gpus) {
  reader->BeginArray();
  while (*plain && reader->NextItem()) {
    Gpu gpu = ReadGpu(reader, plain);
    const auto same = [&](const Gpu& other) { return other.uuid == gpu.uuid; };
    if (gpus->size() == kMaxNodeAnnotationGpus || std::any_of(gpus->begin(), gpus->end(), same)) {
      *plain = false;
    }
    gpus->push_back(std::move(gpu));
  }
}

// Row i holds the links to GPUs 0 … i-1.
void ReadLinks(JsonReader* reader, bool* plain, LinkMatrix* links) {
  size_t row = 0;
  reader->BeginArray();
  for (; *plain && reader->NextItem(); ++row) {
    size_t column = 0;
    reader->BeginArray();
    for (; *plain && reader->NextItem(); ++column) {
      const std::optional<Link> link = LinkFromName(reader->String());
      if (!link || row >= links->size() || column >= row) {
        *plain = false;
      } else {
        links->Set(row, column, *link);
      }
    }
    if (column != row) *plain = false;
  }
  if (row != links->size()) *plain = false;
}

void ReadShares(JsonReader* reader, bool* plain, std::vector<DeviceShare>* shares) {
  reader->BeginArray();
  while (*plain && reader->NextItem()) {
    DeviceShare& share = shares->emplace_back();
    PlainObject object(reader, plain);
    while (object.Next()) {
      if (object.TakeMember("gpu", 0)) {
        object.ReadText(&share.uuid);
      } else if (object.TakeMember("milli", 1)) {
        share.compute = MilliGpu(object.ReadNumber(kWholeGpu.count()));
      } else if (object.TakeMember("bytes", 2)) {
        share.memory = Bytes(object.ReadNumber(kMaxShareMemory.count()));
      } else {
        object.RejectUnknown();
      }
    }
    if (!object.HasSeen(0) || !object.HasSeen(1) || !object.HasSeen(2)) *plain = false;
  }
}

}  // namespace

std::optional<NodeInventory> ReadPlainInventory(std::string_view text) {
  if (text.size() > kMaxNodeAnnotationBytes || !IsPlain(text)) return std::nullopt;
  JsonReader reader(text);
  NodeInventory inventory;
  int64_t version = 0;
  bool plain = true;
  PlainObject object(&reader, &plain);
  while (object.Next()) {
    if (object.TakeMember("version", 0)) {
      version = object.ReadNumber(kMaxNumber);
    } else if (object.TakeMember("driver", 1)) {
      object.ReadText(&inventory.driver_version);
    } else if (object.TakeMember("cuda", 2)) {
      inventory.cuda_version = object.ReadSmallNumber();
    } else if (object.TakeMember("gpus", 3)) {
      ReadGpus(&reader, &plain, &inventory.gpus);
      inventory.links = LinkMatrix(inventory.gpus.size());
    } else if (object.TakeMember("links", 4)) {
      if (!object.HasSeen(3)) object.RejectUnknown();
      ReadLinks(&reader, &plain, &inventory.links);
    } else {
      object.RejectUnknown();
    }
  }
  if (!plain || !reader.Finish().ok() || version != kNodeAnnotationVersion || !object.HasSeen(3)) {
    return std::nullopt;
  }
  return inventory;
}

std::optional<Assignment> ReadPlainAssignment(std::string_view text) {
  if (text.size() > kMaxAssignmentBytes || !IsPlain(text)) return std::nullopt;
  JsonReader reader(text);
  Assignment assignment;
  int64_t version = 0;
  bool plain = true;
  PlainObject object(&reader, &plain);
  while (object.Next()) {
    if (object.TakeMember("version", 0)) {
      version = object.ReadNumber(kMaxNumber);
    } else if (object.TakeMember("containers", 1)) {
      std::string_view name;
      reader.BeginObject();
      while (plain && reader.NextMember(&name)) {
        const auto [place, added] = assignment.containers.try_emplace(std::string(name));
        if (!added) plain = false;
        ReadShares(&reader, &plain, &place->second);
      }
    } else {
      object.RejectUnknown();
    }
  }
  if (!plain || !reader.Finish().ok() || version != kAssignmentVersion || !object.HasSeen(1)) {
    return std::nullopt;
  }
  return assignment;
}

}  // namespace tessera::device
