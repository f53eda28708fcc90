// SPDX-License-Identifier: Apache-2.0
// A persistent connection to the extender, as kube-scheduler has it, for measurements. Parts of a
// request are sent without a copy; an answer is read to its end and not parsed. Ends the program if
// an answer is not 200. Threads: one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/file.h"
#include "src/base/uid.h"
#include "src/net/address.h"

namespace tessera::bench {

class ExtenderCaller {
 public:
  // Connects over TCP, without TLS.
  explicit ExtenderCaller(const net::Address& to);

  // The body of the answer, valid until the next call. `pod` and `names` are JSON.
  std::string_view Filter(std::string_view pod, std::string_view names);
  std::string_view Prioritize(std::string_view pod, std::string_view names);
  std::string_view Bind(std::string_view ns, std::string_view name, const Uid& uid,
                        std::string_view node);
  std::string_view Get(std::string_view path);

 private:
  std::string_view Post(std::string_view verb, std::span<const std::string_view> body);
  std::string_view Exchange(std::span<const std::string_view> pieces);
  std::string_view Receive();

  Fd socket_;
  std::string header_;
  std::vector<char> buffer_ = std::vector<char>(4 << 20);
};

// The text of NodeNames in an answer to filter.
std::string_view NamesIn(std::string_view answer);
// The host with 10 points; empty: no host has 10 points.
std::string_view BestIn(std::string_view answer);

}  // namespace tessera::bench
