// SPDX-License-Identifier: Apache-2.0
#include "src/ledger/server_probe.h"

#include <algorithm>
#include <utility>

#include "src/base/strings.h"

namespace tessera::ledger {
namespace {

constexpr Duration kTimeout = std::chrono::seconds(10);

}  // namespace

ServerProbe::ServerProbe(kube::Client& client, Duration interval, Handlers handlers)
    : client_(client), interval_(interval), handlers_(std::move(handlers)) {
  ProbeLater();
}

void ServerProbe::ProbeLater() {
  client_.runner().PostDelayed(interval_, [this, weak = weak_.Get()] {
    if (weak) Probe();
  });
}

void ServerProbe::Probe() {
  const Duration timeout = std::min(kTimeout, interval_);
  const WallTime sent = client_.runner().clock().WallNow();
  request_ = client_.Stream(
      kPath, kube::ListQuery{}, {.connect = timeout, .header = timeout, .body = timeout},
      {.on_head =
           [this](const net::Response& head) {
             if (head.status < 500) handlers_.on_answer();
           },
       .on_data = [](std::string_view) {},
       .on_end =
           [this, sent](const Status& status) {
             if (status.code() == Code::kDeadlineExceeded) {
               handlers_.on_silence(status.Annotate(fmt::format("GET {}", kPath)), sent);
             }
             ProbeLater();
           }});
}

}  // namespace tessera::ledger
