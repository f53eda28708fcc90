// SPDX-License-Identifier: Apache-2.0
// Names of GPU models: NVML reports "Tesla V100-SXM2-16GB", users write V100, and labels allow
// neither spaces nor more than 63 characters. Rules derive the names, so that new models have
// names, too. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace tessera::device {

// The chip's name without vendor, brand, form factor and memory size: "V100", "A100", "T4",
// "RTX-4090", "RTX-6000-Ada", "L40S". A valid label value; empty only if `product` is empty.
std::string ShortModel(std::string_view product);

// Converts text into a label value like GPU feature discovery: drops characters that labels may not
// contain and joins words by "-". Empty if nothing is left.
std::string LabelValue(std::string_view text);

// The value of nvidia.com/gpu.product as GPU feature discovery writes it:
// "NVIDIA-A100-SXM4-80GB". A valid label value.
std::string ProductLabel(std::string_view product);

// The value that gpu-manager wrote into gaia.tencent.com/gpu-model, to which its quotas refer: the
// second word if there are more than two. "Tesla M40 24GB" is "M40", but "NVIDIA A100-SXM4-80GB" is
// "" and "NVIDIA GeForce RTX 3090" is "GeForce".
std::string GpuManagerModel(std::string_view product);

// Whether `wanted` is any name of the product, ignoring case: the product itself, or the result of
// a function above. "a100" matches every A100, "NVIDIA-A100-SXM4-80GB" only that product.
bool MatchesModel(std::string_view product, std::string_view wanted);

}  // namespace tessera::device
