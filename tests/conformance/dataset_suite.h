// SPDX-License-Identifier: Apache-2.0
//
// What every dataset does. A kind's test says how to put one on disk, and instantiates
// DatasetSuite.

#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "server/dataset/dataset.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/source/temp_folder.h"

namespace batchd {

struct DatasetCase {
  std::string kind;
  // Puts a dataset of some samples in two classes or more below `folder` and returns the arguments
  // that open it. Equal for every folder, but for the path.
  std::function<Json(const TempFolder& folder)> put;
};

class DatasetSuite : public testing::TestWithParam<DatasetCase> {
 protected:
  absl::StatusOr<std::shared_ptr<const Dataset>> OpenAt(const TempFolder& folder,
                                                        const DatasetContext& context = {}) {
    const DatasetKind* kind = FindDataset(GetParam().kind);
    EXPECT_NE(kind, nullptr);
    auto arguments = CheckArguments(kind->schema(), GetParam().put(folder), "dataset");
    if (!arguments.ok()) return arguments.status();
    return kind->open(*arguments, context);
  }
  TempFolder folder_;
};

TEST_P(DatasetSuite, ItsKindIsRegisteredWithAName) {
  const DatasetKind* kind = FindDataset(GetParam().kind);
  ASSERT_NE(kind, nullptr);
  EXPECT_EQ(kind->schema().name, GetParam().kind);
  EXPECT_FALSE(kind->schema().sentence.empty());
  for (const Param& param : kind->schema().params) EXPECT_FALSE(param.sentence.empty());
  EXPECT_THAT(DatasetKinds(), testing::Contains(kind));
}

TEST_P(DatasetSuite, EverySampleHasAUniqueNameALabelAndBytes) {
  const auto dataset = OpenAt(folder_);
  ASSERT_OK(dataset);
  ASSERT_GT((*dataset)->num_samples(), 0);
  std::set<std::string> names;
  SampleLocation location;
  ReadBuffer buffer;
  for (int64_t i = 0; i < (*dataset)->num_samples(); ++i) {
    names.insert((*dataset)->NameOf(i));
    EXPECT_GE((*dataset)->LabelOf(i), (*dataset)->num_classes() == 0 ? -1 : 0);
    EXPECT_LT((*dataset)->LabelOf(i), std::max<int64_t>(1, (*dataset)->num_classes()));
    (*dataset)->Locate(i, &location);
    EXPECT_OK((*dataset)->source()->Read(location, size_t{1} << 30, &buffer))
        << (*dataset)->NameOf(i);
  }
  EXPECT_EQ(static_cast<int64_t>(names.size()), (*dataset)->num_samples());
}

TEST_P(DatasetSuite, ClassesHaveDistinctNames) {
  const auto dataset = OpenAt(folder_);
  ASSERT_OK(dataset);
  std::set<std::string> names;
  for (int64_t i = 0; i < (*dataset)->num_classes(); ++i) names.insert((*dataset)->ClassName(i));
  EXPECT_EQ(static_cast<int64_t>(names.size()), (*dataset)->num_classes());
}

TEST_P(DatasetSuite, TheFingerprintIsThatOfTheDataNotOfThePlace) {
  TempFolder elsewhere, state;
  DatasetContext context;
  context.state_dir = state.str();
  const auto here = OpenAt(folder_);
  const auto there = OpenAt(elsewhere);
  const auto cold = OpenAt(folder_, context);
  const auto warm = OpenAt(folder_, context);
  ASSERT_OK(here);
  ASSERT_OK(there);
  ASSERT_OK(cold);
  ASSERT_OK(warm);
  EXPECT_THAT((*here)->fingerprint(), testing::MatchesRegex("[0-9a-f]{32}"));
  EXPECT_EQ((*here)->fingerprint(), (*there)->fingerprint());
  EXPECT_EQ((*here)->fingerprint(), (*cold)->fingerprint());
  EXPECT_EQ((*here)->fingerprint(), (*warm)->fingerprint());
}

TEST_P(DatasetSuite, IsNotStaleWhenNothingHasChanged) {
  const auto dataset = OpenAt(folder_);
  ASSERT_OK(dataset);
  EXPECT_FALSE((*dataset)->IsStale());
}

TEST_P(DatasetSuite, SaysWhatItTakes) {
  const auto dataset = OpenAt(folder_);
  ASSERT_OK(dataset);
  EXPECT_GT((*dataset)->index_bytes(), 0);
  EXPECT_FALSE((*dataset)->source_name().empty());
}

TEST_P(DatasetSuite, ASharedDaemonOpensNothingOutsideItsRoots) {
  TempFolder served;
  DatasetContext context;
  context.any_root = false;
  EXPECT_THAT(OpenAt(folder_, context), FailsWith(absl::StatusCode::kPermissionDenied, "none"));
  context.roots = {served.str()};
  EXPECT_THAT(OpenAt(folder_, context),
              FailsWith(absl::StatusCode::kPermissionDenied, served.str()));
  context.roots.push_back(folder_.str());
  EXPECT_OK(OpenAt(folder_, context));
}

}  // namespace batchd
