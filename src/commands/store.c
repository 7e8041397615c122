// SPDX-License-Identifier: Apache-2.0
/* `underspan store`: an embedded ClickHouse behind its HTTP interface, until SIGTERM or SIGINT. */
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>

#include "commands/commands.h"
#include "config.h"
#include "log.h"
#include "store/directory.h"
#include "store/engine.h"
#include "store/server.h"
#include "util.h"

static const char *const log_levels[] = { "error", "warn", "info", "debug", NULL };

static struct {
	char *path, *listen, *libchdb;
	bool listen_anywhere;
	uint64_t max_memory_mb, max_body_mb, max_connections, client_timeout_ns, ready_fd;
	int log_level;
} config = {
	.max_memory_mb = 1024,
	.max_body_mb = 256,
	.max_connections = 128,
	.client_timeout_ns = 30 * NSEC_PER_SEC,
	.log_level = LOG_LEVEL_INFO,
};

static const struct option options[] = {
	{ .key = "path",
	  .type = OPTION_STRING,
	  .target = &config.path,
	  .arg = "DIR",
	  .help = "the store's directory, made when missing" },
	{ .key = "listen",
	  .type = OPTION_STRING,
	  .target = &config.listen,
	  .arg = "HOST:PORT",
	  .help = "where to serve (127.0.0.1:8123); port 0 takes a free one" },
	{ .key = "listen_anywhere",
	  .type = OPTION_BOOL,
	  .target = &config.listen_anywhere,
	  .help = "allow addresses that other machines reach" },
	{ .key = "libchdb",
	  .type = OPTION_STRING,
	  .target = &config.libchdb,
	  .arg = "FILE",
	  .help = "the ClickHouse engine, if not in a usual place" },
	{ .key = "max_memory_mb",
	  .type = OPTION_UINT,
	  .target = &config.max_memory_mb,
	  .arg = "N",
	  .min = 256,
	  .max = 1 << 20,
	  .help = "memory of all queries together (1024)" },
	{ .key = "max_body_mb",
	  .type = OPTION_UINT,
	  .target = &config.max_body_mb,
	  .arg = "N",
	  .min = 1,
	  .max = 1 << 16,
	  .help = "largest request body, unpacked (256)" },
	{ .key = "max_connections",
	  .type = OPTION_UINT,
	  .target = &config.max_connections,
	  .arg = "N",
	  .min = 1,
	  .max = 1000,
	  .help = "clients at a time (128)" },
	{ .key = "client_timeout",
	  .type = OPTION_SECONDS,
	  .target = &config.client_timeout_ns,
	  .arg = "S",
	  .min = 1,
	  .max = 3600,
	  .help = "patience with a client that neither sends nor reads (30)" },
	{ .key = "log_level",
	  .type = OPTION_CHOICE,
	  .target = &config.log_level,
	  .arg = "LEVEL",
	  .choices = log_levels,
	  .help = "error, warn, info or debug (info)" },
	{ .key = "ready_fd",
	  .type = OPTION_UINT,
	  .target = &config.ready_fd,
	  .arg = "FD",
	  .min = 3,
	  .max = 1 << 20,
	  .flag_only = true,
	  .help = "tell a parent process through this descriptor what became of it" },
};

/* One line to who started us: "ready URL" or the sentence why not. */
static void tell_parent(const char *kind, const char *text)
{
	if (!config.ready_fd)
		return;
	if (dprintf((int)config.ready_fd, "%s %s\n", kind, text) < 0)
		log_debug("store: nobody waits for us any more");
	close((int)config.ready_fd);
	config.ready_fd = 0;
}

static void wait_for_signal(const sigset_t *set)
{
	int signal;

	do {
		signal = sigwaitinfo(set, NULL);
	} while (signal < 0 && errno == EINTR);
	log_info("store: %s, stopping", signal > 0 ? strsignal(signal) : "signal");
}

/* Until a signal; the engine stays open when a query would not end. */
static int serve(struct engine *engine, const char *password, const sigset_t *signals,
		 struct why *why)
{
	struct server_options o = {
		.engine = engine,
		.listen = config.listen ?: "127.0.0.1:8123",
		.listen_anywhere = config.listen_anywhere,
		.password = password,
		.max_body_bytes = config.max_body_mb << 20,
		.max_connections = config.max_connections,
		.client_timeout_ns = config.client_timeout_ns,
	};
	struct server *server;
	int err = server_start(&o, &server, why);

	if (err)
		return err;
	err = store_directory_publish(config.path, server_url(server), why);
	if (!err) {
		log_info("store: ClickHouse %s for %s at %s", engine_version(engine), config.path,
			 server_url(server));
		tell_parent("ready", server_url(server));
		wait_for_signal(signals);
		store_directory_unpublish(config.path);
	}
	if (!server_stop(server, 3 * NSEC_PER_SEC)) {
		log_warn("store: a query would not end; leaving without it");
		_exit(EXIT_DONE);
	}
	return err;
}

static int run(const sigset_t *signals, struct why *why)
{
	char password[STORE_PASSWORD_LEN + 1], libchdb[PATH_MAX];
	struct engine_options o = { .path = config.path,
				    .libchdb = libchdb,
				    .max_memory_bytes = config.max_memory_mb << 20 };
	AUTO_CLOSE int lock = -1;
	struct engine *engine;
	int err;

	err = engine_find_library(config.libchdb, libchdb, sizeof(libchdb), why);
	if (!err)
		err = store_directory_make(config.path, why);
	if (!err)
		err = store_directory_lock(config.path, &lock, why);
	if (!err)
		err = store_directory_password(config.path, true, password, why);
	if (err)
		return err;
	store_directory_unpublish(config.path); /* of one that was killed */
	err = engine_open(&o, &engine, why);
	if (err)
		return err;
	err = serve(engine, password, signals, why);
	explicit_bzero(password, sizeof(password));
	engine_close(engine);
	return err;
}

int command_store(int argc, char **argv)
{
	const struct option_table tables[] = { { options, ARRAY_SIZE(options) }, { 0 } };
	struct why why = { { 0 } };
	sigset_t signals;
	int err, status;

	err = config_parse(tables, argc, argv, NULL, NULL, &why);
	if (err == 1) {
		puts("usage: underspan store --path=DIR [OPTIONS]\n\n"
		     "Serves an embedded ClickHouse over its HTTP interface. The user is 'default', "
		     "the\npassword is made at the first start and stands in DIR/password.\n");
		config_print_help(tables);
		return EXIT_DONE;
	}
	if (!err && !config.path)
		err = why_fail(&why, EINVAL, "path: which directory? underspan store --path=DIR");
	if (err) {
		log_error("%s", why.text);
		tell_parent("failed", why.text);
		config_free(tables);
		return EXIT_USAGE;
	}
	log_set_level((enum log_level)config.log_level);
	/* /proc/self/exe may have started us: be found under our name */
	prctl(PR_SET_NAME, "underspan-store");
	/* blocked before the first thread, so that in all threads; taken by sigwaitinfo */
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	signal(SIGPIPE, SIG_IGN);
	err = run(&signals, &why);
	if (err) {
		/* a parent says it in its own words */
		if (!config.ready_fd)
			log_error("%s", why.text);
		tell_parent("failed", why.text);
	}
	status = err == -EINVAL ? EXIT_USAGE : err ? EXIT_FAILED : EXIT_DONE;
	config_free(tables);
	return status;
}
