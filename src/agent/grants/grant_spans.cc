// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/grant_spans.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/agent/grants/token_request.h"

namespace tessera::agent {
namespace {

bool HasGrants(const GrantLedger& ledger, const Uid& pod) {
  const auto next = ledger.entries().lower_bound({pod, ""});
  return next != ledger.entries().end() && next->first.first == pod;
}

struct RequestArrival {
  grant::GrantRequest request;
  WallTime time;
  bool first_of_pod;
};

void RecordSpans(const trace::SpanRecorder& record, const GrantSpansContext& context,
                 const RequestArrival& arrival, const Result<grant::Grant>& grant) {
  const grant::GrantRequest& request = arrival.request;
  const WallTime now = context.clock->WallNow();
  const trace::Subject container{request.pod_uid, request.pod_namespace, request.pod_name,
                                 request.container};
  if (!grant.ok()) return record({"grant", container, arrival.time, now, {}, grant.status()});
  record({"grant", container, arrival.time, now, {{"tessera.gpus", grant::UuidsOf(*grant)}}, {}});
  const Result<std::vector<Claim>> claims = OpenTokens(request, *context.signer);
  if (claims.ok()) {
    for (const Claim& claim : *claims) {
      record({"allocate",
              container,
              grant::CreationTime(claim.nonce),
              arrival.time,
              {{"tessera.resource", claim.resource}},
              {}});
    }
  }
  if (!arrival.first_of_pod || context.pods == nullptr) return;
  const PodInfo* pod = context.pods->Find(request.pod_uid);
  if (pod == nullptr) return;
  record(trace::RootSpan({request.pod_uid, request.pod_namespace, request.pod_name, ""},
                         pod->created, now));
}

}  // namespace

GrantServer::Reply WithSpans(const trace::SpanRecorder& record, const GrantSpansContext& context,
                             const grant::GrantRequest& request, GrantServer::Reply reply) {
  auto arrival = std::make_shared<const RequestArrival>(RequestArrival{
      request, context.clock->WallNow(), !HasGrants(*context.ledger, request.pod_uid)});
  return [record, context, arrival = std::move(arrival),
          reply = std::move(reply)](const Result<grant::Grant>& grant) {
    RecordSpans(record, context, *arrival, grant);
    reply(grant);
  };
}

}  // namespace tessera::agent
