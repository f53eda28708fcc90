// SPDX-License-Identifier: Apache-2.0
// One Lease, read and written: what leader_election.h stands on, as an interface so that elections
// run under virtual time.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/base/status.h"
#include "src/kube/client.h"
#include "src/kube/objects.h"

namespace tessera::kube {

// One call at a time; another drops the one before. Threads, callbacks: the owner's runner, later,
// and not after Cancel or the end of the object.
class LeaseApi {
 public:
  using Done = std::function<void(const Result<LeaseObject>&)>;

  virtual ~LeaseApi() = default;
  // NOT_FOUND: nobody has made it.
  virtual void Get(Done done) = 0;
  // Of `lease` what is below spec. ALREADY_EXISTS: somebody was faster.
  virtual void Create(const LeaseObject& lease, Done done) = 0;
  // ABORTED: it is not the version `lease.meta.resource_version` any more.
  virtual void Update(const LeaseObject& lease, Done done) = 0;
  virtual void Cancel() = 0;
};

// Through the API server. The client must outlive it.
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
