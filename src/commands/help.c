// SPDX-License-Identifier: Apache-2.0
/* `underspan help TOPIC` for topics shared by several commands. */
#include <stdio.h>
#include <string.h>

#include "commands/commands.h"

static const char config_text[] =
	"Each option has the same name everywhere. Three forms of the same setting:\n\n"
	"  a flag             --off_cpu.min_duration_us=500\n"
	"                     (a dash counts as an underscore)\n"
	"  in a file          { \"off_cpu\": { \"min_duration_us\": 500 } }\n"
	"                     or { \"off_cpu.min_duration_us\": 500 }\n"
	"  in the environment UNDERSPAN_OFF_CPU_MIN_DURATION_US=500\n\n"
	"A flag beats the environment, the environment beats the file, and the file beats\n"
	"the default. --clickhouse, --store and --stdout exclude each other:\n"
	"a flag replaces the setting of the file.\n\n"
	"The file is one JSON object. All commands take the same file (-c FILE): keys of\n"
	"other commands are ignored, unknown keys are refused. Where there is no -c, the\n"
	"file is " CONFIG_DEFAULT_FILE ", if it exists and may be read;\n"
	"`-c none` or --no-config: no file. Of that file run and store take all keys;\n"
	"the other commands take how to reach ClickHouse (the options under \"ClickHouse\"\n"
	"in their --help) and nothing else: the limits of a service must not change a\n"
	"measurement. The password for that server is in\n"
	"/etc/underspan/clickhouse-password.\n\n"
	"`underspan run --check` checks all of it and prints what would run.\n\n"
	"The password of ClickHouse is not an option: process lists would show the\n"
	"password. Use clickhouse_password_file, UNDERSPAN_CLICKHOUSE_PASSWORD or\n"
	"systemd's credential clickhouse-password.\n\n"
	"A bad option ends the command with exit code 2; the message names the option.\n";

static const char units_text[] =
	"Durations: a number and a unit: ns, us, ms, s, m (or min), h, d, w.\n\n"
	"  --duration=1.5m  --spool.max_age=7d  --off_cpu.min_duration_us=5ms\n\n"
	"Sizes: a number and a unit: B; KiB, MiB, GiB, TiB, or k, m, g, t for short\n"
	"(powers of 1024); kB, MB, GB, TB (powers of 1000). Case does not count.\n\n"
	"  --memory_bytes=64MiB   --spool.max_bytes=2g\n\n"
	"A plain number has the unit of the option's name (_us, _ms, _bytes, _kib, _mb),\n"
	"else in seconds or bytes. Flags, the environment and the file take units;\n"
	"in the file the value with a unit is a string: { \"flush_interval\": \"10s\" }.\n";

static const struct {
	const char *name, *summary, *text;
} topics[] = {
	{ "config", "flags, environment, configuration file: names and precedence", config_text },
	{ "units", "how to write durations and sizes", units_text },
};

bool help_topic(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(topics); i++) {
		if (!strcmp(topics[i].name, name)) {
			fputs(topics[i].text, stdout);
			return true;
		}
	}
	return false;
}

void help_list_topics(FILE *out)
{
	for (size_t i = 0; i < ARRAY_SIZE(topics); i++)
		fprintf(out, "  %-10s %s\n", topics[i].name, topics[i].summary);
}

const char *help_topic_name(size_t index)
{
	return index < ARRAY_SIZE(topics) ? topics[index].name : NULL;
}
