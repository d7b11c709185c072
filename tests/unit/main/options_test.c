/* options_test.c: the command line: every flag in both forms, what is there without any, and one clear line for whatever is wrong. */
#include <check.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "options.h"

/* A line of arguments, split at spaces. */
static enum options_result parse(struct options *o, const char *line, struct errmsg *em)
{
	static char text[8192];
	char *argv[64] = { "holdfastd" };
	int argc = 1;
	em->text[0] = '\0';
	snprintf(text, sizeof(text), "%s", line);
	for (char *save = NULL, *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save))
		argv[argc++] = w;
	argv[argc] = NULL;
	return options_parse(o, argc, argv, em);
}

START_TEST(options__without_flags_one_replica_on_the_usual_ports)
{
	struct options o;
	struct errmsg em;
	ck_assert_int_eq(parse(&o, "", &em), OPTIONS_RUN);
	ck_assert_str_eq(o.name, "default");
	ck_assert_str_eq(o.data_dir, "default.holdfast");
	ck_assert_uint_eq(o.listen_client.len, 1);
	ck_assert_str_eq(o.listen_client.urls[0], "http://127.0.0.1:2379");
	ck_assert_str_eq(o.advertise_client.urls[0], "http://127.0.0.1:2379");
	ck_assert_str_eq(o.listen_peer.urls[0], "http://127.0.0.1:2380");
	ck_assert_str_eq(o.initial_advertise_peer.urls[0], "http://127.0.0.1:2380");
	ck_assert_uint_eq(o.members_len, 1);
	ck_assert_str_eq(o.members[0].name, "default");
	ck_assert_str_eq(o.members[0].peer_urls.urls[0], "http://127.0.0.1:2380");
	ck_assert(!o.existing);
	ck_assert_str_eq(o.initial_cluster_token, "etcd-cluster");
	ck_assert_uint_eq(o.heartbeat_interval_ms, 100);
	ck_assert_uint_eq(o.election_timeout_ms, 1000);
	ck_assert_uint_eq(o.snapshot_count, 100000);
	ck_assert_uint_eq(o.max_txn_ops, 128);
	ck_assert_uint_eq(o.max_request_bytes, 1536 * 1024);
	ck_assert_uint_eq(o.quota_backend_bytes, UINT64_C(2) << 30);
	ck_assert_uint_eq(o.auto_compaction_ms, 300000);
	ck_assert_uint_eq(o.auto_compaction_revisions, 0);
	ck_assert_uint_eq(o.max_concurrent_streams, UINT32_MAX);
	ck_assert_uint_eq(o.grpc_keepalive_min_time_ms, 5000);
	ck_assert_uint_eq(o.grpc_keepalive_interval_ms, 7200000);
	ck_assert_uint_eq(o.grpc_keepalive_timeout_ms, 20000);
	ck_assert_int_eq(o.log_level, LOG_INFO);
	ck_assert_int_eq(o.log_format, LOG_FORMAT_TEXT);
	ck_assert_uint_eq(o.log_outputs.len, 1);
	ck_assert_str_eq(o.log_outputs.items[0], "stderr");
	ck_assert(!o.debug);
	ck_assert(o.enable_grpc_gateway);
	ck_assert_uint_eq(o.cors.len, 0);
	ck_assert_uint_eq(o.host_whitelist.len, 0);
	ck_assert_uint_eq(o.max_value_bytes, 0);
	ck_assert_uint_eq(o.watch_progress_ms, 600000);
	ck_assert_uint_eq(o.snapshot_catchup_entries, 10000);
	ck_assert_uint_eq(o.warnings_len, 0);
	options_free(&o);
}
END_TEST

/* ---- each flag, in all its forms ---- */

enum what { TEXT, URLS, NUMBER, LEVEL, BOOL };
static const struct {
	const char *flag, *value;
	enum what what;
	size_t at;
	uint64_t number; /* or the level */
	const char *with; /* what else has to be said */
} flags[] = {
#define AT(f) offsetof(struct options, f)
	{ "name", "n1", TEXT, AT(name), 0, "" },
	{ "data-dir", "/x/y", TEXT, AT(data_dir), 0, "" },
	{ "initial-cluster-token", "t", TEXT, AT(initial_cluster_token), 0, "" },
	{ "listen-client-urls", "http://a:1,http://b:2", URLS, AT(listen_client), 0, "" },
	{ "advertise-client-urls", "http://a:1,http://b:2", URLS, AT(advertise_client), 0, "" },
	{ "listen-peer-urls", "http://a:1,http://b:2", URLS, AT(listen_peer), 0, "" },
	{ "initial-advertise-peer-urls", "http://a:1,http://b:2", URLS, AT(initial_advertise_peer), 0, "" },
	{ "initial-cluster-state", "existing", BOOL, AT(existing), 1, "" },
	{ "initial-cluster-state", "new", BOOL, AT(existing), 0, "" },
	{ "heartbeat-interval", "7", NUMBER, AT(heartbeat_interval_ms), 7, "" },
	{ "election-timeout", "5000", NUMBER, AT(election_timeout_ms), 5000, "" },
	{ "snapshot-count", "1", NUMBER, AT(snapshot_count), 1, "" },
	{ "max-txn-ops", "9", NUMBER, AT(max_txn_ops), 9, "" },
	{ "max-request-bytes", "1024", NUMBER, AT(max_request_bytes), 1024, "" },
	{ "quota-backend-bytes", "18446744073709551615", NUMBER, AT(quota_backend_bytes), UINT64_MAX, "" },
	{ "max-concurrent-streams", "3", NUMBER, AT(max_concurrent_streams), 3, "" },
	{ "grpc-keepalive-min-time", "500ms", NUMBER, AT(grpc_keepalive_min_time_ms), 500, "" },
	{ "grpc-keepalive-interval", "1h30m", NUMBER, AT(grpc_keepalive_interval_ms), 5400000, "" },
	{ "grpc-keepalive-interval", "0", NUMBER, AT(grpc_keepalive_interval_ms), 0, "" },
	{ "grpc-keepalive-timeout", "1.5s", NUMBER, AT(grpc_keepalive_timeout_ms), 1500, "" },
	{ "auto-compaction-retention", "0", NUMBER, AT(auto_compaction_ms), 0, "" },
	{ "auto-compaction-retention", "2", NUMBER, AT(auto_compaction_ms), 7200000, "" },
	{ "auto-compaction-retention", "90s", NUMBER, AT(auto_compaction_ms), 90000, "--auto-compaction-mode=periodic" },
	{ "auto-compaction-retention", "1000", NUMBER, AT(auto_compaction_revisions), 1000, "--auto-compaction-mode revision" },
	{ "auto-compaction-mode", "revision", NUMBER, AT(auto_compaction_revisions), 77, "--auto-compaction-retention 77" },
	{ "auto-compaction-mode", "revision", NUMBER, AT(auto_compaction_revisions), 0, "" },
	{ "auto-compaction-mode", "revision", NUMBER, AT(auto_compaction_ms), 0, "" },
	{ "auto-compaction-mode", "periodic", NUMBER, AT(auto_compaction_ms), 300000, "" },
	{ "log-level", "debug", LEVEL, AT(log_level), LOG_DEBUG, "" },
	{ "log-level", "error", LEVEL, AT(log_level), LOG_ERROR, "" },
	{ "logger", "zap", LEVEL, AT(log_format), LOG_FORMAT_JSON, "" },
	{ "logger", "capnslog", LEVEL, AT(log_format), LOG_FORMAT_TEXT, "" },
	{ "max-value-bytes", "65536", NUMBER, AT(max_value_bytes), 65536, "" },
	{ "snapshot-catchup-entries", "5", NUMBER, AT(snapshot_catchup_entries), 5, "" },
	{ "experimental-snapshot-catchup-entries", "5", NUMBER, AT(snapshot_catchup_entries), 5, "" },
	{ "watch-progress-notify-interval", "30s", NUMBER, AT(watch_progress_ms), 30000, "" },
	{ "experimental-watch-progress-notify-interval", "30s", NUMBER, AT(watch_progress_ms), 30000, "" },
	{ "listen-metrics-urls", "http://a:1,http://b:2", URLS, AT(listen_metrics), 0, "" },
	{ "listen-client-http-urls", "http://a:1,http://b:2", URLS, AT(listen_client_http), 0, "" },
	{ "etcd-version", "3.6.1", TEXT, AT(etcd_version), 0, "" },
#undef AT
};

static void check_field(const struct options *o, int i)
{
	const void *at = (const char *)o + flags[i].at;
	switch (flags[i].what) {
	case TEXT:
		ck_assert_str_eq(*(char *const *)at, flags[i].value);
		break;
	case URLS:
		ck_assert_uint_eq(((const struct url_list *)at)->len, 2);
		ck_assert_str_eq(((const struct url_list *)at)->urls[0], "http://a:1");
		ck_assert_str_eq(((const struct url_list *)at)->urls[1], "http://b:2");
		break;
	case NUMBER:
		ck_assert_uint_eq(*(const uint64_t *)at, flags[i].number);
		break;
	case LEVEL:
		ck_assert_uint_eq(*(const enum log_level *)at, flags[i].number);
		break;
	case BOOL:
		ck_assert_int_eq(*(const bool *)at, flags[i].number != 0);
		break;
	}
}

START_TEST(options__each_flag_in_all_its_forms)
{
	for (unsigned form = 0; form < 4; form++) {
		struct options o;
		struct errmsg em;
		char line[512];
		snprintf(line, sizeof(line), "%s%s%s%s %s", form & 2 ? "-" : "--", flags[_i].flag, form & 1 ? "=" : " ", flags[_i].value, flags[_i].with);
		ck_assert_msg(parse(&o, line, &em) == OPTIONS_RUN, "%s: %s", line, em.text);
		check_field(&o, _i);
		options_free(&o);
	}
}
END_TEST

START_TEST(options__the_last_of_two_counts)
{
	struct options o;
	struct errmsg em;
	ck_assert_int_eq(parse(&o, "--name a --name=b --listen-client-urls http://x:1,http://y:2 --listen-client-urls http://z:3 --snapshot-count 5 "
				   "--snapshot-count 6 --auto-compaction-retention 1h --auto-compaction-retention 2h", &em), OPTIONS_RUN);
	ck_assert_str_eq(o.name, "b");
	ck_assert_str_eq(o.data_dir, "b.holdfast");
	ck_assert_uint_eq(o.listen_client.len, 1);
	ck_assert_str_eq(o.listen_client.urls[0], "http://z:3");
	ck_assert_uint_eq(o.snapshot_count, 6);
	ck_assert_uint_eq(o.auto_compaction_ms, 7200000);
	options_free(&o);
}
END_TEST

START_TEST(options__a_value_may_hold_an_equals_sign)
{
	struct options o;
	struct errmsg em;
	ck_assert_int_eq(parse(&o, "--initial-cluster-token=a=b --data-dir c=d", &em), OPTIONS_RUN);
	ck_assert_str_eq(o.initial_cluster_token, "a=b");
	ck_assert_str_eq(o.data_dir, "c=d");
	options_free(&o);
}
END_TEST

/* ---- the members of a new cell ---- */

START_TEST(options__the_members_of_a_new_cell)
{
	struct options o;
	struct errmsg em;
	ck_assert_int_eq(parse(&o, "--name b --initial-advertise-peer-urls http://h2:2/ "
				   "--initial-cluster a=http://h1:1,b=http://h2:2,c=http://h3:3,c=http://[::1]:4", &em), OPTIONS_RUN);
	ck_assert_uint_eq(o.members_len, 3);
	ck_assert_str_eq(o.members[0].name, "a");
	ck_assert_str_eq(o.members[2].name, "c");
	ck_assert_uint_eq(o.members[2].peer_urls.len, 2);
	ck_assert_str_eq(o.members[2].peer_urls.urls[1], "http://[::1]:4");
	ck_assert_str_eq(o.initial_advertise_peer.urls[0], "http://h2:2"); /* a slash more is no other address */
	options_free(&o);
}
END_TEST

START_TEST(options__own_addresses_may_come_in_any_order)
{
	struct options o;
	struct errmsg em;
	ck_assert_int_eq(parse(&o, "--name a --initial-advertise-peer-urls http://x:1,http://y:2 --initial-cluster a=http://y:2,a=http://x:1", &em),
			 OPTIONS_RUN);
	options_free(&o);
}
END_TEST

START_TEST(options__what_is_advertised_follows_what_is_listened_on)
{
	struct options o;
	struct errmsg em;
	ck_assert_int_eq(parse(&o, "--listen-client-urls http://0.0.0.0:1,http://127.0.0.1:2 --listen-peer-urls http://127.0.0.1:9", &em), OPTIONS_RUN);
	ck_assert_uint_eq(o.advertise_client.len, 2);
	ck_assert_str_eq(o.advertise_client.urls[1], "http://127.0.0.1:2");
	ck_assert_str_eq(o.initial_advertise_peer.urls[0], "http://127.0.0.1:9");
	ck_assert_str_eq(o.members[0].peer_urls.urls[0], "http://127.0.0.1:9");
	options_free(&o);
}
END_TEST

/* ---- what is wrong ---- */

static const struct {
	const char *line, *says; /* the whole line */
} wrong[] = {
	{ "serve", "'serve' is not a flag (see --help)" },
	{ "--name a b", "'b' is not a flag (see --help)" },
	{ "--nmae a", "unknown flag '--nmae' (see --help)" },
	{ "--nmae=a", "unknown flag '--nmae' (see --help)" },
	{ "--", "unknown flag '--' (see --help)" },
	{ "-", "unknown flag '--' (see --help)" },
	{ "---name a", "unknown flag '---name' (see --help)" },
	{ "--NAME a", "unknown flag '--NAME' (see --help)" },
	{ "--name", "--name needs a value" },
	{ "--name=", "--name: must not be empty" },
	{ "--data-dir=", "--data-dir: must not be empty" },
	{ "--snapshot-count", "--snapshot-count needs a value" },
	{ "--snapshot-count x", "--snapshot-count: 'x' is not a number" },
	{ "--snapshot-count=", "--snapshot-count: '' is not a number" },
	{ "--snapshot-count -1", "--snapshot-count: '-1' is not a number" },
	{ "--snapshot-count +1", "--snapshot-count: '+1' is not a number" },
	{ "--snapshot-count 1k", "--snapshot-count: '1k' is not a number" },
	{ "--snapshot-count 0x10", "--snapshot-count: '0x10' is not a number" },
	{ "--snapshot-count 0", "--snapshot-count: 0 is not within 1..18446744073709551615" },
	{ "--snapshot-count 18446744073709551616", "--snapshot-count: '18446744073709551616' is not a number" },
	{ "--heartbeat-interval 4", "--heartbeat-interval: 4 is not within 5..10000" },
	{ "--election-timeout 50001", "--election-timeout: 50001 is not within 50..50000" },
	{ "--election-timeout 499", "--election-timeout (499) must be at least five times --heartbeat-interval (100)" },
	{ "--max-request-bytes 1023", "--max-request-bytes: 1023 is not within 1024..67108864" },
	{ "--grpc-keepalive-min-time 5", "--grpc-keepalive-min-time: '5' is not a duration such as 500ms, 20s or 2h" },
	{ "--grpc-keepalive-min-time=", "--grpc-keepalive-min-time: '' is not a duration such as 500ms, 20s or 2h" },
	{ "--grpc-keepalive-min-time -5s", "--grpc-keepalive-min-time: '-5s' is not a duration such as 500ms, 20s or 2h" },
	{ "--grpc-keepalive-min-time 5d", "--grpc-keepalive-min-time: '5d' is not a duration such as 500ms, 20s or 2h" },
	{ "--grpc-keepalive-min-time 1e3s", "--grpc-keepalive-min-time: '1e3s' is not a duration such as 500ms, 20s or 2h" },
	{ "--grpc-keepalive-min-time 0x5s", "--grpc-keepalive-min-time: '0x5s' is not a duration such as 500ms, 20s or 2h" },
	{ "--grpc-keepalive-min-time .s", "--grpc-keepalive-min-time: '.s' is not a duration such as 500ms, 20s or 2h" },
	{ "--grpc-keepalive-min-time 1.2.3s", "--grpc-keepalive-min-time: '1.2.3s' is not a duration such as 500ms, 20s or 2h" },
	{ "--grpc-keepalive-min-time 99999999999999999999999999999999h",
	  "--grpc-keepalive-min-time: '99999999999999999999999999999999h' is not a duration such as 500ms, 20s or 2h" },
	{ "--grpc-keepalive-min-time 25h", "--grpc-keepalive-min-time: 25h is not within 0ms..86400000ms" },
	{ "--log-level=", "--log-level: '' is none of debug, info, warn, error" },
	{ "--logger loud", "--logger: 'loud' is none of text, zap, capnslog" },
	{ "--log-outputs=", "--log-outputs: 1 to 4 outputs" },
	{ "--log-outputs a,b,c,d,e", "--log-outputs: 1 to 4 outputs" },
	{ "--debug true", "'true' is not a flag (see --help)" },
	{ "--debug=yes", "--debug: 'yes' is neither 'true' nor 'false'" },
	{ "--etcd-version 3.5", "--etcd-version: '3.5' is not a version of etcd 3 such as 3.5.21" },
	{ "--etcd-version 4.0.0", "--etcd-version: '4.0.0' is not a version of etcd 3 such as 3.5.21" },
	{ "--etcd-version 3.5.1-rc", "--etcd-version: '3.5.1-rc' is not a version of etcd 3 such as 3.5.21" },
	{ "--lock-metrics-prefix a\"b", "--lock-metrics-prefix: 'a\"b' is longer than 63 bytes, or has a quote or a backslash" },
	{ "--discovery http://d:1/x", "--discovery: there is no discovery: name the members with --initial-cluster" },
	{ "--unsafe-no-fsync", "--unsafe-no-fsync: what is acknowledged is on the disk, always" },
	{ "--config-file /nowhere", "--config-file: cannot open '/nowhere': No such file or directory" },
	{ "--log-level loud", "--log-level: 'loud' is none of debug, info, warn, error" },
	{ "--initial-cluster-state old", "--initial-cluster-state: 'old' is neither 'new' nor 'existing'" },
	{ "--auto-compaction-mode hourly", "--auto-compaction-mode: 'hourly' is neither 'periodic' nor 'revision'" },
	{ "--auto-compaction-retention soon", "--auto-compaction-retention: 'soon' is not a duration such as 5m or 1h" },
	{ "--auto-compaction-retention=", "--auto-compaction-retention: '' is not a duration such as 5m or 1h" },
	{ "--auto-compaction-retention 1000001", "--auto-compaction-retention: 1000001 is not within 0..1000000" },
	{ "--auto-compaction-mode revision --auto-compaction-retention 5m", "--auto-compaction-retention: '5m' is not a number" },
	{ "--auto-compaction-retention 1h --auto-compaction-mode revision", "--auto-compaction-retention: '1h' is not a number" },
	/* URLs */
	{ "--listen-client-urls=", "--listen-client-urls: no URL given" },
	{ "--listen-client-urls ,", "--listen-client-urls: no URL given" },
	{ "--listen-client-urls 127.0.0.1:1", "--listen-client-urls: '127.0.0.1:1' is not of the form http://HOST:PORT or https://HOST:PORT" },
	{ "--listen-client-urls https://a:1 --cert-file c", "--cert-file and --key-file go together" },
	{ "--listen-metrics-urls https://a:1", "an https:// URL needs --cert-file and --key-file, or --auto-tls" },
	{ "--listen-peer-urls https://a:1 --initial-advertise-peer-urls https://a:1", "an https:// URL needs --peer-cert-file and --peer-key-file, or --peer-auto-tls" },
	{ "--initial-cluster default=http://127.0.0.1:2380,b=https://b:1", "an https:// URL needs --peer-cert-file and --peer-key-file, or --peer-auto-tls" },
	{ "--client-cert-auth", "--client-cert-auth needs --trusted-ca-file: without CAs no certificate could be checked" },
	{ "--client-crl-file x", "--client-crl-file needs --trusted-ca-file: nobody is asked for a certificate otherwise" },
	{ "--peer-cert-allowed-cn a", "names that are allowed need --peer-trusted-ca-file: a name that no CA vouches for is worth nothing" },
	{ "--peer-cert-allowed-cn a --peer-cert-allowed-hostname b --peer-trusted-ca-file c", "--peer-cert-allowed-cn and --peer-cert-allowed-hostname exclude each other" },
	{ "--peer-auto-tls --peer-trusted-ca-file c", "--peer-auto-tls makes certificates that no CA vouches for: it does not go with --peer-trusted-ca-file" },
	{ "--tls-min-version TLS1.1", "--tls-min-version: 'TLS1.1' is neither 'TLS1.2' nor 'TLS1.3'" },
	{ "--tls-min-version TLS1.3 --tls-max-version TLS1.2", "--tls-max-version is below --tls-min-version" },
	{ "--cipher-suites TLS_NONE", "--cipher-suites: 'TLS_NONE' is no cipher suite that can be used; they are written like TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256" },
	{ "--cipher-suites TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 --tls-min-version TLS1.3", "--cipher-suites: none of these cipher suites is one of TLS 1.3, and nothing below is spoken" },
	{ "--cipher-suites TLS_AES_128_GCM_SHA256 --tls-max-version TLS1.2", "--cipher-suites: all of these cipher suites are of TLS 1.3, and it is not spoken" },
	{ "--self-signed-cert-validity 0", "--self-signed-cert-validity: 0 is not within 1..100" },
	{ "--listen-client-urls https://a:1", "an https:// URL needs --cert-file and --key-file, or --auto-tls" },
	{ "--listen-client-urls http://a", "--listen-client-urls: 'http://a' is not of the form http://HOST:PORT or https://HOST:PORT" },
	{ "--listen-client-urls http://a:0", "--listen-client-urls: 'http://a:0' is not of the form http://HOST:PORT or https://HOST:PORT" },
	{ "--listen-client-urls http://a:65536", "--listen-client-urls: 'http://a:65536' is not of the form http://HOST:PORT or https://HOST:PORT" },
	{ "--listen-client-urls http://a:1/x", "--listen-client-urls: 'http://a:1/x' is not of the form http://HOST:PORT or https://HOST:PORT" },
	{ "--listen-client-urls http://a:1,nonsense", "--listen-client-urls: 'nonsense' is not of the form http://HOST:PORT or https://HOST:PORT" },
	{ "--listen-client-urls http://a:1,http://a:2,http://a:3,http://a:4,http://a:5,http://a:6,http://a:7,http://a:8,http://a:9,http://a:10,"
	  "http://a:11,http://a:12,http://a:13,http://a:14,http://a:15,http://a:16,http://a:17", "--listen-client-urls: more than 16 URLs" },
	/* members */
	{ "--initial-cluster=", "--initial-cluster: no member given" },
	{ "--initial-cluster http://a:1", "--initial-cluster: 'http://a:1' is not of the form NAME=http://HOST:PORT" },
	{ "--initial-cluster =http://a:1", "--initial-cluster: '=http://a:1' is not of the form NAME=http://HOST:PORT" },
	{ "--initial-cluster a=", "--initial-cluster: '' is not of the form http://HOST:PORT or https://HOST:PORT" },
	{ "--initial-cluster a=http://a:1,,b=http://b:1", "--initial-cluster: '' is not of the form NAME=http://HOST:PORT" },
	{ "--initial-cluster a=http://h:1", "--initial-cluster has no member named 'default' (--name)" },
	{ "--name a --initial-cluster a=http://h:1",
	  "--initial-cluster has a=http://h:1, but --initial-advertise-peer-urls is http://127.0.0.1:2380" },
	{ "--name a --listen-peer-urls http://h:1 --initial-cluster a=http://h:1,b=http://h:1", "--initial-cluster has http://h:1 twice" },
	{ "--name a --listen-peer-urls http://h:1 --initial-cluster a=http://h:1,b=http://g:1,b=http://g:1/", "--initial-cluster has http://g:1 twice" },
	{ "--initial-cluster a=http://h:1,b=http://h:2,c=http://h:3,d=http://h:4,e=http://h:5,f=http://h:6,g=http://h:7,h=http://h:8,i=http://h:9,"
	  "j=http://h:10,k=http://h:11,l=http://h:12,m=http://h:13,n=http://h:14,o=http://h:15,p=http://h:16,q=http://h:17",
	  "--initial-cluster: more than 16 members" },
};

START_TEST(options__what_is_wrong_is_said_in_one_line)
{
	struct options o;
	struct errmsg em;
	ck_assert_msg(parse(&o, wrong[_i].line, &em) == OPTIONS_ERROR, "%s", wrong[_i].line);
	ck_assert_str_eq(em.text, wrong[_i].says);
	ck_assert_ptr_null(strchr(em.text, '\n'));
	options_free(&o);
}
END_TEST

START_TEST(options__a_space_is_part_of_no_number)
{
	char *argv[] = { "holdfastd", "--snapshot-count", " 5", NULL };
	struct options o;
	struct errmsg em;
	ck_assert_int_eq(options_parse(&o, 3, argv, &em), OPTIONS_ERROR);
	ck_assert_str_eq(em.text, "--snapshot-count: ' 5' is not a number");
	options_free(&o);
}
END_TEST

START_TEST(options__a_long_value_is_cut_not_overrun)
{
	static char value[5000];
	char *argv[] = { "holdfastd", "--initial-cluster", value, NULL };
	struct options o;
	struct errmsg em;
	memset(value, 'x', sizeof(value) - 1);
	ck_assert_int_eq(options_parse(&o, 3, argv, &em), OPTIONS_ERROR);
	ck_assert_uint_lt(strlen(em.text), sizeof(em.text));
	options_free(&o);
}
END_TEST

START_TEST(options__two_parses_do_not_meet)
{
	struct options a, b;
	struct errmsg em;
	ck_assert_int_eq(parse(&a, "--auto-compaction-mode revision --auto-compaction-retention 9 --initial-cluster-state existing", &em), OPTIONS_RUN);
	ck_assert_int_eq(parse(&b, "", &em), OPTIONS_RUN);
	ck_assert_uint_eq(a.auto_compaction_revisions, 9);
	ck_assert_uint_eq(b.auto_compaction_revisions, 0);
	ck_assert_uint_eq(b.auto_compaction_ms, 300000);
	ck_assert(!b.existing);
	options_free(&a);
	options_free(&b);
	options_free(&b); /* once more: harmless */
}
END_TEST

/* ---- help ---- */

static char *printed(const char *line, enum options_result want)
{
	static char text[16384];
	FILE *f = tmpfile();
	int out = dup(STDOUT_FILENO);
	struct options o;
	struct errmsg em;
	size_t n;
	fflush(stdout);
	dup2(fileno(f), STDOUT_FILENO);
	ck_assert_int_eq(parse(&o, line, &em), want);
	fflush(stdout);
	dup2(out, STDOUT_FILENO);
	close(out);
	options_free(&o);
	rewind(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = '\0';
	fclose(f);
	return text;
}

START_TEST(options__help_names_every_flag)
{
	static const char *const asked[] = { "--help", "-h", "-help", "--name x --help --nonsense" };
	for (size_t k = 0; k < sizeof(asked) / sizeof(asked[0]); k++) {
		const char *text = printed(asked[k], OPTIONS_EXIT_OK);
		for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
			char flag[64];
			snprintf(flag, sizeof(flag), "  --%s ", flags[i].flag);
			ck_assert_msg(strstr(text, flag) != NULL, "no%s in: %s", flag, text);
		}
		ck_assert_ptr_nonnull(strstr(text, "--initial-cluster "));
		ck_assert_ptr_nonnull(strstr(text, "(default http://127.0.0.1:2379)"));
	}
}
END_TEST

START_TEST(options__version)
{
	ck_assert_ptr_nonnull(strstr(printed("--version", OPTIONS_EXIT_OK), "holdfastd "));
	ck_assert_ptr_nonnull(strstr(printed("-version", OPTIONS_EXIT_OK), "etcd API 3.5."));
}
END_TEST

#define LEN(a) ((int)(sizeof(a) / sizeof((a)[0])))

int main(void)
{
	Suite *s = suite_create("options");
	TCase *t = tcase_create("options");
	SRunner *sr;
	int failed;
	tcase_add_test(t, options__without_flags_one_replica_on_the_usual_ports);
	tcase_add_loop_test(t, options__each_flag_in_all_its_forms, 0, LEN(flags));
	tcase_add_test(t, options__the_last_of_two_counts);
	tcase_add_test(t, options__a_value_may_hold_an_equals_sign);
	tcase_add_test(t, options__the_members_of_a_new_cell);
	tcase_add_test(t, options__own_addresses_may_come_in_any_order);
	tcase_add_test(t, options__what_is_advertised_follows_what_is_listened_on);
	tcase_add_loop_test(t, options__what_is_wrong_is_said_in_one_line, 0, LEN(wrong));
	tcase_add_test(t, options__a_space_is_part_of_no_number);
	tcase_add_test(t, options__a_long_value_is_cut_not_overrun);
	tcase_add_test(t, options__two_parses_do_not_meet);
	tcase_add_test(t, options__help_names_every_flag);
	tcase_add_test(t, options__version);
	suite_add_tcase(s, t);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
