// SPDX-License-Identifier: Apache-2.0
// Names of GPU models: NVML gives "Tesla V100-SXM2-16GB", people write V100, labels may hold
// neither spaces nor more than 63 characters. Works by rules, so a model that came out yesterday
// has a name too. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace tessera::device {

// The chip without vendor, brand, form and size: "V100", "A100", "T4", "RTX-4090", "RTX-6000-Ada",
// "L40S". A valid label value; empty only for an empty product.
std::string ShortModel(std::string_view product);

// The product as GPU feature discovery writes it into nvidia.com/gpu.product:
// "NVIDIA-A100-SXM4-80GB". A valid label value.
std::string ProductLabel(std::string_view product);

// What gpu-manager wrote into gaia.tencent.com/gpu-model, on which quotas are kept: the second word
// if there are more than two. "Tesla M40 24GB" is "M40", but "NVIDIA A100-SXM4-80GB" is "" and
// "NVIDIA GeForce RTX 3090" is "GeForce".
std::string LegacyModel(std::string_view product);

// Whether `wanted` is any of the product's names, in any case: the product itself, or one of the
// above. "a100" is every A100, "NVIDIA-A100-SXM4-80GB" only that one.
bool MatchesModel(std::string_view product, std::string_view wanted);

}  // namespace tessera::device
