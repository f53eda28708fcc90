// SPDX-License-Identifier: Apache-2.0
#include "src/oci/testing/fake_driver.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "src/base/file.h"

namespace tessera::oci {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#else
constexpr uint16_t kMachine = EM_AARCH64;
#endif

// The file is one segment, so addresses equal offsets.
struct Image {
  Elf64_Ehdr header{};
  Elf64_Phdr segments[3]{};
  Elf64_Dyn dynamic[8]{};
  Elf64_Sym symbols[1]{};
  uint32_t hash[4] = {1, 1, 0, 0};  // one bucket, one chain, both empty
  char strings[256]{};
};

template <typename T>
uint64_t Offset(T Image::*member) {
  static const Image kImage;
  return static_cast<uint64_t>(reinterpret_cast<const char*>(&(kImage.*member)) -
                               reinterpret_cast<const char*>(&kImage));
}

Status WriteFile(const std::string& path, std::string_view data, mode_t mode) {
  RETURN_IF_ERROR(MakeDirs(DirName(path)));
  return WriteFileAtomically(path, data, mode);
}

Status MakeNode(const std::string& path, unsigned major_number, unsigned minor_number) {
  RETURN_IF_ERROR(MakeDirs(DirName(path)));
  if (::mknod(path.c_str(), S_IFCHR | 0666, makedev(major_number, minor_number)) != 0) {
    return Status::FromErrno(path, errno);
  }
  return ::chmod(path.c_str(), 0666) == 0 ? Status::Ok() : Status::FromErrno(path, errno);
}

}  // namespace

std::string MakeLibrary(const std::string& soname) {
  Image image;
  std::memcpy(image.header.e_ident, ELFMAG, SELFMAG);
  image.header.e_ident[EI_CLASS] = ELFCLASS64;
  image.header.e_ident[EI_DATA] = ELFDATA2LSB;
  image.header.e_ident[EI_VERSION] = EV_CURRENT;
  image.header.e_type = ET_DYN;
  image.header.e_machine = kMachine;
  image.header.e_version = EV_CURRENT;
  image.header.e_phoff = Offset(&Image::segments);
  image.header.e_ehsize = sizeof(Elf64_Ehdr);
  image.header.e_phentsize = sizeof(Elf64_Phdr);
  image.header.e_phnum = 3;
  image.segments[0] = {PT_LOAD, PF_R | PF_W, 0, 0, 0, sizeof(Image), sizeof(Image), 0x1000};
  const uint64_t dynamic = Offset(&Image::dynamic);
  image.segments[1] = {PT_DYNAMIC,
                       PF_R | PF_W,
                       dynamic,
                       dynamic,
                       dynamic,
                       sizeof(Image::dynamic),
                       sizeof(Image::dynamic),
                       8};
  image.segments[2] = {PT_GNU_STACK, PF_R | PF_W, 0, 0, 0, 0, 0, 16};
  soname.copy(image.strings + 1, sizeof(image.strings) - 2);
  int at = 0;
  const auto add = [&](Elf64_Sxword tag, uint64_t value) {
    image.dynamic[at].d_tag = tag;
    image.dynamic[at++].d_un.d_val = value;
  };
  if (!soname.empty()) add(DT_SONAME, 1);
  add(DT_HASH, Offset(&Image::hash));
  add(DT_STRTAB, Offset(&Image::strings));
  add(DT_STRSZ, sizeof(Image::strings));
  add(DT_SYMTAB, Offset(&Image::symbols));
  add(DT_SYMENT, sizeof(Elf64_Sym));
  return std::string(reinterpret_cast<const char*>(&image), sizeof(image));
}

Status MakeFakeDriver(const std::string& root, const FakeDriverOptions& options) {
  for (const std::string& name : options.libraries) {
    const std::string stem = JoinPath(JoinPath(root, kFakeLibraryDir), "lib" + name + ".so");
    const std::string file = stem + "." + options.version;
    RETURN_IF_ERROR(WriteFile(file, MakeLibrary("lib" + name + ".so.1"), 0755));
    const std::string link = stem + ".1";
    if (::symlink(BaseName(file).c_str(), link.c_str()) != 0) return Status::FromErrno(link, errno);
  }
  for (const std::string& name : options.binaries) {
    RETURN_IF_ERROR(WriteFile(JoinPath(root, "usr/bin/" + name), "#!/bin/sh\n", 0755));
  }
  for (const FakeGpu& gpu : options.gpus) {
    const std::string text =
        fmt::format("Model: \t\t {}\nIRQ:   \t\t 11\nGPU UUID: \t {}\nDevice Minor: \t {}\n",
                    gpu.model, gpu.uuid, gpu.minor);
    const std::string name = "proc/driver/nvidia/gpus/" + gpu.bus_id + "/information";
    RETURN_IF_ERROR(WriteFile(JoinPath(root, name), text, 0444));
  }
  return Status::Ok();
}

Status MakeFakeNodes(const std::string& root, const FakeDriverOptions& options) {
  for (const FakeGpu& gpu : options.gpus) {
    const auto number = static_cast<unsigned>(gpu.minor);
    RETURN_IF_ERROR(MakeNode(JoinPath(root, fmt::format("dev/nvidia{}", number)), 195, number));
  }
  RETURN_IF_ERROR(MakeNode(JoinPath(root, "dev/nvidiactl"), 195, 255));
  return MakeNode(JoinPath(root, "dev/nvidia-uvm"), 508, 0);
}

FakeDriverOptions TwoGpus() {
  FakeDriverOptions options;
  options.gpus = {
      {"0000:07:00.0", "GPU-11111111-1111-1111-1111-111111111111", "NVIDIA A100-SXM4-80GB", 1},
      {"0000:0f:00.0", "GPU-22222222-2222-2222-2222-222222222222", "NVIDIA A100-SXM4-80GB", 0}};
  return options;
}

}  // namespace tessera::oci
