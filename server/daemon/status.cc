// SPDX-License-Identifier: Apache-2.0
#include <curl/curl.h>
#include <google/protobuf/util/json_util.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>

#include "absl/strings/ascii.h"
#include "batchd/v1/service.grpc.pb.h"
#include "proto/shm/wire.h"
#include "server/daemon/commands.h"
#include "server/daemon/exit_codes.h"
#include "server/daemon/host_limits.h"

namespace batchd {
namespace {

constexpr int kTimeoutSeconds = 5;

void PrintStatus(const v1::GetStatusResponse& status) {
  std::cout << fmt::format("batchd {}  pid {}  up {:.0f} s  {} CPU threads  slabs {} of {}{}\n",
                           status.server_version(), status.pid(), status.uptime_seconds(),
                           status.cpu_threads(), HumanBytes(status.slab_used_bytes()),
                           HumanBytes(status.slab_budget_bytes()),
                           status.draining() ? "  draining" : "");
  for (const v1::SessionStatus& s : status.sessions()) {
    std::cout << fmt::format(
        "session {}  job={}  rank {}/{}  {}  epoch {} step {}  filling {}  ready {}  leased {}  "
        "taken {}  ready when asked {:.0f} %  {}\n",
        s.session_id(), s.job(), s.rank(), s.world_size(),
        s.transport() == v1::TRANSPORT_SHM ? "shm" : "grpc", s.next().epoch(), s.next().step(),
        s.filling_slots(), s.ready_slots(), s.leased_slots(), s.batches_taken(),
        100 * s.ready_share(), s.source_name());
  }
  if (status.sessions().empty()) std::cout << "no sessions\n";
}

// Where this user's clients start their private daemon (python_client/src/batchd/private.py).
std::string PrivateAddress() {
  const auto variable = [](const char* name) {
    const char* const value = getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  std::string base = variable("XDG_RUNTIME_DIR");
  if (base.empty()) base = fmt::format("/tmp/batchd-{}", getuid());
  std::string job = variable("SLURM_JOB_ID");
  if (job.empty()) job = "local";
  for (char& c : job) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-') c = '_';
  }
  return fmt::format("unix:{}/batchd/{}/{}/sock", base, wire::kProtocolVersion, job);
}

size_t Discard(char*, size_t size, size_t count, void*) { return size * count; }

}  // namespace

int RunStatus(const std::string& given, bool json) {
  const std::string address = given.empty() ? PrivateAddress() : given;
  // A data socket's gRPC door is beside it.
  const std::string target = address.starts_with("unix:") ? address + ".grpc" : address;
  const auto channel = grpc::CreateChannel(target, grpc::InsecureChannelCredentials());
  const auto stub = v1::BatchService::NewStub(channel);
  grpc::ClientContext context;
  gpr_timespec deadline = gpr_time_from_seconds(kTimeoutSeconds, GPR_TIMESPAN);
  context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), deadline));
  v1::GetStatusResponse response;
  const grpc::Status status = stub->GetStatus(&context, {}, &response);
  if (!status.ok()) {
    return Fail(Err(absl::StatusCode::kUnavailable, "no daemon answers at {}: {}", address,
                    status.error_message()));
  }
  if (!json) {
    PrintStatus(response);
    return kExitOk;
  }
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  (void)google::protobuf::util::MessageToJsonString(response, &text, options);
  std::cout << text;
  return kExitOk;
}

int RunHealth(const std::string& http_address) {
  curl_global_init(CURL_GLOBAL_DEFAULT);
  CURL* const curl = curl_easy_init();
  const std::string url = "http://" + http_address + "/readyz";
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_TIMEOUT, static_cast<long>(kTimeoutSeconds));
  curl_easy_setopt(curl, CURLOPT_PROXY, "");  // a probe asks this daemon and nobody else
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, Discard);
  const CURLcode code = curl_easy_perform(curl);
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  curl_easy_cleanup(curl);
  curl_global_cleanup();
  if (code == CURLE_OK && status == 200) {
    std::cout << "ok\n";
    return kExitOk;
  }
  std::cerr << fmt::format(
      "batchd: {} is not ready: {}\n", url,
      code == CURLE_OK ? fmt::format("status {}", status) : std::string(curl_easy_strerror(code)));
  return kExitFailed;
}

}  // namespace batchd
