// SPDX-License-Identifier: Apache-2.0
// Stands in for <iostream> where a library includes it (CLI11, for `configure`): with the header,
// every start of the program would initialise streams and locales, which costs each exec probe of
// the node 0.1 ms and 0.8 MiB. Whoever uses the streams then holds a std::ios_base::Init. Included
// by the compiler
// (-include), so that it comes first.
#pragma once

#include <istream>
#include <ostream>

#ifdef __GLIBCXX__
#define _GLIBCXX_IOSTREAM 1  // libstdc++'s guard of <iostream>
namespace std {
extern istream cin;
extern ostream cout;
extern ostream cerr;
extern ostream clog;
extern wistream wcin;
extern wostream wcout;
extern wostream wcerr;
extern wostream wclog;
}  // namespace std
#else
#include <iostream>
#endif
