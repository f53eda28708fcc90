// SPDX-License-Identifier: Apache-2.0
#include "src/device/model.h"

#include <algorithm>
#include <array>
#include <vector>

#include "src/base/strings.h"

namespace tessera::device {
namespace {

constexpr size_t kMaxLabelLength = 63;

bool IsAlphanumeric(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

std::vector<std::string_view> Words(std::string_view text) { return SplitList(text, ' '); }

bool IsBrand(std::string_view word) {
  constexpr std::array<std::string_view, 5> kBrands = {"nvidia", "tesla", "geforce", "quadro",
                                                       "grid"};
  return std::find(kBrands.begin(), kBrands.end(), ToLower(word)) != kBrands.end();
}

// Words that follow the chip's name in a product name (form factor, memory size, packaging):
// "80GB", "SXM4", "HBM3", "PCIe", "NVL", "MIG", "16Q" (a vGPU).
bool IsVariant(std::string_view word) {
  const std::string lower = ToLower(word);
  for (const std::string_view prefix : {"sxm", "pcie", "hbm", "nvl", "mig", "dgx"}) {
    if (lower.starts_with(prefix)) return true;
  }
  for (const std::string_view whole : {"generation", "gpu", "with", "laptop"}) {
    if (lower == whole) return true;
  }
  const size_t digits = std::find_if_not(lower.begin(), lower.end(), IsDigit) - lower.begin();
  if (digits == 0) return false;
  const std::string_view unit = std::string_view(lower).substr(digits);
  return unit == "gb" || unit == "g" || unit == "q" || unit == "c" || unit == "b" || unit == "a";
}

}  // namespace

// The ends of a label value must be letters or digits.
std::string LabelValue(std::string_view text) {
  std::string label;
  for (const std::string_view word : Words(text)) {
    const size_t before = label.size();
    if (!label.empty()) label += '-';
    for (const char c : word) {
      if (IsAlphanumeric(c) || c == '-' || c == '_' || c == '.') label += c;
    }
    if (label.size() == before + 1 && before > 0) label.pop_back();
  }
  label.erase(0, std::find_if(label.begin(), label.end(), IsAlphanumeric) - label.begin());
  label.resize(std::min(label.size(), kMaxLabelLength));
  while (!label.empty() && !IsAlphanumeric(label.back())) label.pop_back();
  return label;
}

std::string ShortModel(std::string_view product) {
  std::string spaced(product);
  std::replace(spaced.begin(), spaced.end(), '-', ' ');
  std::string name;
  for (const std::string_view word : Words(spaced)) {
    if (name.empty() && IsBrand(word)) continue;
    if (!name.empty() && IsVariant(word)) break;
    if (!name.empty()) name += ' ';
    name += word;
  }
  std::string label = LabelValue(name);
  return label.empty() ? ProductLabel(product) : label;
}

std::string ProductLabel(std::string_view product) { return LabelValue(product); }

std::string GpuManagerModel(std::string_view product) {
  const std::vector<std::string_view> words = Words(product);
  return words.size() > 2 ? LabelValue(words[1]) : std::string();
}

bool MatchesModel(std::string_view product, std::string_view wanted) {
  if (product.empty() || wanted.empty()) return false;
  const std::string lower = ToLower(wanted);
  return lower == ToLower(product) || lower == ToLower(ShortModel(product)) ||
         lower == ToLower(ProductLabel(product)) || lower == ToLower(GpuManagerModel(product));
}

}  // namespace tessera::device
