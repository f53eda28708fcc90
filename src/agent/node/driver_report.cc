// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/driver_report.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "api/names.h"
#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/gpu/driver_files.h"
#include "src/oci/driver_root.h"

namespace tessera::agent {
namespace {

constexpr size_t kMaxProcVersion = 4096;
constexpr std::string_view kUnknownVersion = "?";

// "libcuda.so.550.163.01" -> "550.163.01"
std::string VersionOf(const std::string& root, std::string_view stem) {
  const Result<std::string> path = oci::FindDriverLibrary(root, stem);
  if (!path.ok()) return {};
  const std::string name = BaseName(*path);
  const size_t at = name.find(".so.");
  const std::string version = at == std::string::npos ? "" : name.substr(at + 4);
  return version.find('.') == std::string::npos ? std::string(kUnknownVersion) : version;
}

bool IsContainerRoot(const DriverRoot& root) { return root.host_path != "/"; }

std::string OwnerOf(const DriverRoot& root) {
  return IsContainerRoot(root) ? fmt::format("a driver container ({})", root.host_path)
                               : "the host";
}

std::string RootsText(const DriverFacts& facts) {
  std::string text;
  for (size_t i = 0; i < facts.candidates.size(); ++i) {
    if (i > 0) text += i + 1 == facts.candidates.size() ? " nor in " : ", ";
    text += facts.candidates[i].root.host_path;
  }
  return (facts.candidates.size() > 1 ? "neither in " : "not in ") + text;
}

// The remedy for a driver whose kernel module is not loaded.
std::string_view ModuleRemedy(const DriverRoot& root) {
  return IsContainerRoot(root)
             ? "see the log of the driver container, which still installs it or has failed"
             : "run \"modprobe nvidia\", and see the kernel's log; after an upgrade of the kernel "
               "build the module again";
}

std::string MissingText(const DriverFacts& facts) {
  const std::string& module_version = facts.candidates.front().module_version;
  if (!module_version.empty()) {
    return fmt::format(
        "the kernel module nvidia {} is loaded, but libnvidia-ml.so.1 is {}: install the "
        "libraries of driver {}, or see the log of the driver container",
        module_version, RootsText(facts), module_version);
  }
  if (facts.gpus_on_bus == 0) {
    return fmt::format(
        "the NVIDIA driver was removed: libnvidia-ml.so.1 is {}: install the driver on the host, "
        "or run a driver container",
        RootsText(facts));
  }
  return fmt::format(
      "there is no NVIDIA driver for the {} GPU{} on the PCI bus: libnvidia-ml.so.1 is {}: install "
      "the driver on the host, or run a driver container",
      facts.gpus_on_bus, facts.gpus_on_bus == 1 ? "" : "s", RootsText(facts));
}

std::string IncompleteText(const DriverCandidate& driver, std::string_view nvml_problem) {
  const std::string& root = driver.root.host_path;
  const std::string_view remedy = IsContainerRoot(driver.root)
                                      ? "see the log of the driver container"
                                      : "install the driver's packages again";
  if (driver.cuda_version.empty()) {
    return fmt::format("driver {} in {} has no libcuda.so.1, so containers cannot compute: {}",
                       driver.nvml_version, root, remedy);
  }
  const bool versions_known =
      driver.cuda_version != kUnknownVersion && driver.nvml_version != kUnknownVersion;
  if (driver.cuda_version != driver.nvml_version && versions_known) {
    return fmt::format("in {} libnvidia-ml belongs to driver {} and libcuda to driver {}: {}", root,
                       driver.nvml_version, driver.cuda_version, remedy);
  }
  if (nvml_problem.empty()) return {};
  if (driver.module_version.empty()) {
    return fmt::format(
        "the libraries of driver {} are in {}, but the kernel module is not loaded: {}",
        driver.nvml_version, root, ModuleRemedy(driver.root));
  }
  if (driver.nvml_version != kUnknownVersion && driver.module_version != driver.nvml_version) {
    return fmt::format(
        "the kernel module belongs to driver {} and the libraries in {} to driver {}: reboot the "
        "node, or unload the module and load it again",
        driver.module_version, root, driver.nvml_version);
  }
  return {};
}

std::string ConflictText(const std::vector<DriverCandidate>& candidates, size_t drivers,
                         size_t chosen) {
  std::string text =
      fmt::format("the node has {} drivers: ", drivers == 2 ? "two" : std::to_string(drivers));
  size_t named = 0;
  for (const DriverCandidate& each : candidates) {
    if (each.nvml_version.empty()) continue;
    text += fmt::format("{}{} has {}", named++ == 0 ? "" : " and ", OwnerOf(each.root),
                        each.nvml_version);
  }
  return text + fmt::format(
                    "; {} is used: remove the driver from the host, or turn the container "
                    "off with the node label nvidia.com/gpu.deploy.driver=false",
                    OwnerOf(candidates[chosen].root));
}

}  // namespace

DriverCandidate ReadDriverCandidate(const DriverRoot& root) {
  DriverCandidate candidate{.root = root};
  candidate.nvml_version = VersionOf(root.container_path, "libnvidia-ml");
  candidate.cuda_version = VersionOf(root.container_path, "libcuda");
  const std::string proc = gpu::ProcRootOf(root.container_path);
  candidate.module_version = KernelModuleVersion(
      ReadFile(JoinPath(proc, "driver/nvidia/version"), kMaxProcVersion).value_or(""));
  return candidate;
}

std::string KernelModuleVersion(std::string_view proc_version) {
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue …", and with open modules
  // "… Open Kernel Module for x86_64  550.163.01  …".
  const std::string_view line = proc_version.substr(0, proc_version.find('\n'));
  for (const std::string_view word : SplitList(line, ' ')) {
    if (word.find('.') != std::string_view::npos &&
        word.find_first_not_of("0123456789.") == std::string_view::npos) {
      return std::string(word);
    }
  }
  return {};
}

size_t ChooseDriver(const std::vector<DriverCandidate>& candidates) {
  const auto matches = std::ranges::find_if(candidates, [](const DriverCandidate& each) {
    return !each.nvml_version.empty() && each.nvml_version == each.module_version;
  });
  if (matches != candidates.end()) return static_cast<size_t>(matches - candidates.begin());
  const auto found = std::ranges::find_if(
      candidates, [](const DriverCandidate& each) { return !each.nvml_version.empty(); });
  return found != candidates.end() ? static_cast<size_t>(found - candidates.begin()) : 0;
}

void JudgeDriver(const DriverFacts& facts, std::string_view nvml_problem, NodeFindings* findings) {
  findings->driver_reason = {};
  findings->driver_problem.clear();
  const auto report = [&](std::string_view reason, std::string problem) {
    findings->driver_reason = reason;
    findings->driver_problem = std::move(problem);
  };
  const size_t chosen = ChooseDriver(facts.candidates);
  const DriverCandidate& driver = facts.candidates[chosen];
  if (driver.nvml_version.empty()) {
    if (facts.maintenance) return;
    if (!driver.module_version.empty())
      return report(names::kReasonDriverIncomplete, MissingText(facts));
    // On a node without GPUs the problem that the inventory reports suffices.
    if (facts.gpus_on_bus > 0 || nvml_problem.empty()) {
      report(names::kReasonDriverNotReady, MissingText(facts));
    }
    return;
  }
  std::string incomplete = IncompleteText(driver, facts.maintenance ? "" : nvml_problem);
  if (!incomplete.empty()) return report(names::kReasonDriverIncomplete, std::move(incomplete));
  const auto drivers = std::ranges::count_if(
      facts.candidates, [](const DriverCandidate& each) { return !each.nvml_version.empty(); });
  if (drivers > 1) {
    report(names::kReasonDriverConflict,
           ConflictText(facts.candidates, static_cast<size_t>(drivers), chosen));
  }
}

bool IsWholeElf(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0) return false;
  const auto size = static_cast<uint64_t>(info.st_size);
  Elf64_Ehdr header;
  if (::pread(fd.get(), &header, sizeof(header), 0) != static_cast<ssize_t>(sizeof(header))) {
    return false;
  }
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return false;
  const auto fits = [size](uint64_t offset, uint64_t length) {
    return offset <= size && length <= size - offset;
  };
  if (!fits(header.e_shoff, uint64_t{header.e_shnum} * header.e_shentsize)) return false;
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    const auto at = static_cast<off_t>(header.e_phoff + uint64_t{header.e_phentsize} * i);
    if (::pread(fd.get(), &segment, sizeof(segment), at) != static_cast<ssize_t>(sizeof(segment))) {
      return false;
    }
    if (segment.p_type == PT_LOAD && !fits(segment.p_offset, segment.p_filesz)) return false;
  }
  return true;
}

}  // namespace tessera::agent
