// SPDX-License-Identifier: Apache-2.0
#include "src/base/version.h"

namespace tessera {

constinit const std::string_view kTesseraVersion = TESSERA_VERSION;

}  // namespace tessera
