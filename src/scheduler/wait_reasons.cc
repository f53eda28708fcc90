// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/wait_reasons.h"

#include <algorithm>
#include <tuple>

namespace tessera::scheduler {

using ledger::Verdict;

void VerdictKinds::Add(const Verdict& verdict) {
  fits_ |= verdict.fits;
  if (verdict.fits) return;
  // Kinds are constants, so equal kinds have equal addresses.
  const auto matches = [&](const KindCount& count) {
    return count.kind.data() == verdict.kind.data() && count.unresolvable == verdict.unresolvable;
  };
  if (last_added_ >= counts_.size() || !matches(counts_[last_added_])) {
    last_added_ = static_cast<size_t>(std::ranges::find_if(counts_, matches) - counts_.begin());
  }
  if (last_added_ == counts_.size()) counts_.push_back({verdict.kind, verdict.unresolvable, 0});
  ++counts_[last_added_].nodes;
}

int VerdictKinds::RankOf(const KindCount& count) {
  if (count.kind == Verdict::kQuota || count.kind == Verdict::kReserved) return 0;
  const bool has_no_gpus = count.kind == Verdict::kNoKnownGpus ||
                           count.kind == Verdict::kUnknownNode ||
                           count.kind == Verdict::kNodeProblem;
  if (has_no_gpus) return 3;
  return count.unresolvable ? 2 : 1;
}

std::string_view VerdictKinds::Reason() const {
  if (fits_) return WaitReasons::kNotBound;
  if (counts_.empty()) return Verdict::kNoKnownGpus;
  const auto order = [](const KindCount& count) {
    return std::tuple(RankOf(count), -static_cast<int64_t>(count.nodes), count.kind);
  };
  return std::ranges::min(counts_, {}, order).kind;
}

std::optional<std::string_view> WaitReasons::Find(const Uid& uid) const {
  const auto found = reasons_.find(uid);
  if (found == reasons_.end()) return std::nullopt;
  return found->second.reason;
}

void WaitReasons::ForgetPodsNotWaiting(const ledger::ClusterLedger& ledger, MonotonicTime now) {
  if (now < next_cleanup_) return;
  next_cleanup_ = now + kForgetAfter;
  std::erase_if(reasons_, [&](const auto& entry) {
    const auto pod = ledger.pods().find(entry.first);
    if (pod == ledger.pods().end()) return now - entry.second.recorded_at >= kForgetAfter;
    return pod->second.binding_state == ledger::BindingState::kBound;
  });
}

}  // namespace tessera::scheduler
