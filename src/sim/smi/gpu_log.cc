// SPDX-License-Identifier: Apache-2.0
#include "src/sim/smi/gpu_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "src/sim/smi/parse_text.h"

namespace tessera::smi {
namespace {

struct DisplayType {
  std::string_view name;
  std::string_view sections;  // labels, separated by ';'
};

constexpr std::array kDisplayTypes = {
    DisplayType{"MEMORY", "FB Memory Usage;BAR1 Memory Usage;Conf Compute Protected Memory Usage"},
    DisplayType{"UTILIZATION", "Utilization;Encoder Stats"},
    DisplayType{"ECC", "ECC Mode;ECC Errors"},
    DisplayType{"TEMPERATURE", "Temperature"},
    DisplayType{"POWER", "GPU Power Readings"},
    DisplayType{"CLOCK", "Clocks;Applications Clocks;Max Clocks"},
    DisplayType{"COMPUTE", "Compute Mode"},
    DisplayType{"PIDS", "Processes"},
    DisplayType{"PERFORMANCE", "Performance State;Clocks Event Reasons"},
    DisplayType{"PAGE_RETIREMENT", "Retired Pages"},
    DisplayType{"ROW_REMAPPER", "Remapped Rows"},
    DisplayType{"ENCODER_STATS", "Encoder Stats"},
    DisplayType{"FBC_STATS", "FBC Stats"},
    DisplayType{"RESET_STATUS", "GPU Reset Status"},
};

// Finds the labels of `display_types`. False: unknown type; *message has the error.
bool ChooseSections(std::string_view display_types, std::vector<std::string_view>* sections,
                    std::string* message) {
  for (const std::string_view name : Split(display_types)) {
    bool found = false;
    for (const DisplayType& display : kDisplayTypes) {
      if (display.name != name) continue;
      std::ranges::copy(Split(display.sections, ';'), std::back_inserter(*sections));
      found = true;
    }
    if (!found) {
      *message = fmt::format("\"{}\" is not a recognized display option.\n", name);
      return false;
    }
  }
  return true;
}

}  // namespace

bool GpuLogText(const std::string& date, const Versions& versions, const std::vector<NvmlGpu>& gpus,
                size_t attached, std::string_view display_types, std::string* out) {
  std::vector<std::string_view> sections;
  if (!ChooseSections(display_types, &sections, out)) return false;
  *out += "\n==============NVSMI LOG==============\n\n";
  AppendText({"Timestamp", "", date}, 0, out);
  AppendText({"Driver Version", "", versions.driver}, 0, out);
  AppendText({"CUDA Version", "", versions.cuda}, 0, out);
  *out += '\n';
  AppendText({"Attached GPUs", "", std::to_string(attached)}, 0, out);
  for (const NvmlGpu& gpu : gpus) {
    *out += fmt::format("GPU {}\n", gpu.BusId());
    for (const LogNode& node : GpuSections(gpu).children) {
      const bool chosen = sections.empty() || std::ranges::count(sections, node.label) != 0;
      if (chosen) AppendText(node, 1, out);
    }
    *out += '\n';
  }
  return true;
}

std::string GpuLogXml(const std::string& date, const Versions& versions,
                      const std::vector<NvmlGpu>& gpus, size_t attached) {
  std::string out =
      "<?xml version=\"1.0\" ?>\n"
      "<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">\n"
      "<nvidia_smi_log>\n";
  AppendXml({"", "timestamp", date}, 1, &out);
  AppendXml({"", "driver_version", versions.driver}, 1, &out);
  AppendXml({"", "cuda_version", versions.cuda}, 1, &out);
  AppendXml({"", "attached_gpus", std::to_string(attached)}, 1, &out);
  for (const NvmlGpu& gpu : gpus) {
    out += fmt::format("\t<gpu id=\"{}\">\n", EscapeXml(gpu.BusId()));
    for (const LogNode& node : GpuSections(gpu).children) AppendXml(node, 2, &out);
    out += "\t</gpu>\n\n";
  }
  return out + "</nvidia_smi_log>\n";
}

}  // namespace tessera::smi
