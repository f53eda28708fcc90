// SPDX-License-Identifier: Apache-2.0
// Fields of memory errors: ECC counters, retired pages, remapped rows.
#include "src/sim/smi/fields.h"

namespace tessera::smi {
namespace {

// NVML's numbers.
enum : unsigned { kCorrected, kUncorrected };
enum : unsigned { kVolatile, kAggregate };
enum : unsigned { kL1 = 0, kL2 = 1, kDram = 2, kRegisters = 3, kTexture = 4, kCbu = 6, kSram = 7 };

template <unsigned type, unsigned counter_type, unsigned location>
std::string EccAt(const QueryLine& line) {
  return Show(line.gpu.EccErrorsAt(type, counter_type, location));
}

template <unsigned type, unsigned counter_type>
std::string EccTotal(const QueryLine& line) {
  return Show(line.gpu.EccErrors(type, counter_type));
}

template <std::uint64_t nvml::EccSramErrorStatus::*member>
std::string Sram(const QueryLine& line) {
  const NvmlAnswer<nvml::EccSramErrorStatus> status = line.gpu.SramErrors();
  return Show(NvmlAnswer<std::uint64_t>{status.result, status.value.*member});
}

std::string SramThreshold(const QueryLine& line) {
  const NvmlAnswer<nvml::EccSramErrorStatus> status = line.gpu.SramErrors();
  return ShowYesNo({status.result, status.value.threshold_exceeded});
}

template <unsigned RemappedRows::*member>
NvmlAnswer<unsigned> RemappedRowsValue(const NvmlGpu& gpu) {
  const NvmlAnswer<RemappedRows> rows = gpu.RemappedRowCounts();
  return {rows.result, rows.value.*member};
}

template <unsigned RemappedRows::*member>
std::string RowsCount(const QueryLine& line) {
  return Show(RemappedRowsValue<member>(line.gpu));
}

template <unsigned RemappedRows::*member>
std::string RowsYesNo(const QueryLine& line) {
  return ShowYesNo(RemappedRowsValue<member>(line.gpu));
}

template <unsigned nvml::RowRemapperHistogram::*member>
std::string Banks(const QueryLine& line) {
  const NvmlAnswer<nvml::RowRemapperHistogram> banks = line.gpu.RowHistogram();
  return Show(NvmlAnswer<unsigned>{banks.result, banks.value.*member});
}

template <unsigned cause>
std::string Retired(const QueryLine& line) {
  return Show(line.gpu.RetiredPageCount(cause));
}

template <unsigned field>
std::string FieldYesNo(const QueryLine& line) {
  return ShowYesNo(line.gpu.FieldNumber(field));
}

// The counters of one error type and counter type, by memory.
// clang-format off
#define ECC_FIELDS(name, type, counter_type, words)                                         \
  {name ".device_memory", "", "", words " in the device's memory.",                    \
   EccAt<type, counter_type, kDram>},                                                       \
  {name ".dram", "", "", words " in DRAM.", EccAt<type, counter_type, kDram>},              \
  {name ".register_file", "", "", words " in registers.",                              \
   EccAt<type, counter_type, kRegisters>},                                                  \
  {name ".l1_cache", "", "", words " in the L1 cache.", EccAt<type, counter_type, kL1>},    \
  {name ".l2_cache", "", "", words " in the L2 cache.", EccAt<type, counter_type, kL2>},    \
  {name ".texture_memory", "", "", words " in texture memory.",                        \
   EccAt<type, counter_type, kTexture>},                                                    \
  {name ".cbu", "", "", words " in the CBU.", EccAt<type, counter_type, kCbu>},             \
  {name ".sram", "", "", words " in SRAM.", EccAt<type, counter_type, kSram>},              \
  {name ".total", "", "", words " in all memories.", EccTotal<type, counter_type>}
// clang-format on

void AddEcc(std::vector<QueryField>* t) {
  using Status = nvml::EccSramErrorStatus;
  t->insert(t->end(),
            {
                ECC_FIELDS("ecc.errors.corrected.volatile", kCorrected, kVolatile,
                           "Count since the boot of corrected ECC errors"),
                ECC_FIELDS("ecc.errors.corrected.aggregate", kCorrected, kAggregate,
                           "Lifetime count of corrected ECC errors"),
                ECC_FIELDS("ecc.errors.uncorrected.volatile", kUncorrected, kVolatile,
                           "Count since the boot of uncorrected ECC errors"),
                ECC_FIELDS("ecc.errors.uncorrected.aggregate", kUncorrected, kAggregate,
                           "Lifetime count of uncorrected ECC errors"),
                {"ecc.errors.uncorrected.volatile.sram.parity", "", "",
                 "Count since the boot of parity errors.", Sram<&Status::volatile_unc_parity>},
                {"ecc.errors.uncorrected.volatile.sram.secded", "", "",
                 "Count since the boot of SEC-DED errors.", Sram<&Status::volatile_unc_secded>},
                {"ecc.errors.uncorrected.aggregate.sram.parity", "", "",
                 "Lifetime count of parity errors.", Sram<&Status::aggregate_unc_parity>},
                {"ecc.errors.uncorrected.aggregate.sram.secded", "", "",
                 "Lifetime count of SEC-DED errors.", Sram<&Status::aggregate_unc_secded>},
                {"ecc.errors.uncorrected.aggregate.sram.thresholdExceeded", "", "",
                 "Whether the number of errors exceeds the threshold of the board.", SramThreshold},
                {"ecc.errors.uncorrected.aggregate.sram.l2", "", "",
                 "Lifetime count of errors in the L2 cache.", Sram<&Status::aggregate_unc_l2>},
                {"ecc.errors.uncorrected.aggregate.sram.sm", "", "",
                 "Lifetime count of errors in multiprocessors.", Sram<&Status::aggregate_unc_sm>},
                {"ecc.errors.uncorrected.aggregate.sram.mcu", "", "",
                 "Lifetime count of errors in microcontrollers.", Sram<&Status::aggregate_unc_mcu>},
                {"ecc.errors.uncorrected.aggregate.sram.pcie", "", "",
                 "Lifetime count of errors in PCIe.", Sram<&Status::aggregate_unc_pcie>},
                {"ecc.errors.uncorrected.aggregate.sram.other", "", "",
                 "Lifetime count of errors in other parts.", Sram<&Status::aggregate_unc_other>},
            });
}
#undef ECC_FIELDS

void AddRepairs(std::vector<QueryField>* t) {
  using Histogram = nvml::RowRemapperHistogram;
  t->insert(t->end(),
            {
                {"retired_pages.single_bit_ecc.count", "retired_pages.sbe", "",
                 "Pages retired after corrected errors.", Retired<0>},
                {"retired_pages.double_bit.count", "retired_pages.dbe", "",
                 "Pages retired after uncorrected errors.", Retired<1>},
                {"retired_pages.pending", "", "", "Whether pages wait to be retired.",
                 OF_GPU(ShowYesNo(g.Number("nvmlDeviceGetRetiredPagesPendingStatus")))},
                {"remapped_rows.correctable", "", "", "Rows remapped after corrected errors.",
                 RowsCount<&RemappedRows::correctable>},
                {"remapped_rows.uncorrectable", "", "", "Rows remapped after uncorrected errors.",
                 RowsCount<&RemappedRows::uncorrectable>},
                {"remapped_rows.pending", "", "", "Whether a row waits to be remapped by a reset.",
                 RowsYesNo<&RemappedRows::pending>},
                {"remapped_rows.failure", "", "", "Whether a row could not be remapped.",
                 RowsYesNo<&RemappedRows::failure>},
                {"remapped_rows.histogram.max", "", "", "Banks of which all spare rows are unused.",
                 Banks<&Histogram::max>},
                {"remapped_rows.histogram.high", "", "",
                 "Banks of which most spare rows are unused.", Banks<&Histogram::high>},
                {"remapped_rows.histogram.partial", "", "",
                 "Banks of which some spare rows are unused.", Banks<&Histogram::partial>},
                {"remapped_rows.histogram.low", "", "", "Banks of which few spare rows are unused.",
                 Banks<&Histogram::low>},
                {"remapped_rows.histogram.none", "", "", "Banks without an unused spare row.",
                 Banks<&Histogram::none>},
                {"reset_status.reset_required", "", "", "Whether the GPU has to be reset.",
                 FieldYesNo<nvml::kFieldResetStatus>},
                {"reset_status.drain_and_reset_recommended", "", "",
                 "Whether the GPU should be drained and reset.",
                 FieldYesNo<nvml::kFieldDrainAndResetStatus>},
                {"gpu_recovery_action", "", "",
                 "Action that the driver requests from the operator.", OF_GPU(g.RecoveryAction())},
            });
}

}  // namespace

void AddErrorFields(std::vector<QueryField>* table) {
  AddEcc(table);
  AddRepairs(table);
}

}  // namespace tessera::smi
