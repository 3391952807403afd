// SPDX-License-Identifier: Apache-2.0
#include "server/api/message_json.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cstring>

#include "proto/shm/wire.h"
#include "server/base/schema.h"
#include "server/base/status.h"

namespace batchd {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// protobuf's parser, told to leave out unknown fields, also leaves out unknown names of enum
// values, and the default would silently stand in for what a newer client has asked for.
absl::Status CheckEnums(const Json& json, const Descriptor& type, const std::string& path) {
  if (!json.is_object()) return absl::OkStatus();
  for (const auto& [key, value] : json.items()) {
    const FieldDescriptor* field = type.FindFieldByCamelcaseName(key);
    if (field == nullptr) field = type.FindFieldByName(key);
    if (field == nullptr) continue;
    const std::string name = path.empty() ? field->name() : path + "." + field->name();
    if (field->type() == FieldDescriptor::TYPE_ENUM && value.is_string() &&
        field->enum_type()->FindValueByName(value.get<std::string>()) == nullptr) {
      return FieldErr(name,
                      "this daemon does not know the value \"{}\"; it may be older than the client",
                      value.get<std::string>());
    }
    if (field->type() != FieldDescriptor::TYPE_MESSAGE ||
        field->message_type()->file()->package() != "batchd.v1") {
      continue;
    }
    if (!field->is_repeated()) {
      BATCHD_RETURN_IF_ERROR(CheckEnums(value, *field->message_type(), name));
    } else if (value.is_array()) {
      for (const Json& item : value) {
        BATCHD_RETURN_IF_ERROR(CheckEnums(item, *field->message_type(), name));
      }
    }
  }
  return absl::OkStatus();
}

// One pass over the text before anything is built from it; brackets and commas outside strings.
absl::Status CheckShape(std::string_view text) {
  int depth = 0;
  int value_count = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
      continue;
    }
    in_string = c == '"' || c == '\'';  // protobuf's parser takes both
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c == '{' || c == '[' || c == ',') ++value_count;
    if (depth > kJsonDepthMax || value_count > kJsonValuesMax) {
      return Err(absl::StatusCode::kInvalidArgument,
                 "a message nests deeper than {} levels or has more than {} values", kJsonDepthMax,
                 kJsonValuesMax);
    }
  }
  return absl::OkStatus();
}

absl::Status NoMessage(const google::protobuf::util::Status& status) {
  return Err(absl::StatusCode::kInvalidArgument, "no ClientMessage in proto3 JSON: {}",
             std::string(status.message().data(), status.message().size()));
}

}  // namespace

absl::StatusOr<v1::ClientMessage> ClientMessageFromJson(std::string_view text) {
  BATCHD_RETURN_IF_ERROR(CheckShape(text));
  const google::protobuf::StringPiece piece(text.data(), text.size());
  v1::ClientMessage message;
  google::protobuf::util::JsonParseOptions options;
  // Strictly first: nearly all messages pass, and need no second look.
  if (google::protobuf::util::JsonStringToMessage(piece, &message, options).ok()) return message;
  message.Clear();
  options.ignore_unknown_fields = true;
  const auto status = google::protobuf::util::JsonStringToMessage(piece, &message, options);
  if (!status.ok()) return NoMessage(status);
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return Err(absl::StatusCode::kInvalidArgument, "no ClientMessage in proto3 JSON: no object");
  }
  BATCHD_RETURN_IF_ERROR(CheckEnums(json, *v1::ClientMessage::descriptor(), ""));
  return message;
}

absl::StatusOr<std::string> ServerMessageToJson(const v1::ServerMessage& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  if (!status.ok()) {
    return Err(absl::StatusCode::kInternal, "a message cannot be written as JSON: {}",
               std::string(status.message().data(), status.message().size()));
  }
  if (text.size() > wire::kMessageBytesMax) {
    return Err(absl::StatusCode::kResourceExhausted,
               "a message of {} bytes exceeds the data socket's {}; ask for less at once",
               text.size(), wire::kMessageBytesMax);
  }
  return text;
}

absl::Status ForEachFragment(std::string_view text,
                             const std::function<absl::Status(std::string_view, bool)>& put) {
  std::string datagram;
  bool is_first = true;
  wire::FragmentHeader header{};
  header.kind = wire::kJsonByte;
  header.message_size_bytes = static_cast<uint32_t>(text.size());
  while (!text.empty()) {
    const std::string_view part = text.substr(0, wire::kFragmentBytesMax);
    text.remove_prefix(part.size());
    header.last = text.empty() ? 1 : 0;
    datagram.assign(reinterpret_cast<const char*>(&header), sizeof(header));
    datagram.append(part);
    BATCHD_RETURN_IF_ERROR(put(datagram, is_first));
    is_first = false;
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> MessageAssembler::Add(std::string_view datagram) {
  wire::FragmentHeader header;
  if (datagram.size() <= sizeof(header)) {
    return Err(absl::StatusCode::kInvalidArgument, "a fragment of {} bytes has no content",
               datagram.size());
  }
  std::memcpy(&header, datagram.data(), sizeof(header));
  const std::string_view part = datagram.substr(sizeof(header));
  if (part.size() > wire::kFragmentBytesMax) {
    return Err(absl::StatusCode::kInvalidArgument, "a fragment has {} bytes; the most is {}",
               part.size(), wire::kFragmentBytesMax);
  }
  if (!in_message_) {
    message_.clear();
    size_bytes_ = header.message_size_bytes;
    if (size_bytes_ > wire::kMessageBytesMax) {
      return Err(absl::StatusCode::kInvalidArgument,
                 "a message of {} bytes exceeds the limit of {}", size_bytes_,
                 wire::kMessageBytesMax);
    }
    in_message_ = true;
  }
  const size_t sum = message_.size() + part.size();
  if (header.message_size_bytes != size_bytes_ || sum > size_bytes_ || header.last > 1 ||
      (header.last == 1) != (sum == size_bytes_)) {
    return Err(absl::StatusCode::kInvalidArgument,
               "the fragments of a message do not fit together: {} bytes after {} of {}, last={}",
               part.size(), message_.size(), size_bytes_, header.last);
  }
  message_.append(part);
  in_message_ = header.last == 0;
  return !in_message_;
}

}  // namespace batchd
