// SPDX-License-Identifier: Apache-2.0
// Memory errors of a GPU, and their repairs.
#include "src/sim/smi/gpu.h"

namespace tessera::smi {

NvmlAnswer<std::uint64_t> NvmlGpu::EccErrors(unsigned type, unsigned counter_type) const {
  return NVML_READ(*client_, std::uint64_t{}, nvmlDeviceGetTotalEccErrors, device_, type,
                   counter_type);
}

NvmlAnswer<std::uint64_t> NvmlGpu::EccErrorsAt(unsigned type, unsigned counter_type,
                                               unsigned location) const {
  return NVML_READ(*client_, std::uint64_t{}, nvmlDeviceGetMemoryErrorCounter, device_, type,
                   counter_type, location);
}

NvmlAnswer<unsigned> NvmlGpu::RetiredPageCount(unsigned cause) const {
  NvmlAnswer<unsigned> answer;
  answer.result =
      NVML_CALL(*client_, nvmlDeviceGetRetiredPages, device_, cause, &answer.value, nullptr);
  // The call gets no buffer for addresses.
  if (answer.result == nvml::Return::kInsufficientSize) answer.result = nvml::Return::kSuccess;
  return answer;
}

std::vector<RetiredPage> NvmlGpu::RetiredPages() const {
  std::vector<RetiredPage> pages;
  for (unsigned cause = 0; cause < 2; ++cause) {
    unsigned count = RetiredPageCount(cause).value;
    std::vector<std::uint64_t> addresses(count);
    if (count == 0 || NVML_CALL(*client_, nvmlDeviceGetRetiredPages, device_, cause, &count,
                                addresses.data()) != nvml::Return::kSuccess) {
      continue;
    }
    for (unsigned i = 0; i < count; ++i) pages.push_back({addresses[i], cause});
  }
  return pages;
}

NvmlAnswer<RemappedRows> NvmlGpu::RemappedRowCounts() const {
  NvmlAnswer<RemappedRows> answer;
  RemappedRows& rows = answer.value;
  answer.result = NVML_CALL(*client_, nvmlDeviceGetRemappedRows, device_, &rows.correctable,
                            &rows.uncorrectable, &rows.pending, &rows.failure);
  return answer;
}

NvmlAnswer<nvml::RowRemapperHistogram> NvmlGpu::RowHistogram() const {
  return NVML_READ(*client_, nvml::RowRemapperHistogram{}, nvmlDeviceGetRowRemapperHistogram,
                   device_);
}

NvmlAnswer<nvml::EccSramErrorStatus> NvmlGpu::SramErrors() const {
  return NVML_READ(*client_, Versioned<nvml::EccSramErrorStatus>(1),
                   nvmlDeviceGetSramEccErrorStatus, device_);
}

}  // namespace tessera::smi
