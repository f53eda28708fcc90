// SPDX-License-Identifier: Apache-2.0
// The journal's records of the grant ledger, as JSON:
//
//   {"do":"grant","uid":…,"namespace":…,"pod":…,"container":…,"phase":"main","dialect":…,
//    "tokens":[{"nonce":…,"resource":…,"ids":[…]}],"shares":[{"gpu":…,"milli":…,"bytes":…}],
//    "env":{…},"guessed":true,"chosen":"{…}"}
//                     env: further variables of the container; guessed: Allocate did not know
//                     the container for certain; chosen: tessera.dev/assignment, if the agent
//                     chose
//   {"do":"release","uid":…,"container":…}
//   {"do":"spent","nonce":…,"who":…}        in a rewritten journal
//
// An unknown phase is read as main, an unknown dialect as nvidia.com/gpu. Also reads the records of
// agents that supported only whole GPUs, one record for each token:
//
//   {"do":"bind","nonce":…,"resource":…,"ids":[GPUs],"uid":…,"namespace":…,"pod":…,"container":…}
//
// Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "src/agent/grants/grant_entry.h"

namespace tessera::agent {

struct LedgerRecord {
  enum class Kind { kGrant, kRelease, kSpent };
  Kind kind = Kind::kGrant;
  GrantEntry entry;                          // kGrant; kRelease: the holder's UID and container
  std::optional<device::Assignment> chosen;  // kGrant
  grant::Nonce nonce{};                      // kSpent
  uint64_t fingerprint = 0;                  // kSpent
};

std::string EncodeRecord(const LedgerRecord& record);
// Returns nullopt for an invalid record.
std::optional<LedgerRecord> DecodeRecord(const std::string& text);

}  // namespace tessera::agent
