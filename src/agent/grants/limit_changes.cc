// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/limit_changes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "api/names.h"
#include "src/agent/grants/grant_description.h"
#include "src/base/file.h"
#include "src/base/log.h"
#include "src/base/strings.h"
#include "src/device/limit_annotations.h"
#include "src/device/limit_variables.h"
#include "src/formats/json.h"

namespace tessera::agent {
namespace {

using device::GpuLimits;

std::string TextOf(const PodInfo& pod, std::string_view annotation) {
  const auto found = pod.annotations.find(annotation);
  return found == pod.annotations.end() ? "" : found->second;
}

bool HasContainer(const PodInfo& pod, const std::string& name) {
  return !pod.request.ok() ||
         std::ranges::any_of(pod.request->containers,
                             [&](const auto& container) { return container.name == name; });
}

constexpr std::string_view kLimitAnnotations[] = {
    names::kAnnotationMemoryLimit, names::kAnnotationComputeLimit, names::kAnnotationComputeClass};

// Names in the file of a pod's texts.
constexpr std::string_view kCurrentTexts = "current", kAcceptedTexts = "accepted";

Result<StringMap> TextsIn(const Json& json, std::string_view name) {
  const Json* member = json.Find(name);
  if (member == nullptr || !member->is_object())
    return Error(Code::kInvalidArgument, "\"{}\" is not an object", name);
  StringMap texts;
  for (const auto& [annotation, unused] : member->members()) {
    ASSIGN_OR_RETURN(texts[annotation], member->StringAt(annotation));
  }
  return texts;
}

// An empty annotation counts as missing.
StringMap LimitTextsOf(const PodInfo& pod) {
  StringMap texts;
  for (const std::string_view annotation : kLimitAnnotations) {
    if (const std::string text = TextOf(pod, annotation); !text.empty())
      texts.emplace(annotation, text);
  }
  return texts;
}

Status CheckComputeClass(const PodInfo& pod) {
  const std::string text = TextOf(pod, names::kAnnotationComputeClass);
  if (text.empty()) return Status::Ok();
  return device::CheckComputeClass(text).Annotate(
      fmt::format("annotation {}", names::kAnnotationComputeClass));
}

// One kind of limit: its annotation and its field in a granted device. MaxOf: the largest allowed
// value.
struct GrantedMemoryLimit {
  using Amount = Bytes;
  static constexpr std::string_view kAnnotation = names::kAnnotationMemoryLimit;
  static constexpr std::string_view kNoun = "device memory";
  static constexpr auto Parse = device::ParseMemoryLimits;
  static constexpr auto OfVariables = device::MemoryLimitsOf;
  static bool IsLimited(const grant::GrantedDevice& device) { return device.bytes > 0; }
  static Bytes Of(const grant::GrantedDevice& device) { return Bytes(device.bytes); }
  static Bytes MaxOf(const PodInfo&, const grant::GrantedDevice& device) { return Of(device); }
  static void Set(grant::GrantedDevice* device, Bytes bytes) { device->bytes = bytes.count(); }
  static std::string Text(Bytes bytes) {
    return fmt::format("{:.0f} MiB", static_cast<double>(bytes.count()) / (1 << 20));
  }
};

struct GrantedComputeLimit {
  using Amount = MilliGpu;
  static constexpr std::string_view kAnnotation = names::kAnnotationComputeLimit;
  static constexpr std::string_view kNoun = "compute";
  static constexpr auto Parse = device::ParseComputeLimits;
  static constexpr auto OfVariables = device::ComputeLimitsOf;
  static bool IsLimited(const grant::GrantedDevice& device) { return device.milli % 1000 != 0; }
  static MilliGpu Of(const grant::GrantedDevice& device) { return MilliGpu(device.milli); }
  // A pod may use idle compute beyond its grant.
  static MilliGpu MaxOf(const PodInfo& pod, const grant::GrantedDevice& device) {
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
    SetLimitsFromShare(share, &devices.emplace_back(grant::GrantedDevice{.uuid = share.uuid}));
  }
  return devices;
}

template <typename Kind>
void Apply(const PodInfo* pod, const GrantLedger::Entry& entry,
           std::vector<grant::GrantedDevice>* devices) {
  const auto pod_limits = Kind::Parse(pod != nullptr ? TextOf(*pod, Kind::kAnnotation) : "");
  for (const auto& limits : {pod_limits, Kind::OfVariables(entry.env, entry.shares)}) {
    if (!limits.ok()) continue;
    for (grant::GrantedDevice& device : *devices) {
      const auto limit = device::LimitFor(*limits, entry.holder.container, device.uuid);
      if (limit && Kind::IsLimited(device)) Kind::Set(&device, std::min(Kind::Of(device), *limit));
    }
  }
}

// Returns the reasons why the pod's annotation is rejected, one for each container whose grant it
// exceeds. Empty if the annotation is accepted.
template <typename Kind>
std::vector<std::string> RejectionsOf(const PodInfo& pod, const GrantLedger& ledger) {
  constexpr std::string_view kResult = "the limits stay as they are";
  const std::string what = fmt::format("annotation {}", Kind::kAnnotation);
  const auto limits = Kind::Parse(TextOf(pod, Kind::kAnnotation));
  if (!limits.ok()) {
    return {fmt::format("{}: {}: {}", what, limits.status().message(), kResult)};
  }
  std::vector<std::string> problems;
  for (const auto& limit : *limits) {
    if (limit.applies_to.empty() || device::IsGpuUuid(limit.applies_to) ||
        HasContainer(pod, limit.applies_to))
      continue;
    problems.push_back(
        fmt::format("{}: the pod has no container \"{}\": {}", what, limit.applies_to, kResult));
  }
  for (const auto& [key, entry] : ledger.entries()) {
    if (key.first != pod.uid) continue;
    for (const grant::GrantedDevice& device : DevicesOf(entry)) {
      const auto limit = device::LimitFor(*limits, key.second, device.uuid);
      if (!limit || !Kind::IsLimited(device) || *limit <= Kind::MaxOf(pod, device)) continue;
      problems.push_back(
          fmt::format("{}: container {} was granted {} of {}, and cannot get {}: {}; the "
                      "annotation only lowers them, so create the pod again with a larger request",
                      what, key.second, Kind::Text(Kind::MaxOf(pod, device)), device.uuid,
                      Kind::Text(*limit), kResult));
    }
  }
  return problems;
}

// Whether one of the limits applies to a container that can be limited.
template <typename Kind>
bool LimitsAny(const PodInfo& pod, const GrantLedger& ledger,
               const GpuLimits<typename Kind::Amount>& limits) {
  return std::ranges::any_of(ledger.entries(), [&](const auto& item) {
    const auto& [key, entry] = item;
    if (key.first != pod.uid) return false;
    return std::ranges::any_of(DevicesOf(entry), [&](const grant::GrantedDevice& device) {
      return Kind::IsLimited(device) && device::LimitFor(limits, key.second, device.uuid);
    });
  });
}

// The reasons why the annotation, or a variable of a container, has no effect.
template <typename Kind>
std::vector<std::string> ReasonsForNoEffect(const PodInfo& pod, const GrantLedger& ledger,
                                            const std::string& dir) {
  const std::string what = fmt::format("annotation {}", Kind::kAnnotation);
  const auto limits = Kind::Parse(TextOf(pod, Kind::kAnnotation));
  const bool limits_any = limits.ok() && LimitsAny<Kind>(pod, ledger, *limits);
  std::vector<std::string> problems;
  for (const auto& [key, entry] : ledger.entries()) {
    if (key.first != pod.uid) continue;
    const Status variables = Kind::OfVariables(entry.env, entry.shares).status();
    if (!variables.ok()) {
      problems.push_back(fmt::format("container {}: variable {}: the variable has no effect",
                                     key.second, variables.message()));
    }
    if (!limits.ok()) continue;
    const bool has_limits = !dir.empty() && PathExists(LimitsPath(dir, key));
    for (const grant::GrantedDevice& device : DevicesOf(entry)) {
      const auto limit = device::LimitFor(*limits, key.second, device.uuid);
      if (limit && !Kind::IsLimited(device)) {
        // A limit for a GPU or for all containers skips containers without such a limit.
        if (limits_any && !device::NamesContainer(*limits, key.second)) continue;
        problems.push_back(
            fmt::format("{}: container {} has no share of the {} of {}: it is not limited", what,
                        key.second, Kind::kNoun, device.uuid));
      } else if (limit && !has_limits) {
        problems.push_back(fmt::format(
            "{}: nothing limits container {}: isolation was off on its node when it started (see "
            "tessera-agent --limits-dir and node label {}), or its limits could not be written and "
            "--limits-fail-open has its namespace",
            what, key.second, names::kLabelCgpuDisableIsolation));
      }
    }
  }
  return problems;
}

// "20 hundredths (up to 50 while others leave it idle)"
std::string ComputeTextOf(const PodInfo& pod, const std::string& container,
                          const grant::GrantedDevice& device) {
  std::string compute = GrantedComputeLimit::Text(GrantedComputeLimit::Of(device));
  const auto annotation_limits =
      GrantedComputeLimit::Parse(TextOf(pod, GrantedComputeLimit::kAnnotation));
  const MilliGpu max = annotation_limits.ok()
                           ? device::LimitFor(*annotation_limits, container, device.uuid)
                                 .value_or(GrantedComputeLimit::MaxOf(pod, device))
                           : GrantedComputeLimit::MaxOf(pod, device);
  if (max > GrantedComputeLimit::Of(device)) {
    compute += fmt::format(" (up to {} while others leave it idle)", max.count() / 10);
  }
  return compute;
}

// "container main may use 4096 MiB and 20 hundredths of GPU-f1e2…, in class low"
std::string LimitsText(const PodInfo& pod, const std::string& container,
                       const grant::GrantedDevice& device) {
  std::vector<std::string> limits;
  if (GrantedMemoryLimit::IsLimited(device))
    limits.push_back(GrantedMemoryLimit::Text(GrantedMemoryLimit::Of(device)));
  if (GrantedComputeLimit::IsLimited(device))
    limits.push_back(ComputeTextOf(pod, container, device));
  const std::string priority = TextOf(pod, names::kAnnotationComputeClass);
  return fmt::format("container {} may use {} of {}{}", container, fmt::join(limits, " and "),
                     device.uuid, priority.empty() ? "" : ", in class " + priority);
}

// Lowers the limits of `devices`, which `entry` holds, to the limits of annotations and variables.
// Devices without a limit (whole GPUs, compute of a pod that requests only memory) stay unlimited,
// and invalid limits have no effect. `pod` is null while it is unknown.
void ApplyLimits(const PodInfo* pod, const GrantLedger::Entry& entry,
                 std::vector<grant::GrantedDevice>* devices) {
  Apply<GrantedMemoryLimit>(pod, entry, devices);
  Apply<GrantedComputeLimit>(pod, entry, devices);
}

}  // namespace

LimitChanges::LimitChanges(std::string dir, ContainerLimits* limits, const GrantLedger* ledger,
                           Pods* pods)
    : dir_(std::move(dir)), limits_(limits), ledger_(ledger), pods_(pods) {}

StringMap LimitChanges::AcceptedTexts(const PodInfo& pod, const StringMap& before) const {
  StringMap accepted = LimitTextsOf(pod);
  const auto keep = [&](std::string_view annotation) {
    accepted.erase(std::string(annotation));
    const auto text = before.find(annotation);
    if (text != before.end()) accepted.insert(*text);
  };
  if (!RejectionsOf<GrantedMemoryLimit>(pod, *ledger_).empty())
    keep(GrantedMemoryLimit::kAnnotation);
  if (!RejectionsOf<GrantedComputeLimit>(pod, *ledger_).empty())
    keep(GrantedComputeLimit::kAnnotation);
  if (!CheckComputeClass(pod).ok()) keep(names::kAnnotationComputeClass);
  return accepted;
}

PodInfo LimitChanges::WithAcceptedTexts(const PodInfo& pod) const {
  const auto texts_of_pod = limit_texts_.find(pod.uid);
  return texts_of_pod == limit_texts_.end() ? pod : WithTexts(pod, texts_of_pod->second.accepted);
}

PodInfo LimitChanges::WithTexts(const PodInfo& pod, const StringMap& texts) {
  PodInfo with_texts = pod;
  for (const std::string_view annotation : kLimitAnnotations) {
    with_texts.annotations.erase(std::string(annotation));
  }
  with_texts.annotations.merge(StringMap(texts));
  return with_texts;
}

Pods::Map LimitChanges::PodsWithAcceptedLimits() const {
  Pods::Map pods = pods_ != nullptr ? pods_->pods() : Pods::Map();
  for (const auto& [uid, texts] : limit_texts_) {
    const auto pod = pods.find(uid);
    if (pod == pods.end() || texts.current == texts.accepted) continue;
    pod->second = std::make_shared<const PodInfo>(WithAcceptedTexts(*pod->second));
  }
  return pods;
}

bool LimitChanges::HasDirectory(const Uid& uid) const {
  return !dir_.empty() && PathExists(JoinPath(dir_, uid.str()));
}

std::string LimitChanges::TextsPath(const Uid& uid) const {
  return JoinPath(JoinPath(dir_, uid.str()), ".limit-texts");
}

LimitChanges::LimitTexts LimitChanges::ReadTexts(const Uid& uid) const {
  if (dir_.empty() || !PathExists(TextsPath(uid))) return {};
  const auto read = [](const std::string& path) -> Result<LimitTexts> {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    ASSIGN_OR_RETURN(const Json json, ParseJson(text));
    LimitTexts texts;
    ASSIGN_OR_RETURN(texts.current, TextsIn(json, kCurrentTexts));
    ASSIGN_OR_RETURN(texts.accepted, TextsIn(json, kAcceptedTexts));
    return texts;
  };
  Result<LimitTexts> texts = read(TextsPath(uid));
  if (texts.ok()) return *std::move(texts);
  Log(Severity::kWarning, "cannot read the limit annotations that an earlier agent accepted",
      {{"error", texts.status().ToString()}});
  return {};
}

void LimitChanges::WriteTexts(const Uid& uid) {
  const auto texts_of_pod = limit_texts_.find(uid);
  if (texts_of_pod == limit_texts_.end() || !HasDirectory(uid)) return;
  const LimitTexts& texts = texts_of_pod->second;
  const std::string path = TextsPath(uid);
  if (texts.current.empty() && texts.accepted.empty() && !PathExists(path)) return;
  const Json json =
      Json::MakeObject({{std::string(kCurrentTexts), Json::StringObject(texts.current)},
                        {std::string(kAcceptedTexts), Json::StringObject(texts.accepted)}});
  const Status written = WriteFileAtomically(path, json.Serialize(), 0600);
  if (!written.ok()) {
    Log(Severity::kError, "cannot record the limit annotations of a pod",
        {{"error", written.ToString()}});
  }
}

Result<std::string> LimitChanges::WriteGranted(const GrantLedger::Entry& entry,
                                               std::vector<grant::GrantedDevice> devices) {
  const auto disabled = entry.env.find(std::string(names::kEnvCgpuDisable));
  const bool is_disabled = disabled != entry.env.end() && disabled->second == "true";
  if (dir_.empty() || is_disabled) return std::string();
  const PodInfo* pod = pods_ != nullptr ? pods_->Find(entry.holder.pod_uid) : nullptr;
  const auto in_force =
      pod != nullptr ? std::optional(WithAcceptedTexts(*pod)) : std::optional<PodInfo>();
  ApplyLimits(in_force ? &*in_force : nullptr, entry, &devices);
  Result<std::string> result = limits_->Write(entry.holder, devices);
  if (result.ok()) WriteTexts(entry.holder.pod_uid);
  if (result.ok() || !limits_->FailsOpen(entry.holder)) return result;
  const std::string problem = fmt::format(
      "container {} starts without a limit on its GPUs, as --limits-fail-open allows: {}",
      entry.holder.container, result.status().message());
  Log(Severity::kWarning, "a container is not limited",
      {{"pod", entry.holder.PodText()}, {"problem", problem}});
  if (pod != nullptr) {
    pods_->Record(*pod,
                  {.warning = true, .reason = names::kReasonLimiterBypassed, .message = problem});
  }
  return std::string();
}

void LimitChanges::OnPod(const PodInfo& pod) {
  const auto [texts_of_pod, is_new] = limit_texts_.try_emplace(pod.uid);
  LimitTexts& texts = texts_of_pod->second;
  StringMap current = LimitTextsOf(pod);
  if (!is_new && texts.current == current) return;
  const LimitTexts before = is_new ? ReadTexts(pod.uid) : texts;
  texts = {.current = std::move(current), .accepted = AcceptedTexts(pod, before.accepted)};
  // At the agent's start all pods are new. An earlier agent has recorded the problems of the texts
  // that it knew. For a pod without a limited container, these are unknown.
  const bool is_start = is_new && !pods_->synced();
  if (!is_start || (HasDirectory(pod.uid) && before.current != texts.current)) RecordProblems(pod);
  // Limits are written for a new pod, too: its annotations may have changed while no agent ran.
  Write(WithTexts(pod, before.accepted), WithAcceptedTexts(pod));
  WriteTexts(pod.uid);
}

void LimitChanges::RecordProblems(const PodInfo& pod) {
  std::vector<std::string> problems;
  const auto add = [&](std::vector<std::string> more) {
    std::ranges::move(more, std::back_inserter(problems));
  };
  add(RejectionsOf<GrantedMemoryLimit>(pod, *ledger_));
  add(ReasonsForNoEffect<GrantedMemoryLimit>(pod, *ledger_, dir_));
  add(RejectionsOf<GrantedComputeLimit>(pod, *ledger_));
  add(ReasonsForNoEffect<GrantedComputeLimit>(pod, *ledger_, dir_));
  const Status class_status = CheckComputeClass(pod);
  if (!class_status.ok()) {
    const std::string in_force = TextOf(WithAcceptedTexts(pod), names::kAnnotationComputeClass);
    problems.push_back(fmt::format("{}: the pod stays in class {}", class_status.message(),
                                   in_force.empty() ? names::kComputeClassNormal : in_force));
  }
  for (std::string& problem : problems) {
    pods_->Record(
        pod,
        {.warning = true, .reason = names::kReasonLimitRejected, .message = std::move(problem)});
  }
}

void LimitChanges::Write(const PodInfo& before, const PodInfo& pod) {
  std::vector<std::string> changes;
  for (const auto& [key, entry] : ledger_->entries()) {
    // Containers that are not limited have no file.
    if (key.first != pod.uid || dir_.empty() || !PathExists(LimitsPath(dir_, key))) continue;
    std::vector<grant::GrantedDevice> devices = DevicesOf(entry);
    std::vector<grant::GrantedDevice> devices_before = devices;
    ApplyLimits(&pod, entry, &devices);
    ApplyLimits(&before, entry, &devices_before);
    const bool has_other_memory = !limits_->HasMemoryLimits(entry.holder, devices);
    const auto written = limits_->Write(entry.holder, devices);
    if (!written.ok()) {
      Log(Severity::kError, "cannot change the limits of a container",
          {{"pod", pod.Text()}, {"container", key.second}, {"error", written.status().ToString()}});
      continue;
    }
    for (size_t i = 0; i < devices.size(); ++i) {
      std::string text = LimitsText(pod, key.second, devices[i]);
      const bool changed =
          has_other_memory || text != LimitsText(before, key.second, devices_before[i]);
      if (devices[i].bytes != 0 && changed) changes.push_back(std::move(text));
    }
  }
  if (changes.empty()) return;
  pods_->Record(pod, {.reason = names::kReasonLimitChanged,
                      .message = fmt::format("{}", fmt::join(changes, "; "))});
}

}  // namespace tessera::agent
