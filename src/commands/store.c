// SPDX-License-Identifier: Apache-2.0
/* `underspan store`: an embedded ClickHouse behind its HTTP interface, until SIGTERM or SIGINT. */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>

#include "commands/commands.h"
#include "base/config.h"
#include "base/listen.h"
#include "base/log.h"
#include "base/stack_limit.h"
#include "store/confine.h"
#include "store/directory.h"
#include "store/engine.h"
#include "store/engine_find.h"
#include "store/keeper.h"
#include "store/otlp/receiver.h"
#include "store/server.h"
#include "base/util.h"

static const char *const log_levels[] = { "error", "warn", "info", "debug", NULL };

static struct {
	char *path, *listen, *otlp, *libchdb, *program, *engine_config;
	bool listen_anywhere, otlp_anywhere, existing, passing;
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
	  .help = "address to serve at; port 0: any free port",
	  .otherwise = "127.0.0.1:8123" },
	{ .key = "listen_anywhere",
	  .type = OPTION_BOOL,
	  .target = &config.listen_anywhere,
	  .help = "allow an address other than loopback" },
	{ .key = "otlp",
	  .type = OPTION_STRING,
	  .target = &config.otlp,
	  .arg = "HOST:PORT",
	  .bare = OTLP_DEFAULT_ADDRESS,
	  .help = "also take traces by OTLP/HTTP into otel_traces; --otlp alone: "
		  "at " OTLP_DEFAULT_ADDRESS,
	  .otherwise = "not" },
	{ .key = "otlp_anywhere",
	  .type = OPTION_BOOL,
	  .target = &config.otlp_anywhere,
	  .help = "allow an address other than loopback for --otlp, with the store's password" },
	{ .key = "libchdb",
	  .type = OPTION_STRING,
	  .target = &config.libchdb,
	  .arg = "FILE",
	  .help = "the ClickHouse engine, if not in a usual place" },
	{ .key = "store_program",
	  .type = OPTION_STRING,
	  .target = &config.program,
	  .arg = "FILE",
	  .help = "an installed clickhouse program as the engine, instead of libchdb" },
	{ .key = "max_memory_mb",
	  .type = OPTION_UINT,
	  .target = &config.max_memory_mb,
	  .arg = "MIB",
	  .unit = UNIT_MIB,
	  .min = 256,
	  .max = 1 << 20,
	  .help = "memory of all queries together" },
	{ .key = "max_body_mb",
	  .type = OPTION_UINT,
	  .target = &config.max_body_mb,
	  .arg = "MIB",
	  .unit = UNIT_MIB,
	  .min = 1,
	  .max = 1 << 16,
	  .help = "largest request body, unpacked" },
	{ .key = "max_connections",
	  .type = OPTION_UINT,
	  .target = &config.max_connections,
	  .arg = "N",
	  .min = 1,
	  .max = 1000,
	  .help = "clients at a time" },
	{ .key = "client_timeout",
	  .type = OPTION_SECONDS,
	  .target = &config.client_timeout_ns,
	  .arg = "S",
	  .min = 1,
	  .max = 3600,
	  .help = "close a connection after this long without data in either direction" },
	{ .key = "log_level",
	  .type = OPTION_CHOICE,
	  .target = &config.log_level,
	  .arg = "LEVEL",
	  .choices = log_levels,
	  .help = "error, warn, info or debug" },
	{ .key = "engine_config",
	  .type = OPTION_STRING,
	  .target = &config.engine_config,
	  .flag_only = true }, /* a file in DIR/engine: tests run as users with few rights */
	{ .key = "existing",
	  .type = OPTION_BOOL,
	  .target = &config.existing,
	  .flag_only = true }, /* the parent has created or found the directory */
	{ .key = "passing",
	  .type = OPTION_BOOL,
	  .target = &config.passing,
	  .flag_only = true }, /* the parent asks a question, and ends the store after it */
	{ .key = "ready_fd",
	  .type = OPTION_UINT,
	  .target = &config.ready_fd,
	  .arg = "FD",
	  .min = 3,
	  .max = 1 << 20,
	  .flag_only = true }, /* reports the start to the parent */
};
const struct option_table store_options = { options, ARRAY_SIZE(options) };

/* A line to the parent: "ready URL" or the reason of the failure. */
static void notify_parent(const char *kind, const char *text)
{
	if (!config.ready_fd)
		return;
	if (dprintf((int)config.ready_fd, "%s %s\n", kind, text) < 0)
		log_debug("store: the parent process is gone");
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

/* Resources opened while the process is privileged. */
struct store_resources {
	struct store_directory directory;
	struct keeper keeper;
	int lock, library, engine, listen, socket, otlp;
	struct engine_place place;
	char url[STORE_URL_MAX], password[STORE_PASSWORD_LEN + 1];
	char otlp_url[STORE_URL_MAX];
};

static int open_otlp(struct store_resources *p, struct why *why)
{
	int err;

	if (!config.otlp)
		return 0;
	err = listen_open("otlp", config.otlp, config.otlp_anywhere, &p->otlp, why);
	if (!err && server_url(p->otlp, p->otlp_url, sizeof(p->otlp_url)) < 0)
		err = why_fail(why, EIO, "cannot read the address bound for %s", config.otlp);
	return err;
}

static int open_resources(struct store_resources *p, struct why *why)
{
	const struct engine_choice choice = { config.libchdb, config.program };
	int err = engine_find(&choice, &p->place, why);

	if (err)
		return err;
	p->library = open(p->place.path, O_RDONLY | O_CLOEXEC);
	if (p->library < 0)
		return why_fail(why, errno, "cannot open %s: %s", p->place.path, strerror(errno));
	err = store_directory_open(config.path, !config.existing, &p->directory, why);
	if (!err)
		err = store_directory_lock(&p->directory, &p->lock, why);
	if (!err)
		err = store_directory_password(&p->directory, true, p->password, why);
	if (err)
		return err;
	p->directory.passing = config.passing;
	store_directory_unpublish(&p->directory); /* left by a killed store */
	err = store_directory_engine(&p->directory, &p->engine, why);
	if (!err)
		err = listen_open("listen", config.listen ?: "127.0.0.1:8123",
				  config.listen_anywhere, &p->listen, why);
	if (!err && server_url(p->listen, p->url, sizeof(p->url)) < 0)
		err = why_fail(why, EIO, "cannot read the address bound for %s", config.listen);
	if (!err)
		err = open_otlp(p, why);
	if (!err)
		err = store_directory_listen(&p->directory, &p->socket, why);
	return err ?: keeper_start(&p->keeper, &p->directory, p->url, why);
}

/* The OTLP receiver, if asked for. */
static int start_otlp(struct engine *engine, struct store_resources *p,
		      struct otlp_receiver **ret_receiver, struct why *why)
{
	struct otlp_options o = {
		.engine = engine,
		.listen_fd = p->otlp,
		.password = config.otlp_anywhere ? p->password : NULL,
		.max_connections = config.max_connections,
		.client_timeout_ns = config.client_timeout_ns,
	};

	*ret_receiver = NULL;
	return p->otlp < 0 ? 0 : otlp_start(&o, ret_receiver, why);
}

/* Serves until a signal; the engine is not closed if a query does not end. */
static int serve(struct engine *engine, struct store_resources *p, const sigset_t *signals,
		 struct why *why)
{
	struct server_options o = {
		.engine = engine,
		.listen_fd = p->listen,
		.socket_fd = p->socket,
		.password = p->password,
		.max_body_bytes = config.max_body_mb << 20,
		.max_connections = config.max_connections,
		.client_timeout_ns = config.client_timeout_ns,
	};
	struct otlp_receiver *receiver;
	struct server *server;
	int err = server_start(&o, &server, why);

	if (err)
		return err;
	err = start_otlp(engine, p, &receiver, why);
	err = err ?: keeper_publish(&p->keeper, why);
	if (!err) {
		log_info("store: ClickHouse %s for %s at %s%s%s", engine_version(engine),
			 config.path, p->url, p->place.is_program ? ", by " : "",
			 p->place.is_program ? p->place.path : "");
		if (receiver)
			log_info("store: OTLP at %s/v1/traces", p->otlp_url);
		notify_parent("ready", p->url);
		wait_for_signal(signals);
	}
	keeper_stop(&p->keeper);
	if (!otlp_stop(receiver, NSEC_PER_SEC) || !server_stop(server, 3 * NSEC_PER_SEC)) {
		log_warn("store: a query did not end; exiting");
		_exit(EXIT_DONE);
	}
	return err;
}

static int run_engine(struct store_resources *p, const sigset_t *signals, struct why *why)
{
	char library[32], path[PATH_MAX];
	struct engine_options o = { .path = path,
				    .config = config.engine_config,
				    .engine = library,
				    .engine_name = p->place.path,
				    .is_program = p->place.is_program,
				    .max_memory_bytes = config.max_memory_mb << 20 };
	struct engine *engine;
	int err = store_confine(p->engine, p->library, p->place.is_program, path, sizeof(path),
				why);

	if (err)
		return err;
	/* opened by root: the engine's user may lack permission */
	snprintf(library, sizeof(library), "/proc/self/fd/%d", p->library);
	err = engine_open(&o, &engine, why);
	if (err)
		return err;
	err = serve(engine, p, signals, why);
	engine_close(engine);
	return err;
}

/* Before anything is made: a typing error leaves no directory. */
static int check_addresses(struct why *why)
{
	int err = config.listen ? listen_check("listen", config.listen, config.listen_anywhere, why)
				: 0;

	return err || !config.otlp ? err
				   : listen_check("otlp", config.otlp, config.otlp_anywhere, why);
}

static int run(const sigset_t *signals, struct why *why)
{
	struct store_resources p = { .directory.fd = -1,
				     .lock = -1,
				     .library = -1,
				     .engine = -1,
				     .listen = -1,
				     .socket = -1,
				     .otlp = -1 };
	int err = check_addresses(why);

	if (!err)
		err = stack_limit_check(why);
	if (!err)
		err = open_resources(&p, why);

	if (!err)
		err = run_engine(&p, signals, why);
	if (err)
		keeper_stop(&p.keeper);
	explicit_bzero(p.password, sizeof(p.password));
	return err;
}

static void print_help(const struct option_table *tables)
{
	puts("usage: underspan store --path=DIR [OPTIONS]\n\n"
	     "Serves an embedded ClickHouse over its HTTP interface. The user is 'default',\n"
	     "the password is created at the first start, in DIR/password.\n"
	     "With --otlp a service's spans need no collector:\n"
	     "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318\n"
	     "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf\n");
	config_print_help(tables);
}

/* The words that no option took; the directory is needed. */
static int check_arguments(const char *word, size_t n_words, struct why *why)
{
	if (n_words && !config.path && word[0] != '-')
		return why_fail(why, EINVAL,
				"unexpected argument '%.200s': for the directory, underspan store "
				"--path=%.200s",
				word, word);
	if (n_words)
		return why_fail(why, EINVAL,
				"unexpected argument '%.200s'; an option's value follows '=': "
				"underspan store --path=DIR --otlp=HOST:PORT",
				word);
	if (!config.path)
		return why_fail(why, EINVAL, "path: which directory? underspan store --path=DIR");
	if (config.otlp && config.listen && !strcmp(config.otlp, config.listen) &&
	    strcmp(config.otlp + strlen(config.otlp) - 2, ":0"))
		return why_fail(why, EINVAL,
				"otlp: %.100s is the address of --listen: name another port",
				config.otlp);
	return 0;
}

/* Blocked in all threads, since set before the first; taken by sigwaitinfo(). */
static void block_signals(sigset_t *ret)
{
	sigemptyset(ret);
	sigaddset(ret, SIGTERM);
	sigaddset(ret, SIGINT);
	sigaddset(ret, SIGHUP);
	pthread_sigmask(SIG_BLOCK, ret, NULL);
	signal(SIGPIPE, SIG_IGN);
}

int command_store(int argc, char **argv)
{
	const struct option_table tables[] = { store_options, { 0 } };
	struct why why = { { 0 } };
	size_t n_words = 1;
	sigset_t signals;
	char *word;
	int err, status;

	err = config_parse(tables, argc, argv, &word, &n_words, &why);
	if (err == 1) {
		print_help(tables);
		return EXIT_DONE;
	}
	err = err ?: check_arguments(word, n_words, &why);
	if (err) {
		log_error("%s", why.text);
		notify_parent("failed", why.text);
		config_free(tables);
		return EXIT_USAGE;
	}
	log_set_level((enum log_level)config.log_level);
	/* started through /proc/self/exe: sets the process name */
	prctl(PR_SET_NAME, "underspan-store");
	block_signals(&signals);
	err = run(&signals, &why);
	if (err) {
		/* otherwise reported by the parent */
		if (!config.ready_fd)
			log_error("%s", why.text);
		notify_parent("failed", why.text);
	}
	status = err == -EINVAL ? EXIT_USAGE : err ? EXIT_FAILED : EXIT_DONE;
	config_free(tables);
	return status;
}
