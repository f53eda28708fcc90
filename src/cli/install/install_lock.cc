// SPDX-License-Identifier: Apache-2.0
#include "src/cli/install/install_lock.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "src/cli/output/text.h"
#include "src/formats/json.h"
#include "src/kube/objects.h"
#include "src/kube/raw_object.h"
#include "src/kube/times.h"

namespace tessera::cli {
namespace {

kube::ObjectRef LeaseRef() { return {kube::kLeases, "tessera-installation", "kube-system", ""}; }

// "tessera install by root@host, process 17"
std::string HolderOf(const std::string& command) {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  const char* user = std::getenv("USER");
  return fmt::format("{} by {}@{}, process {}", command,
                     user == nullptr ? fmt::format("uid-{}", geteuid()) : user, host.data(),
                     getpid());
}

Json SpecOf(const std::string& holder, WallTime now) {
  const Json time = Json::String(kube::Rfc3339Micros(now));
  return Json::MakeObject({{"holderIdentity", Json::String(holder)},
                           {"leaseDurationSeconds", Json::Int(InstallLock::kDuration.count())},
                           {"acquireTime", time},
                           {"renewTime", time}});
}

Status LockedBy(const std::string& holder, Duration until_expiry) {
  return Error(Code::kFailedPrecondition,
               "another command changes the installation: {}: wait until it has ended; if it was "
               "killed, its lock, Lease kube-system/tessera-installation, expires in {} s",
               Printable(holder), std::chrono::ceil<std::chrono::seconds>(until_expiry).count());
}

}  // namespace

Status InstallLock::Acquire(const std::string& command) {
  const std::string holder = HolderOf(command);
  const WallTime now = api_.WallNow();
  Json lease = kube::NewObject(LeaseRef(), "Lease");
  lease.Set("spec", SpecOf(holder, now));
  Status locked = api_.Create(LeaseRef(), lease).status();
  if (locked.code() == Code::kAlreadyExists) {
    ASSIGN_OR_RETURN(const Json lease_of_other, api_.Get(LeaseRef()));
    ASSIGN_OR_RETURN(const kube::LeaseObject held,
                     kube::Decode<kube::LeaseObject>(kube::RawObject(lease_of_other)));
    const Duration until_expiry = held.renew_time + held.duration - now;
    if (until_expiry > 2 * kDuration) {
      return Error(
          Code::kFailedPrecondition,
          "Lease kube-system/tessera-installation of {} was renewed in the future: set the "
          "clocks of both machines, or delete the Lease if that command has ended",
          Printable(held.holder));
    }
    if (until_expiry > Duration::zero()) return LockedBy(held.holder, until_expiry);
    const Json version = Json::String(held.meta.resource_version);
    locked =
        api_.Patch(LeaseRef(), kube::PatchKind::kMerge,
                   Json::MakeObject({{"metadata", Json::MakeObject({{"resourceVersion", version}})},
                                     {"spec", SpecOf(holder, now)}}));
    if (locked.code() == Code::kAborted)
      return LockedBy("a command that has just begun", kDuration);
  }
  RETURN_IF_ERROR(locked.Annotate("cannot lock the installation"));
  holder_ = holder;
  renewed_at_ = api_.Now();
  return Status::Ok();
}

Status InstallLock::Renew() {
  if (holder_.empty() || api_.Now() - renewed_at_ < renew_interval_) return Status::Ok();
  ASSIGN_OR_RETURN(const Json lease, api_.Get(LeaseRef()));
  const std::string holder = TextAt(lease, {"spec", "holderIdentity"});
  if (holder != holder_) {
    holder_.clear();
    return Error(Code::kAborted,
                 "another command has taken over the installation: {}: run this command again when "
                 "it has ended",
                 Printable(holder));
  }
  const Json version = Json::String(TextAt(lease, {"metadata", "resourceVersion"}));
  const Json time = Json::String(kube::Rfc3339Micros(api_.WallNow()));
  RETURN_IF_ERROR(
      api_.Patch(LeaseRef(), kube::PatchKind::kMerge,
                 Json::MakeObject({{"metadata", Json::MakeObject({{"resourceVersion", version}})},
                                   {"spec", Json::MakeObject({{"renewTime", time}})}})));
  renewed_at_ = api_.Now();
  return Status::Ok();
}

void InstallLock::Release() {
  const std::string holder = std::exchange(holder_, "");
  if (holder.empty()) return;
  const Result<Json> lease = api_.Get(LeaseRef());
  // Another command may have taken the Lease.
  if (!lease.ok() || TextAt(*lease, {"spec", "holderIdentity"}) != holder) return;
  // If this fails, the Lease expires.
  (void)api_.Delete(LeaseRef());
}

}  // namespace tessera::cli
