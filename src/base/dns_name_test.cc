// SPDX-License-Identifier: Apache-2.0
#include "src/base/dns_name.h"

#include <gtest/gtest.h>

#include <string>

namespace tessera {
namespace {

TEST(DnsNameTest, IsASubdomainOfRfc1123) {
  const std::string label(63, 'a');
  for (const std::string& name : {std::string("a"), std::string("0.a-b.svc"), label,
                                  label + "." + label + "." + label + "." + std::string(61, 'b')}) {
    EXPECT_TRUE(IsDnsName(name)) << name;
  }
  for (const std::string& name :
       {std::string(), std::string("A"), std::string("a..b"), std::string(".a"), std::string("a."),
        std::string("-a"), std::string("a-"), std::string("a_b"), std::string("a b"),
        std::string("*.a"), label + "a",
        label + "." + label + "." + label + "." + std::string(62, 'b')}) {
    EXPECT_FALSE(IsDnsName(name)) << name;
  }
}

}  // namespace
}  // namespace tessera
