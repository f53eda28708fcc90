// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/requirements.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "src/base/strings.h"

namespace tessera::runtime {
namespace {

struct RelationalOperator {
  std::string_view sign;
  bool (*holds)(int order);  // for the order of the value found and the condition's value
};
// Longer operators come first, so that ">=" is not read as ">".
constexpr RelationalOperator kOperators[] = {
    {">=", [](int order) { return order >= 0; }}, {"<=", [](int order) { return order <= 0; }},
    {"!=", [](int order) { return order != 0; }}, {"=", [](int order) { return order == 0; }},
    {">", [](int order) { return order > 0; }},   {"<", [](int order) { return order < 0; }},
};

struct PropertyCondition {
  std::string_view text;
  std::string_view property;
  const RelationalOperator* op = nullptr;
  std::string_view value;
};

Result<PropertyCondition> ParseCondition(std::string_view text) {
  const size_t at = text.find_first_of("=!<>");
  if (at != std::string_view::npos && at > 0) {
    for (const RelationalOperator& op : kOperators) {
      if (!text.substr(at).starts_with(op.sign)) continue;
      const std::string_view value = text.substr(at + op.sign.size());
      if (!value.empty()) return PropertyCondition{text, text.substr(0, at), &op, value};
    }
  }
  return Error(Code::kInvalidArgument,
               "invalid condition \"{}\": write a property, one of = != < <= > >=, and a value",
               text);
}

// A missing part counts as zero: 550.54 equals 550.54.0.
Result<int> CompareVersions(std::string_view a, std::string_view b) {
  const auto left = Split(a, '.');
  const auto right = Split(b, '.');
  for (size_t i = 0; i < std::max(left.size(), right.size()); ++i) {
    ASSIGN_OR_RETURN(const int64_t x, ParseInt(i < left.size() ? left[i] : "0"));
    ASSIGN_OR_RETURN(const int64_t y, ParseInt(i < right.size() ? right[i] : "0"));
    if (x != y) return x < y ? -1 : 1;
  }
  return 0;
}

// How the value found compares to the condition's value: 0 if they are equal.
Result<int> Compare(const PropertyCondition& condition, std::string_view found) {
  if (condition.property == "brand") return ToLower(condition.value) == ToLower(found) ? 0 : 1;
  return CompareVersions(found, condition.value).Annotate(condition.text);
}

// The reason why a condition does not hold for one GPU; empty if it holds. `gpu` is null if the
// container gets no GPU; every valid condition on arch or brand then holds.
Result<std::string> UnmetReason(const PropertyCondition& condition, const NodeFacts& facts,
                                const GpuProperties* gpu) {
  std::string found;
  if (condition.property == "cuda") {
    found = facts.cuda;
  } else if (condition.property == "driver") {
    found = facts.driver;
  } else if (condition.property == "arch") {
    found = gpu == nullptr ? "" : gpu->arch;
  } else if (condition.property == "brand") {
    if (condition.op->sign != "=" && condition.op->sign != "!=") {
      return Error(Code::kInvalidArgument, "\"{}\": brands have no order", condition.text);
    }
    found = gpu == nullptr ? "" : gpu->brand;
  } else {
    return Error(Code::kInvalidArgument,
                 "\"{}\": unknown property \"{}\": use cuda, driver, arch or brand", condition.text,
                 condition.property);
  }
  // Checks the condition's value also if the node's value is unknown.
  ASSIGN_OR_RETURN(const int order, Compare(condition, found.empty() ? "0" : found));
  const bool is_of_gpu = condition.property == "arch" || condition.property == "brand";
  if (is_of_gpu && gpu == nullptr) return std::string();
  if (found.empty()) {
    return fmt::format("{} (the {} of this node is unknown)", condition.text, condition.property);
  }
  if (condition.op->holds(order)) return std::string();
  return fmt::format("{} (found {} {})", condition.text, condition.property, found);
}

// The reasons why no alternative holds for one GPU; empty if an alternative holds. Parses every
// condition, so that an invalid condition is found even after an alternative that holds.
Result<std::string> UnmetReasons(std::string_view requirement, const NodeFacts& facts,
                                 const GpuProperties* gpu) {
  std::string reasons;
  bool satisfied = false;
  for (const std::string_view alternative : SplitList(requirement, ' ')) {
    std::string reason;
    for (const std::string_view text : SplitList(alternative, ',')) {
      ASSIGN_OR_RETURN(const PropertyCondition condition, ParseCondition(text));
      ASSIGN_OR_RETURN(const std::string failure, UnmetReason(condition, facts, gpu));
      if (reason.empty()) reason = failure;
    }
    satisfied |= reason.empty();
    if (reasons.find(reason) == std::string::npos) {
      reasons += (reasons.empty() ? "" : ", nor ") + reason;
    }
  }
  return satisfied ? std::string() : reasons;
}

// A word of a model name, and the compute capability of that model.
struct ModelWord {
  std::string_view word;
  std::string_view arch;
};
constexpr ModelWord kModelWords[] = {
    {"K80", "3.7"},   {"M40", "5.2"},   {"M60", "5.2"},    {"M10", "5.0"},   {"P100", "6.0"},
    {"P40", "6.1"},   {"P4", "6.1"},    {"V100", "7.0"},   {"V100S", "7.0"}, {"T4", "7.5"},
    {"T4G", "7.5"},   {"A100", "8.0"},  {"A100X", "8.0"},  {"A800", "8.0"},  {"A30", "8.0"},
    {"A2", "8.6"},    {"A10", "8.6"},   {"A10G", "8.6"},   {"A16", "8.6"},   {"A40", "8.6"},
    {"A2000", "8.6"}, {"A4000", "8.6"}, {"A4500", "8.6"},  {"A5000", "8.6"}, {"A6000", "8.6"},
    {"L2", "8.9"},    {"L4", "8.9"},    {"L20", "8.9"},    {"L40", "8.9"},   {"L40S", "8.9"},
    {"H20", "9.0"},   {"H100", "9.0"},  {"H800", "9.0"},   {"H200", "9.0"},  {"GH200", "9.0"},
    {"B100", "10.0"}, {"B200", "10.0"}, {"GB200", "10.0"}, {"B300", "10.3"}, {"GB300", "10.3"},
};

struct DriverRelease {
  int min_major;
  std::string_view cuda;
};
// CUDA release notes, "CUDA driver" column; newest first.
constexpr DriverRelease kReleases[] = {
    {590, "13.1"}, {580, "13.0"}, {575, "12.9"}, {570, "12.8"}, {565, "12.7"}, {560, "12.6"},
    {555, "12.5"}, {550, "12.4"}, {545, "12.3"}, {535, "12.2"}, {530, "12.1"}, {525, "12.0"},
    {520, "11.8"}, {515, "11.7"}, {510, "11.6"}, {495, "11.5"}, {470, "11.4"}, {465, "11.3"},
    {460, "11.2"}, {455, "11.1"}, {450, "11.0"}, {440, "10.2"}, {418, "10.1"}, {410, "10.0"},
    {396, "9.2"},  {390, "9.1"},  {384, "9.0"},
};

std::vector<std::string_view> Words(std::string_view model) {
  std::vector<std::string_view> words;
  for (const std::string_view part : Split(model, ' ')) {
    for (const std::string_view word : Split(part, '-')) words.push_back(word);
  }
  return words;
}

bool Has(const std::vector<std::string_view>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The first digits of a desktop card's number are its generation: 3090, 4070, ...
std::string ArchOfNumber(std::string_view word) {
  if (word.size() != 4 || !std::all_of(word.begin(), word.end(), ::isdigit)) return {};
  const std::string_view generation = word.substr(0, 2);
  if (generation == "10") return "6.1";
  if (generation == "16" || generation == "20") return "7.5";
  if (generation == "30") return "8.6";
  if (generation == "40") return "8.9";
  if (generation == "50") return "12.0";
  return {};
}

}  // namespace

Status CheckRequirements(const std::vector<std::pair<std::string, std::string>>& requirements,
                         const NodeFacts& facts) {
  std::vector<const GpuProperties*> gpus;
  for (const GpuProperties& gpu : facts.gpus) gpus.push_back(&gpu);
  if (gpus.empty()) gpus.push_back(nullptr);
  for (const auto& [name, value] : requirements) {
    if (SplitList(value, ' ').empty()) continue;
    for (const GpuProperties* gpu : gpus) {
      Result<std::string> reasons = UnmetReasons(value, facts, gpu);
      if (!reasons.ok()) return reasons.status().Annotate(name);
      if (reasons->empty()) continue;
      return Error(Code::kFailedPrecondition,
                   "{}: the image is not for this node{}: unsatisfied condition: {}; update the "
                   "driver, use an older image, or set NVIDIA_DISABLE_REQUIRE=1",
                   name, gpu == nullptr ? "" : " (" + gpu->uuid + ")", *reasons);
    }
  }
  return Status::Ok();
}

std::string ArchOfModel(std::string_view model) {
  const auto words = Words(model);
  if (Has(words, "Blackwell")) return "12.0";
  if (Has(words, "Ada")) return "8.9";
  for (const std::string_view word : words) {
    for (const ModelWord& entry : kModelWords) {
      if (entry.word == word) return std::string(entry.arch);
    }
  }
  const bool is_desktop = Has(words, "GeForce");
  for (const std::string_view word : words) {
    const std::string arch = is_desktop ? ArchOfNumber(word) : std::string();
    if (!arch.empty()) return arch;
  }
  if (Has(words, "TITAN")) return Has(words, "RTX") ? "7.5" : Has(words, "V") ? "7.0" : "6.1";
  if (Has(words, "Quadro") && Has(words, "RTX")) return "7.5";
  return {};
}

std::string BrandOfModel(std::string_view model) {
  const auto words = Words(model);
  const bool is_rtx = Has(words, "RTX");
  if (Has(words, "Tesla")) return "tesla";
  if (Has(words, "GeForce")) return is_rtx ? "geforcertx" : "geforce";
  if (Has(words, "Quadro")) return is_rtx ? "quadrortx" : "quadro";
  if (Has(words, "TITAN")) return is_rtx ? "titanrtx" : "titan";
  if (Has(words, "NVIDIA")) return is_rtx ? "nvidiartx" : "nvidia";
  return "unknown";
}

std::string CudaOfDriver(std::string_view version) {
  const auto major = ParseInt(version.substr(0, version.find('.')));
  if (!major.ok()) return {};
  for (const DriverRelease& release : kReleases) {
    if (*major >= release.min_major) return std::string(release.cuda);
  }
  return {};
}

}  // namespace tessera::runtime
