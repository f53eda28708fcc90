// SPDX-License-Identifier: Apache-2.0
#include "src/agent/exporter/xid_events.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/names.h"
#include "src/gpu/xid.h"

namespace tessera::agent {
namespace {

std::string XidMessage(const std::string& container, const std::string& uuid, size_t others,
                       uint64_t code) {
  const gpu::XidInfo* info = gpu::FindXid(code);
  const bool has_action = info != nullptr && info->action != gpu::XidAction::kNone;
  return fmt::format(
      "{} of container {} reported {}{}{}", uuid, container, gpu::DescribeXid(code),
      has_action ? fmt::format("; to do: {}", gpu::XidActionName(info->action)) : "",
      others == 0 ? ""
                  : fmt::format(" ({} containers share this GPU, and any of them may be the cause)",
                                others + 1));
}

}  // namespace

std::vector<ContainerEvent> XidEvents::OnXid(const Holdings& holdings, const std::string& uuid,
                                             uint64_t code, MonotonicTime now) {
  std::erase_if(recorded_at_,
                [now](const auto& record) { return now - record.second >= kMinInterval; });
  std::vector<const ContainerRef*> holders;
  for (const HeldContainer& held : holdings.containers) {
    const bool holds = std::ranges::count(held.shares, uuid, &device::DeviceShare::uuid) != 0;
    if (holds) holders.push_back(&held.holder);
  }
  std::vector<ContainerEvent> events;
  for (const ContainerRef* holder : holders) {
    if (!holder->owner_known()) continue;
    const bool is_new =
        recorded_at_.try_emplace({holder->pod_uid, holder->container, uuid, code}, now).second;
    if (!is_new) continue;
    events.push_back(
        {.holder = *holder,
         .event = {.warning = true,
                   .reason = names::kReasonXid,
                   .message = XidMessage(holder->container, uuid, holders.size() - 1, code)}});
  }
  return events;
}

}  // namespace tessera::agent
