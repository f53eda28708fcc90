// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grant_service.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <utility>

#include "api/names.h"
#include "src/agent/allocation.h"
#include "src/base/log.h"

namespace tessera::agent {
namespace {

bool IsListed(const PodDevices& pods, const ContainerRef& pod) {
  return std::find(pods.pods.begin(), pods.pods.end(),
                   std::pair(pod.pod_namespace, pod.pod_name)) != pods.pods.end();
}

// Whether the kubelet says that this pod has the device.
bool Holds(const PodDevices& pods, const ContainerRef& pod, const std::string& resource,
           const std::string& id) {
  return std::any_of(pods.held.begin(), pods.held.end(), [&](const HeldDevices& held) {
    return held.pod_namespace == pod.pod_namespace && held.pod_name == pod.pod_name &&
           held.resource == resource &&
           std::find(held.ids.begin(), held.ids.end(), id) != held.ids.end();
  });
}

}  // namespace

GrantService::GrantService(TaskRunner* runner, GrantOptions options, const DeviceSetHolder* devices,
                           const grant::TokenSealer* sealer, GrantLedger* ledger,
                           PodResources* pods)
    : runner_(runner),
      options_(std::move(options)),
      devices_(devices),
      sealer_(sealer),
      ledger_(ledger),
      pods_(pods),
      self_(std::make_shared<GrantService*>(this)) {
  PruneLater();
}

GrantService::~GrantService() = default;

void GrantService::Handle(const grant::Request& request, Reply reply) {
  if (request.kind == grant::Request::Kind::kPing) {
    grant::Grant pong;
    pong.agent_version = options_.version;
    return reply(std::move(pong));
  }
  const ContainerRef who{request.pod_uid, request.pod_namespace, request.pod_name,
                         request.container};
  Result<std::vector<Claim>> claims = OpenTokens(request);
  if (!claims.ok()) return reply(claims.status());
  for (const Claim& claim : *claims) {
    const Status status = ledger_->Check(claim.nonce, who, runner_->clock().WallNow());
    if (!status.ok()) return reply(status);
  }
  // Before anything is taken: an ill GPU is refused, and taken by nobody.
  const Result<grant::Grant> description = Describe(*claims);
  if (!description.ok()) return reply(description.status());
  if (ConflictsOf(*claims, who).empty()) return reply(Bind(*claims, who));
  ListPods([this, claims = std::move(*claims), who,
            reply = std::move(reply)](const Result<PodDevices>& pods) {
    const Status status = Resolve(ConflictsOf(claims, who), who, pods);
    reply(status.ok() ? Bind(claims, who) : Result<grant::Grant>(status));
  });
}

Result<std::vector<GrantService::Claim>> GrantService::OpenTokens(
    const grant::Request& request) const {
  const std::string variable = grant::TokenVariable(options_.resource);
  std::vector<Claim> claims;
  for (const grant::Token& token : request.tokens) {
    if (token.variable != variable) {
      return Error(Code::kInvalidArgument,
                   "{} names no resource of this node: tokens are given by Allocate, not written "
                   "into pods",
                   token.variable);
    }
    if (!claims.empty()) {
      return Error(Code::kInvalidArgument, "{} is set twice in the container", variable);
    }
    ASSIGN_OR_RETURN(grant::TokenContent content,
                     sealer_->Open(options_.resource, token.value).Annotate(variable));
    claims.push_back({content.nonce, std::move(content.ids)});
  }
  return claims;
}

Result<grant::GrantedDevice> GrantService::DescribeDevice(const DeviceSet& set,
                                                          const std::string& id) const {
  const device::Gpu* gpu = set.Find(id);
  if (gpu == nullptr) {
    const std::string& problem = set.inventory().problem;
    return Error(Code::kNotFound, "GPU {} is not on this node any more{}{}", id,
                 problem.empty() ? "" : ": ", problem);
  }
  if (!gpu->health.ok() || !gpu->minor) {
    return Error(Code::kUnavailable, "GPU {} is unhealthy: {}", id,
                 gpu->health.ok() ? "its device node is not known" : gpu->health.reason);
  }
  grant::GrantedDevice device;
  device.uuid = id;
  device.minor = *gpu->minor;
  device.path = DevicePath("/", *gpu->minor);
  device.host_path = DevicePath(options_.dev_root, *gpu->minor);
  struct stat info;
  const std::string seen_here = DevicePath(options_.dev_root_ctr_path, *gpu->minor);
  if (::stat(seen_here.c_str(), &info) == 0 && S_ISCHR(info.st_mode)) {
    device.major_number = major(info.st_rdev);
    device.minor_number = minor(info.st_rdev);
  }
  return device;
}

Result<grant::Grant> GrantService::Describe(const std::vector<Claim>& claims) const {
  const auto set = devices_->Get();
  if (set == nullptr) return Status(Code::kUnavailable, "the GPUs of this node are not known yet");
  grant::Grant grant;
  std::string visible;
  for (const Claim& claim : claims) {
    for (const std::string& id : claim.ids) {
      ASSIGN_OR_RETURN(grant::GrantedDevice device, DescribeDevice(*set, id));
      if (!visible.empty()) visible += ',';
      visible += id;
      grant.devices.push_back(std::move(device));
    }
  }
  grant.env[std::string(names::kEnvVisibleDevices)] = visible.empty() ? "void" : visible;
  grant.driver_root = options_.driver_root;
  grant.dev_root = options_.dev_root;
  grant.agent_version = options_.version;
  return grant;
}

std::vector<GrantLedger::Conflict> GrantService::ConflictsOf(const std::vector<Claim>& claims,
                                                             const ContainerRef& who) const {
  std::vector<GrantLedger::Conflict> all;
  for (const Claim& claim : claims) {
    for (auto& conflict : ledger_->ConflictsOf(options_.resource, claim.ids, who.pod_uid)) {
      all.push_back(std::move(conflict));
    }
  }
  return all;
}

Status GrantService::Resolve(const std::vector<GrantLedger::Conflict>& conflicts,
                             const ContainerRef& who, const Result<PodDevices>& pods) {
  for (const GrantLedger::Conflict& conflict : conflicts) {
    const std::string held = conflict.id + " is still held by container " +
                             conflict.holder.container + " of pod " + conflict.holder.PodText();
    if (!pods.ok()) {
      return Error(Code::kUnavailable,
                   "{}, and the kubelet could not be asked whether it lives: {}", held,
                   pods.status().message());
    }
    // A kubelet that has just started lists nobody. Who asks is certainly there.
    if (!IsListed(*pods, who)) {
      return Error(Code::kUnavailable, "{}, and the kubelet does not list pod {} yet", held,
                   who.PodText());
    }
    // A pod of the same name as the one that asks is its dead predecessor.
    const bool same_name = conflict.holder.PodText() == who.PodText();
    if (!same_name && Holds(*pods, conflict.holder, options_.resource, conflict.id)) {
      return Status(Code::kFailedPrecondition, held + ", which lives");
    }
    RETURN_IF_ERROR(ledger_->Release(conflict.nonce));
    Log(Severity::kInfo, "released the GPUs of a pod that is gone",
        {{"pod", conflict.holder.PodText()}, {"uid", conflict.holder.pod_uid}});
  }
  return Status::Ok();
}

Result<grant::Grant> GrantService::Bind(const std::vector<Claim>& claims, const ContainerRef& who) {
  for (const Claim& claim : claims) {
    RETURN_IF_ERROR(
        ledger_->Bind(claim.nonce, options_.resource, claim.ids, who, runner_->clock().WallNow()));
  }
  PruneLater();
  return Describe(claims);
}

void GrantService::ListPods(PodsDone done) {
  waiting_.push_back(std::move(done));
  if (!listing_) StartList();
}

void GrantService::StartList() {
  listing_ = true;
  auto served = std::make_shared<std::vector<PodsDone>>(std::move(waiting_));
  waiting_.clear();
  pods_->List(
      [this, served, weak = std::weak_ptr<GrantService*>(self_)](const Result<PodDevices>& pods) {
        if (weak.expired()) return;
        listing_ = false;
        for (const PodsDone& done : *served) done(pods);
        if (!waiting_.empty() && !listing_) StartList();
      });
}

void GrantService::PruneLater() {
  if (prune_planned_ || (ledger_->entries().empty() && ledger_->spent() == 0)) return;
  prune_planned_ = true;
  runner_->PostDelayed(kPruneInterval, [this, weak = std::weak_ptr<GrantService*>(self_)] {
    if (weak.expired()) return;
    prune_planned_ = false;
    const Status tidied = ledger_->Tidy(runner_->clock().WallNow());
    if (!tidied.ok()) Log(Severity::kError, tidied.message());
    if (ledger_->entries().empty()) return;
    ListPods([this](const Result<PodDevices>& pods) { Prune(pods); });
  });
}

void GrantService::Prune(const Result<PodDevices>& pods) {
  std::set<grant::Nonce> missing;
  if (pods.ok()) {
    for (const auto& [nonce, entry] : ledger_->entries()) {
      if (!IsListed(*pods, entry.holder)) missing.insert(nonce);
    }
    // Twice in a row: a kubelet that has just started lists nobody.
    for (const grant::Nonce& nonce : missing) {
      if (missing_.count(nonce) == 0) continue;
      const Status status = ledger_->Release(nonce);
      if (!status.ok()) Log(Severity::kError, status.message());
    }
  }
  missing_ = std::move(missing);
  PruneLater();
}

}  // namespace tessera::agent
