// SPDX-License-Identifier: Apache-2.0
// The ledger's entry of one container: its identity, the shares of GPUs that it holds, and the
// tokens by which it requested them. Used by the ledger (grant_ledger.h) and by its records in the
// journal (ledger_records.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/base/strings.h"
#include "src/base/uid.h"
#include "src/device/assignment.h"
#include "src/device/request.h"
#include "src/grant/token.h"

namespace tessera::agent {

struct ContainerRef {
  Uid pod_uid;
  std::string pod_namespace;
  std::string pod_name;
  std::string container;
  bool operator==(const ContainerRef&) const = default;

  // With --binding=allocate, GPUs may be granted while the owning container is unknown. The UID
  // then identifies the answer of Allocate, not a pod.
  bool owner_known() const { return !pod_name.empty(); }
  std::string PodText() const {
    return owner_known() ? pod_namespace + "/" + pod_name : "(not named by the kubelet yet)";
  }
};

// A token of a container: the IDs of one resource that the kubelet gave it.
struct Claim {
  grant::Nonce nonce;
  std::string resource;
  std::vector<std::string> ids;
  bool operator==(const Claim&) const = default;
};

// The grant of one container.
struct GrantEntry {
  ContainerRef holder;
  device::Phase phase = device::Phase::kMain;
  device::Dialect dialect = device::Dialect::kNvidiaGpu;
  std::vector<device::DeviceShare> shares;
  StringMap env;  // further variables of the container
  std::vector<Claim> claims;
  bool guessed = false;  // Allocate did not know the container for certain
  bool operator==(const GrantEntry&) const = default;
};

}  // namespace tessera::agent
