// SPDX-License-Identifier: Apache-2.0
// tencent.com/vcuda-core and tencent.com/vcuda-memory, as in TKEStack's gpu-manager, and the cards
// of its web form.
#include <algorithm>

#include "api/names.h"
#include "src/base/strings.h"
#include "src/device/dialects/parser.h"

namespace tessera::device {
namespace dialects {
namespace {

constexpr int64_t kCoresPerGpu = kWholeGpu.count() / kVcudaCore.count();

bool OwnsVcuda(std::string_view resource) {
  return resource == names::kResourceVcudaCore || resource == names::kResourceVcudaMemory;
}

int64_t AmountOf(const Amounts& amounts, std::string_view resource) {
  const auto amount = amounts.find(resource);
  return amount == amounts.end() ? 0 : amount->second;
}

Status ParseShare(int64_t core, int64_t memory, ContainerRequest* request) {
  if (memory == 0) {
    return Refuse(request->name, names::kResourceVcudaMemory,
                  "is missing or 0 beside {}: {}: ask for 1 or more blocks of 256 MiB",
                  names::kResourceVcudaCore, core);
  }
  ASSIGN_OR_RETURN(request->per_gpu.memory, ShareMemory(request->name, names::kResourceVcudaMemory,
                                                        memory, kVcudaMemoryBlock));
  request->per_gpu.compute = kVcudaCore * core;
  request->count = 1;
  return Status::Ok();
}

Status ParseVcuda(const Amounts& amounts, const DialectOptions&, ContainerRequest* request) {
  const int64_t core = AmountOf(amounts, names::kResourceVcudaCore);
  const int64_t memory = AmountOf(amounts, names::kResourceVcudaMemory);
  if (core == 0) {
    return Refuse(request->name, names::kResourceVcudaCore,
                  "is missing or 0 beside {}: {}: ask for 1 to 99, or for a multiple of 100",
                  names::kResourceVcudaMemory, memory);
  }
  if (core < kCoresPerGpu) return ParseShare(core, memory, request);
  // Whole GPUs come with all their memory, so a memory request beside them is ignored.
  request->exclusive = true;
  RETURN_IF_ERROR(SetWhole(names::kResourceVcudaCore, core / kCoresPerGpu, request));
  const int64_t below = core - core % kCoresPerGpu;
  if (core == below) return Status::Ok();
  return Refuse(request->name, names::kResourceVcudaCore,
                "{} is neither 1 to 99 nor a multiple of 100: ask for {} or {}", core, below,
                below + kCoresPerGpu);
}

}  // namespace

const DialectParser kVcuda = {Dialect::kVcuda, OwnsVcuda, "ask for whole units", ParseVcuda};

}  // namespace dialects

namespace {

constexpr size_t kMaxCardDigits = 6;

bool AreDigits(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Hundredths of a card; negative if `text` is not such a number.
int64_t ParseHundredths(std::string_view text) {
  const size_t point = text.find('.');
  const std::string_view whole = text.substr(0, point);
  std::string decimals = "00";
  if (point != std::string_view::npos) {
    const std::string_view given = text.substr(point + 1);
    if (given.empty() || given.size() > decimals.size()) return -1;
    std::copy(given.begin(), given.end(), decimals.begin());
  }
  if (whole.empty() || whole.size() > kMaxCardDigits) return -1;
  if (!AreDigits(whole) || !AreDigits(decimals)) return -1;
  return ParseInt(std::string(whole) + decimals).value_or(-1);
}

}  // namespace

Result<int64_t> ParseCards(std::string_view text) {
  const int64_t hundredths = ParseHundredths(text);
  const bool share = hundredths >= 10 && hundredths <= 100;
  if (hundredths < 0 || (!share && hundredths % 100 != 0) ||
      hundredths > int64_t{kMaxDevicesPerContainer} * 100) {
    return Error(
        Code::kInvalidArgument,
        "cards: \"{}\" is neither 0.1 to 1 with at most two decimals nor a whole number up "
        "to {}: ask for one like 0.3, 0.56, 1 or 6",
        text.substr(0, 64), kMaxDevicesPerContainer);
  }
  return hundredths;
}

}  // namespace tessera::device
