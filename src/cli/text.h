// SPDX-License-Identifier: Apache-2.0
// Texts for a terminal: made harmless, measured, amounts as people say them. Annotations and
// reasons come from whoever may write a Pod or a Node, so nothing of them goes to a terminal but
// through Printable (Table and Paper do it).
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "src/base/units.h"
#include "src/device/dialects.h"
#include "src/device/request.h"

namespace tessera::cli {

// Control characters (C0, DEL, C1), line breaks, what turns the direction of writing, and bytes
// that are no UTF-8 become U+FFFD; the rest stays.
std::string Printable(std::string_view text);
// JSON with the control characters as \u escapes that Json leaves as they are.
std::string PrintableJson(std::string json);
// Columns that a terminal gives it. REQUIRES: Printable.
size_t WidthOf(std::string_view text);

// "5 GiB", "39.6 GiB", "256 MiB", "100 bytes".
std::string MemoryText(Bytes bytes);
// "120/640 GiB", both in the unit of the second.
std::string MemoryText(Bytes part, Bytes whole);
// Thousandths as a decimal without a tail of zeros: 300 is "0.3".
std::string CardsText(int64_t milli);

// What a container asks for, as its pod says it: "gpu: 2", "gpu-mem: 8 GiB",
// "vcuda-core: 30, vcuda-memory: 20", "mig-1g.10gb: 1". Empty for nothing.
std::string AskText(const device::ContainerRequest& container, device::MemoryUnit unit);
// Of all its containers: "gpu-mem: 4 GiB + gpu-mem: 4 GiB". "none" where it asks for nothing.
std::string AskText(const device::Request& request, device::MemoryUnit unit);

// "s" but for one.
inline std::string_view Plural(size_t n) { return n == 1 ? "" : "s"; }

}  // namespace tessera::cli
