// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
#include "phub_runtime.h"

#include <cstdarg>
#include <cstdio>

#include "verilated.h"

thread_local std::string phub_failure_text;

namespace {

// The last line printed, which for a failing assertion is its message.
thread_local std::string last_line;

void fail(const char *what, const char *file, int line, const char *scope) {
  if (!phub_failure_text.empty()) return;  // the first failure explains the others
  phub_failure_text = last_line.empty() ? std::string(what) : last_line;
  if (file && *file) phub_failure_text += " [" + std::string(file) + ":" + std::to_string(line) + "]";
  if (scope && *scope && phub_failure_text.find(scope) == std::string::npos) {
    phub_failure_text += " in " + std::string(scope);
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

void vl_finish(const char *file, int line, const char *scope) VL_MT_UNSAFE { fail("$finish", file, line, scope); }

void vl_stop(const char *file, int line, const char *scope) VL_MT_UNSAFE { fail("$stop", file, line, scope); }

void vl_fatal(const char *file, int line, const char *scope, const char *message) VL_MT_UNSAFE {
  last_line = message;
  fail("fatal", file, line, scope);
  throw phub_fatal();
}
