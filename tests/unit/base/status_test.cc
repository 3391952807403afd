// SPDX-License-Identifier: Apache-2.0
#include "server/base/status.h"

#include <cerrno>
#include <set>

#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

using absl::StatusCode;

TEST(StatusTest, ErrFormats) {
  const absl::Status status = Err(StatusCode::kNotFound, "no {} of {}", 3, "x");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(std::string(status.message()), "no 3 of x");
}

TEST(SampleErrorTest, CarriesItsReasonInWordAndPayload) {
  std::set<std::string_view> names;
  for (int i = 0; i < kSampleReasonCount; ++i) {
    const auto reason = static_cast<SampleReason>(i);
    const absl::Status status = SampleErr(reason, "byte {}", 7);
    EXPECT_EQ(SampleReasonOf(status), reason);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_EQ(std::string(status.message()), fmt::format("{}: byte 7", SampleReasonName(reason)));
    names.insert(SampleReasonName(reason));
  }
  EXPECT_EQ(names,
            (std::set<std::string_view>{"empty", "not_an_image", "truncated", "corrupt",
                                        "unsupported", "too_large", "not_found", "not_a_file"}));
}

TEST(SampleErrorTest, OtherErrorsHaveNoReason) {
  EXPECT_EQ(SampleReasonOf(absl::OkStatus()), std::nullopt);
  EXPECT_EQ(SampleReasonOf(absl::DataLossError("corrupt: not by us")), std::nullopt);
}

TEST(FieldErrorTest, CarriesItsField) {
  const absl::Status status = FieldErr("a.b[2]", "{} is wrong", 5);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), "a.b[2]: 5 is wrong");
  EXPECT_EQ(FieldOf(status), "a.b[2]");
  EXPECT_EQ(FieldOf(absl::InvalidArgumentError("a.b: x")), "");
}

TEST(AnnotateTest, KeepsCodeAndPayloads) {
  const absl::Status sample = Annotate(SampleErr(SampleReason::kEmpty, "x"), "cat/1.jpg");
  EXPECT_EQ(std::string(sample.message()), "cat/1.jpg: empty: x");
  EXPECT_EQ(SampleReasonOf(sample), SampleReason::kEmpty);
  EXPECT_EQ(FieldOf(Annotate(FieldErr("f", "x"), "open")), "f");
}

TEST(ErrnoTextTest, IsTheSystemsSentence) {
  EXPECT_EQ(ErrnoText("open", ENOENT), "open: No such file or directory");
}

absl::StatusOr<int> Half(int n) {
  if (n % 2 != 0) return absl::InvalidArgumentError("odd");
  return n / 2;
}

absl::StatusOr<int> Quarter(int n) {
  BATCHD_ASSIGN_OR_RETURN(const int half, Half(n));
  BATCHD_RETURN_IF_ERROR(Half(half).status());
  return half / 2;
}

TEST(StatusMacrosTest, ReturnTheFirstErrorOrGoOn) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_THAT(Quarter(7), FailsWith(StatusCode::kInvalidArgument, "odd"));
  EXPECT_THAT(Quarter(6), FailsWith(StatusCode::kInvalidArgument, "odd"));
}

}  // namespace
}  // namespace batchd
