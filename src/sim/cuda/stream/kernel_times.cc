// SPDX-License-Identifier: Apache-2.0
#include "src/sim/cuda/stream/kernel_times.h"

#include <charconv>

namespace tessera::cuda {
namespace {

// Removes the text up to `separator` from `rest`, and returns it.
std::string_view TakeUntil(std::string_view* rest, std::string_view separator) {
  const size_t at = rest->find(separator);
  const std::string_view taken = rest->substr(0, at);
  rest->remove_prefix(at == std::string_view::npos ? rest->size() : at + separator.size());
  return taken;
}

// Reads numbers with `separator` between them. Empty: not a number, or 0.
std::vector<uint64_t> Numbers(std::string_view text, std::string_view separator) {
  std::vector<uint64_t> numbers;
  while (!text.empty()) {
    const std::string_view item = TakeUntil(&text, separator);
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), number);
    if (error != std::errc() || end != item.data() + item.size() || number == 0) return {};
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

KernelTimes KernelTimes::Parse(std::string_view value) {
  KernelTimes times;
  times.is_range_ = value.find("..") != std::string_view::npos;
  times.ns_ = Numbers(value, times.is_range_ ? ".." : "|");
  const bool valid = !times.is_range_ || (times.ns_.size() == 2 && times.ns_[0] <= times.ns_[1]);
  return valid ? times : KernelTimes();
}

KernelTimes KernelTimes::Find(std::string_view setting, std::string_view kernel) {
  while (!setting.empty()) {
    std::string_view value = TakeUntil(&setting, ",");
    const std::string_view name = TakeUntil(&value, "=");
    if (name == "*" || name == kernel) return Parse(value);
  }
  return {};
}

std::string_view KernelTimes::FirstInvalid(std::string_view setting) {
  while (!setting.empty()) {
    const std::string_view item = TakeUntil(&setting, ",");
    std::string_view value = item;
    const std::string_view name = TakeUntil(&value, "=");
    if (!item.empty() && (name.empty() || Parse(value).empty())) return item;
  }
  return {};
}

uint64_t KernelTimes::Next() {
  if (ns_.size() == 1) return ns_[0];
  const uint64_t random = random_.Next();
  return is_range_ ? ns_[0] + random % (ns_[1] - ns_[0] + 1) : ns_[random % ns_.size()];
}

}  // namespace tessera::cuda
