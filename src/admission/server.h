// SPDX-License-Identifier: Apache-2.0
// Serves the admission webhook on a port of its own, only over TLS, with certificates that it
// creates and renews. Every replica of the scheduler serves the webhook, because all replicas
// decide in the same way. Warnings about the cluster need the ledger, which only the leader has. A
// standby answers without these warnings and closes the connection after each response, until the
// API server connects to the leader.
//
//   POST /admission/mutate, /admission/validate      an AdmissionReview; 400 for an invalid one
//
// Bounds: kMaxAdmissionBytes for bodies, net::ServerLimits for connections and times.
//
// Threads: the client's runner. The I/O thread, the client and the ledger must outlive the server.
// Idle cost: that of a CertificateKeeper.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "src/admission/review.h"
#include "src/admission/rules.h"
#include "src/certificates/certificate_keeper.h"
#include "src/kube/client.h"
#include "src/ledger/ledger.h"
#include "src/net/http_server.h"
#include "src/trace/span.h"

namespace tessera::admission {

inline constexpr std::string_view kMutatePath = "/admission/mutate";
inline constexpr std::string_view kValidatePath = "/admission/validate";

struct AdmissionServerOptions {
  net::Address address;
  AdmissionOptions admission;
  certificates::CertificateKeeperOptions certificates;
  trace::SpanRecorder record_span;  // null: webhook calls are not traced
};

struct AdmissionCounts {
  int64_t allowed = 0;
  int64_t changed = 0;  // the requests of `allowed` that got a patch
  int64_t rejected = 0;
  int64_t unreadable = 0;  // invalid AdmissionReview: 400
};

class AdmissionServer {
 public:
  // Returns null while the ledger is incomplete; responses then have no warnings about the cluster,
  // and close their connection.
  using GetLedger = std::function<const ledger::ClusterLedger*()>;

  // The server listens when Start returns. Until the keeper has a certificate, the server uses one
  // that no caller trusts. Errors: see net::HttpServer::Start.
  static Result<std::unique_ptr<AdmissionServer>> Start(net::IoThread& io, kube::Client& client,
                                                        AdmissionServerOptions options,
                                                        GetLedger get_ledger);

  // The listening address, with the port that the system chose.
  const net::Address& address() const { return server_->address(); }
  // Whether the server has a certificate that API servers trust.
  bool ready() const { return ready_; }
  const AdmissionCounts& counts() const { return counts_; }

 private:
  AdmissionServer(kube::Client& client, AdmissionOptions options, trace::SpanRecorder record_span,
                  GetLedger get_ledger);

  net::Response Answer(const net::Request& request);
  void Trace(const AdmissionRequest& review, WallTime began, const AdmissionAnswer& answer) const;
  const ClusterCapacity* Capacity();
  void OnCertificate(const net::CertificatePair& pair);

  const Clock& clock_;
  const GetLedger get_ledger_;
  const trace::SpanRecorder record_span_;
  const AdmissionRules rules_;
  std::optional<ClusterCapacity> capacity_;
  MonotonicTime capacity_expires_;
  AdmissionCounts counts_;
  bool ready_ = false;
  std::unique_ptr<net::HttpServer> server_;
  std::unique_ptr<certificates::CertificateKeeper> keeper_;
};

}  // namespace tessera::admission
