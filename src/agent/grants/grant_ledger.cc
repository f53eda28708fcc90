// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/grant_ledger.h"

#include <algorithm>
#include <utility>

#include "src/agent/grants/ledger_records.h"
#include "src/base/strings.h"

namespace tessera::agent {
namespace {

// The journal is rewritten when it has more than 2 * needed + kMaxObsoleteRecords records.
constexpr size_t kMaxObsoleteRecords = 256;
constexpr std::string_view kLogName = "journal of grants";

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
  return std::ranges::count(entry.claims, nonce, &Claim::nonce) != 0;
}

bool HasShare(const GrantLedger::Entry& entry, const std::string& uuid) {
  return std::ranges::count(entry.shares, uuid, &device::DeviceShare::uuid) != 0;
}

}  // namespace

GrantLedger::GrantLedger(grant::RecordLog* log, const std::vector<std::string>& records,
                         size_t* skipped)
    : log_(log), record_count_(records.size()) {
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
      if (record->chosen) choices_[uid] = *std::move(record->chosen);
      return true;
    case LedgerRecord::Kind::kRelease:
      Forget(KeyOf(record->entry.holder));
      return true;
    case LedgerRecord::Kind::kSpent:
      break;
  }
  if (const auto bound = token_holders_.find(record->nonce); bound != token_holders_.end()) {
    RemoveToken(bound->second, record->nonce);
  }
  spent_tokens_[record->nonce] = record->fingerprint;
  return true;
}

// A second record of a container adds to the first.
void GrantLedger::ApplyEntry(Entry entry) {
  accounts_.reset();
  const Key key = KeyOf(entry.holder);
  for (const Claim& claim : entry.claims) {
    spent_tokens_.erase(claim.nonce);
    const auto bound = token_holders_.find(claim.nonce);
    // The token was granted to a placeholder, because its container was unknown then.
    if (bound != token_holders_.end() && bound->second != key)
      RemoveToken(bound->second, claim.nonce);
    token_holders_[claim.nonce] = key;
  }
  const auto [found, is_new] = entries_.emplace(key, entry);
  if (is_new) return;
  Entry& existing = found->second;
  for (Claim& claim : entry.claims) {
    if (!HasToken(existing, claim.nonce)) existing.claims.push_back(std::move(claim));
  }
  for (device::DeviceShare& share : entry.shares) {
    if (!HasShare(existing, share.uuid)) existing.shares.push_back(std::move(share));
  }
}

void GrantLedger::RemoveToken(Key key, const grant::Nonce& nonce) {
  Entry& entry = entries_.at(key);
  std::erase_if(entry.claims, [&](const Claim& claim) { return claim.nonce == nonce; });
  token_holders_.erase(nonce);
  if (entry.claims.empty()) Forget(key);
}

void GrantLedger::Forget(const Key& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  accounts_.reset();
  const uint64_t fingerprint = Fingerprint(found->second.holder);
  for (const Claim& claim : found->second.claims) {
    token_holders_.erase(claim.nonce);
    spent_tokens_[claim.nonce] = fingerprint;
  }
  entries_.erase(found);
  const auto next = entries_.lower_bound({key.first, ""});
  if (next == entries_.end() || next->first.first != key.first) choices_.erase(key.first);
}

Status GrantLedger::Write(const LedgerRecord& record, WriteTo write) {
  const std::string text = EncodeRecord(record);
  // On a full disk, rewriting the journal without obsolete records makes room; then the write is
  // retried. If the retry fails too, the caller gets the error, and a new grant is rejected.
  for (int attempt = must_compact_ ? 1 : 0;; ++attempt) {
    if (must_compact_) RETURN_IF_ERROR(Compact());
    const Status status = (log_->*write)(text).Annotate(kLogName);
    must_compact_ = !status.ok();
    if (status.ok()) ++record_count_;
    if (status.ok() || attempt == 1) return status;
  }
}

Status GrantLedger::Compact() {
  std::vector<std::string> all;
  for (const auto& [key, entry] : entries_) {
    LedgerRecord record{.entry = entry};
    if (const auto* chosen = ChosenFor(key.first)) record.chosen = *chosen;
    all.push_back(EncodeRecord(record));
  }
  for (const auto& [nonce, fingerprint] : spent_tokens_) {
    all.push_back(EncodeRecord(
        {.kind = LedgerRecord::Kind::kSpent, .nonce = nonce, .fingerprint = fingerprint}));
  }
  RETURN_IF_ERROR(log_->Replace(all).Annotate(kLogName));
  record_count_ = all.size();
  must_compact_ = false;
  return Status::Ok();
}

Status GrantLedger::CheckToken(const grant::Nonce& nonce, const ContainerRef& requester,
                               WallTime now) const {
  if (const auto found = token_holders_.find(nonce); found != token_holders_.end()) {
    if (found->second == KeyOf(requester)) return Status::Ok();
    const ContainerRef& holder = entries_.at(found->second).holder;
    return Error(Code::kPermissionDenied,
                 "the token belongs to container {} of pod {} (uid {}), not to {} of {} (uid {})",
                 holder.container, holder.PodText(), holder.pod_uid, requester.container,
                 requester.PodText(), requester.pod_uid);
  }
  if (const auto found = spent_tokens_.find(nonce); found != spent_tokens_.end()) {
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
    const Entry& new_entry, const device::NodeInventory& gpus) const {
  std::vector<Conflict> conflicts;
  for (const device::DeviceShare& share : new_entry.shares) {
    const device::Gpu* gpu = gpus.Find(share.uuid);
    if (gpu != nullptr && Accounts().HasRoom(*gpu, HoldOfEntry(new_entry, share))) continue;
    for (const auto& [key, entry] : entries_) {
      if (key.first == new_entry.holder.pod_uid) continue;
      if (HasShare(entry, share.uuid)) conflicts.push_back({key, share.uuid, entry.holder});
    }
  }
  return conflicts;
}

Status GrantLedger::Bind(const Entry& new_entry, const device::Assignment* chosen,
                         const device::NodeInventory& gpus, WallTime now) {
  LedgerRecord record{.entry = new_entry};
  const Entry* existing = Find(new_entry.holder);
  if (existing != nullptr) record.entry = *existing;
  record.entry.claims.clear();
  for (const Claim& claim : new_entry.claims) {
    RETURN_IF_ERROR(CheckToken(claim.nonce, new_entry.holder, now));
    if (token_holders_.count(claim.nonce) == 0) record.entry.claims.push_back(claim);
  }
  if (existing != nullptr && record.entry.claims.empty()) return Status::Ok();
  if (existing == nullptr) {
    for (const device::DeviceShare& share : new_entry.shares)
      RETURN_IF_ERROR(CheckRoom(new_entry, share, gpus));
    if (chosen != nullptr) record.chosen = *chosen;
  }
  RETURN_IF_ERROR(Write(record, &grant::RecordLog::Append));
  if (record.chosen) choices_[new_entry.holder.pod_uid] = *record.chosen;
  ApplyEntry(std::move(record.entry));
  return Status::Ok();
}

Status GrantLedger::SetHolder(const Key& key, const ContainerRef& holder,
                              const device::Assignment* chosen) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return Status(Code::kNotFound, "no such grant");
  LedgerRecord record{.entry = found->second};
  record.entry.holder = holder;
  record.entry.guessed = false;
  if (chosen != nullptr) record.chosen = *chosen;
  RETURN_IF_ERROR(Write(record, &grant::RecordLog::Append));
  ApplyEntry(std::move(record.entry));
  if (chosen != nullptr) choices_[holder.pod_uid] = *chosen;
  return Status::Ok();
}

Status GrantLedger::CheckRoom(const Entry& new_entry, const device::DeviceShare& share,
                              const device::NodeInventory& gpus) const {
  const device::Gpu* gpu = gpus.Find(share.uuid);
  if (gpu == nullptr) {
    return Error(Code::kNotFound, "GPU {} is not on this node any more", share.uuid);
  }
  if (Accounts().HasRoom(*gpu, HoldOfEntry(new_entry, share))) return Status::Ok();
  Entry single_share = new_entry;
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
  const auto found = entries_.find(key);
  if (found == entries_.end()) return Status(Code::kNotFound, "no such grant");
  LedgerRecord record{.kind = LedgerRecord::Kind::kRelease};
  record.entry.holder = found->second.holder;
  RETURN_IF_ERROR(Write(record, &grant::RecordLog::AppendUnsynced));
  Forget(key);
  return Status::Ok();
}

const GrantLedger::Entry* GrantLedger::Find(const ContainerRef& holder) const {
  const auto found = entries_.find(KeyOf(holder));
  return found == entries_.end() ? nullptr : &found->second;
}

const device::Assignment* GrantLedger::ChosenFor(const Uid& pod_uid) const {
  const auto found = choices_.find(pod_uid);
  return found == choices_.end() ? nullptr : &found->second;
}

const GpuAccounts& GrantLedger::Accounts() const {
  if (accounts_) return *accounts_;
  accounts_.emplace();
  for (const auto& [key, entry] : entries_) {
    for (const device::DeviceShare& share : entry.shares) {
      accounts_->Add(share.uuid, HoldOfEntry(entry, share));
    }
  }
  return *accounts_;
}

Status GrantLedger::Tidy(WallTime now) {
  // Nonces sort by their time, so the old nonces come first.
  while (!spent_tokens_.empty() &&
         now - grant::CreationTime(spent_tokens_.begin()->first) > kTokenLifetime) {
    spent_tokens_.erase(spent_tokens_.begin());
  }
  const size_t needed = entries_.size() + spent_tokens_.size();
  if (!must_compact_ && record_count_ <= 2 * needed + kMaxObsoleteRecords) return Status::Ok();
  return Compact();
}

}  // namespace tessera::agent
