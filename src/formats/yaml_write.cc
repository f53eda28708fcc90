// SPDX-License-Identifier: Apache-2.0
// Writes YAML. libyaml quotes and folds; this file decides which scalars need quotes.
#include <yaml.h>

#include <algorithm>
#include <iterator>

#include "src/base/strings.h"
#include "src/formats/yaml.h"

namespace tessera {
namespace {

// Whether every reader reads the unquoted text as a string. YAML 1.1 readers take "yes", "on" and
// others for booleans.
bool IsPlain(std::string_view text) {
  constexpr std::string_view kWords[] = {"null", "true", "false", "y",  "n",
                                         "yes",  "no",   "on",    "off"};
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto is_inner = [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' || c == '/';
  };
  if (text.empty() || !is_letter(text.front()) || text.back() == ' ') return false;
  const auto fits = [&](char c) { return is_inner(c) || c == ' '; };
  if (!std::ranges::all_of(text, fits)) return false;
  return std::ranges::find(kWords, ToLower(text)) == std::end(kWords);
}

class YamlWriter {
 public:
  explicit YamlWriter(std::string* out) {
    TESSERA_CHECK(yaml_emitter_initialize(&emitter_) == 1);
    yaml_emitter_set_output(&emitter_, &Append, out);
    yaml_emitter_set_unicode(&emitter_, 1);
    yaml_emitter_set_width(&emitter_, -1);
  }
  ~YamlWriter() { yaml_emitter_delete(&emitter_); }
  YamlWriter(const YamlWriter&) = delete;
  YamlWriter& operator=(const YamlWriter&) = delete;

  void WriteStream(const Json& document) {
    yaml_event_t event;
    Emit(event, yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING));
    Emit(event, yaml_document_start_event_initialize(&event, nullptr, nullptr, nullptr, 1));
    Write(document);
    Emit(event, yaml_document_end_event_initialize(&event, 1));
    Emit(event, yaml_stream_end_event_initialize(&event));
  }

 private:
  static int Append(void* out, unsigned char* data, size_t size) {
    static_cast<std::string*>(out)->append(reinterpret_cast<const char*>(data), size);
    return 1;
  }

  // `created` is the result of the call that created the event.
  void Emit(yaml_event_t& event, int created) {
    TESSERA_CHECK(created == 1);
    if (yaml_emitter_emit(&emitter_, &event) == 1) return;
    CheckFailed(__FILE__, __LINE__, emitter_.problem ? emitter_.problem : "libyaml");
  }

  void WriteScalar(std::string_view text, yaml_scalar_style_t style) {
    yaml_event_t event;
    const auto* data = reinterpret_cast<const yaml_char_t*>(text.data());
    Emit(event, yaml_scalar_event_initialize(&event, nullptr, nullptr, data,
                                             static_cast<int>(text.size()), 1, 1, style));
  }

  void WriteText(const std::string& text) {
    WriteScalar(text, IsPlain(text) ? YAML_PLAIN_SCALAR_STYLE : YAML_DOUBLE_QUOTED_SCALAR_STYLE);
  }

  void WriteArray(const Json& json) {
    yaml_event_t event;
    Emit(event, yaml_sequence_start_event_initialize(
                    &event, nullptr, nullptr, 1,
                    json.items().empty() ? YAML_FLOW_SEQUENCE_STYLE : YAML_BLOCK_SEQUENCE_STYLE));
    for (const Json& item : json.items()) Write(item);
    Emit(event, yaml_sequence_end_event_initialize(&event));
  }

  void WriteObject(const Json& json) {
    yaml_event_t event;
    Emit(event, yaml_mapping_start_event_initialize(
                    &event, nullptr, nullptr, 1,
                    json.members().empty() ? YAML_FLOW_MAPPING_STYLE : YAML_BLOCK_MAPPING_STYLE));
    for (const auto& [key, value] : json.members()) {
      WriteText(key);
      Write(value);
    }
    Emit(event, yaml_mapping_end_event_initialize(&event));
  }

  void Write(const Json& json) {
    switch (json.kind()) {
      case Json::Kind::kNull:
        return WriteScalar("null", YAML_PLAIN_SCALAR_STYLE);
      case Json::Kind::kBool:
        return WriteScalar(json.bool_value() ? "true" : "false", YAML_PLAIN_SCALAR_STYLE);
      case Json::Kind::kNumber:
        return WriteScalar(json.number_text(), YAML_PLAIN_SCALAR_STYLE);
      case Json::Kind::kString:
        return WriteText(json.string_value());
      case Json::Kind::kArray:
        return WriteArray(json);
      case Json::Kind::kObject:
        return WriteObject(json);
    }
  }

  yaml_emitter_t emitter_;
};

}  // namespace

std::string WriteYaml(const Json& document) {
  std::string out;
  YamlWriter(&out).WriteStream(document);
  return out;
}

}  // namespace tessera
