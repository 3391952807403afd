// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/metrics.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace batchd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The names that users' dashboards hold, with their types.
constexpr const char* kPromised[][2] = {{"batchd_samples_decoded_total", "counter"},
                                        {"batchd_samples_total", "counter"},
                                        {"batchd_sample_errors_total", "counter"},
                                        {"batchd_batches_served_total", "counter"},
                                        {"batchd_client_wait_seconds", "histogram"},
                                        {"batchd_requests_total", "counter"},
                                        {"batchd_requests_ready_total", "counter"},
                                        {"batchd_stage_duration_seconds", "histogram"},
                                        {"batchd_sessions", "gauge"},
                                        {"batchd_slabs", "gauge"},
                                        {"batchd_source_requests_total", "counter"},
                                        {"batchd_source_bytes_total", "counter"},
                                        {"batchd_source_retries_total", "counter"},
                                        {"batchd_memory_bytes", "gauge"},
                                        {"batchd_build_info", "gauge"}};

TEST(MetricsTest, EveryPromisedNameIsServedWithItsType) {
  Metrics metrics;
  const auto job = metrics.ForJob("train");

  const std::string text = metrics.Scrape();

  for (const auto& [name, type] : kPromised) {
    EXPECT_THAT(text, HasSubstr("# TYPE " + std::string(name) + " " + type + "\n"));
    EXPECT_THAT(text, HasSubstr("# HELP " + std::string(name) + " "));
  }
  EXPECT_THAT(text, HasSubstr("batchd_build_info{version=\"" BATCHD_VERSION "\"} 1\n"));
}

TEST(MetricsTest, PromtoolHasNothingToSayAboutAScrape) {
  Metrics metrics;
  const auto job = metrics.ForJob("a \"quoted\"\\ name\n");
  Add(job->samples_ok, 3);
  Observe(job->client_wait, 0.02);
  const auto path = std::filesystem::temp_directory_path() /
                    ("batchd_scrape_" + std::to_string(getpid()) + ".txt");
  std::ofstream(path) << metrics.Scrape();

  FILE* const tool = popen(("promtool check metrics < " + path.string() + " 2>&1").c_str(), "r");
  ASSERT_NE(tool, nullptr);
  std::string said;
  char buffer[512];
  while (fgets(buffer, sizeof(buffer), tool) != nullptr) said += buffer;
  const int status = pclose(tool);

  std::filesystem::remove(path);
  EXPECT_EQ(status, 0) << said << "(promtool comes with Debian's package prometheus)";
  EXPECT_EQ(said, "");
}

TEST(MetricsTest, WhatAJobCountsCarriesItsName) {
  Metrics metrics;
  const auto job = metrics.ForJob("train");

  Add(job->samples_skipped, 2);
  Add(job->batches_grpc);
  Add(job->sample_errors[static_cast<int>(SampleReason::kTruncated)]);
  Observe(metrics.stage_duration[static_cast<int>(Stage::kDecode)], 0.0003);

  const std::string text = metrics.Scrape();
  EXPECT_THAT(text, HasSubstr("batchd_samples_total{job=\"train\",result=\"skipped\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("batchd_batches_served_total{job=\"train\",transport=\"grpc\"} 1\n"));
  EXPECT_THAT(text,
              HasSubstr("batchd_sample_errors_total{job=\"train\",reason=\"truncated\"} 1\n"));
  const std::string bucket = "batchd_stage_duration_seconds_bucket{stage=\"decode\",le=";
  EXPECT_THAT(text, HasSubstr(bucket + "\"0.00025\"} 0\n"));
  EXPECT_THAT(text, HasSubstr(bucket + "\"0.0005\"} 1\n"));
}

TEST(MetricsTest, ALoaderWithoutANameStillHasALabel) {
  Metrics metrics;

  const auto job = metrics.ForJob("");

  EXPECT_THAT(metrics.Scrape(), HasSubstr("batchd_requests_total{job=\"default\"} 0\n"));
}

TEST(MetricsTest, SessionsOfAJobShareItsSeriesAndTheLastTakesThemAlong) {
  Metrics metrics;
  auto first = metrics.ForJob("train");
  auto second = metrics.ForJob("train");
  EXPECT_EQ(first->requests, second->requests);
  Add(first->requests);

  first.reset();
  EXPECT_THAT(metrics.Scrape(), HasSubstr("batchd_requests_total{job=\"train\"} 1\n"));
  second.reset();

  EXPECT_THAT(metrics.Scrape(), Not(HasSubstr("job=\"train\"")));
  EXPECT_THAT(metrics.Scrape(), HasSubstr("# TYPE batchd_sessions gauge"));
}

TEST(MetricsTest, JobsAboveTheLimitAreCountedAsOther) {
  Metrics metrics;
  std::vector<std::shared_ptr<const Metrics::Job>> jobs;
  for (int i = 0; i < Metrics::kJobsMax; ++i) {
    jobs.push_back(metrics.ForJob("j" + std::to_string(i)));
  }

  const auto late = metrics.ForJob("late");
  const auto later = metrics.ForJob("later");
  const auto known = metrics.ForJob("j5");

  EXPECT_EQ(late->requests, later->requests);
  EXPECT_EQ(known->requests, jobs[5]->requests);
  EXPECT_THAT(metrics.Scrape(), HasSubstr("batchd_requests_total{job=\"other\"} 0\n"));
  EXPECT_THAT(metrics.Scrape(), Not(HasSubstr("job=\"late\"")));
  jobs.clear();
  EXPECT_NE(metrics.ForJob("new")->requests, late->requests);
}

TEST(MetricsTest, JobsThatComeAndGoInManyThreadsKeepTheirSeries) {
  Metrics metrics;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&metrics] {
      for (int i = 0; i < 300; ++i) Add(metrics.ForJob("train")->requests);
    });
  }
  threads.emplace_back([&metrics] {
    for (int i = 0; i < 20; ++i) EXPECT_FALSE(metrics.Scrape().empty());
  });

  for (auto& thread : threads) thread.join();

  EXPECT_THAT(metrics.Scrape(), Not(HasSubstr("job=")));
}

}  // namespace
}  // namespace batchd
