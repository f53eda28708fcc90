// SPDX-License-Identifier: Apache-2.0
// The flags of leader election, which are the same for tessera-operator and tessera-scheduler.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>

#include "src/base/parse_flags.h"

namespace tessera {

// Values of the flags in seconds.
struct ElectionFlags {
  double lease_s = 0, renew_s = 0, retry_s = 0;
};

// Adds the flags, with the values of `options` as their defaults. `Options` has the members
// `leader_elect`, `lease_ns` and `election` (src/kube/leader_election.h). `leader_elect_help` names
// what only the leader does. All arguments must outlive `app`.
template <typename Options>
void AddElectionFlags(CLI::App* app, const char* leader_elect_help, Options* options,
                      ElectionFlags* flags) {
  flags->lease_s = SecondsOf(options->election.lease_duration);
  flags->renew_s = SecondsOf(options->election.renew_deadline);
  flags->retry_s = SecondsOf(options->election.retry_period);
  app->add_flag("--leader-elect,!--no-leader-elect", options->leader_elect, leader_elect_help)
      ->envname("LEADER_ELECT");
  AddTextFlag(app, "--leader-elect-resource-namespace", &options->lease_ns, "LEASE_NAMESPACE",
              "namespace of the Lease (default: that of this pod)");
  AddSecondsFlag(app, "--leader-elect-lease-duration", &flags->lease_s,
                 "time without a renewal after which another replica may lead");
  AddSecondsFlag(app, "--leader-elect-renew-deadline", &flags->renew_s,
                 "time without a renewal after which a leader stops");
  AddSecondsFlag(app, "--leader-elect-retry-period", &flags->retry_s,
                 "interval between attempts to renew or acquire the Lease");
}

// Sets the times of `options->election` from the parsed flags.
template <typename Options>
void SetElectionTimes(const ElectionFlags& flags, Options* options) {
  options->election.lease_duration = std::chrono::seconds(static_cast<int64_t>(flags.lease_s));
  options->election.renew_deadline = DurationOf(flags.renew_s);
  options->election.retry_period = DurationOf(flags.retry_s);
}

}  // namespace tessera
