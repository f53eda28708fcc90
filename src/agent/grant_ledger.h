// SPDX-License-Identifier: Apache-2.0
// Which container holds which devices, by the tokens that it showed. The truth of the grant
// service: every change is in the log before it is in memory, so an answer that was given survives
// a crash.
//
//   bound      a token belongs to the first (pod UID, container) that shows it, for ever
//   held       the devices of a bound token are that pod's until the entry is released
//   released   the pod is gone; its token stays known as spent, so that nobody can show it again
//
// A spent token is forgotten when it is older than kTokenLifetime; so an unbound token older than
// that is refused. Conservation: two live entries of different pods never share a device.
//
// Does not know whether a pod lives; its owner asks the kubelet (grant_service.h).
// Pure but for the log; threads: one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/grant/journal.h"
#include "src/grant/token.h"

namespace tessera::agent {

struct ContainerRef {
  std::string pod_uid;
  std::string pod_namespace;
  std::string pod_name;
  std::string container;
  bool operator==(const ContainerRef&) const = default;

  std::string PodText() const { return pod_namespace + "/" + pod_name; }
};

class GrantLedger {
 public:
  // A container may start long after its pod was admitted: images are pulled, init containers run.
  static constexpr Duration kTokenLifetime = std::chrono::hours(24 * 7);

  struct Entry {
    std::string resource;
    std::vector<std::string> ids;
    ContainerRef holder;
    bool operator==(const Entry&) const = default;
  };
  struct Conflict {
    grant::Nonce nonce;
    std::string id;
    ContainerRef holder;
  };

  // `records` are those that the log holds; `log` outlives the ledger. Records that make no sense
  // are skipped and counted in `skipped`.
  GrantLedger(grant::RecordLog* log, const std::vector<std::string>& records, size_t* skipped);

  // OK: `who` may have the token; nothing is written. PERMISSION_DENIED: it is bound to another
  // container. FAILED_PRECONDITION: too old.
  Status Check(const grant::Nonce& nonce, const ContainerRef& who, WallTime now) const;
  // Live entries of other pods that hold one of `ids`.
  std::vector<Conflict> ConflictsOf(const std::string& resource,
                                    const std::vector<std::string>& ids,
                                    const std::string& pod_uid) const;

  // Binds the token and takes the devices. OK also where that has happened before. Errors of Check,
  // FAILED_PRECONDITION while there is a conflict, and errors of the log; then nothing has changed.
  Status Bind(const grant::Nonce& nonce, const std::string& resource,
              const std::vector<std::string>& ids, const ContainerRef& who, WallTime now);
  // The pod of this entry is gone. NOT_FOUND; errors of the log.
  Status Release(const grant::Nonce& nonce);

  // Live entries.
  const std::map<grant::Nonce, Entry>& entries() const { return live_; }
  size_t spent() const { return spent_.size(); }
  // Forgets spent tokens that are too old to be believed anyway, and rewrites the log when most of
  // it is history. Call it now and then.
  Status Tidy(WallTime now);

 private:
  static std::string EncodeBind(const grant::Nonce& nonce, const Entry& entry);
  static std::string EncodeSpent(const grant::Nonce& nonce, uint64_t who);
  bool Apply(const std::string& record);
  Status Write(const std::string& record);
  Status Rewrite();

  grant::RecordLog* const log_;
  std::map<grant::Nonce, Entry> live_;
  std::map<grant::Nonce, uint64_t> spent_;  // fingerprint of the container it was bound to
  size_t records_ = 0;                      // in the log
  bool rewrite_ = false;                    // the log has refused a record and wants a new file
};

}  // namespace tessera::agent
