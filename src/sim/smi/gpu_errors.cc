// SPDX-License-Identifier: Apache-2.0
// Memory errors of a GPU, and their repairs.
#include "src/sim/smi/gpu.h"

namespace tessera::smi {

NvmlAnswer<std::uint64_t> NvmlGpu::EccErrors(unsigned type, unsigned counter_type) const {
  NvmlAnswer<std::uint64_t> answer;
  answer.result =
      NVML_CALL(*client_, nvmlDeviceGetTotalEccErrors, device_, type, counter_type, &answer.value);
  return answer;
}

NvmlAnswer<std::uint64_t> NvmlGpu::EccErrorsAt(unsigned type, unsigned counter_type,
                                               unsigned location) const {
  NvmlAnswer<std::uint64_t> answer;
  answer.result = NVML_CALL(*client_, nvmlDeviceGetMemoryErrorCounter, device_, type, counter_type,
                            location, &answer.value);
  return answer;
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
  NvmlAnswer<nvml::RowRemapperHistogram> answer;
  answer.result = NVML_CALL(*client_, nvmlDeviceGetRowRemapperHistogram, device_, &answer.value);
  return answer;
}

NvmlAnswer<nvml::EccSramErrorStatus> NvmlGpu::SramErrors() const {
  NvmlAnswer<nvml::EccSramErrorStatus> answer;
  answer.value.version = nvml::VersionOf<nvml::EccSramErrorStatus>(1);
  answer.result = NVML_CALL(*client_, nvmlDeviceGetSramEccErrorStatus, device_, &answer.value);
  return answer;
}

}  // namespace tessera::smi
