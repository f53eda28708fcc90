// SPDX-License-Identifier: Apache-2.0
// Reads and writes one Lease for leader_election.h. LeaseApi is an interface, so that tests can run
// elections under virtual time.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/base/status.h"
#include "src/kube/client.h"
#include "src/kube/objects.h"

namespace tessera::kube {

// One call at a time; a new call cancels the previous one. Threads: the owner's runner. Callbacks
// run there, never inside the call, and not after Cancel or destruction.
class LeaseApi {
 public:
  using Done = std::function<void(const Result<LeaseObject>&)>;

  virtual ~LeaseApi() = default;
  // NOT_FOUND: the Lease does not exist.
  virtual void Get(Done done) = 0;
  // Writes the spec of `lease`. ALREADY_EXISTS: another replica was faster.
  virtual void Create(const LeaseObject& lease, Done done) = 0;
  // ABORTED: the version is no longer `lease.meta.resource_version`.
  virtual void Update(const LeaseObject& lease, Done done) = 0;
  virtual void Cancel() = 0;
};

// The Lease in the API server. The client outlives this object.
class KubeLease final : public LeaseApi {
 public:
  KubeLease(Client& client, std::string ns, std::string name);

  void Get(Done done) override;
  void Create(const LeaseObject& lease, Done done) override;
  void Update(const LeaseObject& lease, Done done) override;
  void Cancel() override { operation_.Cancel(); }

 private:
  Client& client_;
  const ObjectRef object_;
  Operation operation_;
};

}  // namespace tessera::kube
