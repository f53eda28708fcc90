// SPDX-License-Identifier: Apache-2.0
// Boost's SAX parser passes each number with its text, which Boost's own DOM would drop.
#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>

#include "src/formats/json.h"

namespace tessera {
namespace {

using boost::json::error_code;
using boost::json::string_view;

class JsonBuilder {
 public:
  static constexpr size_t max_array_size = static_cast<size_t>(-1);
  static constexpr size_t max_object_size = static_cast<size_t>(-1);
  static constexpr size_t max_string_size = static_cast<size_t>(-1);
  static constexpr size_t max_key_size = static_cast<size_t>(-1);

  Json& root() { return root_; }

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code&) { return Open(Json::MakeObject()); }
  bool on_object_end(size_t, error_code&) { return Close(); }
  bool on_array_begin(error_code&) { return Open(Json::MakeArray()); }
  bool on_array_end(size_t, error_code&) { return Close(); }
  bool on_key_part(string_view part, size_t, error_code&) { return AppendText(part); }
  bool on_key(string_view rest, size_t, error_code&) {
    AppendText(rest);
    key_ = Take();
    return true;
  }
  bool on_string_part(string_view part, size_t, error_code&) { return AppendText(part); }
  bool on_string(string_view rest, size_t, error_code&) {
    AppendText(rest);
    return Add(Json::String(Take()));
  }
  bool on_number_part(string_view part, error_code&) { return AppendText(part); }
  bool on_int64(int64_t, string_view rest, error_code&) { return Number(rest); }
  bool on_uint64(uint64_t, string_view rest, error_code&) { return Number(rest); }
  bool on_double(double, string_view rest, error_code&) { return Number(rest); }
  bool on_bool(bool value, error_code&) { return Add(Json::Bool(value)); }
  bool on_null(error_code&) { return Add(Json()); }
  bool on_comment_part(string_view, error_code&) { return true; }
  bool on_comment(string_view, error_code&) { return true; }

 private:
  bool AppendText(string_view part) {
    text_.append(part.data(), part.size());
    return true;
  }
  std::string Take() { return std::exchange(text_, {}); }
  bool Number(string_view rest) {
    AppendText(rest);
    return Add(Json::NumberText(Take()));
  }
  Json* Place(Json value) {
    if (open_values_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_values_.back();
    if (parent.is_array()) {
      parent.Append(std::move(value));
      return &parent.items().back();
    }
    return &parent.members().emplace_back(std::move(key_), std::move(value)).second;
  }
  bool Add(Json value) {
    Place(std::move(value));
    return true;
  }
  // Only the innermost open value grows, so pointers to its parents stay valid.
  bool Open(Json value) {
    open_values_.push_back(Place(std::move(value)));
    return true;
  }
  bool Close() {
    open_values_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Json*> open_values_;
  std::string key_;
  std::string text_;
};

Status ErrorAt(std::string_view text, size_t offset, std::string_view cause) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  return Error(Code::kInvalidArgument, "not valid JSON at byte {}, line {}: {}", offset, line,
               cause);
}

}  // namespace

Result<Json> ParseJson(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return Error(Code::kResourceExhausted, "{} bytes of JSON, at most {} are read", text.size(),
                 limits.max_bytes);
  }
  boost::json::parse_options options;
  options.max_depth = limits.max_depth;
  boost::json::basic_parser<JsonBuilder> parser(options);
  error_code error;
  const size_t consumed = parser.write_some(false, text.data(), text.size(), error);
  if (error) return ErrorAt(text, consumed, error.message());
  const size_t rest = text.find_first_not_of(" \t\r\n", consumed);
  if (rest != std::string_view::npos) return ErrorAt(text, rest, "text after the document");
  return std::move(parser.handler().root());
}

}  // namespace tessera
