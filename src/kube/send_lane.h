// SPDX-License-Identifier: Apache-2.0
// Inside the room: requests that share a fate, because they go to the same server or are on the
// same priority level there. After trouble the lane closes for a growing, jittered time; then one
// request goes ahead, and its answer opens the lane or closes it again. Threads: one.
#pragma once

#include <algorithm>

#include "src/kube/backoff.h"

namespace tessera::kube {

class SendLane {
 public:
  // Half of the renew deadline of leader election (10 s): a leader whose server is back renews in
  // time.
  static constexpr Duration kMostWait = std::chrono::seconds(5);

  bool clear() const { return failures_ == 0; }
  // Whether a request may be sent now. Where only time keeps the lane closed, lowers `*wake` to
  // when it opens.
  bool Open(MonotonicTime now, MonotonicTime* wake) const {
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
  // Of several requests that fail together only the first counts.
  template <typename Generator>
  void OnTrouble(MonotonicTime now, Generator& random) {
    if (now < not_before_) return;
    not_before_ = now + JitteredWait(Backoff::kFirst, kMostWait, failures_++, random);
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
