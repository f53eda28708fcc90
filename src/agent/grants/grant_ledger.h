// SPDX-License-Identifier: Apache-2.0
// Records which container holds which shares of which GPUs, and the tokens by which it requested
// them. Every change is in the log before it is in memory, so an answered grant survives a crash.
//
//   bound      A token belongs forever to the first (pod UID, container) that uses it.
//   held       The shares of a container belong to its pod until the entry is released.
//   released   The pod has ended. Its tokens stay recorded as spent, so that no container can
//              use them.
//
// A spent token is forgotten after kTokenLifetime, so an unbound token of that age is rejected. The
// oversubscription check (gpu_accounts.h) covers all live entries of different pods. The agent's
// own choice for a pod that bypasses the scheduler is kept with the pod's entries, for all of its
// containers.
//
// ended_pods.h decides whether a pod has ended. Pure except for the log. Threads: one.
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
#include "src/base/uid.h"
#include "src/grant/journal.h"

namespace tessera::agent {

struct LedgerRecord;

class GrantLedger {
 public:
  // A container may start long after its pod was admitted: images are pulled, init containers run.
  static constexpr Duration kTokenLifetime = std::chrono::hours(24 * 7);

  using Entry = GrantEntry;
  using Key = std::pair<Uid, std::string>;  // pod, container
  static Key KeyOf(const ContainerRef& ref) { return {ref.pod_uid, ref.container}; }

  struct Conflict {
    Key key;
    std::string uuid;  // UUID of the GPU
    ContainerRef holder;
  };

  // `records`: the contents of `log`, which outlives the ledger. Invalid records are skipped and
  // counted in `skipped`.
  GrantLedger(grant::RecordLog* log, const std::vector<std::string>& records, size_t* skipped);

  // OK: `requester` may use the token; nothing is written. PERMISSION_DENIED: the token is bound to
  // another container. FAILED_PRECONDITION: the token is too old.
  Status CheckToken(const grant::Nonce& nonce, const ContainerRef& requester, WallTime now) const;
  // Live entries of other pods that leave no room for the shares of `new_entry`.
  std::vector<Conflict> ConflictsOf(const Entry& new_entry,
                                    const device::NodeInventory& gpus) const;

  // Records the shares of the container and binds its tokens, if it has any. A container that has
  // shares keeps them, and only the tokens of `new_entry` are added. `chosen`, unless null, becomes
  // the agent's choice for the pod. Errors: those of CheckToken and of the log; FAILED_PRECONDITION
  // while there is a conflict. After an error nothing has changed.
  Status Bind(const Entry& new_entry, const device::Assignment* chosen,
              const device::NodeInventory& gpus, WallTime now);
  // Sets the holder of an entry whose owner was unknown. `chosen`: see Bind. Errors: NOT_FOUND, and
  // those of the log.
  Status SetHolder(const Key& key, const ContainerRef& holder, const device::Assignment* chosen);
  // Removes the entry of an ended pod. Errors: NOT_FOUND, and those of the log. Does not wait for
  // the disk: many pods end together, and containers that start meanwhile would wait for all of
  // them. A power cut may undo a release, which is then repeated; a later grant flushes the
  // releases on which it relies.
  Status Release(const Key& key);

  // Returns null if the container holds nothing.
  const Entry* Find(const ContainerRef& holder) const;
  // The agent's choice for a pod with entries, or null.
  const device::Assignment* ChosenFor(const Uid& pod_uid) const;
  const std::map<Key, Entry>& entries() const { return entries_; }
  // The accounts of the live entries. Valid until the next change.
  const GpuAccounts& Accounts() const;
  size_t spent_count() const { return spent_tokens_.size(); }
  // Forgets spent tokens that CheckToken rejects by age, and rewrites the log if most of its
  // records are obsolete. Call about once a minute.
  Status Tidy(WallTime now);

 private:
  bool Apply(const std::string& record);
  // FAILED_PRECONDITION names the holder of the GPU.
  Status CheckRoom(const Entry& new_entry, const device::DeviceShare& share,
                   const device::NodeInventory& gpus) const;
  void ApplyEntry(Entry entry);
  void Forget(const Key& key);
  // Removes the token, and the entry with its last token.
  void RemoveToken(Key key, const grant::Nonce& nonce);
  using WriteTo = Status (grant::RecordLog::*)(std::string_view record);
  Status Write(const LedgerRecord& record, WriteTo write);
  Status Compact();

  grant::RecordLog* const log_;
  std::map<Key, Entry> entries_;
  std::map<grant::Nonce, Key> token_holders_;      // holders of the tokens in entries_
  std::map<Uid, device::Assignment> choices_;      // by pod
  std::map<grant::Nonce, uint64_t> spent_tokens_;  // fingerprint of each token's holder
  mutable std::optional<GpuAccounts> accounts_;  // accounts of entries_, computed at the first use
  size_t record_count_ = 0;                      // number of records in the log
  bool must_compact_ = false;                    // after a failed write the log needs a new file
};

}  // namespace tessera::agent
