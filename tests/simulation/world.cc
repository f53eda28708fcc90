// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/world.h"

#include <fmt/format.h>

namespace tessera::simulation {

void World::Note(std::string line) {
  const auto at =
      std::chrono::duration_cast<std::chrono::milliseconds>(clock().Now().time_since_epoch());
  line = fmt::format("{:>8} ms  {}", at.count(), line);
  for (const char c : line) {
    fingerprint_ = (fingerprint_ ^ static_cast<unsigned char>(c)) * 1099511628211u;
  }
  ++events_;
  notes_.push_back(std::move(line));
  if (notes_.size() > kNotesKept) notes_.pop_front();
}

void World::Fail(std::string why) {
  Note("FAILED: " + why);
  if (failure_.empty()) failure_ = std::move(why);
}

}  // namespace tessera::simulation
