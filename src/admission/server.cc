// SPDX-License-Identifier: Apache-2.0
#include "src/admission/server.h"

#include <utility>

namespace tessera::admission {
namespace {

// Maximum age of the capacity, which is computed in a pass over all GPUs.
constexpr Duration kMaxCapacityAge = std::chrono::seconds(1);
// API servers keep connections open, and there may be several API servers.
constexpr size_t kMaxConnections = 256;

}  // namespace

AdmissionServer::AdmissionServer(kube::Client& client, AdmissionOptions options,
                                 trace::SpanRecorder record_span, GetLedger get_ledger)
    : clock_(client.runner().clock()),
      get_ledger_(std::move(get_ledger)),
      record_span_(std::move(record_span)),
      rules_(std::move(options), [this] { return Capacity(); }) {}

Result<std::unique_ptr<AdmissionServer>> AdmissionServer::Start(net::IoThread& io,
                                                                kube::Client& client,
                                                                AdmissionServerOptions options,
                                                                GetLedger get_ledger) {
  std::unique_ptr<AdmissionServer> self(new AdmissionServer(
      client, std::move(options.admission), std::move(options.record_span), std::move(get_ledger)));
  ASSIGN_OR_RETURN(net::TlsOptions tls, certificates::PlaceholderTls(self->clock_.WallNow()));
  tls.ca = {};  // API servers send no client certificate
  net::HttpServer::Options http{.address = std::move(options.address), .tls = std::move(tls)};
  http.limits.max_body_bytes = kMaxAdmissionBytes;
  http.limits.max_connections = kMaxConnections;
  ASSIGN_OR_RETURN(self->server_, net::HttpServer::Start(
                                      io, client.runner(), std::move(http),
                                      [server = self.get()](const net::Request& request,
                                                            const net::HttpServer::Reply& reply) {
                                        reply(server->Answer(request));
                                      }));
  self->keeper_ = std::make_unique<certificates::CertificateKeeper>(
      client, std::move(options.certificates),
      [server = self.get()](const net::CertificatePair& pair) { server->OnCertificate(pair); });
  return self;
}

net::Response AdmissionServer::Answer(const net::Request& request) {
  const bool mutate = request.path() == kMutatePath;
  if (!mutate && request.path() != kValidatePath) {
    return net::TextResponse(
        404, fmt::format("unknown page; known pages: {} and {}\n", kMutatePath, kValidatePath));
  }
  if (request.method != "POST") {
    net::Response response = net::TextResponse(405, "POST an AdmissionReview\n");
    response.headers.Set("Allow", "POST");
    return response;
  }
  const WallTime began = clock_.WallNow();
  const auto review = ParseAdmissionReview(request.body);
  if (!review.ok()) {
    ++counts_.unreadable;
    return net::TextResponse(400, review.status().message() + "\n");
  }
  const AdmissionAnswer answer = mutate ? rules_.Mutate(*review) : rules_.Validate(*review);
  ++(answer.rejection.ok() ? counts_.allowed : counts_.rejected);
  if (!answer.patch.empty()) ++counts_.changed;
  // The API server gives a new pod its UID after the mutating webhooks.
  if (!mutate && record_span_ && review->operation == "CREATE") Trace(*review, began, answer);
  net::Response response{.body = SerializeAdmissionReview(review->uid, answer)};
  response.headers.Set("Content-Type", "application/json");
  // Only the leader has a ledger. An API server reuses its connections for all reviews. So without
  // a ledger the connection is closed: the next one goes through the Service, and may reach the
  // leader.
  response.close = get_ledger_() == nullptr;
  return response;
}

void AdmissionServer::Trace(const AdmissionRequest& review, WallTime began,
                            const AdmissionAnswer& answer) const {
  const Json* meta = review.object.Find("metadata");
  if (meta == nullptr) return;
  const Uid uid(meta->StringAt("uid").value_or(""));
  if (uid.empty()) return;
  record_span_({.name = "webhook",
                .subject = {uid, review.ns, meta->StringAt("name").value_or(""), ""},
                .start = began,
                .end = clock_.WallNow(),
                .status = answer.rejection});
}

const ClusterCapacity* AdmissionServer::Capacity() {
  const ledger::ClusterLedger* ledger = get_ledger_();
  if (ledger == nullptr) return nullptr;
  if (!capacity_ || clock_.Now() >= capacity_expires_) {
    capacity_ = CapacityOf(*ledger);
    capacity_expires_ = clock_.Now() + kMaxCapacityAge;
  }
  return &*capacity_;
}

void AdmissionServer::OnCertificate(const net::CertificatePair& pair) {
  server_->SetTls({.certificate = {.text = pair.certificate}, .key = {.text = pair.key}});
  ready_ = true;
}

}  // namespace tessera::admission
