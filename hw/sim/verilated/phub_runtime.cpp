// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
#include "phub_runtime.h"

#include <cstdarg>
#include <cstdio>

#include "verilated.h"

thread_local std::string phub_failure_text;

namespace {

// The last line printed, which for a failing assertion is its message.
thread_local std::string last_line;

void fail(const char *what, const char *file, int line) {
  if (!phub_failure_text.empty()) return;  // the first failure explains the others
  if (last_line.empty()) {
    phub_failure_text = std::string(what) + " at " + file + ":" + std::to_string(line);
  } else {
    // Without the time in front, which the caller knows in cycles.
    const size_t text = last_line.find("] %");
    phub_failure_text = text == std::string::npos ? last_line : last_line.substr(text + 3);
  }
}

}  // namespace

// VL_PRINTF: $display and the like go to standard error, standard output belongs to the program.
extern "C" int phub_printf(const char *format, ...) {
  va_list args;
  va_start(args, format);
  char line[1024];
  const int n = vsnprintf(line, sizeof line, format, args);
  va_end(args);
  last_line = line;
  while (!last_line.empty() && last_line.back() == '\n') last_line.pop_back();
  fputs(line, stderr);
  return n;
}

void vl_finish(const char *file, int line, const char *) VL_MT_UNSAFE { fail("$finish", file, line); }

void vl_stop(const char *file, int line, const char *) VL_MT_UNSAFE { fail("$stop", file, line); }

void vl_fatal(const char *file, int line, const char *, const char *message) VL_MT_UNSAFE {
  last_line = message;
  fail("fatal", file, line);
  throw phub_fatal();
}
