// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/limit_changes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "api/names.h"
#include "src/agent/grants/grant_description.h"
#include "src/base/file.h"
#include "src/base/log.h"
#include "src/device/limit_annotations.h"
#include "src/device/limit_variables.h"

namespace tessera::agent {
namespace {

using device::GpuLimits;

double MiB(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::string TextOf(const PodInfo& pod, std::string_view annotation) {
  const auto found = pod.annotations.find(annotation);
  return found == pod.annotations.end() ? "" : found->second;
}

bool IsUuid(const std::string& text) {
  return text.starts_with("GPU-") || text.starts_with("MIG-");
}

bool HasContainer(const PodInfo& pod, const std::string& name) {
  return !pod.request.ok() ||
         std::ranges::any_of(pod.request->containers,
                             [&](const auto& container) { return container.name == name; });
}

// One kind of limit: its annotation and its field in a granted device. MostOf: the largest allowed
// value.
struct GrantedMemoryLimit {
  using Amount = Bytes;
  static constexpr std::string_view kAnnotation = names::kAnnotationMemoryLimit;
  static constexpr std::string_view kNoun = "device memory";
  static Result<GpuLimits<Bytes>> Parse(std::string_view text) {
    return device::ParseMemoryLimits(text);
  }
  static constexpr auto OfVariables = device::MemoryLimitsOf;
  static bool IsLimited(const grant::GrantedDevice& device) { return device.bytes > 0; }
  static Bytes Of(const grant::GrantedDevice& device) { return Bytes(device.bytes); }
  static Bytes MostOf(const PodInfo&, const grant::GrantedDevice& device) { return Of(device); }
  static void Set(grant::GrantedDevice* device, Bytes bytes) { device->bytes = bytes.count(); }
  static std::string Text(Bytes bytes) { return fmt::format("{:.0f} MiB", MiB(bytes.count())); }
};

struct GrantedComputeLimit {
  using Amount = MilliGpu;
  static constexpr std::string_view kAnnotation = names::kAnnotationComputeLimit;
  static constexpr std::string_view kNoun = "compute";
  static Result<GpuLimits<MilliGpu>> Parse(std::string_view text) {
    return device::ParseComputeLimits(text);
  }
  static constexpr auto OfVariables = device::ComputeLimitsOf;
  static bool IsLimited(const grant::GrantedDevice& device) { return device.milli % 1000 != 0; }
  static MilliGpu Of(const grant::GrantedDevice& device) { return MilliGpu(device.milli); }
  // A pod may use idle compute beyond its grant.
  static MilliGpu MostOf(const PodInfo& pod, const grant::GrantedDevice& device) {
    const bool elastic = pod.request.ok() && pod.request->elastic_limit;
    return elastic ? std::max(Of(device), *pod.request->elastic_limit) : Of(device);
  }
  static void Set(grant::GrantedDevice* device, MilliGpu milli) { device->milli = milli.count(); }
  static std::string Text(MilliGpu milli) {
    return fmt::format("{} hundredths", milli.count() / 10);
  }
};

std::vector<grant::GrantedDevice> DevicesOf(const GrantLedger::Entry& entry) {
  std::vector<grant::GrantedDevice> devices;
  for (const device::DeviceShare& share : entry.shares) {
    DescribeLimits(share, &devices.emplace_back(grant::GrantedDevice{.uuid = share.uuid}));
  }
  return devices;
}

template <typename Kind>
void Apply(const PodInfo* pod, const GrantLedger::Entry& entry,
           std::vector<grant::GrantedDevice>* devices) {
  const auto of_pod = Kind::Parse(pod != nullptr ? TextOf(*pod, Kind::kAnnotation) : "");
  for (const auto& limits : {of_pod, Kind::OfVariables(entry.env, entry.shares)}) {
    if (!limits.ok()) continue;
    for (grant::GrantedDevice& device : *devices) {
      const auto limit = device::LimitFor(*limits, entry.holder.container, device.uuid);
      if (limit && Kind::IsLimited(device)) Kind::Set(&device, std::min(Kind::Of(device), *limit));
    }
  }
}

// Why the annotation is rejected, with one sentence for each container whose grant it contradicts.
// Empty if the annotation is valid.
template <typename Kind>
std::vector<std::string> ProblemsOf(const PodInfo& pod, const GrantLedger& ledger,
                                    const std::string& dir) {
  const std::string what = fmt::format("annotation {}", Kind::kAnnotation);
  const auto limits = Kind::Parse(TextOf(pod, Kind::kAnnotation));
  if (!limits.ok()) {
    return {fmt::format("{}: {}: the last valid limit stays in force", what,
                        limits.status().message())};
  }
  std::vector<std::string> problems;
  for (const auto& limit : *limits) {
    if (limit.applies_to.empty() || IsUuid(limit.applies_to) || HasContainer(pod, limit.applies_to))
      continue;
    problems.push_back(fmt::format("{}: the pod has no container \"{}\"", what, limit.applies_to));
  }
  for (const auto& [key, entry] : ledger.entries()) {
    if (key.first != pod.uid) continue;
    const Status variables = Kind::OfVariables(entry.env, entry.shares).status();
    if (!variables.ok()) {
      problems.push_back(fmt::format("container {}: variable {}: the variable has no effect",
                                     key.second, variables.message()));
    }
    const bool has_limits = !dir.empty() && PathExists(LimitsPath(dir, key));
    for (const grant::GrantedDevice& device : DevicesOf(entry)) {
      const auto limit = device::LimitFor(*limits, key.second, device.uuid);
      if (limit && !Kind::IsLimited(device)) {
        problems.push_back(
            fmt::format("{}: container {} has no share of the {} of {}: it is not limited", what,
                        key.second, Kind::kNoun, device.uuid));
      } else if (limit && !has_limits) {
        problems.push_back(fmt::format(
            "{}: nothing limits container {}, because isolation was off on its node when it "
            "started: see tessera-agent --limits-dir and node label {}",
            what, key.second, names::kLabelCgpuDisableIsolation));
      } else if (limit && *limit > Kind::MostOf(pod, device)) {
        problems.push_back(
            fmt::format("{}: container {} was granted {} of {}, and cannot get {}: the annotation "
                        "only lowers the limit; create the pod again with a larger request",
                        what, key.second, Kind::Text(Kind::MostOf(pod, device)), device.uuid,
                        Kind::Text(*limit)));
      }
    }
  }
  return problems;
}

// "4096 MiB and 20 hundredths (up to 50 while others leave it idle), class low"
std::string TextOf(const PodInfo& pod, const std::string& container,
                   const grant::GrantedDevice& device) {
  std::vector<std::string> limits;
  if (GrantedMemoryLimit::IsLimited(device))
    limits.push_back(GrantedMemoryLimit::Text(GrantedMemoryLimit::Of(device)));
  if (!GrantedComputeLimit::IsLimited(device)) return fmt::format("{}", fmt::join(limits, ""));
  std::string compute = GrantedComputeLimit::Text(GrantedComputeLimit::Of(device));
  const auto lowered = GrantedComputeLimit::Parse(TextOf(pod, GrantedComputeLimit::kAnnotation));
  const MilliGpu most = lowered.ok() ? device::LimitFor(*lowered, container, device.uuid)
                                           .value_or(GrantedComputeLimit::MostOf(pod, device))
                                     : GrantedComputeLimit::MostOf(pod, device);
  if (most > GrantedComputeLimit::Of(device)) {
    compute += fmt::format(" (up to {} while others leave it idle)", most.count() / 10);
  }
  limits.push_back(std::move(compute));
  const std::string priority = TextOf(pod, names::kAnnotationComputeClass);
  const bool is_class = !priority.empty() && device::ParseComputeClass(priority).ok();
  return fmt::format("{}{}", fmt::join(limits, " and "), is_class ? ", class " + priority : "");
}

}  // namespace

void ApplyLimits(const PodInfo* pod, const GrantLedger::Entry& entry,
                 std::vector<grant::GrantedDevice>* devices) {
  Apply<GrantedMemoryLimit>(pod, entry, devices);
  Apply<GrantedComputeLimit>(pod, entry, devices);
}

LimitChanges::LimitChanges(std::string dir, ContainerLimits* limits, const GrantLedger* ledger,
                           Pods* pods)
    : dir_(std::move(dir)), limits_(limits), ledger_(ledger), pods_(pods) {}

LimitChanges::LimitTexts LimitChanges::LimitTextsOf(const PodInfo& pod) {
  LimitTexts all;
  const auto add = [&](std::string_view annotation, auto is_valid) {
    const std::string text = TextOf(pod, annotation);
    all.text += text + ";";
    if (is_valid(text)) {
      all.valid[std::string(annotation)] = text;
    } else {
      all.invalid = true;
    }
  };
  add(GrantedMemoryLimit::kAnnotation,
      [](const auto& text) { return GrantedMemoryLimit::Parse(text).ok(); });
  add(GrantedComputeLimit::kAnnotation,
      [](const auto& text) { return GrantedComputeLimit::Parse(text).ok(); });
  const std::string priority = TextOf(pod, names::kAnnotationComputeClass);
  all.text += priority;
  all.valid[std::string(names::kAnnotationComputeClass)] =
      device::ParseComputeClass(priority).ok() ? priority : "";
  return all;
}

Result<std::string> LimitChanges::WriteGranted(const GrantLedger::Entry& entry,
                                               std::vector<grant::GrantedDevice> devices) {
  const auto disabled = entry.env.find(std::string(names::kEnvCgpuDisable));
  const bool is_disabled = disabled != entry.env.end() && disabled->second == "true";
  if (dir_.empty() || is_disabled) return std::string();
  const PodInfo* pod = nullptr;
  if (pods_ != nullptr) {
    const auto found = pods_->pods().find(entry.holder.pod_uid);
    if (found != pods_->pods().end()) pod = found->second.get();
  }
  const auto valid = pod != nullptr ? std::optional(LastValid(*pod)) : std::optional<PodInfo>();
  ApplyLimits(valid ? &*valid : nullptr, entry, &devices);
  Result<std::string> written = limits_->Write(entry.holder, devices);
  if (written.ok() || !limits_->FailsOpen(entry.holder)) return written;
  const std::string problem = fmt::format(
      "container {} starts without a limit on its GPUs, as --limits-fail-open allows: {}",
      entry.holder.container, written.status().message());
  Log(Severity::kWarning, "a container is not limited",
      {{"pod", entry.holder.PodText()}, {"problem", problem}});
  if (pod != nullptr) {
    pods_->Record(*pod,
                  {.warning = true, .reason = names::kReasonLimiterBypassed, .message = problem});
  }
  return std::string();
}

void LimitChanges::OnPod(const PodInfo& pod) {
  LimitTexts texts = LimitTextsOf(pod);
  const auto [seen, is_new] = seen_.try_emplace(pod.uid, texts);
  if (!is_new && seen->second.text == texts.text) return;
  // A text that is invalid now is replaced by the last valid text.
  if (!is_new) texts.valid.merge(std::map(seen->second.valid));
  const bool changed = !is_new && seen->second.valid != texts.valid;
  const bool is_known = !is_new || !texts.invalid;
  seen->second = std::move(texts);
  // At the agent's start all pods are new, and their problems were recorded before.
  if (!is_new || pods_->synced()) RecordProblems(pod);
  // Limits are written for a new pod, too: its annotations may have changed while no agent ran. If
  // an annotation is invalid, the limits that an earlier agent wrote stay in force.
  if (is_known) Write(LastValid(pod), changed);
}

PodInfo LimitChanges::LastValid(const PodInfo& pod) const {
  PodInfo valid = pod;
  const auto seen = seen_.find(pod.uid);
  if (seen == seen_.end()) return valid;
  for (const auto& [annotation, text] : seen->second.valid) valid.annotations[annotation] = text;
  return valid;
}

void LimitChanges::RecordProblems(const PodInfo& pod) {
  std::vector<std::string> problems = ProblemsOf<GrantedMemoryLimit>(pod, *ledger_, dir_);
  for (std::string& problem : ProblemsOf<GrantedComputeLimit>(pod, *ledger_, dir_)) {
    problems.push_back(std::move(problem));
  }
  const std::string text = TextOf(pod, names::kAnnotationComputeClass);
  const Status of_class = device::ParseComputeClass(text).status();
  if (!text.empty() && !of_class.ok()) {
    problems.push_back(fmt::format("annotation {}: {}: the pod is of class {}",
                                   names::kAnnotationComputeClass, of_class.message(),
                                   names::kComputeClassNormal));
  }
  for (std::string& problem : problems) {
    pods_->Record(
        pod,
        {.warning = true, .reason = names::kReasonLimitRejected, .message = std::move(problem)});
  }
}

void LimitChanges::Write(const PodInfo& pod, bool changed) {
  std::vector<std::string> changes;
  for (const auto& [key, entry] : ledger_->entries()) {
    // Containers that are not limited have no file.
    if (key.first != pod.uid || dir_.empty() || !PathExists(LimitsPath(dir_, key))) continue;
    std::vector<grant::GrantedDevice> devices = DevicesOf(entry);
    ApplyLimits(&pod, entry, &devices);
    const bool has_news = changed || !limits_->HasMemoryLimits(entry.holder, devices);
    const auto written = limits_->Write(entry.holder, devices);
    if (!written.ok()) {
      Log(Severity::kError, "cannot change the limits of a container",
          {{"pod", pod.Text()}, {"container", key.second}, {"error", written.status().ToString()}});
      continue;
    }
    for (const grant::GrantedDevice& device : devices) {
      if (device.bytes == 0 || !has_news) continue;
      changes.push_back(fmt::format("container {} may use {} of {}", key.second,
                                    TextOf(pod, key.second, device), device.uuid));
    }
  }
  if (changes.empty()) return;
  pods_->Record(pod, {.reason = names::kReasonLimitChanged,
                      .message = fmt::format("{}", fmt::join(changes, "; "))});
}

}  // namespace tessera::agent
