/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Findings of doctor, collected so that the summary is printed first; as text or JSON. Findings
 * contain untrusted text and are made printable.
 */
#ifndef UNDERSPAN_COMMANDS_DOCTOR_REPORT_H
#define UNDERSPAN_COMMANDS_DOCTOR_REPORT_H

#include "base/util.h"

/* Starts a section: "this host", "process 12". */
void doctor_section(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* Adds a finding. Returns `ok`. */
bool doctor_say(bool ok, const char *what, const char *detail);

/* An optional kernel feature; its absence is not a failure. `without`: the fallback. */
void doctor_feature(const char *name, bool there, const char *without);

/* False: some finding is not ok. */
bool doctor_all_ok(void);

/* Prints to stdout. `verbose`: also single kernel features. 0, or -ENOMEM, -EIO with why. */
int doctor_print(bool verbose, struct why *why);
int doctor_print_json(struct why *why);
void doctor_forget(void);

#endif
