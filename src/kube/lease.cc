// SPDX-License-Identifier: Apache-2.0
#include "src/kube/lease.h"

#include <utility>

#include "src/kube/times.h"

namespace tessera::kube {
namespace {

Json SpecOf(const LeaseObject& lease) {
  return Json::MakeObject({{"holderIdentity", Json::String(lease.holder)},
                           {"leaseDurationSeconds", Json::Int(lease.duration.count())},
                           {"acquireTime", Json::String(Rfc3339Micros(lease.acquire_time))},
                           {"renewTime", Json::String(Rfc3339Micros(lease.renew_time))},
                           {"leaseTransitions", Json::Int(lease.transitions)}});
}

Client::OnObject Decoded(LeaseApi::Done done) {
  return [done = std::move(done)](Result<Json> answer) {
    if (!answer.ok()) return done(answer.status());
    done(Decode<LeaseObject>(RawObject(*std::move(answer))));
  };
}

}  // namespace

KubeLease::KubeLease(Client& client, std::string ns, std::string name)
    : client_(client), object_{kLeases, std::move(name), std::move(ns), ""} {}

void KubeLease::Get(Done done) { operation_ = client_.Get(object_, Decoded(std::move(done))); }

void KubeLease::Create(const LeaseObject& lease, Done done) {
  Json body = NewObject(object_, "Lease");
  body.Set("spec", SpecOf(lease));
  operation_ = client_.Create(object_, body, Decoded(std::move(done)));
}

void KubeLease::Update(const LeaseObject& lease, Done done) {
  // A merge patch keeps the labels that other clients set. Because it has a version, it conflicts
  // like a replacement.
  const Json patch = Json::MakeObject(
      {{"metadata",
        Json::MakeObject({{"resourceVersion", Json::String(lease.meta.resource_version)}})},
       {"spec", SpecOf(lease)}});
  operation_ = client_.Patch(object_, PatchKind::kMerge, patch, {}, Decoded(std::move(done)));
}

}  // namespace tessera::kube
