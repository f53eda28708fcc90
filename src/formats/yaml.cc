// SPDX-License-Identifier: Apache-2.0
#include "src/formats/yaml.h"

#include <yaml.h>

#include <string>
#include <unordered_set>

namespace tessera {
namespace {

constexpr size_t kMaxBytes = 4u << 20;
constexpr int kMaxDepth = 64;

// libyaml's C objects, freed at the end of the scope.
struct YamlParser {
  YamlParser() { TESSERA_CHECK(yaml_parser_initialize(&raw) == 1); }
  ~YamlParser() { yaml_parser_delete(&raw); }
  YamlParser(const YamlParser&) = delete;
  YamlParser& operator=(const YamlParser&) = delete;
  yaml_parser_t raw;
};
struct YamlEvent {
  YamlEvent() { raw.type = YAML_NO_EVENT; }
  ~YamlEvent() { yaml_event_delete(&raw); }
  YamlEvent(const YamlEvent&) = delete;
  YamlEvent& operator=(const YamlEvent&) = delete;
  int line() const { return static_cast<int>(raw.start_mark.line) + 1; }
  yaml_event_t raw;
};

template <typename... Args>
Status ErrorAt(int line, fmt::format_string<Args...> format, Args&&... args) {
  return Error(Code::kInvalidArgument, "line {}: {}", line,
               fmt::format(format, std::forward<Args>(args)...));
}

bool IsJsonNumber(std::string_view text) {
  const auto json = ParseJson(text, {.max_bytes = 64});
  return json.ok() && json->is_number();
}

Json PlainScalar(const std::string& text) {
  if (text.empty() || text == "null" || text == "~" || text == "Null" || text == "NULL") return {};
  if (text == "true" || text == "True" || text == "TRUE") return Json::Bool(true);
  if (text == "false" || text == "False" || text == "FALSE") return Json::Bool(false);
  if (IsJsonNumber(text)) return Json::NumberText(text);
  return Json::String(text);
}

class YamlReader {
 public:
  explicit YamlReader(std::string_view text) {
    yaml_parser_set_input_string(&parser_.raw, reinterpret_cast<const unsigned char*>(text.data()),
                                 text.size());
  }

  Result<Json> ReadStream() {
    Json root;
    bool has_document = false;
    while (true) {
      YamlEvent event;
      RETURN_IF_ERROR(Next(&event));
      if (event.raw.type == YAML_STREAM_END_EVENT) return root;
      if (event.raw.type != YAML_DOCUMENT_START_EVENT) continue;
      if (has_document) return ErrorAt(event.line(), "a second document begins: want only one");
      has_document = true;
      YamlEvent first;
      RETURN_IF_ERROR(Next(&first));
      ASSIGN_OR_RETURN(root, ReadValue(first, 0));
    }
  }

 private:
  Status Next(YamlEvent* event) {
    if (yaml_parser_parse(&parser_.raw, &event->raw) == 1) return Status::Ok();
    const int line = static_cast<int>(parser_.raw.problem_mark.line) + 1;
    return ErrorAt(line, "{}", parser_.raw.problem ? parser_.raw.problem : "not readable as YAML");
  }

  Result<Json> ReadValue(const YamlEvent& event, int depth) {
    if (depth > kMaxDepth) return ErrorAt(event.line(), "nested deeper than {}", kMaxDepth);
    Json json;
    switch (event.raw.type) {
      case YAML_SCALAR_EVENT: {
        ASSIGN_OR_RETURN(json, ReadScalar(event));
        break;
      }
      case YAML_SEQUENCE_START_EVENT: {
        RETURN_IF_ERROR(CheckProperties(event, event.raw.data.sequence_start));
        ASSIGN_OR_RETURN(json, ReadSequence(depth));
        break;
      }
      case YAML_MAPPING_START_EVENT: {
        RETURN_IF_ERROR(CheckProperties(event, event.raw.data.mapping_start));
        ASSIGN_OR_RETURN(json, ReadMapping(depth));
        break;
      }
      default:
        return ErrorAt(event.line(), "aliases are not supported");
    }
    json.set_line(event.line());
    return json;
  }

  // `data` is the event's data of a scalar, a sequence or a mapping.
  template <typename Data>
  static Status CheckProperties(const YamlEvent& event, const Data& data) {
    if (data.anchor != nullptr) return ErrorAt(event.line(), "anchors are not supported");
    if (data.tag != nullptr) return ErrorAt(event.line(), "tags are not supported");
    return Status::Ok();
  }

  static Result<Json> ReadScalar(const YamlEvent& event) {
    const auto& scalar = event.raw.data.scalar;
    RETURN_IF_ERROR(CheckProperties(event, scalar));
    const std::string text(reinterpret_cast<const char*>(scalar.value), scalar.length);
    return scalar.style == YAML_PLAIN_SCALAR_STYLE ? PlainScalar(text) : Json::String(text);
  }

  Result<Json> ReadSequence(int depth) {
    Json json = Json::MakeArray();
    while (true) {
      YamlEvent event;
      RETURN_IF_ERROR(Next(&event));
      if (event.raw.type == YAML_SEQUENCE_END_EVENT) return json;
      ASSIGN_OR_RETURN(Json item, ReadValue(event, depth + 1));
      json.Append(std::move(item));
    }
  }

  Result<Json> ReadMapping(int depth) {
    Json json = Json::MakeObject();
    std::unordered_set<std::string> names;  // Json::Find and Json::Set search all members
    while (true) {
      YamlEvent key;
      RETURN_IF_ERROR(Next(&key));
      if (key.raw.type == YAML_MAPPING_END_EVENT) return json;
      if (key.raw.type != YAML_SCALAR_EVENT) return ErrorAt(key.line(), "a key must be a scalar");
      RETURN_IF_ERROR(CheckProperties(key, key.raw.data.scalar));
      std::string name(reinterpret_cast<const char*>(key.raw.data.scalar.value),
                       key.raw.data.scalar.length);
      if (!names.insert(name).second) return ErrorAt(key.line(), "\"{}\" occurs twice", name);
      YamlEvent value;
      RETURN_IF_ERROR(Next(&value));
      ASSIGN_OR_RETURN(Json read, ReadValue(value, depth + 1));
      json.members().emplace_back(std::move(name), std::move(read));
    }
  }

  YamlParser parser_;
};

}  // namespace

Result<Json> ParseYaml(std::string_view text) {
  if (text.size() > kMaxBytes) {
    return Error(Code::kResourceExhausted, "YAML is too large: {} bytes, maximum {}", text.size(),
                 kMaxBytes);
  }
  return YamlReader(text).ReadStream();
}

}  // namespace tessera
