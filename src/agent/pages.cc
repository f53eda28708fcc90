// SPDX-License-Identifier: Apache-2.0
#include "src/agent/pages.h"

#include <unistd.h>

#include <array>
#include <utility>

#include "src/base/log.h"

namespace tessera::agent {
namespace {

std::string HostName() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

Status Pages::Start(net::IoThread* io, const AgentOptions& options) {
  if (!options.metrics_address.empty()) {
    RETURN_IF_ERROR(MakeExporter(options));
    ASSIGN_OR_RETURN(status_page_,
                     StartStatusPage(
                         io, runner_, options.metrics_address, [this] { return CurrentStatus(); },
                         sources_.post_to_grants));
  }
  if (!options.manager_address.empty()) StartManagerPage(io, options);
  return Status::Ok();
}

Status Pages::MakeExporter(const AgentOptions& options) {
  if (options.collect_interval == Duration::zero()) return Status::Ok();
  ASSIGN_OR_RETURN(CounterSpecs counters, LoadCounters(options.collectors));
  PageOptions page;
  page.counters = std::make_shared<const CounterSpecs>(std::move(counters));
  page.style = options.metric_labels;
  page.hostname = options.node_name.empty() ? HostName() : options.node_name;
  page.exports_xids = options.xids.watches_xids();
  page.xid_window = options.xid_window;
  exporter_ = std::make_unique<Exporter>(
      runner_, std::move(page), options.collect_interval,
      Exporter::Sources{sources_.make_loader(), sources_.caller, sources_.holdings});
  return Status::Ok();
}

void Pages::StartManagerPage(net::IoThread* io, const AgentOptions& options) {
  auto page = ManagerPage::Start(io, runner_, options.manager_address, options.node_name,
                                 {.devices = sources_.devices,
                                  .loader = sources_.make_loader(),
                                  .caller = sources_.caller,
                                  .holdings = sources_.holdings});
  if (!page.ok()) {
    Log(Severity::kError, "cannot serve gpu-manager's metrics page",
        {{"error", page.status().ToString()}});
    return;
  }
  manager_page_ = *std::move(page);
}

void Pages::StartSampling() {
  if (exporter_) exporter_->Start();
}

void Pages::OnXid(const std::string& uuid, uint64_t code) {
  if (exporter_) exporter_->OnXid(uuid, code);
}

void Pages::SetContainerUses(std::shared_ptr<const ContainerUses> uses) {
  container_uses_ = uses;
  if (exporter_) exporter_->SetContainerUses(std::move(uses));
}

void Pages::RefreshDriver() {
  if (manager_page_) manager_page_->RefreshDriver();
  if (exporter_) exporter_->RefreshDriver();
}

AgentStatus Pages::CurrentStatus() const {
  AgentStatus status = sources_.status();
  status.container_uses = container_uses_;
  status.exporter = exporter_.get();
  return status;
}

}  // namespace tessera::agent
