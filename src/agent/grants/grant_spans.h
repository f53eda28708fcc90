// SPDX-License-Identifier: Apache-2.0
// The spans of a container's start that the agent can see (src/trace/span.h):
//
//   allocate   from the kubelet's Allocate until the runtime requests the grant: volumes, images,
//              sandbox
//   grant      from the request until the answer; waits of start_waits.h included
//   pod        from the pod's creation until its first grant; the parent of the other spans
//
// A request without tokens has no "allocate". What runc does after the grant is in the traces of
// the container engine. Threads: the grants' thread.
#pragma once

#include "src/agent/grants/grant_ledger.h"
#include "src/agent/grants/grant_server.h"
#include "src/agent/pods/pods.h"
#include "src/base/clock.h"
#include "src/grant/message.h"
#include "src/grant/token.h"
#include "src/trace/span.h"

namespace tessera::agent {

struct GrantSpansContext {
  const Clock* clock;
  const grant::TokenSigner* signer;
  const GrantLedger* ledger;
  const Pods* pods;  // may be null
};

// Returns a reply that records the spans of the request and then calls `reply`. REQUIRES: `record`
// is not null; the context outlives the reply.
GrantServer::Reply WithSpans(const trace::SpanRecorder& record, const GrantSpansContext& context,
                             const grant::GrantRequest& request, GrantServer::Reply reply);

}  // namespace tessera::agent
