// SPDX-License-Identifier: Apache-2.0
#include "src/sim/smi/mig.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>

#include "src/sim/smi/parse_text.h"

namespace tessera::smi {
namespace {

using nvml::Return;

constexpr unsigned kProfiles = 17;        // NVML_GPU_INSTANCE_PROFILE_COUNT
constexpr unsigned kComputeProfiles = 8;  // NVML_COMPUTE_INSTANCE_PROFILE_COUNT
constexpr unsigned kMaxInstances = 8;     // of one GPU

struct ListedProfile {
  unsigned id = 0;
  std::string name;  // "MIG 1g.10gb"
  nvml::GpuInstanceProfileInfoV2 info = {};
};

// The profiles of the GPU, sorted by size.
std::vector<ListedProfile> ProfilesOf(const NvmlGpu& gpu) {
  std::vector<ListedProfile> profiles;
  for (unsigned number = 0; number < kProfiles; ++number) {
    ListedProfile profile;
    profile.info = Versioned<nvml::GpuInstanceProfileInfoV2>(2);
    const Return result = NVML_CALL(gpu.client(), nvmlDeviceGetGpuInstanceProfileInfoV,
                                    gpu.handle(), number, &profile.info);
    if (result != Return::kSuccess) continue;
    profile.id = profile.info.id;
    profile.name = profile.info.name;
    profiles.push_back(profile);
  }
  std::ranges::sort(profiles, {}, [](const ListedProfile& profile) {
    return std::tuple(profile.info.slices, profile.info.memory_mb, profile.id);
  });
  return profiles;
}

struct GpuInstanceView {
  nvml::GpuInstance handle = nullptr;
  nvml::GpuInstanceInfo info = {};
  std::string name;
};

struct ComputeInstanceView {
  nvml::ComputeInstance handle = nullptr;
  nvml::ComputeInstanceInfo info = {};
  std::string name;
};

// Finds a compute profile ("MIG 1c.2g.20gb") in a GPU instance. False: no such profile.
bool FindComputeProfile(const NvmlGpu& gpu, const GpuInstanceView& parent, unsigned profile,
                        nvml::ComputeInstanceProfileInfoV2* info) {
  *info = Versioned<nvml::ComputeInstanceProfileInfoV2>(2);
  return NVML_CALL(gpu.client(), nvmlGpuInstanceGetComputeInstanceProfileInfoV, parent.handle,
                   profile, 0U, info) == Return::kSuccess;
}

// True: `ids` is empty or contains the id.
bool IsSelected(std::string_view ids, unsigned id) {
  return ids.empty() || std::ranges::count(Split(ids), std::to_string(id)) != 0;
}

std::vector<GpuInstanceView> GpuInstancesOf(const NvmlGpu& gpu, std::string_view ids) {
  std::vector<GpuInstanceView> views;
  for (const ListedProfile& profile : ProfilesOf(gpu)) {
    std::array<nvml::GpuInstance, kMaxInstances> handles = {};
    unsigned count = 0;
    NVML_CALL(gpu.client(), nvmlDeviceGetGpuInstances, gpu.handle(), profile.id, handles.data(),
              &count);
    for (unsigned i = 0; i < count; ++i) {
      GpuInstanceView view{handles[i], {}, profile.name};
      NVML_CALL(gpu.client(), nvmlGpuInstanceGetInfo, view.handle, &view.info);
      if (IsSelected(ids, view.info.id)) views.push_back(view);
    }
  }
  return views;
}

std::vector<ComputeInstanceView> ComputeInstancesOf(const NvmlGpu& gpu,
                                                    const GpuInstanceView& parent,
                                                    std::string_view ids) {
  std::vector<ComputeInstanceView> views;
  for (unsigned profile = 0; profile < kComputeProfiles; ++profile) {
    nvml::ComputeInstanceProfileInfoV2 info;
    if (!FindComputeProfile(gpu, parent, profile, &info)) continue;
    std::array<nvml::ComputeInstance, kMaxInstances> handles = {};
    unsigned count = 0;
    NVML_CALL(gpu.client(), nvmlGpuInstanceGetComputeInstances, parent.handle, profile,
              handles.data(), &count);
    for (unsigned i = 0; i < count; ++i) {
      ComputeInstanceView view{handles[i], {}, info.name};
      NVML_CALL(gpu.client(), nvmlComputeInstanceGetInfo_v2, view.handle, &view.info);
      if (IsSelected(ids, view.info.id)) views.push_back(view);
    }
  }
  return views;
}

// A table: rule, header, rows, rule.
std::string Table(std::string_view header, std::string_view rule, const std::string& rows) {
  return fmt::format("{}\n{}{}{}\n", rule, header, rows, rule);
}

std::string ListProfiles(const std::vector<NvmlGpu>& gpus) {
  constexpr std::string_view kRule =
      "+-----------------------------------------------------------------------------+";
  constexpr std::string_view kHeader =
      "| GPU instance profiles:                                                      |\n"
      "| GPU   Name             ID    Instances   Memory     P2P    SM    DEC   ENC  |\n"
      "|                              Free/Total   GiB              CE    JPEG  OFA  |\n"
      "|=============================================================================|\n";
  std::string rows;
  for (const NvmlGpu& gpu : gpus) {
    for (const ListedProfile& profile : ProfilesOf(gpu)) {
      const auto& info = profile.info;
      unsigned free = 0;
      NVML_CALL(gpu.client(), nvmlDeviceGetGpuInstanceRemainingCapacity, gpu.handle(), profile.id,
                &free);
      rows += fmt::format("|{:>4}  {:<17}{:>3}{:>6}/{:<3}{:>10.2f}{:>9}{:>7}{:>6}{:>6}   |\n",
                          gpu.index(), profile.name, profile.id, free, info.instances,
                          static_cast<double>(info.memory_mb) / 1024,
                          info.p2p_supported != 0 ? "Yes" : "No", info.multiprocessors,
                          info.decoders, info.encoders);
      rows += fmt::format("|{:>62}{:>6}{:>6}   |\n", info.copy_engines, info.jpegs, info.ofas);
      rows += fmt::format("{}\n", kRule);
    }
  }
  rows.resize(rows.size() - (rows.empty() ? 0 : kRule.size() + 1));
  return Table(kHeader, kRule, rows);
}

std::string ListPlacements(const std::vector<NvmlGpu>& gpus) {
  std::string out;
  for (const NvmlGpu& gpu : gpus) {
    for (const ListedProfile& profile : ProfilesOf(gpu)) {
      std::array<nvml::Placement, 16> placements = {};
      unsigned count = placements.size();
      NVML_CALL(gpu.client(), nvmlDeviceGetGpuInstancePossiblePlacements_v2, gpu.handle(),
                profile.id, placements.data(), &count);
      std::string starts;
      for (unsigned i = 0; i < count; ++i) {
        starts += fmt::format("{}{}", i == 0 ? "" : ",", placements[i].start);
      }
      out += fmt::format("GPU {:>2} Profile ID {:>2} Placement{}: {{{}}}:{}\n", gpu.index(),
                         profile.id, count == 1 ? " " : "s", starts, placements[0].size);
    }
  }
  return out;
}

Return ListGpuInstances(const std::vector<NvmlGpu>& gpus, std::string* out) {
  constexpr std::string_view kRule = "+-------------------------------------------------------+";
  constexpr std::string_view kHeader =
      "| GPU instances:                                        |\n"
      "| GPU   Name             Profile  Instance   Placement  |\n"
      "|                          ID       ID       Start:Size |\n"
      "|=======================================================|\n";
  std::string rows;
  for (const NvmlGpu& gpu : gpus) {
    for (const GpuInstanceView& view : GpuInstancesOf(gpu, "")) {
      rows += fmt::format("|{:>4}  {:<17}{:>5}{:>9}{:>11}:{:<6}|\n{}\n", gpu.index(), view.name,
                          view.info.profile_id, view.info.id, view.info.placement.start,
                          view.info.placement.size, kRule);
    }
  }
  if (rows.empty()) return *out += "No GPU instances found: Not Found\n", Return::kNotFound;
  rows.resize(rows.size() - kRule.size() - 1);
  return *out += Table(kHeader, kRule, rows), Return::kSuccess;
}

Return ListComputeInstances(const MigOptions& options, const std::vector<NvmlGpu>& gpus,
                            std::string* out) {
  constexpr std::string_view kRule =
      "+--------------------------------------------------------------------+";
  constexpr std::string_view kHeader =
      "| Compute instances:                                                 |\n"
      "| GPU     GPU       Name             Profile   Instance   Placement  |\n"
      "|       Instance                       ID        ID       Start:Size |\n"
      "|         ID                                                         |\n"
      "|====================================================================|\n";
  std::string rows;
  for (const NvmlGpu& gpu : gpus) {
    for (const GpuInstanceView& parent : GpuInstancesOf(gpu, options.gpu_instances)) {
      for (const ComputeInstanceView& view : ComputeInstancesOf(gpu, parent, "")) {
        rows += fmt::format("|{:>4}{:>7}       {:<17}{:>5}{:>10}{:>11}:{:<6}|\n{}\n", gpu.index(),
                            parent.info.id, view.name, view.info.profile_id, view.info.id,
                            view.info.placement.start, view.info.placement.size, kRule);
      }
    }
  }
  if (rows.empty()) return *out += "No compute instances found: Not Found\n", Return::kNotFound;
  rows.resize(rows.size() - kRule.size() - 1);
  return *out += Table(kHeader, kRule, rows), Return::kSuccess;
}

// True: `text` is the id, the name, or the name without "MIG ".
bool IsProfile(std::string_view text, unsigned id, std::string_view name) {
  unsigned number = 0;
  if (ParseUnsigned(text, &number)) return number == id;
  return text == name || (name.starts_with("MIG ") && text == name.substr(4));
}

// Creates a compute instance; `profile` is an id or a name, or "" for all slices.
Return CreateComputeInstance(const NvmlGpu& gpu, const GpuInstanceView& parent,
                             std::string_view profile, std::string* out) {
  for (unsigned number = kComputeProfiles; number-- > 0;) {
    nvml::ComputeInstanceProfileInfoV2 info;
    if (!FindComputeProfile(gpu, parent, number, &info)) continue;
    if (profile.empty() ? parent.name != info.name : !IsProfile(profile, number, info.name))
      continue;
    ComputeInstanceView view;
    const Return result = NVML_CALL(gpu.client(), nvmlGpuInstanceCreateComputeInstance,
                                    parent.handle, number, &view.handle);
    if (result != Return::kSuccess) {
      *out += fmt::format(
          "Unable to create a compute instance on GPU {:>2} GPU instance ID {:>2} using profile "
          "{}: {}\n",
          gpu.index(), parent.info.id, number, gpu.client().ErrorText(result));
      return result;
    }
    NVML_CALL(gpu.client(), nvmlComputeInstanceGetInfo_v2, view.handle, &view.info);
    *out += fmt::format(
        "Successfully created compute instance ID {:>2} on GPU {:>2} GPU instance ID {:>2} using "
        "profile {} (ID {:>2})\n",
        view.info.id, gpu.index(), parent.info.id, info.name, number);
    return Return::kSuccess;
  }
  *out += fmt::format("Invalid compute instance profile \"{}\"\n", profile);
  return Return::kInvalidArgument;
}

// Creates a GPU instance of "PROFILE" or "PROFILE:START".
Return CreateGpuInstance(const MigOptions& options, const NvmlGpu& gpu, std::string_view request,
                         std::string* out) {
  const size_t colon = request.find(':');
  nvml::Placement placement = {};
  bool valid =
      colon == std::string_view::npos || ParseUnsigned(request.substr(colon + 1), &placement.start);
  for (const ListedProfile& profile : ProfilesOf(gpu)) {
    if (!valid || !IsProfile(request.substr(0, colon), profile.id, profile.name)) {
      continue;
    }
    GpuInstanceView view{nullptr, {}, profile.name};
    const Return result = colon == std::string_view::npos
                              ? NVML_CALL(gpu.client(), nvmlDeviceCreateGpuInstance, gpu.handle(),
                                          profile.id, &view.handle)
                              : NVML_CALL(gpu.client(), nvmlDeviceCreateGpuInstanceWithPlacement,
                                          gpu.handle(), profile.id, &placement, &view.handle);
    if (result != Return::kSuccess) {
      *out += fmt::format("Unable to create a GPU instance on GPU {:>2} using profile {}: {}\n",
                          gpu.index(), profile.id, gpu.client().ErrorText(result));
      return result;
    }
    NVML_CALL(gpu.client(), nvmlGpuInstanceGetInfo, view.handle, &view.info);
    *out += fmt::format(
        "Successfully created GPU instance ID {:>2} on GPU {:>2} using profile {} (ID {:>2})\n",
        view.info.id, gpu.index(), profile.name, profile.id);
    return options.create_compute ? CreateComputeInstance(gpu, view, "", out) : Return::kSuccess;
  }
  *out += fmt::format("Invalid GPU instance profile \"{}\"\n", request);
  return Return::kInvalidArgument;
}

// Appends the last line of a command that failed with `result`, and returns `result`.
Return ReportFailure(const NvmlGpu& gpu, Return result, std::string_view action, std::string* out) {
  *out += fmt::format("Failed to {}: {}\n", action, gpu.client().ErrorText(result));
  return result;
}

Return CreateGpuInstances(const MigOptions& options, const std::vector<NvmlGpu>& gpus,
                          std::string* out) {
  for (const NvmlGpu& gpu : gpus) {
    for (const std::string_view request : Split(options.profiles)) {
      const Return result = CreateGpuInstance(options, gpu, request, out);
      if (result != Return::kSuccess)
        return ReportFailure(gpu, result, "create GPU instances", out);
    }
  }
  return Return::kSuccess;
}

Return CreateComputeInstances(const MigOptions& options, const std::vector<NvmlGpu>& gpus,
                              std::string* out) {
  bool found_any = false;
  for (const NvmlGpu& gpu : gpus) {
    for (const GpuInstanceView& parent : GpuInstancesOf(gpu, options.gpu_instances)) {
      found_any = true;
      std::vector<std::string_view> profiles = Split(options.profiles);
      if (profiles.empty()) profiles.emplace_back();
      for (const std::string_view profile : profiles) {
        const Return result = CreateComputeInstance(gpu, parent, profile, out);
        if (result != Return::kSuccess)
          return ReportFailure(gpu, result, "create compute instances", out);
      }
    }
  }
  if (!found_any) *out += "No GPU instances found: Not Found\n";
  return found_any ? Return::kSuccess : Return::kNotFound;
}

Return DestroyGpuInstances(const MigOptions& options, const std::vector<NvmlGpu>& gpus,
                           std::string* out) {
  bool found_any = false;
  for (const NvmlGpu& gpu : gpus) {
    for (const GpuInstanceView& view : GpuInstancesOf(gpu, options.gpu_instances)) {
      found_any = true;
      const Return result = NVML_CALL(gpu.client(), nvmlGpuInstanceDestroy, view.handle);
      if (result != Return::kSuccess) {
        *out += fmt::format("Unable to destroy GPU instance ID {:>2} from GPU {:>2}: {}\n",
                            view.info.id, gpu.index(), gpu.client().ErrorText(result));
        return ReportFailure(gpu, result, "destroy GPU instances", out);
      }
      *out += fmt::format("Successfully destroyed GPU instance ID {:>2} from GPU {:>2}\n",
                          view.info.id, gpu.index());
    }
  }
  if (!found_any) *out += "No GPU instances found: Not Found\n";
  return found_any ? Return::kSuccess : Return::kNotFound;
}

Return DestroyComputeInstancesIn(const MigOptions& options, const NvmlGpu& gpu,
                                 const GpuInstanceView& parent, bool* found_any, std::string* out) {
  for (const ComputeInstanceView& view :
       ComputeInstancesOf(gpu, parent, options.compute_instances)) {
    *found_any = true;
    const Return result = NVML_CALL(gpu.client(), nvmlComputeInstanceDestroy, view.handle);
    if (result != Return::kSuccess) {
      *out += fmt::format(
          "Unable to destroy compute instance ID {:>2} from GPU {:>2} GPU instance ID {:>2}: {}\n",
          view.info.id, gpu.index(), parent.info.id, gpu.client().ErrorText(result));
      return ReportFailure(gpu, result, "destroy compute instances", out);
    }
    *out += fmt::format(
        "Successfully destroyed compute instance ID {:>2} from GPU {:>2} GPU instance ID {:>2}\n",
        view.info.id, gpu.index(), parent.info.id);
  }
  return Return::kSuccess;
}

Return DestroyComputeInstances(const MigOptions& options, const std::vector<NvmlGpu>& gpus,
                               std::string* out) {
  bool found_any = false;
  for (const NvmlGpu& gpu : gpus) {
    for (const GpuInstanceView& parent : GpuInstancesOf(gpu, options.gpu_instances)) {
      const Return result = DestroyComputeInstancesIn(options, gpu, parent, &found_any, out);
      if (result != Return::kSuccess) return result;
    }
  }
  if (!found_any) *out += "No compute instances found: Not Found\n";
  return found_any ? Return::kSuccess : Return::kNotFound;
}

}  // namespace

std::string MigDeviceLines(const NvmlGpu& gpu) {
  std::string out;
  const NvmlAnswer<unsigned> most = gpu.Number("nvmlDeviceGetMaxMigDeviceCount");
  for (unsigned i = 0; most.ok() && i < most.value; ++i) {
    nvml::Device device = nullptr;
    const Return found =
        NVML_CALL(gpu.client(), nvmlDeviceGetMigDeviceHandleByIndex, gpu.handle(), i, &device);
    if (found != Return::kSuccess) continue;
    const NvmlGpu mig(&gpu.client(), device, i);
    const std::string name = mig.Name();
    const size_t profile = name.rfind("MIG ");
    out +=
        fmt::format("  MIG {:<12}Device {:>2}: (UUID: {})\n",
                    profile == std::string::npos ? name : name.substr(profile + 4), i, mig.Uuid());
  }
  return out;
}

Return RunMig(const MigOptions& options, const std::vector<NvmlGpu>& gpus, std::string* out) {
  std::vector<NvmlGpu> enabled;
  for (const NvmlGpu& gpu : gpus) {
    const NvmlAnswer<unsigned> mode = gpu.FirstNumber("nvmlDeviceGetMigMode");
    if (mode.ok() && mode.value == nvml::kFeatureEnabled) enabled.push_back(gpu);
  }
  if (enabled.empty()) return *out += "No MIG-enabled devices found.\n", Return::kNotFound;
  if (options.command == "-lgip") return *out += ListProfiles(enabled), Return::kSuccess;
  if (options.command == "-lgipp") return *out += ListPlacements(enabled), Return::kSuccess;
  if (options.command == "-lgi") return ListGpuInstances(enabled, out);
  if (options.command == "-lci") return ListComputeInstances(options, enabled, out);
  if (options.command == "-cgi") return CreateGpuInstances(options, enabled, out);
  if (options.command == "-cci") return CreateComputeInstances(options, enabled, out);
  return options.command == "-dgi" ? DestroyGpuInstances(options, enabled, out)
                                   : DestroyComputeInstances(options, enabled, out);
}

}  // namespace tessera::smi
