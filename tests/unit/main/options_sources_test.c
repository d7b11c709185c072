/* options_sources_test.c: flags as environment and as YAML, and those of etcd that have no meaning here: who goes before whom, and what is said. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "options.h"

struct given {
	const char *args[16];
	const char *env[16];
	const char *file; /* text of the --config-file, NULL: none */
};

static enum options_result parse(struct options *o, const struct given *g, struct errmsg *em)
{
	char *argv[32] = { "holdfastd" }, *env[17] = { NULL };
	char path[] = "/tmp/options_test_XXXXXX", file[64];
	enum options_result r;
	int argc = 1, fd = -1;
	em->text[0] = '\0';
	for (int i = 0; g->args[i]; i++)
		argv[argc++] = (char *)(uintptr_t)g->args[i];
	for (int i = 0; g->env[i]; i++)
		env[i] = (char *)(uintptr_t)g->env[i];
	if (g->file) {
		fd = mkstemp(path);
		ck_assert_int_ge(fd, 0);
		ck_assert_int_eq(write(fd, g->file, strlen(g->file)), (ssize_t)strlen(g->file));
		close(fd);
		snprintf(file, sizeof(file), "--config-file=%s", path);
		argv[argc++] = file;
	}
	argv[argc] = NULL;
	r = options_parse_env(o, argc, argv, env, em);
	if (g->file)
		unlink(path);
	return r;
}

static void parse_ok(struct options *o, const struct given *g)
{
	struct errmsg em;
	enum options_result r = parse(o, g, &em);
	ck_assert_msg(r == OPTIONS_RUN, "%s", em.text);
}

static bool warned(const struct options *o, const char *flag)
{
	for (size_t i = 0; i < o->warnings_len; i++) {
		if (strcmp(o->warnings[i].flag, flag) == 0)
			return true;
	}
	return false;
}

/* ---- environment ---- */

START_TEST(environment__both_prefixes_and_ours_goes_before)
{
	struct options o;
	parse_ok(&o, &(struct given){ .env = { "ETCD_NAME=a", "HOLDFAST_NAME=b", "ETCD_SNAPSHOT_COUNT=7", "HOLDFAST_MAX_TXN_OPS=9", "PATH=/bin" } });
	ck_assert_str_eq(o.name, "b");
	ck_assert_uint_eq(o.snapshot_count, 7);
	ck_assert_uint_eq(o.max_txn_ops, 9);
	ck_assert_uint_eq(o.warnings_len, 0);
	options_free(&o);
}
END_TEST

START_TEST(environment__empty_is_not_set)
{
	struct options o;
	parse_ok(&o, &(struct given){ .env = { "ETCD_NAME=", "HOLDFAST_DATA_DIR=", "ETCD_CONFIG_FILE=" } });
	ck_assert_str_eq(o.name, "default");
	options_free(&o);
}
END_TEST

START_TEST(environment__a_flag_beside_it_is_an_error_as_with_etcd)
{
	struct options o;
	struct errmsg em;
	ck_assert_int_eq(parse(&o, &(struct given){ .args = { "--name=x" }, .env = { "ETCD_NAME=y" } }, &em), OPTIONS_ERROR);
	ck_assert_str_eq(em.text, "ETCD_NAME is set, and so is --name: give one of them");
	options_free(&o);
}
END_TEST

START_TEST(environment__what_is_no_flag_is_told)
{
	struct options o;
	parse_ok(&o, &(struct given){ .env = { "ETCD_PORT=1", "HOLDFAST_NAEM=x", "HOLDFAST_TEST_SCALE=3", "HOLDFAST_LOCK=l", "ETCD_name=x" } });
	ck_assert_uint_eq(o.warnings_len, 3);
	ck_assert(warned(&o, "ETCD_PORT"));
	ck_assert(warned(&o, "HOLDFAST_NAEM"));
	ck_assert(warned(&o, "ETCD_name"));
	options_free(&o);
}
END_TEST

START_TEST(environment__what_is_wrong_is_said_with_the_name)
{
	struct options o;
	struct errmsg em;
	ck_assert_int_eq(parse(&o, &(struct given){ .env = { "ETCD_SNAPSHOT_COUNT=x" } }, &em), OPTIONS_ERROR);
	ck_assert_str_eq(em.text, "ETCD_SNAPSHOT_COUNT: 'x' is not a number");
	options_free(&o);
}
END_TEST

/* ---- YAML ---- */

/* The shape of the file that comes with etcd: much of it null or empty. */
static const char example[] = "# comment\n"
			      "name: 'n1'\n"
			      "data-dir: /var/lib/n1\n"
			      "wal-dir:\n"
			      "snapshot-count: 10000\n"
			      "heartbeat-interval: 100\n"
			      "election-timeout: 1000\n"
			      "quota-backend-bytes: 0\n"
			      "listen-peer-urls: http://127.0.0.1:12380\n"
			      "listen-client-urls: http://127.0.0.1:12379,http://127.0.0.1:12377\n"
			      "max-snapshots: 5\n"
			      "cors:\n"
			      "initial-advertise-peer-urls: http://127.0.0.1:12380\n"
			      "advertise-client-urls: http://127.0.0.1:12379\n"
			      "discovery:\n"
			      "discovery-fallback: 'proxy'\n"
			      "initial-cluster: n1=http://127.0.0.1:12380\n"
			      "initial-cluster-token: 'tok'\n"
			      "initial-cluster-state: 'new'\n"
			      "strict-reconfig-check: true\n"
			      "enable-v2: false\n"
			      "proxy: 'off'\n"
			      "grpc-keepalive-interval: 3600000000000\n"
			      "client-transport-security:\n"
			      "peer-transport-security:\n"
			      "log-level: debug\n"
			      "logger: zap\n"
			      "log-outputs: [stdout, stderr]\n"
			      "auto-compaction-mode: revision\n"
			      "auto-compaction-retention: \"1000\"\n";

START_TEST(yaml__etcds_own_shape)
{
	struct options o;
	parse_ok(&o, &(struct given){ .file = example });
	ck_assert_str_eq(o.name, "n1");
	ck_assert_str_eq(o.data_dir, "/var/lib/n1");
	ck_assert_uint_eq(o.snapshot_count, 10000);
	ck_assert_uint_eq(o.listen_client.len, 2);
	ck_assert_str_eq(o.listen_client.urls[1], "http://127.0.0.1:12377");
	ck_assert_str_eq(o.initial_cluster_token, "tok");
	ck_assert_uint_eq(o.grpc_keepalive_interval_ms, 3600000);
	ck_assert_int_eq(o.log_level, LOG_DEBUG);
	ck_assert_int_eq(o.log_format, LOG_FORMAT_JSON);
	ck_assert_uint_eq(o.log_outputs.len, 2);
	ck_assert_uint_eq(o.auto_compaction_revisions, 1000);
	ck_assert(warned(&o, "max-snapshots"));
	ck_assert(!warned(&o, "strict-reconfig-check"));
	options_free(&o);
}
END_TEST

START_TEST(yaml__is_all_that_counts)
{
	struct options o;
	parse_ok(&o, &(struct given){ .args = { "--name=flag", "--snapshot-count=5" }, .env = { "ETCD_MAX_TXN_OPS=5", "ETCD_NAME=env" }, .file = "name: file\n" });
	ck_assert_str_eq(o.name, "file");
	ck_assert_uint_eq(o.snapshot_count, 100000);
	ck_assert_uint_eq(o.max_txn_ops, 128);
	options_free(&o);
}
END_TEST

START_TEST(yaml__by_environment)
{
	struct options o;
	struct errmsg em;
	ck_assert_int_eq(parse(&o, &(struct given){ .env = { "ETCD_CONFIG_FILE=/nowhere" } }, &em), OPTIONS_ERROR);
	ck_assert_str_eq(em.text, "--config-file: cannot open '/nowhere': No such file or directory");
	options_free(&o);
}
END_TEST

START_TEST(yaml__nothing_is_all_defaults)
{
	struct options o;
	parse_ok(&o, &(struct given){ .file = "# nothing\n" });
	ck_assert_str_eq(o.name, "default");
	options_free(&o);
}
END_TEST

START_TEST(yaml__unknown_names_are_told)
{
	struct options o;
	parse_ok(&o, &(struct given){ .file = "nmae: x\nconfig-file: y\n" });
	ck_assert(warned(&o, "nmae"));
	ck_assert(warned(&o, "config-file"));
	options_free(&o);
}
END_TEST

static const struct {
	const char *text, *says; /* behind the file's name */
} wrong[] = {
	{ "snapshot-count: x\n", ", line 1: snapshot-count: 'x' is not a number" },
	{ "name: a\nsnapshot-count: -1\n", ", line 2: snapshot-count: '-1' is not a number" },
	{ "name: {a: b}\n", ", line 1: name: not a plain value, nor a list of them" },
	{ "log-outputs: [[a]]\n", ", line 1: log-outputs: a list of anything but plain values" },
	{ "peer-transport-security: x\n", ", line 1: peer-transport-security: not a mapping" },
	{ "- a\n- b\n", ", line 1: not a mapping of names to values" },
	{ "name: 'a\n", "line 2: found unexpected end of stream" },
	{ "name: \"a\\0b\"\n", ", line 1: name: a zero byte" },
	{ "? [a]\n: b\n", ", line 1: a name that is none" },
	{ "discovery: http://x:1\n", ", line 1: discovery: there is no discovery: name the members with --initial-cluster" },
};

START_TEST(yaml__what_is_wrong_is_said_with_its_line)
{
	struct options o;
	struct errmsg em;
	ck_assert_int_eq(parse(&o, &(struct given){ .file = wrong[_i].text }, &em), OPTIONS_ERROR);
	ck_assert_msg(strstr(em.text, wrong[_i].says) != NULL, "%s", em.text);
	options_free(&o);
}
END_TEST

START_TEST(yaml__a_directory_or_a_large_file_is_refused)
{
	struct options o;
	struct errmsg em;
	ck_assert_int_eq(parse(&o, &(struct given){ .args = { "--config-file=/" } }, &em), OPTIONS_ERROR);
	ck_assert_ptr_nonnull(strstr(em.text, "--config-file"));
	options_free(&o);
}
END_TEST

/* ---- flags of etcd without a meaning here ---- */

START_TEST(ignored__taken_with_a_warning)
{
	struct options o;
	parse_ok(&o, &(struct given){ .args = { "--max-wals", "5", "--enable-v2", "--pre-vote=false", "--wal-dir=/x", "--experimental-compaction-batch-limit=1000" } });
	ck_assert_uint_eq(o.warnings_len, 5);
	ck_assert_str_eq(o.warnings[0].flag, "max-wals");
	ck_assert_str_eq(o.warnings[2].detail, "pre-vote is always on");
	options_free(&o);
}
END_TEST

START_TEST(ignored__in_silence_when_it_is_so_anyway)
{
	struct options o;
	parse_ok(&o, &(struct given){ .args = { "--pre-vote", "--enable-v2=false", "--proxy", "off", "--wal-dir=", "--strict-reconfig-check=true", "--unsafe-no-fsync=false" } });
	ck_assert_uint_eq(o.warnings_len, 0);
	options_free(&o);
}
END_TEST

START_TEST(ignored__more_warnings_than_there_is_room_for)
{
	const char *args[1 + 2 * OPTIONS_WARNINGS_MAX + 8];
	struct options o;
	struct errmsg em;
	int n = 0;
	args[n++] = "holdfastd";
	while (n < 2 * OPTIONS_WARNINGS_MAX)
		args[n++] = "--max-wals=1";
	ck_assert_int_eq(options_parse(&o, n, (char **)(uintptr_t)args, &em), OPTIONS_RUN);
	ck_assert_uint_eq(o.warnings_len, OPTIONS_WARNINGS_MAX);
	options_free(&o);
}
END_TEST

#define LEN(a) ((int)(sizeof(a) / sizeof((a)[0])))

int main(void)
{
	Suite *s = suite_create("options_sources");
	TCase *t = tcase_create("options_sources");
	SRunner *sr;
	int failed;
	tcase_add_test(t, environment__both_prefixes_and_ours_goes_before);
	tcase_add_test(t, environment__empty_is_not_set);
	tcase_add_test(t, environment__a_flag_beside_it_is_an_error_as_with_etcd);
	tcase_add_test(t, environment__what_is_no_flag_is_told);
	tcase_add_test(t, environment__what_is_wrong_is_said_with_the_name);
	tcase_add_test(t, yaml__etcds_own_shape);
	tcase_add_test(t, yaml__is_all_that_counts);
	tcase_add_test(t, yaml__by_environment);
	tcase_add_test(t, yaml__nothing_is_all_defaults);
	tcase_add_test(t, yaml__unknown_names_are_told);
	tcase_add_loop_test(t, yaml__what_is_wrong_is_said_with_its_line, 0, LEN(wrong));
	tcase_add_test(t, yaml__a_directory_or_a_large_file_is_refused);
	tcase_add_test(t, ignored__taken_with_a_warning);
	tcase_add_test(t, ignored__in_silence_when_it_is_so_anyway);
	tcase_add_test(t, ignored__more_warnings_than_there_is_room_for);
	suite_add_tcase(s, t);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
