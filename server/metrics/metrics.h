// SPDX-License-Identifier: Apache-2.0
//
// All metrics of the daemon, by name. metric_table.inc is the table: name, help, labels, buckets.
// Counting is a relaxed atomic addition; labels come from closed sets and are resolved once, so
// that no map is searched on a hot path.

#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "server/base/status.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
class Registry;
}  // namespace prometheus

namespace batchd {

// The stages of a sample's life, for batchd_stage_duration_seconds.
enum class Stage { kRead, kDecode, kTransform };
inline constexpr int kStageCount = 3;
std::string_view StageName(Stage stage);  // "read", "decode", "transform"

// Thread-safe. Handles live as long as the Metrics.
class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Of one job (the loader's name): at most kJobsMax names, then "other". The handle is shared by
  // the sessions of the job; the job's series end with the last of them.
  struct Job {
    prometheus::Counter* samples_ok;           // batchd_samples_total{job,result="ok"}
    prometheus::Counter* samples_skipped;      //                     {job,result="skipped"}
    prometheus::Counter* samples_substituted;  //                     {job,result="substituted"}
    prometheus::Counter*
        sample_errors[kSampleReasonCount];  // batchd_sample_errors_total{job,reason}
    prometheus::Counter* batches_shm;       // batchd_batches_served_total{job,transport="shm"}
    prometheus::Counter* batches_grpc;      //                            {job,transport="grpc"}
    prometheus::Counter* requests;          // batchd_requests_total{job}: next() has returned
    prometheus::Counter* requests_ready;    // batchd_requests_ready_total{job}: without waiting
    prometheus::Histogram* client_wait;     // batchd_client_wait_seconds{job}
  };
  static constexpr int kJobsMax = 64;
  std::shared_ptr<const Job> ForJob(std::string_view job);

  prometheus::Counter* samples_decoded;  // batchd_samples_decoded_total
  prometheus::Counter* samples_damaged;  // batchd_samples_damaged_total
  // batchd_decode_worker_restarts_total
  prometheus::Counter* decode_workers_faulted;    // {reason="fault"}
  prometheus::Counter* decode_workers_forbidden;  // {reason="forbidden_call"}
  prometheus::Counter* decode_workers_killed;     // {reason="killed"}
  prometheus::Counter* decode_workers_silent;     // {reason="silent"}
  prometheus::Counter* decode_workers_wrong;      // {reason="wrong_answer"}
  prometheus::Histogram* stage_duration[kStageCount];
  prometheus::Gauge* sessions;              // batchd_sessions
  prometheus::Gauge* slabs_free;            // batchd_slabs{state="free"}
  prometheus::Gauge* slabs_filling;         //             {state="filling"}
  prometheus::Gauge* slabs_ready;           //             {state="ready"}
  prometheus::Gauge* slabs_leased;          //             {state="leased"}
  prometheus::Counter* source_requests_ok;  // batchd_source_requests_total{source="file",code="ok"}
  prometheus::Counter*
      source_requests_failed;            //                             {source="file",code="error"}
  prometheus::Counter* source_bytes;     // batchd_source_bytes_total{source="file"}
  prometheus::Counter* source_retries;   // batchd_source_retries_total{source="file"}
  prometheus::Gauge* memory_slabs_used;  // batchd_memory_bytes{kind="slabs"}
  prometheus::Gauge* memory_slabs_budget;    //                    {kind="slabs_budget"}
  prometheus::Gauge* memory_encoded_used;    //                    {kind="encoded"}
  prometheus::Gauge* memory_encoded_budget;  //                    {kind="encoded_budget"}
  prometheus::Gauge* memory_scratch_used;    //                    {kind="scratch"}
  prometheus::Gauge* memory_scratch_budget;  //                    {kind="scratch_budget"}
  prometheus::Gauge* memory_index;           //                    {kind="index"}
  prometheus::Gauge* cpu_threads;            // batchd_cpu_threads
  prometheus::Gauge* ready;                  // batchd_ready: 1 when sessions are taken
  prometheus::Gauge* build_info;             // batchd_build_info{version}: 1

  // The text format of Prometheus.
  std::string Scrape() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Thin calls, so that no other file needs prometheus-cpp's headers.
void Add(prometheus::Counter* counter, double value = 1);
void Set(prometheus::Gauge* gauge, double value);
void Add(prometheus::Gauge* gauge, double value);
void Observe(prometheus::Histogram* histogram, double value);

}  // namespace batchd
