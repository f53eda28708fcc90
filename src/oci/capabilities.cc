// SPDX-License-Identifier: Apache-2.0
#include "src/oci/capabilities.h"

#include <iterator>

#include "src/base/strings.h"

namespace tessera::oci {
namespace {

struct Word {
  std::string_view text;
  Capabilities bits;
};
constexpr Word kWords[] = {
    {"compute", kCompute}, {"utility", kUtility}, {"video", kVideo}, {"graphics", kGraphics},
    {"display", kDisplay}, {"ngx", kNgx},         {"compat32", 0},   {"all", kAllCapabilities},
};

// The driver's libraries need each other across the parts: NVENC needs CUDA, GLX the TLS helper.
constexpr Capabilities kDrawing = kGraphics | kDisplay;
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
    {"libnvidia-ngx", kNgx},
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
    {"nvidiactl", kAllCapabilities, true,
     "load the driver (modprobe nvidia), or let tessera-agent create it (--create-device-nodes)"},
    {"nvidia-uvm", kCompute, true,
     "run \"nvidia-modprobe -u -c=0\", or let tessera-agent create it (--create-device-nodes)"},
    {"nvidia-uvm-tools", kCompute, false, ""},
    {"nvidia-modeset", kDrawing, false, ""},
};

}  // namespace

Result<Capabilities> ParseCapabilities(std::string_view text) {
  Capabilities found = 0;
  const auto words = SplitList(text);
  if (words.empty()) return kDefaultCapabilities;
  for (const std::string_view word : words) {
    bool known = false;
    for (const Word& entry : kWords) {
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

std::string CapabilitiesText(Capabilities capabilities) {
  if (capabilities == kAllCapabilities) return "all";
  std::string text;
  for (const Word& word : kWords) {
    if (word.bits == 0 || word.bits == kAllCapabilities || !(capabilities & word.bits)) continue;
    if (!text.empty()) text += ',';
    text += word.text;
  }
  return text.empty() ? "none" : text;
}

std::span<const DriverFile> DriverLibraries() { return kLibraries; }
std::span<const DriverFile> DriverBinaries() { return kBinaries; }
std::span<const ControlNode> ControlNodes() { return kControlNodes; }

}  // namespace tessera::oci
