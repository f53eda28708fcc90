// SPDX-License-Identifier: Apache-2.0
#include "src/sim/profile.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <functional>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/formats/yaml.h"
#include "src/sim/profiles.h"

namespace tessera::sim {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// Where a value stands, for messages.
struct Place {
  std::string_view file;
  std::string field;
  int line = 0;

  template <typename... Args>
  Status Wrong(fmt::format_string<Args...> format, Args&&... args) const {
    return Error(Code::kInvalidArgument, "{}:{}: {}: {}", file, line, field,
                 fmt::format(format, std::forward<Args>(args)...));
  }
};

// Bus "07" is text for YAML, and "47" a number; here they are the same kind of thing.
Result<std::string> ScalarText(const Json& value, const Place& place) {
  if (value.is_string()) return value.string_value();
  if (value.is_number()) return value.number_text();
  return place.Wrong("wants text or a number, not {}", KindName(value.kind()));
}

Result<uint64_t> Number(const Json& value, const Place& place, uint64_t low, uint64_t high) {
  auto number = value.is_number() ? value.ToInt() : Result<int64_t>(Status(Code::kUnknown, ""));
  if (!number.ok()) return place.Wrong("wants a whole number");
  if (*number < 0 || uint64_t(*number) < low || uint64_t(*number) > high) {
    return place.Wrong("{} is not in {}..{}", *number, low, high);
  }
  return uint64_t(*number);
}

Result<uint32_t> HexNumber(const Json& value, const Place& place, uint32_t high) {
  ASSIGN_OR_RETURN(std::string text, ScalarText(value, place));
  const char* begin = text.data() + (text.starts_with("0x") ? 2 : 0);
  const char* end = text.data() + text.size();
  uint32_t number = 0;
  const auto [stopped, error] = std::from_chars(begin, end, number, 16);
  if (error != std::errc() || stopped != end || begin == end || number > high) {
    return place.Wrong("\"{}\" is not a hexadecimal number up to {:x}", text, high);
  }
  return number;
}

struct Choice {
  std::string_view name;
  uint32_t value;
};

Result<uint32_t> OneOf(const Json& value, const Place& place, const std::vector<Choice>& choices) {
  ASSIGN_OR_RETURN(std::string text, ScalarText(value, place));
  std::string names;
  for (const Choice& choice : choices) {
    if (choice.name == text) return choice.value;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", choice.name);
  }
  return place.Wrong("\"{}\" is none of {}", text, names);
}

using Setter = std::function<Status(const Json& value, const Place& place, Profile* profile)>;
struct Field {
  std::string_view name;
  Setter set;
};

Setter U32(uint32_t GpuFacts::*member, uint64_t low, uint64_t high, uint32_t factor = 1) {
  return [=](const Json& value, const Place& place, Profile* profile) -> Status {
    ASSIGN_OR_RETURN(uint64_t number, Number(value, place, low, high));
    profile->gpu.*member = uint32_t(number) * factor;
    return {};
  };
}

Setter U64(uint64_t GpuFacts::*member, uint64_t low, uint64_t high, uint64_t factor) {
  return [=](const Json& value, const Place& place, Profile* profile) -> Status {
    ASSIGN_OR_RETURN(uint64_t number, Number(value, place, low, high));
    profile->gpu.*member = number * factor;
    return {};
  };
}

Setter Flag(uint32_t GpuFacts::*member) {
  return [=](const Json& value, const Place& place, Profile* profile) -> Status {
    if (value.kind() != Json::Kind::kBool) return place.Wrong("wants true or false");
    profile->gpu.*member = value.bool_value() ? 1 : 0;
    return {};
  };
}

Setter Hex(uint32_t GpuFacts::*member, uint32_t high) {
  return [=](const Json& value, const Place& place, Profile* profile) -> Status {
    ASSIGN_OR_RETURN(profile->gpu.*member, HexNumber(value, place, high));
    return {};
  };
}

Setter Named(uint32_t GpuFacts::*member, std::vector<Choice> choices) {
  return [=](const Json& value, const Place& place, Profile* profile) -> Status {
    ASSIGN_OR_RETURN(profile->gpu.*member, OneOf(value, place, choices));
    return {};
  };
}

bool IsControl(char c) { return uint8_t(c) < ' ' || c == 0x7F; }

template <size_t N>
Setter Text(char (GpuFacts::*member)[N]) {
  return [=](const Json& value, const Place& place, Profile* profile) -> Status {
    ASSIGN_OR_RETURN(std::string text, ScalarText(value, place));
    if (text.empty() || text.size() >= N) return place.Wrong("wants 1 to {} characters", N - 1);
    // It goes into files of lines, as the kernel's are.
    if (std::ranges::any_of(text, IsControl)) return place.Wrong("wants one line of text");
    std::memset(profile->gpu.*member, 0, N);
    std::memcpy(profile->gpu.*member, text.data(), text.size());
    return {};
  };
}

Status SetComputeCapability(const Json& value, const Place& place, Profile* profile) {
  ASSIGN_OR_RETURN(std::string text, ScalarText(value, place));
  unsigned major = 0, minor = 0;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%2u.%1u%c", &major, &minor, &rest) != 2) {
    return place.Wrong("\"{}\" is not like 8.0", text);
  }
  profile->gpu.cc_major = major;
  profile->gpu.cc_minor = minor;
  return {};
}

const std::vector<Field>& GpuFields() {
  using F = GpuFacts;
  static const std::vector<Field> fields = {
      {"name", Text(&F::name)},
      {"brand", Named(&F::brand, {{"quadro", 1}, {"tesla", 2}, {"geforce", 5}, {"nvidia", 14}})},
      {"architecture", Named(&F::architecture, {{"maxwell", 3},
                                                {"pascal", 4},
                                                {"volta", 5},
                                                {"turing", 6},
                                                {"ampere", 7},
                                                {"ada", 8},
                                                {"hopper", 9},
                                                {"blackwell", 10}})},
      {"compute_capability", SetComputeCapability},
      {"vbios", Text(&F::vbios)},
      {"part_number", Text(&F::board_part_number)},
      {"inforom_image", Text(&F::inforom_image)},
      {"inforom_oem", Text(&F::inforom_oem)},
      {"inforom_ecc", Text(&F::inforom_ecc)},
      {"multiprocessors", U32(&F::sm_count, 1, 1024)},
      {"threads_per_multiprocessor", U32(&F::max_threads_per_sm, 32, 4096)},
      {"shared_kib_per_block", U32(&F::shared_per_block_optin, 1, 1024, 1024)},
      {"shared_kib_per_multiprocessor", U32(&F::shared_per_sm, 1, 1024, 1024)},
      {"l2_kib", U32(&F::l2_bytes, 1, 1 << 20, 1024)},
      {"memory_bus_bits", U32(&F::memory_bus_bits, 1, 16384)},
      {"copy_engines", U32(&F::async_engines, 1, 32)},
      {"memory_mib", U64(&F::memory_bytes, 64, 1 << 20, kMiB)},
      {"reserved_mib", U64(&F::reserved_bytes, 0, 1 << 16, kMiB)},
      {"context_mib", U64(&F::context_bytes, 0, 1 << 16, kMiB)},
      {"bar1_mib", U64(&F::bar1_bytes, 1, 1 << 20, kMiB)},
      {"memory_gb_per_second", U64(&F::memory_bytes_per_second, 1, 100'000, 1'000'000'000)},
      {"ecc", Flag(&F::ecc_enabled)},
      {"row_banks", U32(&F::row_banks, 0, 65536)},
      {"mig", Flag(&F::mig_capable)},
      {"mig_devices", U32(&F::max_mig_devices, 0, 8)},
      {"pci_device", Hex(&F::pci_device_id, 0xFFFFFFFF)},
      {"pci_subsystem", Hex(&F::pci_subsystem_id, 0xFFFFFFFF)},
      {"pci_class", Hex(&F::pci_class, 0xFFFFFF)},
      {"pcie_generation", U32(&F::pcie_gen_max, 1, 7)},
      {"pcie_width", U32(&F::pcie_width_max, 1, 32)},
      {"clock_graphics_mhz", U32(&F::clock_graphics_max, 1, 10'000)},
      {"clock_memory_mhz", U32(&F::clock_mem_max, 1, 50'000)},
      {"clock_video_mhz", U32(&F::clock_video_max, 1, 10'000)},
      {"clock_idle_mhz", U32(&F::clock_graphics_idle, 1, 10'000)},
      {"clock_memory_idle_mhz", U32(&F::clock_mem_idle, 1, 50'000)},
      {"power_limit_w", U32(&F::power_limit_mw, 1, 5000, 1000)},
      {"power_min_w", U32(&F::power_min_mw, 1, 5000, 1000)},
      {"power_idle_w", U32(&F::power_idle_mw, 1, 5000, 1000)},
      {"temperature_idle_c", U32(&F::temperature_idle_c, 1, 150)},
      {"temperature_slowdown_c", U32(&F::temperature_slowdown_c, 1, 150)},
      {"temperature_shutdown_c", U32(&F::temperature_shutdown_c, 1, 150)},
      {"temperature_memory_max_c", U32(&F::temperature_memory_max_c, 1, 150)},
      {"nvlinks", U32(&F::nvlink_count, 0, kMaxLinks)},
      {"nvlink_version", U32(&F::nvlink_version, 0, 10)},
      {"nvlink_mb_per_second", U32(&F::nvlink_mbps, 0, 1'000'000)},
  };
  return fields;
}

Status SetGpus(const Json& value, const Place& place, Profile* profile) {
  ASSIGN_OR_RETURN(uint64_t number, Number(value, place, 1, kMaxGpus));
  profile->gpus = uint32_t(number);
  return {};
}

Status SetNumaNodes(const Json& value, const Place& place, Profile* profile) {
  ASSIGN_OR_RETURN(uint64_t number, Number(value, place, 0, 8));
  profile->numa_nodes = uint32_t(number);
  return {};
}

// "0-1:12": twelve links between GPUs 0 and 1.
Status AddLinkPair(const Json& value, const Place& place, Profile* profile) {
  ASSIGN_OR_RETURN(std::string text, ScalarText(value, place));
  LinkPair pair;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%2u-%2u:%2u%c", &pair.a, &pair.b, &pair.links, &rest) != 3 ||
      pair.a == pair.b || pair.a >= kMaxGpus || pair.b >= kMaxGpus || pair.links == 0) {
    return place.Wrong("\"{}\" is not like 0-1:12 (GPU-GPU:links)", text);
  }
  profile->link_list.push_back(pair);
  return {};
}

Status SetNvLink(const Json& value, const Place& place, Profile* profile) {
  profile->link_list.clear();
  if (value.is_array()) {
    profile->topology = LinkTopology::kList;
    for (const Json& item : value.items()) {
      RETURN_IF_ERROR(AddLinkPair(item, {place.file, place.field, item.line()}, profile));
    }
    return {};
  }
  if (!value.is_object()) {
    ASSIGN_OR_RETURN(uint32_t none, OneOf(value, place, {{"none", 0}}));
    profile->topology = LinkTopology(none);
    return {};
  }
  for (const auto& [key, member] : value.members()) {
    const Place at{place.file, place.field + "." + key, member.line()};
    if (key == "topology") {
      ASSIGN_OR_RETURN(uint32_t kind,
                       OneOf(member, at, {{"pairs", 1}, {"quads", 2}, {"nvswitch", 3}}));
      profile->topology = LinkTopology(kind);
    } else if (key == "links") {
      ASSIGN_OR_RETURN(uint64_t links, Number(member, at, 1, kMaxLinks));
      profile->links = uint32_t(links);
    } else {
      return at.Wrong("is not a field; there are topology, links");
    }
  }
  return {};
}

Status SetPcie(const Json& value, const Place& place, Profile* profile) {
  if (!value.is_object()) return place.Wrong("wants pair, half and across");
  for (const auto& [key, member] : value.members()) {
    const Place at{place.file, place.field + "." + key, member.line()};
    ASSIGN_OR_RETURN(
        uint32_t level,
        OneOf(
            member, at,
            {{"single", 10}, {"multiple", 20}, {"host-bridge", 30}, {"node", 40}, {"system", 50}}));
    if (key == "pair")
      profile->pcie_pair = level;
    else if (key == "half")
      profile->pcie_half = level;
    else if (key == "across")
      profile->pcie_across = level;
    else
      return at.Wrong("is not a field; there are pair, half, across");
  }
  return {};
}

Status SetBuses(const Json& value, const Place& place, Profile* profile) {
  if (!value.is_array()) return place.Wrong("wants a list of hexadecimal bus numbers");
  profile->pci_buses.clear();
  for (const Json& item : value.items()) {
    const Place at{place.file, place.field, item.line()};
    ASSIGN_OR_RETURN(uint32_t bus, HexNumber(item, at, 0xFF));
    if (std::ranges::count(profile->pci_buses, bus) != 0)
      return at.Wrong("{:02x} stands twice", bus);
    profile->pci_buses.push_back(bus);
  }
  return {};
}

bool IsUuid(std::string_view text) {
  constexpr std::string_view kShape = "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
  if (text.size() != kShape.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (kShape[i] == 'x' ? !std::isxdigit(uint8_t(text[i])) : text[i] != kShape[i]) return false;
  }
  return true;
}

Status SetUuids(const Json& value, const Place& place, Profile* profile) {
  if (!value.is_array()) return place.Wrong("wants a list");
  profile->uuids.clear();
  for (const Json& item : value.items()) {
    const Place at{place.file, place.field, item.line()};
    ASSIGN_OR_RETURN(std::string text, ScalarText(item, at));
    if (!IsUuid(text))
      return at.Wrong("\"{}\" is not like GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", text);
    if (std::ranges::count(profile->uuids, text) != 0) return at.Wrong("{} stands twice", text);
    profile->uuids.push_back(text);
  }
  return {};
}

const std::vector<Field>& NodeFields() {
  static const std::vector<Field> fields = {
      {"gpus", SetGpus}, {"numa_nodes", SetNumaNodes}, {"nvlink", SetNvLink},
      {"pcie", SetPcie}, {"pci_buses", SetBuses},      {"uuids", SetUuids},
  };
  return fields;
}

Status SetDriverVersion(const Json& value, const Place& place, Profile* profile) {
  ASSIGN_OR_RETURN(std::string text, ScalarText(value, place));
  unsigned major = 0, minor = 0, rev = 0;
  char rest = 0;
  const int parts = std::sscanf(text.c_str(), "%4u.%4u.%4u%c", &major, &minor, &rev, &rest);
  if (parts < 2 || parts > 3 || text.size() > 20)
    return place.Wrong("\"{}\" is not like 550.163.01", text);
  profile->driver_version = text;
  return {};
}

Status SetCudaVersion(const Json& value, const Place& place, Profile* profile) {
  ASSIGN_OR_RETURN(std::string text, ScalarText(value, place));
  unsigned major = 0, minor = 0;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%2u.%1u%c", &major, &minor, &rest) != 2) {
    return place.Wrong("\"{}\" is not like 12.4", text);
  }
  profile->cuda_version = major * 1000 + minor * 10;
  return {};
}

const std::vector<Field>& DriverFields() {
  static const std::vector<Field> fields = {{"version", SetDriverVersion},
                                            {"cuda", SetCudaVersion}};
  return fields;
}

Status ReadSection(const Json& section, const Place& place, const std::vector<Field>& fields,
                   Profile* profile) {
  if (!section.is_object()) return place.Wrong("wants fields below it");
  for (const auto& [key, value] : section.members()) {
    const Place at{place.file, place.field + "." + key, value.line()};
    const auto field = std::ranges::find(fields, key, &Field::name);
    if (field == fields.end()) {
      std::string names;
      for (const Field& known : fields)
        names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
      return at.Wrong("is not a field; there are {}", names);
    }
    RETURN_IF_ERROR(field->set(value, at, profile));
  }
  return {};
}

// Checks conditions between fields.
Status CheckWhole(const Profile& profile, const Json& root, std::string_view file) {
  const Place at{file, "profile", std::max(root.line(), 1)};
  const GpuFacts& gpu = profile.gpu;
  if (gpu.name[0] == '\0' || gpu.memory_bytes == 0 || gpu.cc_major == 0) {
    return at.Wrong(
        "gpu.name, gpu.memory_mib and gpu.compute_capability are wanted, or a base: that has them");
  }
  if (gpu.reserved_bytes + gpu.context_bytes >= gpu.memory_bytes) {
    return at.Wrong("gpu.reserved_mib and gpu.context_mib leave nothing of gpu.memory_mib");
  }
  if (profile.links > gpu.nvlink_count) {
    return at.Wrong("node.nvlink.links is {}, but the GPU has {} (gpu.nvlinks)", profile.links,
                    gpu.nvlink_count);
  }
  return {};
}

// The CUDA version of each driver branch, by the first number of the driver's version.
struct DriverBranch {
  int branch;
  uint32_t cuda_version;
};
constexpr DriverBranch kDriverBranches[] = {
    {390, 9010},  {410, 10000}, {418, 10010}, {440, 10020}, {450, 11000}, {455, 11010},
    {460, 11020}, {465, 11030}, {470, 11040}, {495, 11050}, {510, 11060}, {515, 11070},
    {520, 11080}, {525, 12000}, {530, 12010}, {535, 12020}, {545, 12030}, {550, 12040},
    {555, 12050}, {560, 12060}, {565, 12070}, {570, 12080}, {575, 12090}, {580, 13000},
};

// driver.cuda follows from driver.version where the profile does not give it.
Status ReadDriver(const Json& section, const Place& place, Profile* profile) {
  RETURN_IF_ERROR(ReadSection(section, place, DriverFields(), profile));
  const Json* version = section.Find("version");
  if (version == nullptr || section.Find("cuda") != nullptr) return {};
  const int branch = std::atoi(profile->driver_version.c_str());
  const auto* known = std::ranges::find(kDriverBranches, branch, &DriverBranch::branch);
  if (known == std::end(kDriverBranches)) {
    const Place at{place.file, place.field + ".version", version->line()};
    return at.Wrong("the CUDA version of driver {} is unknown: give driver.cuda", branch);
  }
  profile->cuda_version = known->cuda_version;
  return {};
}

// Like those of the built-in ones, which are the names of files.
Status CheckName(std::string_view name, const Place& place) {
  if (name.size() >= sizeof(StateFile::profile)) return place.Wrong("is too long");
  const bool good =
      !name.empty() && std::isalnum(uint8_t(name[0])) != 0 && std::ranges::all_of(name, [](char c) {
        return std::isalnum(uint8_t(c)) != 0 || c == '-' || c == '_' || c == '.';
      });
  if (good) return {};
  return place.Wrong("wants letters, digits, \"-\", \"_\" and \".\", a letter or digit first");
}

}  // namespace

Result<Profile> ParseProfile(std::string_view text, std::string_view file) {
  ASSIGN_OR_RETURN(const Json root, ParseYaml(text).Annotate(file));
  const Place top{file, "profile", std::max(root.line(), 1)};
  if (!root.is_object()) return top.Wrong("wants gpu:, node: or base:");
  Profile profile;
  if (const Json* base = root.Find("base")) {
    const Place at{file, "base", base->line()};
    ASSIGN_OR_RETURN(std::string name, ScalarText(*base, at));
    if (name.find('/') != std::string::npos || name.ends_with(".yaml")) {
      return at.Wrong("\"{}\" is a file: a base is one of the built-in profiles, {}", name,
                      fmt::join(ProfileNames(), ", "));
    }
    auto text_of_base = ProfileText(name);
    if (!text_of_base.ok()) return at.Wrong("{}", text_of_base.status().message());
    ASSIGN_OR_RETURN(profile, ParseProfile(*text_of_base, name));
  }
  for (const auto& [key, value] : root.members()) {
    const Place at{file, key, value.line()};
    if (key == "base") continue;
    if (key == "name") {
      ASSIGN_OR_RETURN(profile.name, ScalarText(value, at));
      RETURN_IF_ERROR(CheckName(profile.name, at));
    } else if (key == "gpu") {
      RETURN_IF_ERROR(ReadSection(value, at, GpuFields(), &profile));
    } else if (key == "node") {
      RETURN_IF_ERROR(ReadSection(value, at, NodeFields(), &profile));
    } else if (key == "driver") {
      RETURN_IF_ERROR(ReadDriver(value, at, &profile));
    } else {
      return at.Wrong("is not a field; there are name, base, driver, gpu, node");
    }
  }
  RETURN_IF_ERROR(CheckWhole(profile, root, file));
  auto state = MakeState(profile, "");
  if (!state.ok()) return Error(Code::kInvalidArgument, "{}: {}", file, state.status().message());
  return profile;
}

Result<Profile> LoadProfile(const std::string& name_or_file) {
  if (name_or_file.find('/') != std::string::npos || name_or_file.ends_with(".yaml")) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(name_or_file));
    return ParseProfile(text, name_or_file);
  }
  ASSIGN_OR_RETURN(const std::string text, ProfileText(name_or_file));
  return ParseProfile(text, name_or_file);
}

Result<std::string> ProfileText(std::string_view name) {
  std::string names;
  for (const BuiltInProfile& profile : kBuiltInProfiles) {
    if (profile.name == name) return std::string(profile.text);
    names += fmt::format("{}{}", names.empty() ? "" : ", ", profile.name);
  }
  return Error(Code::kNotFound,
               "no profile \"{}\"; there are {}; or give a file that ends in .yaml", name, names);
}

std::vector<std::string> ProfileNames() {
  std::vector<std::string> names;
  for (const BuiltInProfile& profile : kBuiltInProfiles) names.emplace_back(profile.name);
  return names;
}

}  // namespace tessera::sim
