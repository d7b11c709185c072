/* log_test.c: one line an event, whatever is in it. */
#include <check.h>
#include <pthread.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "log/log.h"

static FILE *captured;
static int stderr_fd;

static void capture(void)
{
	captured = tmpfile();
	stderr_fd = dup(STDERR_FILENO);
	dup2(fileno(captured), STDERR_FILENO);
}

/* What was written since capture(); free() it. */
static char *written(void)
{
	char *text = calloc(1, 8 << 20);
	dup2(stderr_fd, STDERR_FILENO);
	close(stderr_fd);
	rewind(captured);
	text[fread(text, 1, (8 << 20) - 1, captured)] = '\0';
	fclose(captured);
	return text;
}

static void check_tail(const char *tail)
{
	char *text = written();
	regex_t re;
	ck_assert_int_eq(regcomp(&re, "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6}Z ", REG_EXTENDED), 0);
	ck_assert_msg(regexec(&re, text, 0, NULL, 0) == 0, "%s", text);
	regfree(&re);
	ck_assert_str_eq(text + strlen("2026-11-29T21:50:28.123456Z "), tail);
	free(text);
}

START_TEST(log__a_line_has_time_level_message_and_fields)
{
	capture();
	log_warn("cannot reach a peer", LOG_ID("member", 0x8e9e05c52164694d), LOG_STR("address", "http://127.0.0.1:2380"), LOG_U64("n", 18446744073709551615u),
		 LOG_I64("i", -5), LOG_ERR("cause", ERR_IO));
	check_tail("WARN cannot reach a peer member=8e9e05c52164694d address=http://127.0.0.1:2380 n=18446744073709551615 i=-5 "
		   "cause=\"holdfast: input/output error\"\n");
}
END_TEST

START_TEST(log__a_line_may_have_no_field)
{
	capture();
	log_error("that is all");
	check_tail("ERROR that is all\n");
}
END_TEST

static const struct {
	const char *value, *is;
} values[] = {
	{ "plain-1.2:3/4", "plain-1.2:3/4" },
	{ "", "\"\"" },
	{ NULL, "\"\"" },
	{ "two words", "\"two words\"" },
	{ "a=b", "\"a=b\"" },
	{ "say \"no\"", "\"say \\\"no\\\"\"" },
	{ "back\\slash", "\"back\\\\slash\"" },
	{ "new\nline\r\t", "\"new\\x0aline\\x0d\\x09\"" },
	{ "\x1b[31m", "\"\\x1b[31m\"" },
	{ "gr\xc3\xbc\xc3\x9f", "\"gr\\xc3\\xbc\\xc3\\x9f\"" },
};

START_TEST(log__values_cannot_break_the_line)
{
	char want[128];
	snprintf(want, sizeof(want), "ERROR m v=%s\n", values[_i].is);
	capture();
	log_error("m", LOG_STR("v", values[_i].value));
	check_tail(want);
}
END_TEST

START_TEST(log__a_slice_may_hold_anything)
{
	capture();
	log_error("m", LOG_SLICE("key", slice_of("a\0b", 3)), LOG_SLICE("none", slice_of(NULL, 0)));
	check_tail("ERROR m key=\"a\\x00b\" none=\"\"\n");
}
END_TEST

START_TEST(log__what_is_too_long_is_cut)
{
	static char value[5000];
	char *text;
	memset(value, 'x', sizeof(value) - 1);
	capture();
	log_error("m", LOG_STR("v", value), LOG_STR("more", value));
	text = written();
	ck_assert_uint_eq(strlen(text), LOG_LINE_MAX);
	ck_assert_str_eq(text + LOG_LINE_MAX - 4 - 1, "x...\n");
	free(text);
}
END_TEST

/* The last line only is looked at by the caller. */
static char *written_as_json(void)
{
	char *text = written();
	regex_t re;
	ck_assert_int_eq(regcomp(&re, "^\\{\"level\":\"[a-z]+\",\"ts\":\"[0-9T:.-]+Z\",\"msg\":\"", REG_EXTENDED), 0);
	ck_assert_msg(regexec(&re, text, 0, NULL, 0) == 0, "%s", text);
	regfree(&re);
	return text;
}

START_TEST(log__as_json)
{
	char *text;
	log_set_format(LOG_FORMAT_JSON);
	capture();
	log_warn("cannot \"reach\"", LOG_ID("member", 0x8e9e05c52164694d), LOG_SLICE("key", slice_of("a\0\xff\n\\", 5)), LOG_U64("n", 18446744073709551615u),
		 LOG_I64("i", -5), LOG_ERR("cause", ERR_IO), LOG_STR("none", NULL));
	text = written_as_json();
	ck_assert_str_eq(strstr(text, "\"msg\""), "\"msg\":\"cannot \\\"reach\\\"\",\"member\":\"8e9e05c52164694d\",\"key\":\"a\\u0000\\u00ff\\u000a\\\\\","
						"\"n\":18446744073709551615,\"i\":-5,\"cause\":\"holdfast: input/output error\",\"none\":\"\"}\n");
	free(text);
}
END_TEST

/* Cut at every place: what is left is a whole object. */
START_TEST(log__json_that_is_cut_is_whole)
{
	static char value[3000];
	for (size_t len = 1700; len < 2200; len++) {
		char *text;
		size_t n;
		memset(value, len % 3 == 0 ? '\n' : 'x', sizeof(value));
		value[len % 3 == 0 ? len / 6 : len] = '\0';
		log_set_format(LOG_FORMAT_JSON);
		capture();
		log_error("m", LOG_STR("v", value), LOG_U64("n", 12345678901234567890u), LOG_STR("more", value));
		text = written_as_json();
		n = strlen(text);
		ck_assert_uint_le(n, LOG_LINE_MAX);
		ck_assert_msg(text[n - 1] == '\n' && text[n - 2] == '}' && (text[n - 3] == '"' || text[n - 3] == '0'), "%zu: %s", len, text + n - 20);
		free(text);
	}
}
END_TEST

START_TEST(log__to_files)
{
	char a[] = "/tmp/log_test_XXXXXX", b[] = "/tmp/log_test_XXXXXX", line[256];
	const char *outputs[] = { a, b }, *bad[] = { a, "/nowhere/at/all" };
	struct errmsg em;
	close(mkstemp(a));
	close(mkstemp(b));
	ck_assert_int_eq(log_set_outputs(bad, 2, &em), ERR_IO);
	ck_assert_str_eq(em.text, "cannot open log output '/nowhere/at/all': No such file or directory");
	ck_assert_int_eq(log_set_outputs(outputs, 2, &em), ERR_OK);
	log_error("to both");
	for (size_t i = 0; i < 2; i++) {
		FILE *f = fopen(outputs[i], "r");
		ck_assert_ptr_nonnull(fgets(line, sizeof(line), f));
		ck_assert_ptr_nonnull(strstr(line, "ERROR to both\n"));
		fclose(f);
		unlink(outputs[i]);
	}
	ck_assert_int_eq(log_set_outputs(outputs, LOG_OUTPUTS_MAX + 1, &em), ERR_IO);
}
END_TEST

START_TEST(log__the_level_decides)
{
	char *text;
	log_set_level(LOG_WARN);
	capture();
	log_debug("no");
	log_info("no");
	log_warn("yes");
	log_error("yes");
	text = written();
	ck_assert_ptr_null(strstr(text, "no"));
	ck_assert_ptr_nonnull(strstr(text, "WARN yes\n"));
	ck_assert_ptr_nonnull(strstr(text, "ERROR yes\n"));
	free(text);
	ck_assert(!log_enabled(LOG_INFO));
	ck_assert(log_enabled(LOG_ERROR));
}
END_TEST

START_TEST(log__fields_of_a_level_that_is_off_are_not_worked_out)
{
	int n = 0;
	log_set_level(LOG_ERROR);
	log_info("m", LOG_I64("n", ++n));
	ck_assert_int_eq(n, 0);
}
END_TEST

START_TEST(log__levels_by_name)
{
	static const struct {
		const char *name;
		int level;
	} names[] = { { "debug", LOG_DEBUG }, { "info", LOG_INFO }, { "warn", LOG_WARN }, { "error", LOG_ERROR }, { "panic", LOG_ERROR },
		      { "fatal", LOG_ERROR }, { "INFO", -1 }, { "", -1 }, { "warning", -1 } };
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		enum log_level level = LOG_DEBUG;
		ck_assert_int_eq(log_parse_level(names[i].name, &level), names[i].level >= 0);
		if (names[i].level >= 0)
			ck_assert_int_eq((int)level, names[i].level);
	}
}
END_TEST

static void *write_lines(void *arg)
{
	(void)arg;
	for (uint64_t i = 0; i < 500; i++)
		log_error("a line of some length", LOG_STR("filler", "0123456789012345678901234567890123456789"), LOG_U64("end", 7));
	return NULL;
}

START_TEST(log__lines_of_threads_do_not_mix)
{
	pthread_t threads[4];
	size_t lines = 0;
	char *text, *save = NULL;
	capture();
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, write_lines, NULL), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	text = written();
	for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save), lines++)
		ck_assert_str_eq(l + strlen("2026-11-29T21:50:28.123456Z "),
				 "ERROR a line of some length filler=0123456789012345678901234567890123456789 end=7");
	ck_assert_uint_eq(lines, 2000);
	free(text);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("log");
	TCase *t = tcase_create("log");
	SRunner *sr;
	int failed;
	tcase_add_test(t, log__a_line_has_time_level_message_and_fields);
	tcase_add_test(t, log__a_line_may_have_no_field);
	tcase_add_loop_test(t, log__values_cannot_break_the_line, 0, (int)(sizeof(values) / sizeof(values[0])));
	tcase_add_test(t, log__a_slice_may_hold_anything);
	tcase_add_test(t, log__what_is_too_long_is_cut);
	tcase_add_test(t, log__as_json);
	tcase_add_test(t, log__json_that_is_cut_is_whole);
	tcase_add_test(t, log__to_files);
	tcase_add_test(t, log__the_level_decides);
	tcase_add_test(t, log__fields_of_a_level_that_is_off_are_not_worked_out);
	tcase_add_test(t, log__levels_by_name);
	tcase_add_test(t, log__lines_of_threads_do_not_mix);
	suite_add_tcase(s, t);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
