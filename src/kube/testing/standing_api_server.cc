// SPDX-License-Identifier: Apache-2.0
#include "src/kube/testing/standing_api_server.h"

#include <algorithm>
#include <utility>

#include "src/base/strings.h"
#include "src/kube/objects.h"
#include "src/kube/raw_object.h"
#include "src/kube/testing/wire_writer.h"

namespace tessera::kube::testing {
namespace {

constexpr std::string_view kVersion = "1000000";

net::Response Refusal(int status) {
  const std::string reason = status == 401   ? "Unauthorized"
                             : status == 403 ? "Forbidden"
                                             : "Invalid";
  net::Response response = net::TextResponse(
      status, fmt::format(R"({{"kind":"Status","apiVersion":"v1","status":"Failure","message":)"
                          R"("refused by the test","reason":"{}","code":{}}})",
                          reason, status));
  response.headers.Set("Content-Type", "application/json");
  return response;
}

net::Response Protobuf(std::string body, std::string_view parameter = "") {
  net::Response response{.body = std::move(body)};
  response.headers.Set("Content-Type", fmt::format("{}{}", kProtobufType, parameter));
  return response;
}

}  // namespace

StandingApiServer::StandingApiServer(net::IoThread& io, TaskRunner& runner) {
  net::HttpServer::Options options{.address = {.host = "127.0.0.1"}};
  options.limits.handler = std::chrono::hours(1);
  options.limits.connections = 4096;  // watches of clients that are gone count, too
  server_ = net::HttpServer::Start(io, runner, options,
                                   [this](const net::Request& request,
                                          net::HttpServer::Reply reply) { Answer(request, reply); })
                .value();
}

net::Url StandingApiServer::url() const { return {.address = server_->address()}; }

void StandingApiServer::Set(const std::string& plural, std::string kind,
                            std::vector<std::string> messages) {
  collections_[plural] = {std::move(kind), std::move(messages)};
}

std::string StandingApiServer::Kubeconfig(const std::string& ns) const {
  return fmt::format(
      "apiVersion: v1\nkind: Config\ncurrent-context: here\n"
      "clusters: [{{name: c, cluster: {{server: \"{}\"}}}}]\nusers: [{{name: u, user: {{}}}}]\n"
      "contexts: [{{name: here, context: {{cluster: c, user: u, namespace: {}}}}}]\n",
      url().ToString(), ns);
}

void StandingApiServer::Answer(const net::Request& request, const net::HttpServer::Reply& reply) {
  paths_.emplace_back(request.path());
  if (hang_ && hang_(reply)) return;
  if (other_) {
    if (auto answer = other_(request)) return reply(*std::move(answer));
  }
  const std::string plural(Split(request.path(), '/').back());
  if (const auto refused = refused_.find(plural); refused != refused_.end()) {
    return reply(Refusal(refused->second));
  }
  if (!token_.empty() && request.headers.Get("Authorization") != "Bearer " + token_) {
    return reply(Refusal(401));
  }
  const Collection& all = collections_[plural];
  const std::optional<Collection> selected = In(all, request.path());
  const Collection& collection = selected ? *selected : all;
  if (!request.Query("watch")) return reply(Protobuf(PageOf(collection, request)));
  if (request.Query("sendInitialEvents") != "true") return watches_.push_back(reply);
  reply(Protobuf(StreamOf(collection), ";stream=watch"));
}

std::optional<StandingApiServer::Collection> StandingApiServer::In(const Collection& all,
                                                                   std::string_view path) {
  constexpr std::string_view kNamespaces = "/namespaces/";
  const size_t at = path.find(kNamespaces);
  if (at == std::string_view::npos) return std::nullopt;
  path.remove_prefix(at + kNamespaces.size());
  const std::string_view ns = path.substr(0, path.find('/'));
  Collection selected{all.kind, {}};
  for (const std::string& message : all.messages) {
    ObjectMeta meta;
    if (DecodeMeta(RawObject(std::string_view(message)), &meta).ok() && meta.ns == ns) {
      selected.messages.push_back(message);
    }
  }
  return selected;
}

void StandingApiServer::EndWatches() {
  for (const auto& reply : std::exchange(watches_, {})) reply(Protobuf("", ";stream=watch"));
}

std::string StandingApiServer::PageOf(const Collection& collection, const net::Request& request) {
  const auto number = [&](std::string_view name, size_t otherwise) {
    const Result<int64_t> value = ParseInt(request.Query(name).value_or(""));
    return value.ok() ? static_cast<size_t>(*value) : otherwise;
  };
  const std::vector<std::string>& all = collection.messages;
  const size_t begin = std::min(number("continue", 0), all.size());
  const size_t end = std::min(all.size(), begin + number("limit", all.size()));
  WireWriter page;
  page.Bytes(
      1,
      WireWriter().Bytes(2, kVersion).Bytes(3, end < all.size() ? std::to_string(end) : "").text());
  for (size_t i = begin; i < end; ++i) page.Bytes(2, all[i]);
  return Enveloped(collection.kind + "List", page.text());
}

std::string StandingApiServer::StreamOf(const Collection& collection) {
  std::string stream;
  for (const std::string& message : collection.messages) {
    stream += WatchFrame("ADDED", collection.kind, message);
  }
  const std::string meta =
      WireWriter().Bytes(6, kVersion).Entry(12, "k8s.io/initial-events-end", "true").text();
  return stream + WatchFrame("BOOKMARK", collection.kind, WireWriter().Bytes(1, meta).text());
}

}  // namespace tessera::kube::testing
