// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/grant_ledger.h"

#include <algorithm>
#include <utility>

#include "src/agent/grants/ledger_records.h"
#include "src/base/strings.h"

namespace tessera::agent {
namespace {

// Records of history from which the journal is rewritten.
constexpr size_t kMinGrantHistory = 256;

// The fingerprint need not resist forgery: a token is valid only with its signature, and the API
// server, not an attacker, chooses the UID of a pod.
uint64_t Fingerprint(const ContainerRef& ref) {
  constexpr std::string_view kEnd = "\xff";
  return Fnv1a(kEnd, Fnv1a(ref.container, Fnv1a(kEnd, Fnv1a(ref.pod_uid.str()))));
}

Hold HoldOfEntry(const GrantLedger::Entry& entry, const device::DeviceShare& share) {
  return {entry.holder.pod_uid, entry.phase, entry.dialect, share.compute, share.memory};
}

bool HasToken(const GrantLedger::Entry& entry, const grant::Nonce& nonce) {
  return std::any_of(entry.claims.begin(), entry.claims.end(),
                     [&](const Claim& claim) { return claim.nonce == nonce; });
}

}  // namespace

GrantLedger::GrantLedger(grant::RecordLog* log, const std::vector<std::string>& records,
                         size_t* skipped)
    : log_(log), records_(records.size()) {
  *skipped = 0;
  for (const std::string& record : records) {
    if (!Apply(record)) ++*skipped;
  }
}

bool GrantLedger::Apply(const std::string& text) {
  std::optional<LedgerRecord> record = DecodeRecord(text);
  if (!record) return false;
  const Uid uid = record->entry.holder.pod_uid;
  switch (record->kind) {
    case LedgerRecord::Kind::kGrant:
      ApplyEntry(std::move(record->entry));
      if (record->chosen) chosen_[uid] = *std::move(record->chosen);
      return true;
    case LedgerRecord::Kind::kRelease:
      Forget(KeyOf(record->entry.holder));
      return true;
    case LedgerRecord::Kind::kSpent:
      break;
  }
  if (const auto bound = bound_.find(record->nonce); bound != bound_.end()) {
    Drop(bound->second, record->nonce);
  }
  spent_[record->nonce] = record->fingerprint;
  return true;
}

// A second record of a container adds to the first.
void GrantLedger::ApplyEntry(Entry entry) {
  accounts_.reset();
  const Key key = KeyOf(entry.holder);
  for (const Claim& claim : entry.claims) {
    spent_.erase(claim.nonce);
    const auto bound = bound_.find(claim.nonce);
    // The container was unknown when it was granted.
    if (bound != bound_.end() && bound->second != key) Drop(bound->second, claim.nonce);
    bound_[claim.nonce] = key;
  }
  const auto [at, fresh] = live_.emplace(key, entry);
  if (fresh) return;
  Entry& known = at->second;
  for (Claim& claim : entry.claims) {
    if (!HasToken(known, claim.nonce)) known.claims.push_back(std::move(claim));
  }
  for (device::DeviceShare& share : entry.shares) {
    const bool has_share =
        std::any_of(known.shares.begin(), known.shares.end(),
                    [&](const auto& known_share) { return known_share.uuid == share.uuid; });
    if (!has_share) known.shares.push_back(std::move(share));
  }
}

void GrantLedger::Drop(Key key, const grant::Nonce& nonce) {
  Entry& entry = live_.at(key);
  std::erase_if(entry.claims, [&](const Claim& claim) { return claim.nonce == nonce; });
  bound_.erase(nonce);
  if (entry.claims.empty()) Forget(key);
}

void GrantLedger::Forget(const Key& key) {
  const auto found = live_.find(key);
  if (found == live_.end()) return;
  accounts_.reset();
  const uint64_t fingerprint = Fingerprint(found->second.holder);
  for (const Claim& claim : found->second.claims) {
    bound_.erase(claim.nonce);
    spent_[claim.nonce] = fingerprint;
  }
  live_.erase(found);
  const auto next = live_.lower_bound({key.first, ""});
  if (next == live_.end() || next->first.first != key.first) chosen_.erase(key.first);
}

Status GrantLedger::Write(const std::string& record, WriteTo write) {
  // On a full disk, rewriting the journal without obsolete records makes room; then the write is
  // retried.
  for (int attempt = must_compact_ ? 1 : 0;; ++attempt) {
    if (must_compact_) RETURN_IF_ERROR(Compact());
    const Status status = (log_->*write)(record);
    must_compact_ = !status.ok();
    if (status.ok()) ++records_;
    if (status.ok() || attempt == 1) return status;
  }
}

Status GrantLedger::Compact() {
  std::vector<std::string> all;
  for (const auto& [key, entry] : live_) {
    LedgerRecord record{.entry = entry};
    if (const auto* chosen = ChosenFor(key.first)) record.chosen = *chosen;
    all.push_back(EncodeRecord(record));
  }
  for (const auto& [nonce, fingerprint] : spent_) {
    all.push_back(EncodeRecord(
        {.kind = LedgerRecord::Kind::kSpent, .nonce = nonce, .fingerprint = fingerprint}));
  }
  RETURN_IF_ERROR(log_->Replace(all));
  records_ = all.size();
  must_compact_ = false;
  return Status::Ok();
}

Status GrantLedger::Check(const grant::Nonce& nonce, const ContainerRef& requester,
                          WallTime now) const {
  if (const auto found = bound_.find(nonce); found != bound_.end()) {
    if (found->second == KeyOf(requester)) return Status::Ok();
    const ContainerRef& holder = live_.at(found->second).holder;
    return Error(Code::kPermissionDenied,
                 "the token belongs to container {} of pod {} (uid {}), not to {} of {} (uid {})",
                 holder.container, holder.PodText(), holder.pod_uid, requester.container,
                 requester.PodText(), requester.pod_uid);
  }
  if (const auto found = spent_.find(nonce); found != spent_.end()) {
    // The pod still exists, although it counted as gone. It gets its GPUs again if they are free.
    if (found->second == Fingerprint(requester)) return Status::Ok();
    return Error(Code::kPermissionDenied,
                 "the token was used by a container that is gone, and is not valid for {} of {}",
                 requester.container, requester.PodText());
  }
  if (now - grant::CreationTime(nonce) > kTokenLifetime) {
    return Error(Code::kFailedPrecondition,
                 "the token of container {} of pod {} was never used and is older than {} days: "
                 "delete the pod and create it again",
                 requester.container, requester.PodText(),
                 std::chrono::duration_cast<std::chrono::hours>(kTokenLifetime).count() / 24);
  }
  return Status::Ok();
}

std::vector<GrantLedger::Conflict> GrantLedger::ConflictsOf(
    const Entry& wanted, const device::NodeInventory& gpus) const {
  std::vector<Conflict> conflicts;
  for (const device::DeviceShare& share : wanted.shares) {
    const device::Gpu* gpu = gpus.Find(share.uuid);
    if (gpu != nullptr && Accounts().HasRoom(*gpu, HoldOfEntry(wanted, share))) continue;
    for (const auto& [key, entry] : live_) {
      if (key.first == wanted.holder.pod_uid) continue;
      const bool shares_gpu =
          std::any_of(entry.shares.begin(), entry.shares.end(),
                      [&](const auto& other) { return other.uuid == share.uuid; });
      if (shares_gpu) conflicts.push_back({key, share.uuid, entry.holder});
    }
  }
  return conflicts;
}

Status GrantLedger::Bind(const Entry& wanted, const device::Assignment* chosen,
                         const device::NodeInventory& gpus, WallTime now) {
  LedgerRecord record{.entry = wanted};
  const Entry* known = Find(wanted.holder);
  if (known != nullptr) record.entry = *known;
  record.entry.claims.clear();
  for (const Claim& claim : wanted.claims) {
    RETURN_IF_ERROR(Check(claim.nonce, wanted.holder, now));
    if (bound_.count(claim.nonce) == 0) record.entry.claims.push_back(claim);
  }
  if (known != nullptr && record.entry.claims.empty()) return Status::Ok();
  if (known == nullptr) {
    for (const device::DeviceShare& share : wanted.shares)
      RETURN_IF_ERROR(CheckRoom(wanted, share, gpus));
    if (chosen != nullptr) record.chosen = *chosen;
  }
  RETURN_IF_ERROR(
      Write(EncodeRecord(record), &grant::RecordLog::Append).Annotate("journal of grants"));
  if (record.chosen) chosen_[wanted.holder.pod_uid] = *record.chosen;
  ApplyEntry(std::move(record.entry));
  return Status::Ok();
}

Status GrantLedger::SetHolder(const Key& key, const ContainerRef& holder,
                              const device::Assignment* chosen) {
  const auto found = live_.find(key);
  if (found == live_.end()) return Status(Code::kNotFound, "no such grant");
  LedgerRecord record{.entry = found->second};
  record.entry.holder = holder;
  record.entry.guessed = false;
  if (chosen != nullptr) record.chosen = *chosen;
  RETURN_IF_ERROR(
      Write(EncodeRecord(record), &grant::RecordLog::Append).Annotate("journal of grants"));
  ApplyEntry(std::move(record.entry));
  if (chosen != nullptr) chosen_[holder.pod_uid] = *chosen;
  return Status::Ok();
}

Status GrantLedger::CheckRoom(const Entry& wanted, const device::DeviceShare& share,
                              const device::NodeInventory& gpus) const {
  const device::Gpu* gpu = gpus.Find(share.uuid);
  if (gpu == nullptr) {
    return Error(Code::kNotFound, "GPU {} is not on this node any more", share.uuid);
  }
  if (Accounts().HasRoom(*gpu, HoldOfEntry(wanted, share))) return Status::Ok();
  Entry single_share = wanted;
  single_share.shares = {share};
  const std::vector<Conflict> conflicts = ConflictsOf(single_share, gpus);
  if (conflicts.empty()) {
    return Error(Code::kFailedPrecondition,
                 "{} has too little memory: {} MiB are requested of {} MiB", share.uuid,
                 ToMiB(share.memory), ToMiB(gpu->memory));
  }
  return Error(Code::kFailedPrecondition, "{} is still held by container {} of pod {} (uid {}){}",
               share.uuid, conflicts[0].holder.container, conflicts[0].holder.PodText(),
               conflicts[0].holder.pod_uid,
               conflicts.size() > 1 ? fmt::format(" and {} more", conflicts.size() - 1) : "");
}

Status GrantLedger::Release(const Key& key) {
  const auto found = live_.find(key);
  if (found == live_.end()) return Status(Code::kNotFound, "no such grant");
  LedgerRecord record{.kind = LedgerRecord::Kind::kRelease};
  record.entry.holder = found->second.holder;
  RETURN_IF_ERROR(
      Write(EncodeRecord(record), &grant::RecordLog::AppendUnsynced).Annotate("journal of grants"));
  Forget(key);
  return Status::Ok();
}

const GrantLedger::Entry* GrantLedger::Find(const ContainerRef& holder) const {
  const auto found = live_.find(KeyOf(holder));
  return found == live_.end() ? nullptr : &found->second;
}

const device::Assignment* GrantLedger::ChosenFor(const Uid& pod_uid) const {
  const auto found = chosen_.find(pod_uid);
  return found == chosen_.end() ? nullptr : &found->second;
}

const GpuAccounts& GrantLedger::Accounts() const {
  if (accounts_) return *accounts_;
  accounts_.emplace();
  for (const auto& [key, entry] : live_) {
    for (const device::DeviceShare& share : entry.shares) {
      accounts_->Add(share.uuid, HoldOfEntry(entry, share));
    }
  }
  return *accounts_;
}

Status GrantLedger::Tidy(WallTime now) {
  // Nonces sort by their time, so the old nonces come first.
  while (!spent_.empty() && now - grant::CreationTime(spent_.begin()->first) > kTokenLifetime) {
    spent_.erase(spent_.begin());
  }
  const size_t needed = live_.size() + spent_.size();
  if (!must_compact_ && records_ <= 2 * needed + kMinGrantHistory) return Status::Ok();
  return Compact().Annotate("journal of grants");
}

}  // namespace tessera::agent
