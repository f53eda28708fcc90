// SPDX-License-Identifier: Apache-2.0
#include "src/device/mig_profile.h"

#include <algorithm>

#include "src/base/strings.h"

namespace tessera::device {
namespace {

constexpr size_t kMaxAttributes = 16;
constexpr size_t kMaxMemoryDigits = 4;

bool IsLetter(char c) { return c >= 'a' && c <= 'z'; }

// ".me", "-me", ".me.all": each attribute is a '.' or '-' and letters.
bool AreAttributes(std::string_view text) {
  if (text.size() > kMaxAttributes) return false;
  while (!text.empty()) {
    if (text[0] != '.' && text[0] != '-') return false;
    text.remove_prefix(1);
    const size_t letters = std::find_if_not(text.begin(), text.end(), IsLetter) - text.begin();
    if (letters == 0) return false;
    text.remove_prefix(letters);
  }
  return true;
}

}  // namespace

bool IsMigProfile(std::string_view profile) {
  if (profile.size() < 3 || profile[0] < '1' || profile[0] > '9') return false;
  if (!profile.substr(1).starts_with("g.")) return false;
  profile.remove_prefix(3);
  const size_t digits = std::find_if_not(profile.begin(), profile.end(), IsDigit) - profile.begin();
  if (digits == 0 || digits > kMaxMemoryDigits || profile[0] == '0') return false;
  profile.remove_prefix(digits);
  if (!profile.starts_with("gb")) return false;
  return AreAttributes(profile.substr(2));
}

}  // namespace tessera::device
