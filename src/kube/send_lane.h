// SPDX-License-Identifier: Apache-2.0
// A lane holds back requests that fail together, because they go to one server or belong to one of
// its priority levels. After an error the lane closes for a growing, jittered time. Then one
// request, the probe, is sent; its response opens the lane or closes it again. Included only in
// src/kube. Threads: one.
#pragma once

#include <algorithm>

#include "src/kube/backoff.h"

namespace tessera::kube {

class SendLane {
 public:
  // Half of leader election's renew deadline of 10 s, so that a leader renews in time once its
  // server is back.
  static constexpr Duration kMaxWait = std::chrono::seconds(5);

  bool IsHealthy() const { return failures_ == 0; }
  // Whether a request may be sent now. If the lane opens at a known later time, lowers `*wake` to
  // that time.
  bool MaySend(MonotonicTime now, MonotonicTime* wake) const {
    if (failures_ == 0) return true;
    if (probe_ != nullptr) return false;
    if (now >= not_before_) return true;
    *wake = std::min(*wake, not_before_);
    return false;
  }
  MonotonicTime not_before() const { return not_before_; }
  void OnSent(const void* request) {
    if (failures_ > 0) probe_ = request;
  }
  // The request was answered, cancelled or expired.
  void OnEnded(const void* request) {
    if (probe_ == request) probe_ = nullptr;
  }
  // Only the first of several concurrent failures counts.
  template <typename Generator>
  void OnError(MonotonicTime now, Generator& random) {
    if (now < not_before_) return;
    not_before_ = now + JitteredWait(Backoff::kFirst, kMaxWait, failures_++, random);
  }
  void OnSuccess() {
    failures_ = 0;
    not_before_ = {};
  }

 private:
  int failures_ = 0;
  MonotonicTime not_before_{};
  const void* probe_ = nullptr;
};

}  // namespace tessera::kube
