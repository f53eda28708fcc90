// SPDX-License-Identifier: Apache-2.0
#include "src/base/dns_name.h"

#include <algorithm>

#include "src/base/strings.h"

namespace tessera {
namespace {

bool IsLetterOrDigit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

bool IsLabel(std::string_view label) {
  return !label.empty() && label.size() <= 63 && IsLetterOrDigit(label.front()) &&
         IsLetterOrDigit(label.back()) &&
         std::ranges::all_of(label, [](char c) { return IsLetterOrDigit(c) || c == '-'; });
}

}  // namespace

bool IsDnsName(std::string_view text) {
  return text.size() <= 253 && std::ranges::all_of(Split(text, '.'), IsLabel);
}

}  // namespace tessera
