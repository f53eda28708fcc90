// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/ledger_records.h"

#include <fmt/format.h>

#include <utility>

#include "src/base/strings.h"
#include "src/formats/json.h"

namespace tessera::agent {
namespace {

constexpr std::string_view kGrant = "grant";
constexpr std::string_view kRelease = "release";
constexpr std::string_view kSpent = "spent";
constexpr std::string_view kBind = "bind";

Json EncodeClaim(const Claim& claim) {
  return Json::MakeObject({{"nonce", Json::String(grant::NonceText(claim.nonce))},
                           {"resource", Json::String(claim.resource)},
                           {"ids", Json::Strings(claim.ids)}});
}

Json EncodeShare(const device::DeviceShare& share) {
  return Json::MakeObject({{"gpu", Json::String(share.uuid)},
                           {"milli", Json::Int(share.compute.count())},
                           {"bytes", Json::Int(share.memory.count())}});
}

void EncodeGrant(const LedgerRecord& record, Json* json) {
  const GrantEntry& entry = record.entry;
  json->Set("namespace", Json::String(entry.holder.pod_namespace));
  json->Set("pod", Json::String(entry.holder.pod_name));
  json->Set("phase", Json::String(device::NameOf(entry.phase)));
  json->Set("dialect", Json::String(device::NameOf(entry.dialect)));
  Json tokens = Json::MakeArray();
  for (const Claim& claim : entry.claims) tokens.Append(EncodeClaim(claim));
  json->Set("tokens", std::move(tokens));
  Json shares = Json::MakeArray();
  for (const device::DeviceShare& share : entry.shares) shares.Append(EncodeShare(share));
  json->Set("shares", std::move(shares));
  if (!entry.env.empty()) json->Set("env", Json::StringObject(entry.env));
  if (entry.guessed) json->Set("guessed", Json::Bool(true));
  if (!record.chosen) return;
  Result<std::string> chosen = device::EncodeAssignment(*record.chosen);
  // An assignment that is too long to encode is left out: its GPUs are also in the grants of its
  // containers.
  if (chosen.ok()) json->Set("chosen", Json::String(*chosen));
}

std::optional<std::vector<std::string>> DecodeIds(const Json& json) {
  const Json* ids = json.Find("ids");
  if (ids == nullptr || !ids->is_array()) return std::nullopt;
  std::vector<std::string> out;
  for (const Json& id : ids->items()) {
    if (!id.is_string()) return std::nullopt;
    out.push_back(id.string_value());
  }
  return out;
}

std::optional<grant::Nonce> DecodeNonce(const Json& json) {
  const Result<std::string> text = json.StringAt("nonce");
  if (!text.ok()) return std::nullopt;
  const Result<grant::Nonce> nonce = grant::ParseNonce(*text);
  return nonce.ok() ? std::optional(*nonce) : std::nullopt;
}

std::optional<Claim> DecodeClaim(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  const auto nonce = DecodeNonce(json);
  auto ids = DecodeIds(json);
  if (!nonce || !ids) return std::nullopt;
  return Claim{*nonce, json.StringAt("resource").value_or(""), std::move(*ids)};
}

std::optional<device::DeviceShare> DecodeShare(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  const Result<std::string> uuid = json.StringAt("gpu");
  const Result<int64_t> milli = json.IntAt("milli");
  const Result<int64_t> bytes = json.IntAt("bytes");
  if (!uuid.ok() || !milli.ok() || !bytes.ok()) return std::nullopt;
  return device::DeviceShare{*uuid, MilliGpu(*milli), Bytes(*bytes)};
}

template <typename T, typename Decode>
bool DecodeList(const Json& json, std::string_view key, Decode decode, std::vector<T>* out) {
  const Json* list = json.Find(key);
  if (list == nullptr || !list->is_array()) return false;
  for (const Json& item : list->items()) {
    auto value = decode(item);
    if (!value) return false;
    out->push_back(std::move(*value));
  }
  return true;
}

bool DecodeGrant(const Json& json, LedgerRecord* record) {
  GrantEntry& entry = record->entry;
  if (!DecodeList(json, "tokens", DecodeClaim, &entry.claims)) return false;
  if (!DecodeList(json, "shares", DecodeShare, &entry.shares)) return false;
  entry.phase =
      device::PhaseFromName(json.StringAt("phase").value_or("")).value_or(device::Phase::kMain);
  entry.dialect = device::DialectFromName(json.StringAt("dialect").value_or(""))
                      .value_or(device::Dialect::kNvidiaGpu);
  for (const auto& [name, value] : MembersAt(json, {"env"})) {
    if (value.is_string()) entry.env[name] = value.string_value();
  }
  entry.guessed = json.Find("guessed") != nullptr;
  const Result<std::string> chosen = json.StringAt("chosen");
  if (!chosen.ok()) return true;
  Result<device::Assignment> assignment = device::DecodeAssignment(*chosen);
  if (assignment.ok()) record->chosen = *std::move(assignment);
  return assignment.ok();
}

bool DecodeBind(const Json& json, LedgerRecord* record) {
  auto claim = DecodeClaim(json);
  if (!claim) return false;
  for (const std::string& id : claim->ids) {
    record->entry.shares.push_back({.uuid = id, .compute = kWholeGpu});
  }
  record->entry.claims.push_back(std::move(*claim));
  return true;
}

bool DecodeSpent(const Json& json, LedgerRecord* record) {
  const auto nonce = DecodeNonce(json);
  const Result<std::string> bytes = HexDecode(json.StringAt("who").value_or(""));
  if (!nonce || !bytes.ok() || bytes->size() != 8) return false;
  record->kind = LedgerRecord::Kind::kSpent;
  record->nonce = *nonce;
  for (const char c : *bytes)
    record->fingerprint = record->fingerprint << 8 | static_cast<uint8_t>(c);
  return true;
}

}  // namespace

std::string EncodeRecord(const LedgerRecord& record) {
  Json json = Json::MakeObject();
  if (record.kind == LedgerRecord::Kind::kSpent) {
    json.Set("do", Json::String(kSpent));
    json.Set("nonce", Json::String(grant::NonceText(record.nonce)));
    json.Set("who", Json::String(fmt::format("{:016x}", record.fingerprint)));
    return json.Serialize();
  }
  const bool grant = record.kind == LedgerRecord::Kind::kGrant;
  json.Set("do", Json::String(grant ? kGrant : kRelease));
  json.Set("uid", Json::String(record.entry.holder.pod_uid.str()));
  json.Set("container", Json::String(record.entry.holder.container));
  if (grant) EncodeGrant(record, &json);
  return json.Serialize();
}

std::optional<LedgerRecord> DecodeRecord(const std::string& text) {
  const Result<Json> json = ParseJson(text);
  if (!json.ok() || !json->is_object()) return std::nullopt;
  const std::string kind = json->StringAt("do").value_or("");
  LedgerRecord record;
  record.entry.holder = {
      Uid(json->StringAt("uid").value_or("")), json->StringAt("namespace").value_or(""),
      json->StringAt("pod").value_or(""), json->StringAt("container").value_or("")};
  bool is_valid = false;
  if (kind == kGrant) is_valid = DecodeGrant(*json, &record);
  if (kind == kBind) is_valid = DecodeBind(*json, &record);
  if (kind == kSpent) is_valid = DecodeSpent(*json, &record);
  if (kind == kRelease) {
    record.kind = LedgerRecord::Kind::kRelease;
    is_valid = true;
  }
  return is_valid ? std::optional(std::move(record)) : std::nullopt;
}

}  // namespace tessera::agent
