// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/metrics.h"

#include <map>
#include <vector>

#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"
#include "server/base/sync.h"

namespace batchd {
namespace {

constexpr std::string_view kStageNames[kStageCount] = {"read", "decode", "transform"};
constexpr char kOtherJobs[] = "other";
// A loader without a name; an empty label would be the same as none.
constexpr char kUnnamedJob[] = "default";

const std::vector<double>& SecondsBuckets() {
  static const auto* const buckets = new std::vector<double>{
      1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1, 2.5, 5, 10};
  return *buckets;
}

using Labels = prometheus::Labels;

// One way to add a series to a family of any type.
prometheus::Counter* AddSeries(prometheus::Family<prometheus::Counter>* family,
                               const Labels& labels) {
  return &family->Add(labels);
}
prometheus::Gauge* AddSeries(prometheus::Family<prometheus::Gauge>* family, const Labels& labels) {
  return &family->Add(labels);
}
prometheus::Histogram* AddSeries(prometheus::Family<prometheus::Histogram>* family,
                                 const Labels& labels) {
  return &family->Add(labels, SecondsBuckets());
}

Labels With(Labels labels, const std::string& name, std::string_view value) {
  labels[name] = std::string(value);
  return labels;
}

}  // namespace

std::string_view StageName(Stage stage) { return kStageNames[static_cast<int>(stage)]; }

struct Metrics::Impl {
  struct JobEntry {
    Job job;
    int handle_count = 0;
  };

  prometheus::Registry registry;
#define FAMILY(id, type, name, help)         \
  prometheus::Family<prometheus::type>& id = \
      prometheus::Build##type().Name(name).Help(help).Register(registry);
#include "server/metrics/metric_table.inc"

  Mutex mu;
  // Counted by hand: were the series to go with a shared_ptr's last owner, a job that comes back at
  // that very moment would be given series that are about to go.
  std::map<std::string, JobEntry> jobs ABSL_GUARDED_BY(mu);

  void AddJobSeries(const std::string& name, Job* job) {
#define JOB_SERIES(handle, family, ...) \
  job->handle = AddSeries(&family, With(Labels __VA_ARGS__, "job", name));
#define JOB_REASON_SERIES(handles, family)                                              \
  for (int i = 0; i < kSampleReasonCount; ++i) {                                        \
    const Labels labels = {{"reason", std::string(SampleReasonName(SampleReason(i)))}}; \
    job->handles[i] = AddSeries(&family, With(labels, "job", name));                    \
  }
#include "server/metrics/metric_table.inc"
  }

  void RemoveJobSeries(const Job& job) {
#define JOB_SERIES(handle, family, ...) family.Remove(job.handle);
#define JOB_REASON_SERIES(handles, family) \
  for (prometheus::Counter * counter : job.handles) family.Remove(counter);
#include "server/metrics/metric_table.inc"
  }

  void ReleaseJob(const std::string& name) {
    MutexLock lock(&mu);
    const auto it = jobs.find(name);
    if (--it->second.handle_count > 0) return;
    RemoveJobSeries(it->second.job);
    jobs.erase(it);
  }
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {
  Impl& families = *impl_;
#define SERIES(handle, family, ...) handle = AddSeries(&families.family, Labels __VA_ARGS__);
#define STAGE_SERIES(handles, family)   \
  for (int i = 0; i < kStageCount; ++i) \
    handles[i] = AddSeries(&families.family, {{"stage", std::string(kStageNames[i])}});
#include "server/metrics/metric_table.inc"
  build_info->Set(1);
}

Metrics::~Metrics() = default;

std::shared_ptr<const Metrics::Job> Metrics::ForJob(std::string_view job) {
  std::string name(job.empty() ? kUnnamedJob : job);
  MutexLock lock(&impl_->mu);
  auto it = impl_->jobs.find(name);
  if (it == impl_->jobs.end()) {
    const int64_t named_count =
        static_cast<int64_t>(impl_->jobs.size() - impl_->jobs.count(kOtherJobs));
    if (named_count >= kJobsMax) name = kOtherJobs;
    it = impl_->jobs.try_emplace(name).first;
    if (it->second.handle_count == 0) impl_->AddJobSeries(name, &it->second.job);
  }
  ++it->second.handle_count;
  return {&it->second.job, [impl = impl_.get(), name](const Job*) { impl->ReleaseJob(name); }};
}

std::string Metrics::Scrape() const {
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

void Add(prometheus::Counter* counter, double value) { counter->Increment(value); }
void Set(prometheus::Gauge* gauge, double value) { gauge->Set(value); }
void Add(prometheus::Gauge* gauge, double value) { gauge->Increment(value); }
void Observe(prometheus::Histogram* histogram, double value) { histogram->Observe(value); }

}  // namespace batchd
