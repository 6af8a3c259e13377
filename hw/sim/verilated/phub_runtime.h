// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// Replaces Verilator's ways to print and to end the process: a failing assertion becomes a message.
// The build script includes this before every C++ file, Verilator's own too.
#ifndef PHUB_RUNTIME_H
#define PHUB_RUNTIME_H

#include <string>

#define VL_PRINTF phub_printf
#define VL_USER_FATAL 1
#define VL_USER_FINISH 1
#define VL_USER_STOP 1

extern "C" int phub_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));

// What went wrong on this thread since it was last cleared; empty if nothing.
extern thread_local std::string phub_failure_text;

// Thrown by vl_fatal, after which generated code must not go on.
struct phub_fatal {};

#endif
