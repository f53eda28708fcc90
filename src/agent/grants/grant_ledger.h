// SPDX-License-Identifier: Apache-2.0
// Which container holds which shares of which GPUs, and by which tokens it asked. The truth of the
// grant service: every change is in the log before it is in memory, so an answer that was given
// survives a crash.
//
//   bound      a token belongs to the first (pod UID, container) that shows it, for ever
//   held       the container's shares are its pod's until the entry is released
//   released   the pod is gone; its tokens stay known as spent, so that nobody can show them again
//
// A spent token is forgotten when it is older than kTokenLifetime; so an unbound token older than
// that is refused. Conservation (gpu_accounts.h) holds between all live entries of different pods.
// What the agent itself has chosen for a pod that came past the scheduler is kept with the pod's
// entries, so that a choice for all of its containers survives, too.
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

#include "src/agent/grants/gpu_accounts.h"
#include "src/agent/grants/grant_entry.h"
#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/grant/journal.h"

namespace tessera::agent {

class GrantLedger {
 public:
  // A container may start long after its pod was admitted: images are pulled, init containers run.
  static constexpr Duration kTokenLifetime = std::chrono::hours(24 * 7);

  using Entry = GrantEntry;
  using Key = std::pair<std::string, std::string>;  // pod UID, container
  static Key KeyOf(const ContainerRef& who) { return {who.pod_uid, who.container}; }

  struct Conflict {
    Key key;
    std::string uuid;  // of the GPU that both want
    ContainerRef holder;
  };

  // `records` are those that the log holds; `log` outlives the ledger. Records that make no sense
  // are skipped and counted in `skipped`.
  GrantLedger(grant::RecordLog* log, const std::vector<std::string>& records, size_t* skipped);

  // OK: `who` may have the token; nothing is written. PERMISSION_DENIED: it is bound to another
  // container. FAILED_PRECONDITION: too old.
  Status Check(const grant::Nonce& nonce, const ContainerRef& who, WallTime now) const;
  // Live entries of other pods that leave no room for what `wanted` holds.
  std::vector<Conflict> ConflictsOf(const Entry& wanted, const device::NodeInventory& gpus) const;

  // Takes the shares for the container and binds its tokens, if it has any. Where it has shares
  // already it keeps those, whatever `wanted` says, and only tokens are added. `chosen`, where not
  // null, is from now on what the agent has chosen for the pod. Errors of Check,
  // FAILED_PRECONDITION while there is a conflict, and errors of the log; then nothing has changed.
  Status Bind(const Entry& wanted, const device::Assignment* chosen,
              const device::NodeInventory& gpus, WallTime now);
  // The container of this entry is known now. `chosen` as above. NOT_FOUND; errors of the log.
  Status SetHolder(const Key& key, const ContainerRef& who, const device::Assignment* chosen);
  // The pod of this entry is gone. NOT_FOUND; errors of the log. Does not wait for the disk: pods
  // end in crowds, and whoever starts meanwhile would wait for all of them. A release that a power
  // cut takes back is found out again; one that a later grant relies on is flushed with that grant.
  Status Release(const Key& key);

  // Null where it holds nothing.
  const Entry* Find(const ContainerRef& who) const;
  // What the agent chose for a pod of which there are entries; null where it did not.
  const device::Assignment* ChosenFor(const std::string& pod_uid) const;
  // Live entries.
  const std::map<Key, Entry>& entries() const { return live_; }
  // Of them. Valid until the next change.
  const GpuAccounts& Accounts() const;
  size_t spent() const { return spent_.size(); }
  // Forgets spent tokens that are too old to be believed anyway, and rewrites the log when most of
  // it is history. Call it now and then.
  Status Tidy(WallTime now);

 private:
  bool Apply(const std::string& record);
  // FAILED_PRECONDITION names who holds the GPU.
  Status CheckRoom(const Entry& wanted, const device::DeviceShare& share,
                   const device::NodeInventory& gpus) const;
  void Take(Entry entry);
  void Forget(const Key& key);
  // Its token is no more; with the last one it goes.
  void Drop(Key key, const grant::Nonce& nonce);
  using WriteTo = Status (grant::RecordLog::*)(std::string_view record);
  Status Write(const std::string& record, WriteTo write);
  Status Rewrite();

  grant::RecordLog* const log_;
  std::map<Key, Entry> live_;
  std::map<grant::Nonce, Key> bound_;                 // tokens of live_
  std::map<std::string, device::Assignment> chosen_;  // by pod UID
  std::map<grant::Nonce, uint64_t> spent_;       // fingerprint of the container it was bound to
  mutable std::optional<GpuAccounts> accounts_;  // of live_, made when asked for
  size_t records_ = 0;                           // in the log
  bool rewrite_ = false;  // the log has refused a record and wants a new file
};

}  // namespace tessera::agent
