// SPDX-License-Identifier: Apache-2.0
#include "src/sim/profile.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <functional>
#include <ranges>
#include <type_traits>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/formats/yaml.h"
#include "src/sim/profiles.h"

namespace tessera::sim {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// File, line and field of a value, for messages.
struct ProfileLocation {
  std::string_view file;
  std::string field;
  int line = 0;

  template <typename... Args>
  Status Invalid(fmt::format_string<Args...> format, Args&&... args) const {
    return Error(Code::kInvalidArgument, "{}:{}: {}: {}", file, line, field,
                 fmt::format(format, std::forward<Args>(args)...));
  }
};

// YAML reads bus "07" as text and bus "47" as a number; both are valid.
Result<std::string> ReadText(const Json& value, const ProfileLocation& location) {
  if (value.is_string()) return value.string_value();
  if (value.is_number()) return value.number_text();
  return location.Invalid("invalid type: want text or a number, got {}", KindName(value.kind()));
}

Result<uint64_t> ReadNumber(const Json& value, const ProfileLocation& location, uint64_t low,
                            uint64_t high) {
  auto number = value.is_number() ? value.ToInt() : Result<int64_t>(Status(Code::kUnknown, ""));
  if (!number.ok()) return location.Invalid("invalid value: want a whole number");
  if (*number < 0 || uint64_t(*number) < low || uint64_t(*number) > high) {
    return location.Invalid("invalid value {}: want {} to {}", *number, low, high);
  }
  return uint64_t(*number);
}

Result<uint32_t> ReadHexNumber(const Json& value, const ProfileLocation& location, uint32_t high) {
  ASSIGN_OR_RETURN(std::string text, ReadText(value, location));
  const char* begin = text.data() + (text.starts_with("0x") ? 2 : 0);
  const char* end = text.data() + text.size();
  uint32_t number = 0;
  const auto [stopped, error] = std::from_chars(begin, end, number, 16);
  if (error != std::errc() || stopped != end || begin == end || number > high) {
    return location.Invalid("invalid value \"{}\": want a hexadecimal number up to {:x}", text,
                            high);
  }
  return number;
}

template <typename Named>
std::string JoinNames(const std::vector<Named>& list) {
  return fmt::format("{}", fmt::join(list | std::views::transform(&Named::name), ", "));
}

struct ProfileChoice {
  std::string_view name;
  uint32_t value;
};

Result<uint32_t> ReadChoice(const Json& value, const ProfileLocation& location,
                            const std::vector<ProfileChoice>& choices) {
  ASSIGN_OR_RETURN(std::string text, ReadText(value, location));
  const auto choice = std::ranges::find(choices, text, &ProfileChoice::name);
  if (choice != choices.end()) return choice->value;
  return location.Invalid("invalid value \"{}\": want one of {}", text, JoinNames(choices));
}

using Setter =
    std::function<Status(const Json& value, const ProfileLocation& location, Profile* profile)>;
struct ProfileField {
  std::string_view name;
  Setter set;
};

// `member` of GpuFacts or Profile; the profile has the number in units of `factor`.
template <typename T, typename Owner>
Setter NumberSetter(T Owner::*member, uint64_t low, uint64_t high,
                    std::type_identity_t<T> factor = 1) {
  return [=](const Json& value, const ProfileLocation& location, Profile* profile) -> Status {
    ASSIGN_OR_RETURN(uint64_t number, ReadNumber(value, location, low, high));
    if constexpr (std::is_same_v<Owner, Profile>) {
      profile->*member = T(number) * factor;
    } else {
      profile->gpu.*member = T(number) * factor;
    }
    return {};
  };
}

Setter FlagSetter(uint32_t GpuFacts::*member) {
  return [=](const Json& value, const ProfileLocation& location, Profile* profile) -> Status {
    if (value.kind() != Json::Kind::kBool)
      return location.Invalid("invalid value: want true or false");
    profile->gpu.*member = value.bool_value() ? 1 : 0;
    return {};
  };
}

Setter HexSetter(uint32_t GpuFacts::*member, uint32_t high) {
  return [=](const Json& value, const ProfileLocation& location, Profile* profile) -> Status {
    ASSIGN_OR_RETURN(profile->gpu.*member, ReadHexNumber(value, location, high));
    return {};
  };
}

Setter ChoiceSetter(uint32_t GpuFacts::*member, std::vector<ProfileChoice> choices) {
  return [=](const Json& value, const ProfileLocation& location, Profile* profile) -> Status {
    ASSIGN_OR_RETURN(profile->gpu.*member, ReadChoice(value, location, choices));
    return {};
  };
}

bool IsControl(char c) { return uint8_t(c) < ' ' || c == 0x7F; }

template <size_t N>
Setter TextSetter(char (GpuFacts::*member)[N]) {
  return [=](const Json& value, const ProfileLocation& location, Profile* profile) -> Status {
    ASSIGN_OR_RETURN(std::string text, ReadText(value, location));
    if (text.empty() || text.size() >= N)
      return location.Invalid("invalid length: want 1 to {} characters", N - 1);
    // The text becomes a line in files of /proc and sysfs.
    if (std::ranges::any_of(text, IsControl))
      return location.Invalid("invalid text: want one line");
    std::memset(profile->gpu.*member, 0, N);
    std::memcpy(profile->gpu.*member, text.data(), text.size());
    return {};
  };
}

// True: the text consists of digits and dots. sscanf would also accept signs and spaces.
bool HasOnlyDigitsAndDots(std::string_view text) {
  return text.find_first_not_of("0123456789.") == std::string_view::npos;
}

Status SetComputeCapability(const Json& value, const ProfileLocation& location, Profile* profile) {
  ASSIGN_OR_RETURN(std::string text, ReadText(value, location));
  unsigned major = 0, minor = 0;
  char rest = 0;
  if (!HasOnlyDigitsAndDots(text) ||
      std::sscanf(text.c_str(), "%2u.%1u%c", &major, &minor, &rest) != 2) {
    return location.Invalid("invalid compute capability \"{}\": want e.g. 8.0", text);
  }
  profile->gpu.cc_major = major;
  profile->gpu.cc_minor = minor;
  return {};
}

struct MigField {
  std::string_view name;
  uint32_t MigProfile::*member;
  uint32_t low, high;
};
constexpr MigField kMigFields[] = {
    {"number", &MigProfile::number, 0, 31},
    {"id", &MigProfile::id, 0, 255},
    {"slices", &MigProfile::slices, 1, 8},
    {"size", &MigProfile::size, 1, 8},
    {"instances", &MigProfile::instances, 1, kMaxInstances},
    {"multiprocessors", &MigProfile::sm_count, 1, 1024},
    {"copy_engines", &MigProfile::copy_engines, 0, 32},
    {"decoders", &MigProfile::decoders, 0, 32},
    {"encoders", &MigProfile::encoders, 0, 32},
    {"jpegs", &MigProfile::jpegs, 0, 32},
    {"ofas", &MigProfile::ofas, 0, 32},
};

Status SetMigField(std::string_view key, const Json& value, const ProfileLocation& at,
                   MigProfile* out) {
  for (const MigField& field : kMigFields) {
    if (field.name != key) continue;
    ASSIGN_OR_RETURN(uint64_t number, ReadNumber(value, at, field.low, field.high));
    out->*field.member = uint32_t(number);
    return {};
  }
  if (key == "memory_mib") {
    ASSIGN_OR_RETURN(uint64_t number, ReadNumber(value, at, 1, 1 << 20));
    out->memory_bytes = number * kMiB;
    return {};
  }
  if (key == "starts") {
    if (!value.is_array()) return at.Invalid("invalid value: want a list of memory slices");
    for (const Json& item : value.items()) {
      ASSIGN_OR_RETURN(uint64_t start, ReadNumber(item, at, 0, 7));
      out->starts |= 1U << start;
    }
    return {};
  }
  if (key != "name") return at.Invalid("unknown field");
  ASSIGN_OR_RETURN(std::string name, ReadText(value, at));
  if (name.empty() || name.size() >= sizeof(out->name)) {
    return at.Invalid("invalid length: want 1 to {} characters", sizeof(out->name) - 1);
  }
  std::memcpy(out->name, name.data(), name.size());
  return {};
}

Status SetMigProfiles(const Json& value, const ProfileLocation& location, Profile* profile) {
  if (!value.is_array() || value.items().size() > kMaxMigProfiles) {
    return location.Invalid("invalid value: want a list of up to {} profiles", kMaxMigProfiles);
  }
  MigProfile* out = profile->gpu.mig_profiles;
  std::fill_n(out, kMaxMigProfiles, MigProfile{});
  for (const Json& item : value.items()) {
    const ProfileLocation at{location.file, location.field, item.line()};
    if (!item.is_object()) return at.Invalid("invalid value: want fields");
    for (const auto& [key, member] : item.members()) {
      const ProfileLocation where{at.file, at.field + "." + key, member.line()};
      RETURN_IF_ERROR(SetMigField(key, member, where, out));
    }
    if (out->name[0] == '\0' || out->starts == 0 || out->memory_bytes == 0 || out->size == 0 ||
        out->slices == 0 || out->instances == 0 || out->sm_count == 0) {
      return at.Invalid(
          "incomplete profile: want name, slices, size, starts, instances, multiprocessors and "
          "memory_mib");
    }
    ++out;
  }
  return {};
}

const std::vector<ProfileField>& GpuFields() {
  using F = GpuFacts;
  static const std::vector<ProfileField> fields = {
      {"name", TextSetter(&F::name)},
      {"brand",
       ChoiceSetter(&F::brand, {{"quadro", 1}, {"tesla", 2}, {"geforce", 5}, {"nvidia", 14}})},
      {"architecture", ChoiceSetter(&F::architecture, {{"maxwell", 3},
                                                       {"pascal", 4},
                                                       {"volta", 5},
                                                       {"turing", 6},
                                                       {"ampere", 7},
                                                       {"ada", 8},
                                                       {"hopper", 9},
                                                       {"blackwell", 10}})},
      {"compute_capability", SetComputeCapability},
      {"vbios", TextSetter(&F::vbios)},
      {"part_number", TextSetter(&F::board_part_number)},
      {"inforom_image", TextSetter(&F::inforom_image)},
      {"inforom_oem", TextSetter(&F::inforom_oem)},
      {"inforom_ecc", TextSetter(&F::inforom_ecc)},
      {"multiprocessors", NumberSetter(&F::sm_count, 1, 1024)},
      {"threads_per_multiprocessor", NumberSetter(&F::max_threads_per_sm, 32, 4096)},
      {"shared_kib_per_block", NumberSetter(&F::shared_per_block_optin, 1, 1024, 1024)},
      {"shared_kib_per_multiprocessor", NumberSetter(&F::shared_per_sm, 1, 1024, 1024)},
      {"l2_kib", NumberSetter(&F::l2_bytes, 1, 1 << 20, 1024)},
      {"memory_bus_bits", NumberSetter(&F::memory_bus_bits, 1, 16384)},
      {"copy_engines", NumberSetter(&F::async_engines, 1, 32)},
      {"memory_mib", NumberSetter(&F::memory_bytes, 64, 1 << 20, kMiB)},
      {"reserved_mib", NumberSetter(&F::reserved_bytes, 0, 1 << 16, kMiB)},
      {"context_mib", NumberSetter(&F::context_bytes, 0, 1 << 16, kMiB)},
      {"bar1_mib", NumberSetter(&F::bar1_bytes, 1, 1 << 20, kMiB)},
      {"memory_gb_per_second",
       NumberSetter(&F::memory_bytes_per_second, 1, 100'000, 1'000'000'000)},
      {"ecc", FlagSetter(&F::ecc_enabled)},
      {"row_banks", NumberSetter(&F::row_banks, 0, 65536)},
      {"mig", FlagSetter(&F::mig_capable)},
      {"mig_devices", NumberSetter(&F::max_mig_devices, 0, kMaxInstances)},
      {"mig_profiles", SetMigProfiles},
      {"pci_device", HexSetter(&F::pci_device_id, 0xFFFFFFFF)},
      {"pci_subsystem", HexSetter(&F::pci_subsystem_id, 0xFFFFFFFF)},
      {"pci_class", HexSetter(&F::pci_class, 0xFFFFFF)},
      {"pcie_generation", NumberSetter(&F::pcie_gen_max, 1, 7)},
      {"pcie_width", NumberSetter(&F::pcie_width_max, 1, 32)},
      {"clock_graphics_mhz", NumberSetter(&F::clock_graphics_max, 1, 10'000)},
      {"clock_memory_mhz", NumberSetter(&F::clock_mem_max, 1, 50'000)},
      {"clock_video_mhz", NumberSetter(&F::clock_video_max, 1, 10'000)},
      {"clock_idle_mhz", NumberSetter(&F::clock_graphics_idle, 1, 10'000)},
      {"clock_memory_idle_mhz", NumberSetter(&F::clock_mem_idle, 1, 50'000)},
      {"power_limit_w", NumberSetter(&F::power_limit_mw, 1, 5000, 1000)},
      {"power_min_w", NumberSetter(&F::power_min_mw, 1, 5000, 1000)},
      {"power_idle_w", NumberSetter(&F::power_idle_mw, 1, 5000, 1000)},
      {"temperature_idle_c", NumberSetter(&F::temperature_idle_c, 1, 150)},
      {"temperature_slowdown_c", NumberSetter(&F::temperature_slowdown_c, 1, 150)},
      {"temperature_shutdown_c", NumberSetter(&F::temperature_shutdown_c, 1, 150)},
      {"temperature_memory_max_c", NumberSetter(&F::temperature_memory_max_c, 1, 150)},
      {"nvlinks", NumberSetter(&F::nvlink_count, 0, kMaxLinks)},
      {"nvlink_version", NumberSetter(&F::nvlink_version, 0, 10)},
      {"nvlink_mb_per_second", NumberSetter(&F::nvlink_mbps, 0, 1'000'000)},
  };
  return fields;
}

// "0-1:12": twelve links between GPUs 0 and 1.
Status AddLinkPair(const Json& value, const ProfileLocation& location, Profile* profile) {
  ASSIGN_OR_RETURN(std::string text, ReadText(value, location));
  LinkPair pair;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%2u-%2u:%2u%c", &pair.a, &pair.b, &pair.links, &rest) != 3 ||
      pair.a == pair.b || pair.a >= kMaxGpus || pair.b >= kMaxGpus || pair.links == 0) {
    return location.Invalid("invalid link \"{}\": want GPU-GPU:links, e.g. 0-1:12", text);
  }
  profile->link_list.push_back(pair);
  return {};
}

Status SetNvLink(const Json& value, const ProfileLocation& location, Profile* profile) {
  profile->link_list.clear();
  if (value.is_array()) {
    profile->topology = LinkTopology::kList;
    for (const Json& item : value.items()) {
      RETURN_IF_ERROR(AddLinkPair(item, {location.file, location.field, item.line()}, profile));
    }
    return {};
  }
  if (!value.is_object()) {
    ASSIGN_OR_RETURN(uint32_t none, ReadChoice(value, location, {{"none", 0}}));
    profile->topology = LinkTopology(none);
    return {};
  }
  for (const auto& [key, member] : value.members()) {
    const ProfileLocation at{location.file, location.field + "." + key, member.line()};
    if (key == "topology") {
      ASSIGN_OR_RETURN(uint32_t kind,
                       ReadChoice(member, at, {{"pairs", 1}, {"quads", 2}, {"nvswitch", 3}}));
      profile->topology = LinkTopology(kind);
    } else if (key == "links") {
      ASSIGN_OR_RETURN(uint64_t links, ReadNumber(member, at, 1, kMaxLinks));
      profile->links = uint32_t(links);
    } else {
      return at.Invalid("unknown field: want topology or links");
    }
  }
  return {};
}

Status SetPcie(const Json& value, const ProfileLocation& location, Profile* profile) {
  if (!value.is_object())
    return location.Invalid("invalid value: want fields pair, half and across");
  for (const auto& [key, member] : value.members()) {
    const ProfileLocation at{location.file, location.field + "." + key, member.line()};
    ASSIGN_OR_RETURN(
        uint32_t level,
        ReadChoice(
            member, at,
            {{"single", 10}, {"multiple", 20}, {"host-bridge", 30}, {"node", 40}, {"system", 50}}));
    if (key == "pair")
      profile->pcie_pair = level;
    else if (key == "half")
      profile->pcie_half = level;
    else if (key == "across")
      profile->pcie_across = level;
    else
      return at.Invalid("unknown field: want pair, half or across");
  }
  return {};
}

Status SetBuses(const Json& value, const ProfileLocation& location, Profile* profile) {
  if (!value.is_array())
    return location.Invalid("invalid value: want a list of hexadecimal bus numbers");
  profile->pci_buses.clear();
  for (const Json& item : value.items()) {
    const ProfileLocation at{location.file, location.field, item.line()};
    ASSIGN_OR_RETURN(uint32_t bus, ReadHexNumber(item, at, 0xFF));
    if (std::ranges::count(profile->pci_buses, bus) != 0)
      return at.Invalid("duplicate bus {:02x}", bus);
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

Status SetUuids(const Json& value, const ProfileLocation& location, Profile* profile) {
  if (!value.is_array()) return location.Invalid("invalid value: want a list of UUIDs");
  profile->uuids.clear();
  for (const Json& item : value.items()) {
    const ProfileLocation at{location.file, location.field, item.line()};
    ASSIGN_OR_RETURN(std::string text, ReadText(item, at));
    if (!IsUuid(text))
      return at.Invalid("invalid UUID \"{}\": want GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", text);
    if (std::ranges::count(profile->uuids, text) != 0) return at.Invalid("duplicate UUID {}", text);
    profile->uuids.push_back(text);
  }
  return {};
}

const std::vector<ProfileField>& NodeFields() {
  static const std::vector<ProfileField> fields = {
      {"gpus", NumberSetter(&Profile::gpus, 1, kMaxGpus)},
      {"numa_nodes", NumberSetter(&Profile::numa_nodes, 0, 8)},
      {"nvlink", SetNvLink},
      {"pcie", SetPcie},
      {"pci_buses", SetBuses},
      {"uuids", SetUuids},
  };
  return fields;
}

Status SetDriverVersion(const Json& value, const ProfileLocation& location, Profile* profile) {
  ASSIGN_OR_RETURN(std::string text, ReadText(value, location));
  unsigned major = 0, minor = 0, rev = 0;
  char rest = 0;
  const int parts = std::sscanf(text.c_str(), "%4u.%4u.%4u%c", &major, &minor, &rev, &rest);
  if (!HasOnlyDigitsAndDots(text) || parts < 2 || parts > 3 || text.size() > 20)
    return location.Invalid("invalid version \"{}\": want e.g. 550.163.01", text);
  profile->driver_version = text;
  return {};
}

Status SetCudaVersion(const Json& value, const ProfileLocation& location, Profile* profile) {
  ASSIGN_OR_RETURN(std::string text, ReadText(value, location));
  unsigned major = 0, minor = 0;
  char rest = 0;
  if (!HasOnlyDigitsAndDots(text) ||
      std::sscanf(text.c_str(), "%2u.%1u%c", &major, &minor, &rest) != 2) {
    return location.Invalid("invalid version \"{}\": want e.g. 12.4", text);
  }
  profile->cuda_version = major * 1000 + minor * 10;
  return {};
}

const std::vector<ProfileField>& DriverFields() {
  static const std::vector<ProfileField> fields = {{"version", SetDriverVersion},
                                                   {"cuda", SetCudaVersion}};
  return fields;
}

Status ReadSection(const Json& section, const ProfileLocation& location,
                   const std::vector<ProfileField>& fields, Profile* profile) {
  if (!section.is_object()) return location.Invalid("invalid value: want fields");
  for (const auto& [key, value] : section.members()) {
    const ProfileLocation at{location.file, location.field + "." + key, value.line()};
    const auto field = std::ranges::find(fields, key, &ProfileField::name);
    if (field == fields.end()) {
      return at.Invalid("unknown field: want one of {}", JoinNames(fields));
    }
    RETURN_IF_ERROR(field->set(value, at, profile));
  }
  return {};
}

// Checks fields that must agree with each other.
Status CheckConsistency(const Profile& profile, const Json& root, std::string_view file) {
  const ProfileLocation at{file, "profile", std::max(root.line(), 1)};
  const GpuFacts& gpu = profile.gpu;
  if (gpu.name[0] == '\0' || gpu.memory_bytes == 0 || gpu.cc_major == 0) {
    return at.Invalid(
        "missing gpu.name, gpu.memory_mib or gpu.compute_capability: set them, or name a base: "
        "profile");
  }
  if (gpu.reserved_bytes + gpu.context_bytes >= gpu.memory_bytes) {
    return at.Invalid(
        "gpu.memory_mib is too small: want more than gpu.reserved_mib and gpu.context_mib "
        "together");
  }
  if (profile.links > gpu.nvlink_count) {
    return at.Invalid("invalid node.nvlink.links {}: the GPU has {} (gpu.nvlinks)", profile.links,
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

// Derives driver.cuda from driver.version if the profile does not give it.
Status ReadDriver(const Json& section, const ProfileLocation& location, Profile* profile) {
  RETURN_IF_ERROR(ReadSection(section, location, DriverFields(), profile));
  const Json* version = section.Find("version");
  if (version == nullptr || section.Find("cuda") != nullptr) return {};
  const int branch = std::atoi(profile->driver_version.c_str());
  const auto* known = std::ranges::find(kDriverBranches, branch, &DriverBranch::branch);
  if (known == std::end(kDriverBranches)) {
    const ProfileLocation at{location.file, location.field + ".version", version->line()};
    return at.Invalid("the CUDA version of driver {} is unknown: set driver.cuda", branch);
  }
  profile->cuda_version = known->cuda_version;
  return {};
}

// Accepts names of the form that built-in profiles have, because names are file names.
Status CheckName(std::string_view name, const ProfileLocation& location) {
  if (name.size() >= sizeof(StateFile::profile)) return location.Invalid("invalid name: too long");
  const bool good =
      !name.empty() && std::isalnum(uint8_t(name[0])) != 0 && std::ranges::all_of(name, [](char c) {
        return std::isalnum(uint8_t(c)) != 0 || c == '-' || c == '_' || c == '.';
      });
  if (good) return {};
  return location.Invalid(
      "invalid name: want letters, digits, \"-\", \"_\" and \".\", beginning with a letter or "
      "digit");
}

}  // namespace

Result<Profile> ParseProfile(std::string_view text, std::string_view file) {
  ASSIGN_OR_RETURN(const Json root, ParseYaml(text).Annotate(file));
  const ProfileLocation top{file, "profile", std::max(root.line(), 1)};
  if (!root.is_object()) return top.Invalid("invalid profile: want gpu:, node: or base:");
  Profile profile;
  if (const Json* base = root.Find("base")) {
    const ProfileLocation at{file, "base", base->line()};
    ASSIGN_OR_RETURN(std::string name, ReadText(*base, at));
    if (name.find('/') != std::string::npos || name.ends_with(".yaml")) {
      return at.Invalid("invalid base \"{}\": want a built-in profile, not a file: {}", name,
                        fmt::join(ProfileNames(), ", "));
    }
    auto text_of_base = ProfileText(name);
    if (!text_of_base.ok()) return at.Invalid("{}", text_of_base.status().message());
    ASSIGN_OR_RETURN(profile, ParseProfile(*text_of_base, name));
  }
  for (const auto& [key, value] : root.members()) {
    const ProfileLocation at{file, key, value.line()};
    if (key == "base") continue;
    if (key == "name") {
      ASSIGN_OR_RETURN(profile.name, ReadText(value, at));
      RETURN_IF_ERROR(CheckName(profile.name, at));
    } else if (key == "gpu") {
      RETURN_IF_ERROR(ReadSection(value, at, GpuFields(), &profile));
    } else if (key == "node") {
      RETURN_IF_ERROR(ReadSection(value, at, NodeFields(), &profile));
    } else if (key == "driver") {
      RETURN_IF_ERROR(ReadDriver(value, at, &profile));
    } else {
      return at.Invalid("unknown field: want name, base, driver, gpu or node");
    }
  }
  RETURN_IF_ERROR(CheckConsistency(profile, root, file));
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
  for (const BuiltInProfile& profile : kBuiltInProfiles) {
    if (profile.name == name) return std::string(profile.text);
  }
  return Error(Code::kNotFound, "no profile \"{}\": want one of {}, or a file that ends in .yaml",
               name, fmt::join(ProfileNames(), ", "));
}

std::vector<std::string> ProfileNames() {
  std::vector<std::string> names;
  for (const BuiltInProfile& profile : kBuiltInProfiles) names.emplace_back(profile.name);
  return names;
}

}  // namespace tessera::sim
