// SPDX-License-Identifier: Apache-2.0
#include "src/oci/capabilities.h"

#include <algorithm>
#include <iterator>

#include "src/base/machine.h"
#include "src/base/strings.h"

namespace tessera::oci {
namespace {

struct CapabilityWord {
  std::string_view text;
  Capabilities bits;
};
constexpr CapabilityWord kWords[] = {
    {"compute", kCompute}, {"utility", kUtility}, {"video", kVideo}, {"graphics", kGraphics},
    {"display", kDisplay}, {"ngx", kNgx},         {"compat32", 0},   {"all", kAllCapabilities},
};

constexpr Capabilities kDrawing = kGraphics | kDisplay;
// The groups of libnvidia-container (src/nvc_info.c), and libraries that newer drivers added.
constexpr DriverFile kLibraries[] = {
    {"libnvidia-ml", kUtility},
    {"libnvidia-cfg", kUtility},
    {"libnvidia-nscq", kUtility},
    {"libcuda", kCompute},
    {"libcudadebugger", kCompute},
    {"libnvidia-opencl", kCompute},
    {"libnvidia-gpucomp", kCompute | kDrawing},
    {"libnvidia-ptxjitcompiler", kCompute},
    {"libnvidia-fatbinaryloader", kCompute},
    {"libnvidia-allocator", kCompute | kDrawing},
    {"libnvidia-compiler", kCompute},
    {"libnvidia-pkcs11", kCompute},
    {"libnvidia-pkcs11-openssl3", kCompute},
    {"libnvidia-nvvm", kCompute},
    {"libnvidia-nvvm70", kCompute},
    {"libnvidia-tileiras", kCompute},
    {"libnvidia-sandboxutils", kUtility},
    {"libvdpau_nvidia", kVideo},
    {"libnvidia-encode", kVideo},
    {"libnvidia-opticalflow", kVideo},
    {"libnvcuvid", kVideo},
    {"libnvidia-eglcore", kDrawing},
    {"libnvidia-glcore", kDrawing},
    {"libnvidia-tls", kDrawing},
    {"libnvidia-glsi", kDrawing},
    {"libnvidia-fbc", kDrawing},
    {"libnvidia-ifr", kDrawing},
    {"libnvidia-rtcore", kDrawing},
    {"libnvoptix", kDrawing},
    {"libGLX_nvidia", kDrawing},
    {"libEGL_nvidia", kDrawing},
    {"libGLESv2_nvidia", kDrawing},
    {"libGLESv1_CM_nvidia", kDrawing},
    {"libnvidia-glvkspirv", kDrawing},
    {"libnvidia-cbl", kDrawing},
    {"libnvidia-vksc-core", kDrawing},
    {"libnvidia-vulkan-producer", kDrawing},
    {"libnvidia-present", kDrawing},
    {"libnvidia-api", kDrawing},
    {"libnvidia-egl-gbm", kDrawing},
    {"libnvidia-egl-wayland", kDrawing},
    {"libnvidia-egl-wayland2", kDrawing},
    {"libnvidia-egl-xcb", kDrawing},
    {"libnvidia-egl-xlib", kDrawing},
    {"libnvidia-gtk2", kDisplay},
    {"libnvidia-gtk3", kDisplay},
    {"libnvidia-wayland-client", kDisplay},
    {"libglxserver_nvidia", kDisplay},
    {"libnvidia-ngx", kNgx},
};
// Libraries whose version differs from the driver's version.
constexpr std::string_view kOwnVersionLibraries[] = {
    "libnvidia-nvvm70",       "libnvidia-api",     "libnvidia-egl-gbm",  "libnvidia-egl-wayland",
    "libnvidia-egl-wayland2", "libnvidia-egl-xcb", "libnvidia-egl-xlib",
};

constexpr std::string_view kVulkanIcd = "vulkan/icd.d/nvidia_icd.json";
constexpr std::string_view kEglVendor = "glvnd/egl_vendor.d/10_nvidia.json";
constexpr DriverFile kDataFiles[] = {
    {kVulkanIcd, kDrawing},
    {"vulkan/icd.d/nvidia_icd." TESSERA_MACHINE ".json", kDrawing},
    {"vulkan/implicit_layer.d/nvidia_layers.json", kDrawing},
    {kEglVendor, kDrawing},
    {"egl/egl_external_platform.d/09_nvidia_wayland2.json", kDrawing},
    {"egl/egl_external_platform.d/10_nvidia_wayland.json", kDrawing},
    {"egl/egl_external_platform.d/15_nvidia_gbm.json", kDrawing},
    {"egl/egl_external_platform.d/20_nvidia_xcb.json", kDrawing},
    {"egl/egl_external_platform.d/20_nvidia_xlib.json", kDrawing},
};

constexpr RequiredDriverFile kRequiredFiles[] = {
    {kVideo, "libnvidia-encode"}, {kVideo, "libnvcuvid"},  {kGraphics, "libGLX_nvidia"},
    {kGraphics, "libEGL_nvidia"}, {kGraphics, kVulkanIcd}, {kGraphics, kEglVendor},
    {kDisplay, "libGLX_nvidia"},
};

constexpr DriverFile kBinaries[] = {
    {"nvidia-smi", kUtility},
    {"nvidia-debugdump", kUtility},
    {"nvidia-persistenced", kUtility},
    {"nv-fabricmanager", kUtility},
    {"nvidia-cuda-mps-control", kCompute},
    {"nvidia-cuda-mps-server", kCompute},
};

constexpr ControlNode kControlNodes[] = {
    {"nvidiactl", kAllCapabilities, kAllCapabilities,
     "load the driver (modprobe nvidia), or let tessera-agent create it (--create-device-nodes)"},
    {"nvidia-uvm", kCompute, kCompute,
     "run \"nvidia-modprobe -u -c=0\", or let tessera-agent create it (--create-device-nodes)"},
    {"nvidia-uvm-tools", kCompute, 0, ""},
    {"nvidia-modeset", kDrawing, kDisplay,
     "load the module (modprobe nvidia-modeset), or leave display out of "
     "NVIDIA_DRIVER_CAPABILITIES"},
};

}  // namespace

Result<Capabilities> ParseCapabilities(std::string_view text) {
  Capabilities found = 0;
  const auto words = SplitList(text);
  if (words.empty()) return kDefaultCapabilities;
  for (const std::string_view word : words) {
    bool known = false;
    for (const CapabilityWord& entry : kWords) {
      if (entry.text != word) continue;
      found |= entry.bits;
      known = true;
    }
    if (!known) {
      return Error(Code::kInvalidArgument,
                   "driver capability \"{}\" is not known: use compute, utility, video, graphics, "
                   "display, ngx, compat32 or all",
                   word);
    }
  }
  return found;
}

Capabilities RequiredCapabilities(Capabilities capabilities) {
  return (capabilities & kRequestedAll) != 0 ? kDefaultCapabilities : capabilities;
}

std::string CapabilitiesText(Capabilities capabilities) {
  if (capabilities == kAllCapabilities) return "all";
  std::string text;
  for (const CapabilityWord& word : kWords) {
    if (word.bits == 0 || word.bits == kAllCapabilities || !(capabilities & word.bits)) continue;
    if (!text.empty()) text += ',';
    text += word.text;
  }
  return text.empty() ? "none" : text;
}

Capabilities CapabilitiesNeedingLibrary(std::string_view stem) {
  const auto* found = std::ranges::find(kLibraries, stem, &DriverFile::name);
  return found != std::end(kLibraries) ? found->needed_by : kAllCapabilities;
}

bool IsDriverLibrary(std::string_view file_name, std::string_view version) {
  constexpr std::string_view kInfix = ".so.";
  if (!file_name.starts_with("lib")) return false;
  const size_t at = file_name.find(kInfix);
  if (at == std::string_view::npos) return false;
  return file_name.substr(at + kInfix.size()) == version ||
         std::ranges::find(kOwnVersionLibraries, file_name.substr(0, at)) !=
             std::end(kOwnVersionLibraries);
}

std::span<const DriverFile> DriverBinaries() { return kBinaries; }
std::span<const DriverFile> DriverDataFiles() { return kDataFiles; }
std::span<const RequiredDriverFile> RequiredDriverFiles() { return kRequiredFiles; }
std::span<const ControlNode> ControlNodes() { return kControlNodes; }

}  // namespace tessera::oci
