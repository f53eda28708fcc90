// SPDX-License-Identifier: Apache-2.0
#include "src/sim/simgpu/known_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(KnownNamesTest, ListsTheFunctionsOfTheLibrary) {
  EXPECT_TRUE(CheckNvmlFunction("nvmlDeviceGetMemoryInfo").ok());
  EXPECT_TRUE(CheckNvmlFunction("nvmlDeviceDiscoverGpus").ok()) << "an unimplemented function";
  EXPECT_TRUE(CheckNvmlFunction("*").ok());
}

TEST(KnownNamesTest, AnUnknownFunctionIsRefusedWithTheNearest) {
  EXPECT_THAT(CheckNvmlFunction("nvmlDeviceGetMemoryInf").message(),
              HasSubstr("did you mean nvmlDeviceGetMemoryInfo"));
  EXPECT_THAT(CheckNvmlFunction("GetMemoryInfo").message(), HasSubstr("nvmlDeviceGetMemoryInfo"));
  EXPECT_THAT(CheckNvmlFunction("nvmldevicegetname").message(), HasSubstr("nvmlDeviceGetName"));
  const Status status = CheckNvmlFunction("frobnicate");
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("such as"));
  EXPECT_FALSE(CheckNvmlFunction("").ok());
}

TEST(KnownNamesTest, AnUnknownXidIsRefusedWithTheCatalog) {
  EXPECT_TRUE(CheckXid(79).ok());
  EXPECT_TRUE(CheckXid(13).ok());
  EXPECT_THAT(CheckXid(4242).message(), HasSubstr("unknown XID 4242"));
  EXPECT_THAT(CheckXid(4242).message(), HasSubstr(" 48 "));
  EXPECT_FALSE(CheckXid(0).ok());
}

TEST(NearestNamesTest, OrdersByDistanceAndOmitsDistantNames) {
  EXPECT_THAT(NearestNames("kitten", {"mitten", "kitten", "zebra", "sitting", "bitten"}),
              ElementsAre("kitten", "mitten", "bitten"));
  EXPECT_THAT(NearestNames("x", {"kitten"}), IsEmpty());
}

}  // namespace
}  // namespace tessera::sim
