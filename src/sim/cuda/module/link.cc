// SPDX-License-Identifier: Apache-2.0
// The linker of the driver (cuLink*), which joins inputs into one image. It does not read code: PTX
// inputs become one text, and a single input of another kind is the image. Any other combination
// gives an image with a kernel of every name, like a fat binary.
#include <string.h>

#include "src/sim/cuda/driver/driver.h"

namespace tessera::cuda {
namespace {

// CUjitInputType
constexpr int kCubin = 0, kPtx = 1, kFatBinary = 2, kObject = 3, kLibrary = 4;

std::string ImageOf(const LinkStateTag& link) {
  if (link.other_inputs.empty()) return link.ptx;
  if (link.other_inputs.size() == 1 && link.ptx.empty()) return link.other_inputs[0];
  std::string any(reinterpret_cast<const char*>(&kFatBinaryMagic), sizeof(kFatBinaryMagic));
  any.resize(16);
  return any;
}

Result Add(Driver& driver, LinkStateTag* link, int type, std::string piece) {
  switch (type) {
    case kPtx: {
      Image image;
      const int cuda_version = int(driver.state().file().cuda_version);
      // The size may include the NUL at the end of the text.
      piece.resize(strlen(piece.c_str()));
      const Result result = ReadPtx(piece, link->cc, cuda_version, &image);
      if (result == Result::kSuccess) link->ptx += piece + "\n";
      return result;
    }
    case kCubin: {
      Image image;
      const Result result = ReadCubin(piece.data(), piece.size(), link->cc, &image);
      if (result == Result::kSuccess) link->other_inputs.push_back(std::move(piece));
      return result;
    }
    case kFatBinary:
    case kObject:
      link->other_inputs.push_back(std::move(piece));
      return Result::kSuccess;
    case kLibrary:
      return Result::kSuccess;  // a library has only functions that kernels call
    default:
      return Result::kInvalidValue;
  }
}

}  // namespace

CUDA_EXPORT Result cuLinkCreate_v2(unsigned, int*, void**, LinkState* link) {
  CUDA_ENTER(ContextCall, call);
  if (link == nullptr) return Result::kInvalidValue;
  auto created = std::make_unique<LinkStateTag>();
  created->cc = CcOf(call->FactsOf(call.context()->device));
  *link = created.get();
  call->links()[*link] = std::move(created);
  return Result::kSuccess;
}
CUDA_ALIAS(cuLinkCreate, cuLinkCreate_v2)

CUDA_EXPORT Result cuLinkAddData_v2(LinkState link, int type, void* data, size_t bytes, const char*,
                                    unsigned, int*, void**) {
  CUDA_ENTER(Call, call);
  if (!call->links().contains(link)) return Result::kInvalidHandle;
  if (data == nullptr || bytes == 0) return Result::kInvalidValue;
  return Add(call.driver(), link, type, std::string(static_cast<const char*>(data), bytes));
}
CUDA_ALIAS(cuLinkAddData, cuLinkAddData_v2)

CUDA_EXPORT Result cuLinkAddFile_v2(LinkState link, int type, const char* path, unsigned, int*,
                                    void**) {
  CUDA_ENTER(Call, call);
  if (!call->links().contains(link)) return Result::kInvalidHandle;
  std::string piece;
  if (path == nullptr) return Result::kInvalidValue;
  if (!ReadWholeFile(path, &piece)) return Result::kFileNotFound;
  return Add(call.driver(), link, type, std::move(piece));
}
CUDA_ALIAS(cuLinkAddFile, cuLinkAddFile_v2)

CUDA_EXPORT Result cuLinkComplete(LinkState link, void** image, size_t* bytes) {
  CUDA_ENTER(Call, call);
  if (!call->links().contains(link)) return Result::kInvalidHandle;
  if (image == nullptr || (link->ptx.empty() && link->other_inputs.empty()))
    return Result::kInvalidValue;
  link->image = ImageOf(*link);
  *image = link->image.data();
  PutIf(bytes, link->image.size());
  return Result::kSuccess;
}

CUDA_EXPORT Result cuLinkDestroy(LinkState link) {
  CUDA_ENTER(Call, call);
  return call->links().erase(link) != 0 ? Result::kSuccess : Result::kInvalidHandle;
}

}  // namespace tessera::cuda
