// SPDX-License-Identifier: Apache-2.0
#include "src/base/status.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace tessera {
namespace {

Result<int> Half(int n) {
  if (n % 2 != 0) return Error(Code::kInvalidArgument, "{} is odd", n);
  return n / 2;
}

Result<int> Quarter(int n) {
  ASSIGN_OR_RETURN(const int half, Half(n));
  return Half(half);
}

TEST(StatusTest, ADefaultStatusIsOkAndStaysOkWhenAnnotated) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().ToString(), "OK");
  EXPECT_TRUE(Status().Annotate("unused").ok());
}

TEST(StatusTest, AnnotatePrefixesTheMessage) {
  const Status status = Error(Code::kNotFound, "{} is missing", "/dev/nvidia0");
  EXPECT_EQ(status.Annotate("starting pod a").ToString(),
            "NOT_FOUND: starting pod a: /dev/nvidia0 is missing");
}

TEST(StatusTest, ErrnoBecomesACanonicalCode) {
  EXPECT_EQ(Status::FromErrno("x", ENOENT).code(), Code::kNotFound);
  EXPECT_EQ(Status::FromErrno("x", ENOSPC).code(), Code::kResourceExhausted);
  EXPECT_EQ(Status::FromErrno("x", ECONNREFUSED).code(), Code::kUnavailable);
}

TEST(StatusTest, EveryCodeHasANameAndANumber) {
  for (int i = 0; i <= 16; ++i) {
    const CodeInfo& info = InfoOf(static_cast<Code>(i));
    EXPECT_EQ(static_cast<int>(info.code), i);
    EXPECT_EQ(CodeFromName(info.name), info.code);
  }
}

TEST(ResultTest, AssignOrReturnReturnsTheError) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status().message(), "3 is odd");
}

TEST(ResultDeathTest, ReadingTheValueOfAnErrorIsABrokenInvariant) {
  EXPECT_DEATH((void)Half(1).value(), "1 is odd");
}

}  // namespace
}  // namespace tessera
