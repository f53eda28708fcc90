// SPDX-License-Identifier: Apache-2.0
#include "src/cli/pod_page.h"

#include <memory>
#include <utility>

#include "api/names.h"
#include "src/kube/api_error.h"

namespace tessera::cli {
namespace {

// More than 1,000 containers on 16 GPUs each.
constexpr size_t kMaxPage = 16 << 20;

}  // namespace

kube::Operation ReadPodPage(kube::Client& client, const std::string& pod, std::string_view port,
                            std::string_view path, Duration patience,
                            std::function<void(Result<std::string>)> on_done) {
  const std::string target = fmt::format(
      "{}:{}/proxy{}", kube::PathOf({kube::kPods, pod, std::string(names::kSystemNamespace), ""}),
      port, path);
  const auto response = std::make_shared<net::Response>();
  net::StreamHandler handler;
  handler.on_head = [response](const net::Response& head) { response->status = head.status; };
  handler.on_data = [response](std::string_view piece) {
    if (response->body.size() <= kMaxPage) response->body += piece;
  };
  handler.on_end = [response, on_done = std::move(on_done)](const Status& status) {
    if (!status.ok()) return on_done(status);
    if (response->status != 200) return on_done(kube::ErrorOf(*response));
    on_done(std::move(response->body));
  };
  return client.Stream(target, kube::ListQuery{},
                       {.connect = patience, .header = patience, .body = patience},
                       std::move(handler));
}

}  // namespace tessera::cli
