// SPDX-License-Identifier: Apache-2.0
#include "src/sim/smi/run.h"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <string_view>

#include "src/sim/smi/changes.h"
#include "src/sim/smi/client.h"
#include "src/sim/smi/gpu.h"
#include "src/sim/smi/gpu_log.h"
#include "src/sim/smi/mig.h"
#include "src/sim/smi/options.h"
#include "src/sim/smi/parse_text.h"
#include "src/sim/smi/query.h"
#include "src/sim/smi/views.h"

namespace tessera::smi {
namespace {

using nvml::Return;

constexpr int kExitOther = 255;

// NVML's number, for the results that have an exit code.
int ExitCodeOf(Return result) {
  constexpr Return kKnown[] = {
      Return::kSuccess,         Return::kInvalidArgument,  Return::kNotSupported,
      Return::kNoPermission,    Return::kNotFound,         Return::kDriverNotLoaded,
      Return::kLibraryNotFound, Return::kFunctionNotFound, Return::kGpuIsLost};
  return std::ranges::count(kKnown, result) != 0 ? static_cast<int>(result) : kExitOther;
}

std::string InitMessage(const NvmlClient& client, Return result) {
  switch (result) {
    case Return::kDriverNotLoaded:
      return "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make "
             "sure that the latest NVIDIA driver is installed and running.\n\n";
    case Return::kLibraryNotFound:
      return "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure "
             "that the NVIDIA Display Driver is properly installed and present in your system.\n"
             "Please also try adding directory that contains libnvidia-ml.so to your system PATH."
             "\n\n";
    default:
      return fmt::format("Failed to initialize NVML: {}\n", client.ErrorText(result));
  }
}

std::string Now(const char* format) {
  const time_t now = time(nullptr);
  tm parts;
  localtime_r(&now, &parts);
  char text[64];
  strftime(text, sizeof(text), format, &parts);
  return text;
}

std::string CsvTimestamp() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return fmt::format("{}.{:03}", Now("%Y/%m/%d %H:%M:%S"), now.tv_nsec / 1000000);
}

Versions VersionsOf(const NvmlClient& client) {
  char driver[nvml::kVersionBufferSize] = "N/A";
  NVML_CALL(client, nvmlSystemGetDriverVersion, driver, static_cast<unsigned>(sizeof(driver)));
  int cuda = 0;
  const Return result = NVML_CALL(client, nvmlSystemGetCudaDriverVersion_v2, &cuda);
  return {driver,
          result == Return::kSuccess ? fmt::format("{}.{}", cuda / 1000, cuda % 1000 / 10) : "N/A"};
}

bool Matches(const NvmlGpu& gpu, std::string_view id) {
  if (id == std::to_string(gpu.index()) || id == gpu.Uuid()) return true;
  const NvmlAnswer<nvml::PciInfo> pci = gpu.Pci();
  if (!pci.ok()) return false;
  const std::string text(id);
  return strcasecmp(pci.value.bus_id, text.c_str()) == 0 ||
         strcasecmp(pci.value.bus_id_legacy, text.c_str()) == 0;
}

// A run of the program, from the open library to the output.
class SmiRun {
 public:
  // `prints_header`: dmon and pmon print their header. False for repeated outputs after the first.
  SmiRun(const NvmlClient* client, const SmiOptions* options, bool prints_header)
      : client_(client), options_(options), prints_header_(prints_header) {}

  Return Run(std::string* out);

 private:
  Return FindGpus(std::string* out);
  Return SelectGpus(std::string* out);
  Return Render(std::string* out);
  std::string Monitor() const;

  const NvmlClient* client_;
  const SmiOptions* options_;
  bool prints_header_;
  std::vector<NvmlGpu> gpus_;
  size_t attached_count_ = 0;
  bool has_lost_gpu_ = false;
};

// A GPU without a handle is reported and skipped; the other GPUs are shown.
Return SmiRun::FindGpus(std::string* out) {
  unsigned count = 0;
  const Return result = NVML_CALL(*client_, nvmlDeviceGetCount_v2, &count);
  if (result != Return::kSuccess) {
    *out = fmt::format("Failed to count the GPUs: {}\n", client_->ErrorText(result));
    return result;
  }
  attached_count_ = count;
  for (unsigned i = 0; i < count; ++i) {
    nvml::Device device = nullptr;
    const Return found = NVML_CALL(*client_, nvmlDeviceGetHandleByIndex_v2, i, &device);
    if (found == Return::kSuccess) {
      gpus_.emplace_back(client_, device, i);
      continue;
    }
    has_lost_gpu_ = true;
    *out += fmt::format(
        "Unable to determine the device handle for GPU{}: {}{}\n", i, client_->ErrorText(found),
        found == Return::kGpuIsLost ? ".  Reboot the system to recover this GPU" : "");
  }
  if (count == 0) *out = "No devices were found\n";
  return count == 0 ? Return::kNotFound : Return::kSuccess;
}

Return SmiRun::SelectGpus(std::string* out) {
  if (options_->ids.empty()) return Return::kSuccess;
  std::vector<NvmlGpu> selected;
  const std::string list = options_->ids + ",";  // keeps an empty last id, which no GPU has
  for (const std::string_view id : Split(list)) {
    const size_t before = selected.size();
    for (const NvmlGpu& gpu : gpus_) {
      if (Matches(gpu, id)) selected.push_back(gpu);
    }
    if (selected.size() == before) {
      *out = "No devices were found\n";
      return Return::kNotFound;
    }
  }
  gpus_ = std::move(selected);
  return Return::kSuccess;
}

// The lines of dmon or pmon.
std::string SmiRun::Monitor() const {
  const auto stamp = [this](char letter, const char* format) {
    return options_->timestamp_letters.find(letter) != std::string::npos ? Now(format) : "";
  };
  const MonitorOptions options = {options_->selected_letters, stamp('D', "%Y%m%d"),
                                  stamp('T', "%H:%M:%S")};
  if (options_->view == View::kDeviceMonitor) {
    return (prints_header_ ? DeviceMonitorHeader(options) : "") + DeviceMonitorView(options, gpus_);
  }
  return (prints_header_ ? ProcessMonitorHeader(options) : "") + ProcessMonitorView(options, gpus_);
}

Return SmiRun::Render(std::string* out) {
  const NodeValues node = {CsvTimestamp(), VersionsOf(*client_).driver, attached_count_};
  const std::string date = Now("%a %b %e %H:%M:%S %Y");
  bool valid = true;
  switch (options_->view) {
    case View::kList:
      *out += ListView(gpus_);
      break;
    case View::kTopology:
      *out += TopologyView(gpus_);
      break;
    case View::kP2p:
      *out += P2pView(options_->selected_letters, gpus_);
      break;
    case View::kNvLinkStatus:
      *out += NvLinkStatusView(gpus_);
      break;
    case View::kNvLinkCapabilities:
      *out += NvLinkCapabilitiesView(gpus_);
      break;
    case View::kNvLinkErrors:
      *out += NvLinkErrorsView(gpus_);
      break;
    case View::kDeviceMonitor:
    case View::kProcessMonitor:
      *out += Monitor();
      break;
    case View::kQuery:
      valid = Query(options_->query, options_->fields, options_->format, node, gpus_, out);
      break;
    case View::kLog:
      valid = GpuLogText(date, VersionsOf(*client_), gpus_, attached_count_,
                         options_->display_types, out);
      break;
    case View::kLogXml:
      *out += GpuLogXml(date, VersionsOf(*client_), gpus_, attached_count_);
      break;
    case View::kMig:
      return RunMig(options_->mig, gpus_, out);
    case View::kChange:
      return ApplyChange(options_->change, gpus_, out);
    default:
      *out += TableView(date, VersionsOf(*client_), gpus_);
      break;
  }
  return valid ? Return::kSuccess : Return::kInvalidArgument;
}

Return SmiRun::Run(std::string* out) {
  Return result = FindGpus(out);
  if (result == Return::kSuccess) result = SelectGpus(out);
  if (result != Return::kSuccess) return result;
  result = Render(out);
  return result == Return::kSuccess && has_lost_gpu_ ? Return::kGpuIsLost : result;
}

std::string VersionText(const NvmlClient& client) {
  char nvml_version[nvml::kVersionBufferSize] = "N/A";
  NVML_CALL(client, nvmlSystemGetNVMLVersion, nvml_version,
            static_cast<unsigned>(sizeof(nvml_version)));
  const Versions versions = VersionsOf(client);
  return fmt::format(
      "NVIDIA-SMI version  : {}\nNVML version        : {}\nDRIVER version      : {}\n"
      "CUDA Version        : {}\n",
      versions.driver, nvml_version, versions.driver, versions.cuda);
}

Return RunOnce(const NvmlClient& client, const SmiOptions& options, bool prints_header,
               std::FILE* stream) {
  std::string out;
  Return result = Return::kSuccess;
  if (options.view == View::kVersion) {
    out = VersionText(client);
  } else {
    result = SmiRun(&client, &options, prints_header).Run(&out);
  }
  std::fwrite(out.data(), 1, out.size(), stream);
  std::fflush(stream);
  return result;
}

// Prints views that need no driver. False: the view needs the driver.
bool PrintHelp(const SmiOptions& options) {
  std::string text;
  if (options.view == View::kHelp) text = Help();
  if (options.view == View::kHelpQuery) text = HelpQuery(options.query);
  std::fputs(text.c_str(), stdout);
  return !text.empty();
}

}  // namespace

int Run(const std::vector<std::string>& arguments) {
  SmiOptions options;
  std::string error;
  if (!ParseOptions(arguments, &options, &error)) {
    std::fputs(error.c_str(), stdout);
    return ExitCodeOf(Return::kInvalidArgument);
  }
  if (PrintHelp(options)) return 0;
  NvmlClient client;
  const Return opened = client.Open();
  if (opened != Return::kSuccess) {
    std::fputs(InitMessage(client, opened).c_str(), stdout);
    return ExitCodeOf(opened);
  }
  std::FILE* stream = options.output.empty() ? stdout : std::fopen(options.output.c_str(), "we");
  if (stream == nullptr) {
    std::fputs(fmt::format("Unable to open {} for writing\n", options.output).c_str(), stdout);
    return ExitCodeOf(Return::kInvalidArgument);
  }
  Return result = RunOnce(client, options, /*prints_header=*/true, stream);
  for (unsigned round = 1; result == Return::kSuccess && round != options.rounds; ++round) {
    const timespec pause = {options.loop_ms / 1000,
                            static_cast<long>(options.loop_ms % 1000) * 1000000};
    nanosleep(&pause, nullptr);
    result = RunOnce(client, options, /*prints_header=*/false, stream);
  }
  if (stream != stdout && std::fclose(stream) != 0) return kExitOther;
  return ExitCodeOf(result);
}

}  // namespace tessera::smi
