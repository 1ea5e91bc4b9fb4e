/* report.h -- lines on stderr that several programs print about devices and searches. */
#pragma once
#include "session/engine.h"

/* A report_line (session/device_choice.h): prints the line on stderr. */
void report_stderr(const char *line);
#define DEVICE_CHOICE_DEFAULT {.device = "auto", .dtype = "auto", .report = report_stderr}

/* Prints a line if searches found fewer chunks than the store has. */
void report_missing(const char *program, const struct engine *e, bool exact_fallback);
