// SPDX-License-Identifier: Apache-2.0
#include "src/operator/cluster_policy_reader.h"

#include <utility>

namespace tessera::operators {
namespace {

constexpr kube::ResourceType kClusterPolicies{"nvidia.com", "v1", "clusterpolicies", false};

std::string NameOfFirst(const kube::ListPage& page) {
  const Json* object = page.items.empty() ? nullptr : page.items.front().json();
  return object == nullptr ? "" : TextAt(*object, {"metadata", "name"});
}

}  // namespace

ClusterPolicyReader::ClusterPolicyReader(kube::Client& client, Duration interval,
                                         std::function<void()> on_read)
    : client_(client), interval_(interval), on_read_(std::move(on_read)) {
  Read();
}

void ClusterPolicyReader::Read() {
  read_ = client_.List({.type = kClusterPolicies, .limit = 1, .metadata_only = true},
                       [this](const Result<kube::ListPage>& page) {
                         const bool no_definition = page.status().code() == Code::kNotFound;
                         error_ = no_definition ? Status::Ok() : page.status();
                         known_ |= error_.ok();
                         if (page.ok()) name_ = NameOfFirst(*page);
                         if (no_definition) name_.clear();
                         client_.runner().PostDelayed(interval_, [this, weak = weak_.Get()] {
                           if (weak) Read();
                         });
                         on_read_();
                       });
}

}  // namespace tessera::operators
