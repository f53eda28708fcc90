// SPDX-License-Identifier: Apache-2.0
// The flags of leader election, which are the same for tessera-operator and tessera-scheduler.
#pragma once

#include <CLI/CLI.hpp>

#include "src/base/parse_flags.h"

namespace tessera {

// Adds the flags, with the values of `options` as their defaults. `Options` has the members
// `leader_elect`, `lease_ns` and `election` (src/kube/leader_election.h). `leader_elect_help` names
// what only the leader does. All arguments must outlive `app`.
template <typename Options>
void AddElectionFlags(CLI::App* app, const char* leader_elect_help, Options* options) {
  app->add_flag("--leader-elect,!--no-leader-elect", options->leader_elect, leader_elect_help)
      ->envname("LEADER_ELECT");
  AddTextFlag(app, "--leader-elect-resource-namespace", &options->lease_ns, "LEASE_NAMESPACE",
              "namespace of the Lease (default: that of this pod)");
  AddSecondsFlag(app, "--leader-elect-lease-duration", &options->election.lease_duration,
                 "time without a renewal after which another replica may lead");
  AddSecondsFlag(app, "--leader-elect-renew-deadline", &options->election.renew_deadline,
                 "time without a renewal after which a leader stops");
  AddSecondsFlag(app, "--leader-elect-retry-period", &options->election.retry_period,
                 "interval between attempts to renew or acquire the Lease");
}

}  // namespace tessera
