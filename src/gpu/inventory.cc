// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/inventory.h"

#include <algorithm>
#include <utility>

#include "src/base/log.h"
#include "src/gpu/driver_files.h"
#include "src/gpu/inventory_impl.h"

namespace tessera::gpu {
namespace {

constexpr Duration kLibraryMissingRetry = std::chrono::seconds(2);
// While a GPU is lost, the session is reopened at most this often.
constexpr Duration kLostGpuReopenInterval = std::chrono::seconds(60);
// An attempt to open a session that hangs is retried at this interval, while fewer than
// kMaxStuckOpens attempts hang.
constexpr Duration kStuckOpenRetry = std::chrono::seconds(30);
constexpr int kMaxStuckOpens = 3;

struct DriverReport {
  std::string fingerprint;
  Result<int> count = Status(Code::kInternal, "not called");
};

HealthRules RulesOf(const InventoryOptions& options) {
  return {.failed_probe_is_unhealthy = options.xids.checks_health(),
          .recovery_action_is_unhealthy = options.xids.watches_xids(),
          .xid_quiet = options.xid_quiet,
          .good_polls_after_xid = options.good_polls_after_xid};
}

// Ends the session of `nvml`, so that the next Init starts a new one: NVML counts Inits, and only
// the last Shutdown ends the session.
void CloseSession(Nvml& nvml, NvmlEventSet set, NvmlCalls* calls) {
  if (set != nullptr) {
    (void)calls->Call(nvml, NvmlCall::kEventSetFree, &Nvml::EventSetFree, set);
  }
  (void)calls->Call(nvml, NvmlCall::kShutdown, &Nvml::Shutdown);
}

}  // namespace

Inventory::Impl::Impl(TaskRunner* runner, std::shared_ptr<NvmlLoader> loader,
                      BlockingCaller* caller, InventoryOptions options, OnChange on_change)
    : runner_(runner),
      loader_(std::move(loader)),
      options_(std::move(options)),
      on_change_(std::move(on_change)),
      jobs_(caller, &stats_, [this] { OnJobEnded(); }),
      unrepaired_xid_file_(options_.xid_file, BootId()),
      table_(RulesOf(options_), unrepaired_xid_file_.xids()) {}

void Inventory::Impl::Start() {
  Open();
  Tick();
}

void Inventory::Impl::PollNow() {
  if (phase_ == SessionPhase::kClosed || phase_ == SessionPhase::kClosing) return Open();
  if (phase_ != SessionPhase::kOpen) return;
  CheckDriver();
  for (int index = 0; index < table_.size(); ++index) Probe(index);
}

// In phase kClosing, no call of the old session is running, and Open closes it first. In another
// phase, Open abandons the old session together with its hanging calls.
void Inventory::Impl::Open() {
  const bool close = phase_ == SessionPhase::kClosing;
  phase_ = SessionPhase::kOpening;
  jobs_.NextSession();
  const NvmlEventSet set = listener_ != nullptr ? listener_->event_set() : nullptr;
  listener_.reset();
  jobs_.Start<SessionReport>(
      "nvml-init", options_.init_deadline,
      [loader = loader_, nvml = std::move(nvml_), set, close, fingerprint = fingerprint_,
       root = DriverRoot(), proc = options_.proc_root](NvmlCalls* calls, SessionReport* report) {
        report->library_fingerprint = loader->Fingerprint();
        if (nvml != nullptr && close) CloseSession(*nvml, set, calls);
        if (nvml != nullptr && report->library_fingerprint == fingerprint) {
          report->nvml = nvml;
        } else {
          Result<std::shared_ptr<Nvml>> loaded = loader->Load();
          report->status = loaded.status();
          if (!loaded.ok()) return;
          report->nvml = *std::move(loaded);
        }
        OpenSession(ProcRootOf(root, proc), calls, report);
      },
      [this](SessionReport& report, JobRunner::AnswerState state) {
        if (state.late) --opens_stuck_;
        if (state.current) OnOpened(report);
      },
      [this](NvmlCall call, JobRunner::AnswerState) {
        ++opens_stuck_;
        OnOpenFailed(fmt::format("NVML call {} did not return", NvmlCallName(call)));
        RetryOpenAfter(kStuckOpenRetry);
      });
  nvml_ = nullptr;
}

void Inventory::Impl::OnOpened(SessionReport& report) {
  // Keeps the library even after a failure, so that the next attempt need not load it again.
  nvml_ = report.nvml;
  fingerprint_ = report.library_fingerprint;
  library_missing_ = false;
  if (!report.status.ok()) {
    OnOpenFailed(report.status.message());
    open_backoff_ = NextWait(open_backoff_, options_.retry_min, options_.retry_max);
    RetryOpenAfter(open_backoff_);
    return;
  }
  phase_ = SessionPhase::kOpen;
  session_started_ = runner_->clock().Now();
  open_backoff_ = Duration::zero();
  ++stats_.driver_loads;
  driver_version_ = report.driver_version;
  cuda_version_ = report.cuda_version;
  notes_ = report.notes;
  problem_ = report.count == 0 ? "the driver reports no GPU" : "";
  forget_absent_ = true;
  table_.Resize(report.count, std::move(report.proc_gpus));
  if (report.count == 0) return OnNoGpus();
  StartListener();
  IdentifyAll();
}

// NVML counts GPUs once, in Init; device nodes created later are only seen by a new session.
void Inventory::Impl::OnNoGpus() {
  queries_.clear();
  Publish();
  phase_ = SessionPhase::kClosing;
  PostInSession(options_.retry_max, [this] { Open(); });
}

void Inventory::Impl::OnOpenFailed(const std::string& problem) {
  if (problem_ != problem) {
    Log(Severity::kWarning, "cannot open a session with the NVIDIA driver", {{"reason", problem}});
  }
  phase_ = SessionPhase::kClosed;
  problem_ = problem;
  driver_version_.clear();
  cuda_version_ = 0;
  notes_.clear();
  queries_.clear();
  const Status status = Error(Code::kUnavailable, "{}", problem);
  for (auto& [uuid, record] : table_.records()) {
    record.health.OnAnswer(status, std::nullopt, runner_->clock().Now());
  }
}

void Inventory::Impl::RetryOpenAfter(Duration delay) {
  PostInSession(delay, [this] {
    if (phase_ != SessionPhase::kClosed) return;
    if (opens_stuck_ >= kMaxStuckOpens) return RetryOpenAfter(kStuckOpenRetry);
    Open();
  });
}

void Inventory::Impl::OnSessionBroken(ReopenReason reason) {
  if (phase_ != SessionPhase::kOpen) return;
  last_reopen_ = runner_->clock().Now();
  if (reason != ReopenReason::kGpuLost) {
    Log(Severity::kWarning, reason == ReopenReason::kDriverReplaced
                                ? "driver was replaced, reloading it"
                                : "session with the driver ended, opening a new one");
    for (auto& [uuid, record] : table_.records()) {
      record.health.OnDriverReloaded();
      record.links.reset();
    }
  }
  if (reason == ReopenReason::kDriverReplaced) return Open();
  // Queries may still be running: OnJobEnded opens the session when all have returned.
  phase_ = SessionPhase::kDraining;
  if (listener_ != nullptr) listener_->Stop();
}

void Inventory::Impl::StartListener() {
  if (!options_.xids.watches_xids()) return;
  XidListener::Hooks hooks;
  hooks.on_event = [this](const XidEvent& event) { OnXid(event); };
  hooks.on_watched = [this](NvmlDevice device, const Status& status) {
    GpuTable::GpuRecord* record = table_.FindByHandle(device);
    if (record == nullptr) return;
    const bool events_unsupported = status.code() == Code::kUnimplemented;
    record->health.OnEventsWatched(events_unsupported ? Status::Ok() : status);
    if (!status.ok() && !events_unsupported) ArmRetry(record->gpu.index, options_.retry_max);
  };
  hooks.on_hang = [this](NvmlDevice device, NvmlCall call) {
    if (GpuTable::GpuRecord* record = table_.FindByHandle(device)) {
      record->health.OnEventsWatched(
          Error(Code::kDeadlineExceeded, "NVML call {} did not return", NvmlCallName(call)));
    }
  };
  hooks.on_wait_failed = [this] { PollNow(); };
  listener_ = std::make_unique<XidListener>(runner_, &jobs_, nvml_, options_, std::move(hooks));
}

void Inventory::Impl::Tick() {
  runner_->PostDelayed(options_.poll_interval, [this, weak = weak_.Get()] {
    if (weak) Tick();
  });
  if (phase_ != SessionPhase::kOpen) return;
  PollNow();
  ReopenForLostGpus();
  for (int index = 0; index < table_.size(); ++index) {
    const GpuTable::GpuRecord* record = table_.At(index);
    if (record != nullptr && record->links && !record->links->problem.empty()) QueryLinks(index);
  }
}

void Inventory::Impl::CheckDriver() {
  if (checking_driver_ || phase_ != SessionPhase::kOpen) return;
  checking_driver_ = true;
  jobs_.Start<DriverReport>(
      "nvml-count", options_.call_deadline,
      [loader = loader_, nvml = nvml_](NvmlCalls* calls, DriverReport* report) {
        report->fingerprint = loader->Fingerprint();
        report->count = calls->Call(*nvml, NvmlCall::kDeviceCount, &Nvml::DeviceCount);
      },
      [this](DriverReport& report, JobRunner::AnswerState state) {
        checking_driver_ = false;
        if (!state.current) return;
        if (report.fingerprint.empty()) {
          // A loaded library keeps answering after its file was removed. The file is also missing
          // for a moment while a driver is replaced, so only a second check counts.
          if (library_missing_) return OnSessionBroken(ReopenReason::kSessionDied);
          library_missing_ = true;
          return PostInSession(kLibraryMissingRetry, [this] { CheckDriver(); });
        }
        library_missing_ = false;
        if (report.fingerprint != fingerprint_)
          return OnSessionBroken(ReopenReason::kDriverReplaced);
        if (report.count.status().code() == Code::kFailedPrecondition) {
          return OnSessionBroken(ReopenReason::kSessionDied);
        }
        if (!report.count.ok() || *report.count == table_.size() || phase_ != SessionPhase::kOpen)
          return;
        problem_ = *report.count == 0 ? "the driver reports no GPU" : "";
        table_.Resize(*report.count, {});
        IdentifyAll();
      },
      [](NvmlCall, JobRunner::AnswerState) {});
}

void Inventory::Impl::ReopenForLostGpus() {
  if (stats_.calls_stuck > 0 || phase_ != SessionPhase::kOpen) return;
  if (runner_->clock().Now() - last_reopen_ < kLostGpuReopenInterval) return;
  const bool some_lost = std::ranges::any_of(queries_, [](const GpuQueryState& query_state) {
    return query_state.answered && !query_state.last_ok;
  });
  if (some_lost) OnSessionBroken(ReopenReason::kGpuLost);
}

// Identifies all GPUs. Publishes nothing until all have answered or first_snapshot_within has
// passed.
void Inventory::Impl::IdentifyAll() {
  // Late answers to earlier queries must not be assigned to the new order of GPUs.
  jobs_.NextSession();
  checking_driver_ = false;
  queries_.assign(table_.size(), {});
  publish_incomplete_ = false;
  links_started_ = false;
  PostInSession(options_.first_snapshot_within / 2, [this] { StartLinks(); });
  PostInSession(options_.first_snapshot_within, [this] {
    publish_incomplete_ = true;
    OnJobEnded();
  });
  for (int index = 0; index < table_.size(); ++index) Identify(index);
}

void Inventory::Impl::OnDrained() {
  // A session with a hanging call cannot be closed, so it stays in use.
  if (stats_.calls_stuck > 0) {
    phase_ = SessionPhase::kOpen;
    StartListener();
    return IdentifyAll();
  }
  // Waits before the next Open if this session was short, so that sessions that die at once do not
  // follow each other without a pause.
  phase_ = SessionPhase::kClosing;
  jobs_.NextSession();
  const bool session_was_short = session_started_ + options_.retry_max > runner_->clock().Now();
  PostInSession(session_was_short ? options_.retry_max : Duration::zero(), [this] { Open(); });
}

bool Inventory::Impl::ReadyToPublish() const {
  if (phase_ == SessionPhase::kClosed) return true;
  if (phase_ == SessionPhase::kOpening || phase_ == SessionPhase::kClosing) return false;
  if (publish_incomplete_) return true;
  return links_started_ && std::ranges::all_of(queries_, [](const GpuQueryState& query_state) {
           return query_state.answered && !query_state.links_busy;
         });
}

void Inventory::Impl::OnJobEnded() {
  if (phase_ == SessionPhase::kDraining && jobs_.in_flight() == 0) return OnDrained();
  if (phase_ == SessionPhase::kOpen && std::ranges::all_of(queries_, &GpuQueryState::answered)) {
    if (forget_absent_ && table_.all_identified()) {
      table_.ForgetAbsent();
      forget_absent_ = false;
    }
    StartLinks();
  }
  if (ReadyToPublish()) Publish();
}

void Inventory::Impl::Publish() {
  unrepaired_xid_file_.Save(table_.unrepaired());
  auto next = std::make_shared<device::NodeInventory>();
  next->driver_version = driver_version_;
  next->cuda_version = cuda_version_;
  next->problem = problem_;
  next->notes = notes_;
  if (listener_ != nullptr && !listener_->problem().empty()) {
    next->notes.push_back("cannot watch XIDs: " + listener_->problem());
  }
  table_.FillInventory(next.get());
  if (snapshot_ != nullptr && *snapshot_ == *next) return;
  snapshot_ = std::move(next);
  on_change_(snapshot_);
}

void Inventory::Impl::PostInSession(Duration delay, std::function<void()> task) {
  runner_->PostDelayed(
      delay, [this, weak = weak_.Get(), session = jobs_.session(), task = std::move(task)] {
        if (weak && session == jobs_.session()) task();
      });
}

Inventory::Inventory(TaskRunner* runner, std::shared_ptr<NvmlLoader> loader, BlockingCaller* caller,
                     InventoryOptions options, OnChange on_change)
    : impl_(std::make_unique<Impl>(runner, std::move(loader), caller, std::move(options),
                                   std::move(on_change))) {}

Inventory::~Inventory() = default;

void Inventory::Start() { impl_->Start(); }
void Inventory::PollNow() { impl_->PollNow(); }
InventorySnapshot Inventory::snapshot() const { return impl_->snapshot(); }
const InventoryStats& Inventory::stats() const { return impl_->stats(); }

}  // namespace tessera::gpu
