// SPDX-License-Identifier: Apache-2.0
#include "server/api/convert.h"

#include <gtest/gtest.h>

#include <limits>

#include "proto/shm/wire.h"
#include "server/api/message_json.h"
#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

v1::Open GoodOpen() {
  const auto message = ClientMessageFromJson(R"({"open": {
    "dataset": {"name": "ImageFolder", "arguments": {"root": "/data", "depth": 3, "share": 0.5,
                "list": [1, null, true, {"big": "9007199254740993"}]}},
    "pipeline": {"columns": [
      {"name": "image", "operations": [{"name": "DecodeImage"},
                                       {"name": "RandomResizedCrop", "arguments": {"size": 224}}]},
      {"name": "label", "operations": [{"name": "Label"}]}]},
    "sampling": {"seed": "18446744073709551615", "shuffle": "SHUFFLE_TORCH", "globalBatchSize": "64",
                 "lastBatch": "LAST_BATCH_PAD", "onBadSample": "ON_BAD_SAMPLE_SKIP", "maxBadShare": 0.25},
    "rank": 1, "worldSize": 2, "start": {"epoch": "3", "step": "5"}, "prefetch": 8,
    "job": "run", "expected": {"dataset": "d", "pipeline": "p", "decoder": "c"},
    "clientVersion": "test 1"}})");
  EXPECT_OK(message);
  return message->open();
}

TEST(OpenFromProtoTest, TakesEverythingOver) {
  const auto request = OpenFromProto(GoodOpen(), TransportKind::kShm);

  ASSERT_OK(request);
  EXPECT_EQ(request->dataset_name, "ImageFolder");
  EXPECT_EQ(request->dataset_arguments, Json::parse(R"({"root": "/data", "depth": 3, "share": 0.5,
                            "list": [1, null, true, {"big": "9007199254740993"}]})"));
  EXPECT_TRUE(request->dataset_arguments["depth"].is_number_integer());
  ASSERT_EQ(request->pipeline.columns.size(), 2u);
  EXPECT_EQ(request->pipeline.columns[0].name, "image");
  ASSERT_EQ(request->pipeline.columns[0].operations.size(), 2u);
  EXPECT_EQ(request->pipeline.columns[0].operations[0].arguments, Json::object());
  EXPECT_EQ(request->pipeline.columns[0].operations[1].arguments["size"], 224);
  EXPECT_EQ(request->seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(request->shuffle, Shuffle::kTorch);
  EXPECT_EQ(request->global_batch_size, 64);
  EXPECT_EQ(request->last_batch, LastBatch::kPad);
  EXPECT_EQ(request->on_bad_sample, OnBadSample::kSkip);
  EXPECT_EQ(request->max_bad_count, -1);
  EXPECT_EQ(request->max_bad_share, 0.25);
  EXPECT_EQ(request->rank, 1);
  EXPECT_EQ(request->world_size, 2);
  EXPECT_EQ(request->start, (Position{3, 5}));
  EXPECT_EQ(request->prefetch, 8);
  EXPECT_EQ(request->transport, TransportKind::kShm);
  EXPECT_EQ(request->job, "run");
  EXPECT_EQ(request->expected.pipeline, "p");
  EXPECT_FALSE(request->single);
}

TEST(OpenFromProtoTest, LeavesUnspecifiedPoliciesToTheDefaults) {
  v1::Open open = GoodOpen();
  open.mutable_sampling()->clear_shuffle();
  open.mutable_sampling()->clear_last_batch();
  open.mutable_sampling()->clear_on_bad_sample();
  open.mutable_sampling()->clear_max_bad_samples();

  const auto request = OpenFromProto(open, TransportKind::kGrpc);

  ASSERT_OK(request);
  EXPECT_EQ(request->shuffle, Shuffle::kNone);
  EXPECT_EQ(request->last_batch, std::nullopt);
  EXPECT_EQ(request->on_bad_sample, OnBadSample::kFail);
  EXPECT_EQ(request->max_bad_share, -1);
  EXPECT_EQ(request->transport, TransportKind::kGrpc);
}

// What is done to a good Open, and the field that must be named.
struct BadOpen {
  const char* field;
  std::function<void(v1::Open*)> spoil;
};

TEST(OpenFromProtoTest, NamesTheFieldThatIsMissingOrWrong) {
  const std::vector<BadOpen> cases = {
      {"dataset.name", [](v1::Open* o) { o->clear_dataset(); }},
      {"dataset.name", [](v1::Open* o) { o->mutable_dataset()->clear_name(); }},
      {"pipeline.columns", [](v1::Open* o) { o->clear_pipeline(); }},
      {"pipeline.columns[1].name",
       [](v1::Open* o) { o->mutable_pipeline()->mutable_columns(1)->clear_name(); }},
      {"pipeline.image[1]",
       [](v1::Open* o) {
         o->mutable_pipeline()->mutable_columns(0)->mutable_operations(1)->clear_name();
       }},
      {"sampling.global_batch_size", [](v1::Open* o) { o->clear_sampling(); }},
      {"sampling.shuffle",
       [](v1::Open* o) { o->mutable_sampling()->set_shuffle(static_cast<v1::Shuffle>(99)); }},
      {"sampling.last_batch",
       [](v1::Open* o) { o->mutable_sampling()->set_last_batch(static_cast<v1::LastBatch>(99)); }},
      {"sampling.on_bad_sample",
       [](v1::Open* o) {
         o->mutable_sampling()->set_on_bad_sample(static_cast<v1::OnBadSample>(99));
       }},
      {"sampling.max_bad_count", [](v1::Open* o) { o->mutable_sampling()->set_max_bad_count(-1); }},
      {"sampling.max_bad_share",
       [](v1::Open* o) { o->mutable_sampling()->set_max_bad_share(-0.5); }},
      {"sampling.max_bad_share",
       [](v1::Open* o) {
         o->mutable_sampling()->set_max_bad_share(std::numeric_limits<double>::quiet_NaN());
       }},
      {"transport", [](v1::Open* o) { o->set_transport(v1::TRANSPORT_GRPC); }},
      {"transport", [](v1::Open* o) { o->set_transport(static_cast<v1::Transport>(99)); }},
      {"dataset.arguments",
       [](v1::Open* o) {
         (*o->mutable_dataset()->mutable_arguments()->mutable_fields())["x"].set_number_value(
             std::numeric_limits<double>::infinity());
       }},
  };
  for (const BadOpen& bad : cases) {
    v1::Open open = GoodOpen();
    bad.spoil(&open);

    const auto request = OpenFromProto(open, TransportKind::kShm);

    EXPECT_THAT(request, FailsWith(kInvalid, bad.field));
    EXPECT_EQ(FieldOf(request.status()), bad.field);
  }
}

TEST(OpenFromProtoTest, BoundsDepthAndNumberOfArguments) {
  v1::Open deep = GoodOpen();
  auto* value = &(*deep.mutable_dataset()->mutable_arguments()->mutable_fields())["x"];
  for (int i = 0; i < kArgumentDepthMax; ++i) value = value->mutable_list_value()->add_values();
  v1::Open wide = GoodOpen();
  auto* list =
      (*wide.mutable_dataset()->mutable_arguments()->mutable_fields())["x"].mutable_list_value();
  for (int i = 0; i < kArgumentValuesMax; ++i) list->add_values()->set_bool_value(true);

  EXPECT_THAT(OpenFromProto(deep, TransportKind::kShm), FailsWith(kInvalid, "deeper than 16"));
  EXPECT_THAT(OpenFromProto(wide, TransportKind::kShm), FailsWith(kInvalid, "more than 16384"));
}

TEST(SingleFromProtoTest, TakesRankAndStartFromTheAddress) {
  v1::GetBatchRequest request;
  *request.mutable_open() = GoodOpen();
  EXPECT_THAT(SingleFromProto(request), FailsWith(kInvalid, "address"));
  request.mutable_address()->set_epoch(8);
  request.mutable_address()->set_step(9);
  request.mutable_address()->set_rank(2);
  request.mutable_address()->set_world_size(3);

  const auto single = SingleFromProto(request);

  ASSERT_OK(single);
  EXPECT_TRUE(single->single);
  EXPECT_EQ(single->start, (Position{8, 9}));
  EXPECT_EQ(single->rank, 2);
  EXPECT_EQ(single->world_size, 3);
}

TEST(ToProtoTest, OpenedSaysSamplingInFull) {
  OpenedInfo info;
  info.session_id = 4;
  info.fingerprints = {"d", "p", "c"};
  info.columns = {{"image", wire::DType::kFloat16, {3, 8, 8}, 384}};
  info.seed = 7;
  info.shuffle = Shuffle::kFeistel;
  info.last_batch = LastBatch::kDrop;
  info.on_bad_sample = OnBadSample::kSubstitute;
  info.max_bad_count = 0;
  info.warnings = {"old index"};

  v1::Opened out;
  ToProto(info, &out);

  EXPECT_EQ(out.session_id(), 4);
  EXPECT_EQ(out.columns(0).data_type(), v1::DATA_TYPE_FLOAT16);
  EXPECT_EQ(out.columns(0).shape_size(), 3);
  EXPECT_EQ(out.sampling().shuffle(), v1::SHUFFLE_FEISTEL);
  EXPECT_EQ(out.sampling().last_batch(), v1::LAST_BATCH_DROP);
  EXPECT_EQ(out.sampling().on_bad_sample(), v1::ON_BAD_SAMPLE_SUBSTITUTE);
  EXPECT_TRUE(out.sampling().has_max_bad_count());
  EXPECT_FALSE(out.sampling().has_max_bad_share());
  EXPECT_EQ(out.warnings(0), "old index");
  EXPECT_EQ(out.server_version(), BATCHD_VERSION);
}

TEST(ToProtoTest, AFailureCarriesCodeAndReason) {
  BatchFailure failure;
  failure.generation = 2;
  failure.status = SampleErr(SampleReason::kTruncated, "a/b.jpg ends at 40 of 90 rows");
  failure.ordinal = 5;
  failure.sample_name = "a/\xFF.jpg";
  failure.next = {0, 4};

  v1::Failure out;
  ToProto(failure, &out);

  EXPECT_EQ(out.code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_EQ(out.reason(), "truncated");
  EXPECT_EQ(out.message(), "truncated: a/b.jpg ends at 40 of 90 rows");
  EXPECT_EQ(out.sample_name(), "a/\xEF\xBF\xBD.jpg");
  EXPECT_EQ(out.next().step(), 4);
}

TEST(ToProtoTest, AnErrorNamesTheField) {
  v1::Error out;
  ToProto(FieldErr("pipeline.image[2].size", "0 is not in [1, 65535]"), &out);

  EXPECT_EQ(out.code(), static_cast<int>(kInvalid));
  EXPECT_EQ(out.field(), "pipeline.image[2].size");
  EXPECT_EQ(out.message(), "pipeline.image[2].size: 0 is not in [1, 65535]");
}

TEST(ValidUtf8Test, ReplacesWhatIsNone) {
  EXPECT_EQ(ValidUtf8("aß€𝄞"), "aß€𝄞");
  EXPECT_EQ(ValidUtf8("\xC0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD");                  // overlong
  EXPECT_EQ(ValidUtf8("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // surrogate
  EXPECT_EQ(ValidUtf8("x\xE2\x82"), "x\xEF\xBF\xBD\xEF\xBF\xBD");                // cut off
}

TEST(NamesToProtoTest, GivesAsManyAsAMessageHolds) {
  v1::ServerMessage message;
  NamesToProto(std::vector<std::string>(5000, std::string(400, '<')), message.mutable_answer());

  EXPECT_GT(message.answer().names_size(), 400);
  EXPECT_LT(message.answer().names_size(), 5000);
  EXPECT_OK(ServerMessageToJson(message));
}

TEST(MessageJsonTest, LeavesUnknownFieldsOutButNotUnknownEnumValues) {
  const auto newer = ClientMessageFromJson(
      R"({"open": {"rank": 3, "fromTheFuture": {"x": 1}, "sampling": {"alsoNew": []}}})");
  ASSERT_OK(newer);
  EXPECT_EQ(newer->open().rank(), 3);

  EXPECT_THAT(ClientMessageFromJson(R"({"open": {"sampling": {"shuffle": "SHUFFLE_NEW"}}})"),
              FailsWith(kInvalid, "SHUFFLE_NEW"));
}

TEST(MessageJsonTest, BoundsDepthAndNumberOfValuesBeforeItParses) {
  const std::string head = R"({"open": {"dataset": {"name": "]}\"", "arguments": {"x": )";
  const auto nested = [&](int depth) {
    const auto n = static_cast<size_t>(depth);
    return head + std::string(n, '[') + std::string(n, ']') + "}}}}";
  };
  const auto listed = [&](int count) {
    std::string text = head + "[1";
    for (int i = 1; i < count; ++i) text += ",1";
    return text + "]}}}}";
  };

  EXPECT_OK(ClientMessageFromJson(nested(30)));
  EXPECT_THAT(ClientMessageFromJson(nested(61)), FailsWith(kInvalid, "deeper than 64"));
  EXPECT_OK(ClientMessageFromJson(listed(30'000)));
  EXPECT_THAT(ClientMessageFromJson(listed(33'000)), FailsWith(kInvalid, "more than 32768"));
}

TEST(MessageJsonTest, RefusesWhatIsNoMessage) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("3"), std::string("null"),
        std::string("{\"open\": 3}"), std::string("{\"open\": {}, \"close\": {}}"),
        std::string("{\"open\": {\"job\": \"\xFF\"}}"), std::string(100'000, '['),
        "{\"open\": {\"dataset\": {\"arguments\": {\"x\": " + std::string(200'000, '[') + "}}}}"}) {
    EXPECT_THAT(ClientMessageFromJson(text), testing::Not(IsOk())) << text.substr(0, 40);
  }
}

std::string Fragment(size_t total, int last, std::string_view part) {
  wire::FragmentHeader header{};
  header.kind = wire::kJsonByte;
  header.last = static_cast<uint8_t>(last);
  header.message_size_bytes = static_cast<uint32_t>(total);
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header)).append(part);
}

TEST(MessageAssemblerTest, PutsTogetherWhatForEachFragmentCuts) {
  const std::string text(wire::kMessageBytesMax, 'x');
  MessageAssembler assembler;
  int count = 0;
  bool whole = false;

  ASSERT_OK(ForEachFragment(text, [&](std::string_view datagram, bool is_first) {
    EXPECT_EQ(is_first, count == 0);
    EXPECT_FALSE(whole);
    ++count;
    BATCHD_ASSIGN_OR_RETURN(whole, assembler.Add(datagram));
    return absl::OkStatus();
  }));

  EXPECT_EQ(count, 16);
  EXPECT_TRUE(whole);
  EXPECT_EQ(assembler.message(), text);
  EXPECT_THAT(assembler.Add(Fragment(2, 1, "{}")).value_or(false), true) << "it starts anew";
  EXPECT_EQ(assembler.message(), "{}");
}

TEST(MessageAssemblerTest, RefusesWhatDoesNotFit) {
  EXPECT_THAT(MessageAssembler().Add("J"), FailsWith(kInvalid, "1 bytes"));
  EXPECT_THAT(MessageAssembler().Add(Fragment(0, 1, "")), FailsWith(kInvalid, "no content"));
  EXPECT_THAT(MessageAssembler().Add(Fragment(wire::kMessageBytesMax + 1, 0, "x")),
              FailsWith(kInvalid, "1048577"));
  EXPECT_THAT(MessageAssembler().Add(Fragment(3, 1, "{}")), FailsWith(kInvalid, "fit together"));
  EXPECT_THAT(MessageAssembler().Add(Fragment(2, 0, "{}")), FailsWith(kInvalid, "fit together"));
  EXPECT_THAT(MessageAssembler().Add(Fragment(1, 1, "{}")), FailsWith(kInvalid, "fit together"));
  EXPECT_THAT(MessageAssembler().Add(Fragment(2, 7, "{}")), FailsWith(kInvalid, "fit together"));
  MessageAssembler assembler;
  ASSERT_OK(assembler.Add(Fragment(4, 0, "{}")));
  EXPECT_TRUE(assembler.in_message());
  EXPECT_THAT(assembler.Add(Fragment(5, 1, "{}")), FailsWith(kInvalid, "fit together"));
}

}  // namespace
}  // namespace batchd
