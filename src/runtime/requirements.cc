// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/requirements.h"

#include <array>

#include "src/base/strings.h"

namespace tessera::runtime {
namespace {

enum class Operator { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual };

struct Condition {
  std::string_view text;
  std::string_view property;
  Operator op = Operator::kEqual;
  std::string_view value;
};

// Longer operators come first, so that ">=" is not read as ">".
constexpr std::array<std::pair<std::string_view, Operator>, 6> kOperators = {{
    {">=", Operator::kGreaterEqual},
    {"<=", Operator::kLessEqual},
    {"!=", Operator::kNotEqual},
    {"=", Operator::kEqual},
    {">", Operator::kGreater},
    {"<", Operator::kLess},
}};

Result<Condition> ParseCondition(std::string_view text) {
  const size_t at = text.find_first_of("=!<>");
  if (at != std::string_view::npos && at > 0) {
    for (const auto& [sign, op] : kOperators) {
      if (!text.substr(at).starts_with(sign)) continue;
      const std::string_view value = text.substr(at + sign.size());
      if (!value.empty()) return Condition{text, text.substr(0, at), op, value};
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

bool Holds(Operator op, int order) {
  switch (op) {
    case Operator::kEqual:
      return order == 0;
    case Operator::kNotEqual:
      return order != 0;
    case Operator::kLess:
      return order < 0;
    case Operator::kLessEqual:
      return order <= 0;
    case Operator::kGreater:
      return order > 0;
    case Operator::kGreaterEqual:
      return order >= 0;
  }
  return false;
}

// The reason why a condition does not hold for one GPU; empty if it holds.
Result<std::string> UnmetReason(const Condition& condition, const Facts& facts,
                                const GpuFacts& gpu) {
  std::string found;
  int order = 0;
  if (condition.property == "brand") {
    if (condition.op != Operator::kEqual && condition.op != Operator::kNotEqual) {
      return Error(Code::kInvalidArgument, "\"{}\": brands have no order", condition.text);
    }
    found = gpu.brand;
    order = ToLower(condition.value) == ToLower(found) ? 0 : 1;
  } else {
    if (condition.property == "cuda") {
      found = facts.cuda;
    } else if (condition.property == "driver") {
      found = facts.driver;
    } else if (condition.property == "arch") {
      found = gpu.arch;
    } else {
      return Error(Code::kInvalidArgument,
                   "\"{}\": unknown property \"{}\": use cuda, driver, arch or brand",
                   condition.text, condition.property);
    }
    if (found.empty()) {
      return fmt::format("{} (the {} of this node is unknown)", condition.text, condition.property);
    }
    Result<int> compared = CompareVersions(found, condition.value);
    if (!compared.ok()) return compared.status().Annotate(condition.text);
    order = *compared;
  }
  if (Holds(condition.op, order)) return std::string();
  return fmt::format("{} (found {} {})", condition.text, condition.property, found);
}

// The reasons why no alternative holds for one GPU; empty if one holds. Parses every condition, so
// that an invalid one is found even after an alternative that holds.
Result<std::string> UnmetReasons(std::string_view requirement, const Facts& facts,
                                 const GpuFacts& gpu) {
  std::string reasons;
  bool satisfied = false;
  for (const std::string_view alternative : SplitList(requirement, ' ')) {
    std::string reason;
    for (const std::string_view text : SplitList(alternative, ',')) {
      ASSIGN_OR_RETURN(const Condition condition, ParseCondition(text));
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

}  // namespace

Status CheckRequirements(const std::vector<std::pair<std::string, std::string>>& requirements,
                         const Facts& facts) {
  // Without GPUs the driver's conditions are still checked.
  static const std::vector<GpuFacts> kNone = {{"", "", "unknown"}};
  for (const auto& [name, value] : requirements) {
    if (SplitList(value, ' ').empty()) continue;
    for (const GpuFacts& gpu : facts.gpus.empty() ? kNone : facts.gpus) {
      Result<std::string> why = UnmetReasons(value, facts, gpu);
      if (!why.ok()) return why.status().Annotate(name);
      if (why->empty()) continue;
      return Error(Code::kFailedPrecondition,
                   "{}: the image is not for this node{}: unsatisfied condition: {}; update the "
                   "driver, use an older image, or set NVIDIA_DISABLE_REQUIRE=1",
                   name, gpu.uuid.empty() ? "" : " (" + gpu.uuid + ")", *why);
    }
  }
  return Status::Ok();
}

}  // namespace tessera::runtime
