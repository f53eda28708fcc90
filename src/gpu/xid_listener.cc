// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/xid_listener.h"

#include <algorithm>
#include <utility>

namespace tessera::gpu {
namespace {

constexpr char kThreadName[] = "nvml-events";
// Maximum number of threads that hang in the driver.
constexpr int kMaxAbandonedCalls = 3;

struct SetReport {
  Result<NvmlEventSet> set = Status(Code::kInternal, "not called");
};
struct WaitReport {
  Result<XidEvent> event = Status(Code::kInternal, "not called");
};

}  // namespace

XidListener::XidListener(TaskRunner* runner, JobRunner* jobs, std::shared_ptr<Nvml> nvml,
                         const InventoryOptions& options, Hooks hooks)
    : runner_(runner),
      jobs_(jobs),
      nvml_(std::move(nvml)),
      options_(options),
      hooks_(std::move(hooks)) {}

void XidListener::Watch(NvmlDevice device) {
  const auto has = [&](const std::vector<NvmlDevice>& list) {
    return std::ranges::find(list, device) != list.end();
  };
  if (has(pending_devices_) || has(registered_devices_) || has(hung_devices_)) return;
  pending_devices_.push_back(device);
  Continue();
}

void XidListener::Continue() {
  if (busy_ || stopped_ || abandoned_calls_ >= kMaxAbandonedCalls) return;
  if (event_set_ == nullptr) return pending_devices_.empty() ? void() : CreateSet();
  if (!pending_devices_.empty()) return RegisterNext();
  if (!registered_devices_.empty()) Wait();
}

void XidListener::ContinueAfter(Duration delay) {
  busy_ = true;
  runner_->PostDelayed(delay, [this, weak = weak_.Get()] {
    if (!weak) return;
    busy_ = false;
    Continue();
  });
}

void XidListener::CreateSet() {
  busy_ = true;
  jobs_->Start<SetReport>(
      kThreadName, options_.call_deadline,
      [nvml = nvml_](NvmlCalls* calls, SetReport* report) {
        report->set = calls->Call(*nvml, NvmlCall::kEventSetCreate, &Nvml::EventSetCreate);
      },
      [this, weak = weak_.Get()](SetReport& report, JobRunner::AnswerState state) {
        if (!weak) return;
        if (state.late) {
          --abandoned_calls_;
          return Continue();
        }
        busy_ = false;
        if (report.set.ok()) {
          event_set_ = *report.set;
          problem_.clear();
          return Continue();
        }
        if (report.set.status().code() == Code::kUnimplemented) {
          stopped_ = true;  // the driver has no events
          return;
        }
        problem_ = report.set.status().message();
        ContinueAfterError();
      },
      [this, weak = weak_.Get()](NvmlCall call, JobRunner::AnswerState) {
        if (!weak) return;
        ++abandoned_calls_;
        AbandonSetAfter(call);
      });
}

void XidListener::RegisterNext() {
  busy_ = true;
  const NvmlDevice device = pending_devices_.back();
  pending_devices_.pop_back();
  jobs_->Start<Status>(
      kThreadName, options_.call_deadline,
      [nvml = nvml_, set = event_set_, device](NvmlCalls* calls, Status* status) {
        *status =
            calls->Call(*nvml, NvmlCall::kRegisterEvents, &Nvml::RegisterXidEvents, device, set);
      },
      [this, weak = weak_.Get(), device](const Status& status, JobRunner::AnswerState state) {
        if (!weak) return;
        // Registers the GPU with the new set, because the old set was abandoned.
        if (state.late) {
          std::erase(hung_devices_, device);
          return Watch(device);
        }
        busy_ = false;
        if (status.ok()) registered_devices_.push_back(device);
        hooks_.on_watched(device, status);
        Continue();
      },
      [this, weak = weak_.Get(), device](NvmlCall call, JobRunner::AnswerState) {
        if (!weak) return;
        hung_devices_.push_back(device);
        hooks_.on_hang(device, call);
        AbandonSetAfter(call);
      });
}

void XidListener::Wait() {
  busy_ = true;
  const MonotonicTime start = runner_->clock().Now();
  jobs_->Start<WaitReport>(
      kThreadName, options_.event_wait + options_.call_deadline,
      [nvml = nvml_, set = event_set_, wait = options_.event_wait](NvmlCalls* calls,
                                                                   WaitReport* report) {
        calls->Enter(NvmlCall::kEventSetWait);
        report->event = nvml->WaitForXid(set, wait);
        const Code code = report->event.status().code();
        // A timeout is not an error.
        if (code == Code::kOk || code == Code::kDeadlineExceeded) return;
        calls->AddError(NvmlCall::kEventSetWait, report->event.status());
      },
      [this, weak = weak_.Get(), start](WaitReport& report, JobRunner::AnswerState state) {
        if (!weak) return;
        if (report.event.ok()) hooks_.on_event(*report.event);
        if (state.late) {
          --abandoned_calls_;
          return Continue();
        }
        busy_ = false;
        OnWaitEnded(report.event, runner_->clock().Now() - start);
      },
      [this, weak = weak_.Get()](NvmlCall call, JobRunner::AnswerState) {
        if (!weak) return;
        ++abandoned_calls_;
        AbandonSetAfter(call);
      });
}

void XidListener::OnWaitEnded(const Result<XidEvent>& event, Duration took) {
  const Code code = event.status().code();
  if (code == Code::kOk) {
    backoff_ = Duration::zero();
    return Continue();
  }
  if (code == Code::kDeadlineExceeded) {
    backoff_ = Duration::zero();
    // Some libraries do not block; without a pause the loop would occupy a core.
    if (took < options_.event_wait / 2) return ContinueAfter(options_.event_wait - took);
    return Continue();
  }
  ContinueAfterError();
  hooks_.on_wait_failed();
}

// Replaces the set, because the hanging call may still use it.
void XidListener::AbandonSetAfter(NvmlCall call) {
  event_set_ = nullptr;
  pending_devices_.insert(pending_devices_.end(), registered_devices_.begin(),
                          registered_devices_.end());
  registered_devices_.clear();
  if (call == NvmlCall::kEventSetWait || call == NvmlCall::kEventSetCreate) {
    problem_ = fmt::format("NVML call {} did not return", NvmlCallName(call));
  }
  ContinueAfter(options_.retry_max);
}

void XidListener::ContinueAfterError() {
  backoff_ = NextWait(backoff_, options_.retry_min, options_.retry_max);
  ContinueAfter(backoff_);
}

}  // namespace tessera::gpu
